package simulate

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"gatehouse/firewall"
)

// network is the addresses of the box and the way to every other.
type network struct {
	facts  firewall.Facts
	own    map[netip.Addr][]string // the devices that have an address
	shared map[netip.Addr][]string // broadcast and subnet-router anycast addresses: they reach the box but are not its own
	routes map[netip.Prefix]hops
	bits   [2][]int // the lengths of prefixes in routes, longest first: IPv4, IPv6
}

// hops is the devices of the best routes to one network: more than one when they cost the same.
type hops struct {
	metric  int
	devices []string
}

var (
	limited   = netip.MustParseAddr("255.255.255.255")
	multicast = netip.MustParsePrefix("224.0.0.0/24") // what stays on a link (RFC 5771)
	linkLocal = netip.MustParsePrefix("fe80::/64")    // on every link (RFC 4291, 2.5.6)
)

func newNetwork(facts firewall.Facts) network {
	n := network{facts: facts, own: map[netip.Addr][]string{}, shared: map[netip.Addr][]string{}, routes: map[netip.Prefix]hops{}}
	for _, r := range facts.Routes {
		n.route(r)
	}
	for _, device := range slices.Sorted(maps.Keys(facts.Addrs)) {
		for _, p := range facts.Addrs[device] {
			a := p.Addr()
			n.own[a] = append(n.own[a], device)
			metric := 0
			switch {
			case a.Is4() && p.Bits() < 31:
				n.shared[firewall.LastAddr(p)] = append(n.shared[firewall.LastAddr(p)], device)
			case a.Is6() && p.Bits() < 127:
				n.shared[p.Masked().Addr()] = append(n.shared[p.Masked().Addr()], device) // RFC 4291, 2.6.1
			}
			if a.Is6() {
				metric = 256 // what the kernel gives connected networks
			}
			n.route(firewall.Route{Dst: p, Device: device, Metric: metric})
		}
	}
	n.bits = lengths(maps.Keys(n.routes))
	return n
}

// lengths is those of the prefixes, longest first: IPv4, IPv6.
func lengths(ps iter.Seq[netip.Prefix]) (out [2][]int) {
	var seen [2][129]bool
	for p := range ps {
		seen[family(p.Addr())][p.Bits()] = true
	}
	for i := range seen {
		for bits, is := range slices.Backward(seen[i][:]) {
			if is {
				out[i] = append(out[i], bits)
			}
		}
	}
	return out
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// route adds a route unless a cheaper one to the same network is there.
func (n network) route(r firewall.Route) {
	key := r.Dst.Masked()
	h, ok := n.routes[key]
	switch {
	case !ok || r.Metric < h.metric:
		h = hops{r.Metric, []string{r.Device}}
	case r.Metric == h.metric && !slices.Contains(h.devices, r.Device):
		h.devices = append(h.devices, r.Device)
	}
	n.routes[key] = h
}

// lookup is the devices that an address is reached through, nil when there is no route.
func (n network) lookup(a netip.Addr) []string {
	for _, bits := range n.bits[family(a)] {
		if p, err := a.Prefix(bits); err == nil {
			if h, ok := n.routes[p]; ok {
				return h.devices
			}
		}
	}
	return nil
}

// has reports whether an address belongs to this device.
func (n network) has(a netip.Addr, device string) bool { return slices.Contains(n.own[a], device) }

// local reports whether an address is the box's own, for a packet that entered
// by this device: a link-local address is the one on the same link.
func (n network) local(a netip.Addr, in string) bool {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return n.has(a, in)
	}
	return len(n.own[a]) > 0 || a.IsLoopback()
}

// heard reports whether an IPv4 packet is for the box alone or for everybody on a
// link; 0.0.0.0 is an old way to write that, though no packet gets there by it.
func (n network) heard(p firewall.Packet) bool {
	return n.local(p.Dst, p.In) || n.shared[p.Dst] != nil || p.Dst == limited || p.Dst.IsUnspecified()
}

// returns is the strict reverse path check (RFC 3704, 2.2): the source must be
// reached through the device the packet came in by. Clients without an address pass.
func (n network) returns(p firewall.Packet) bool {
	switch {
	case p.Src == netip.IPv4Unspecified() && (p.Dst == limited || multicast.Contains(p.Dst)):
		return true
	case p.Src.Is6() && p.Src.IsUnspecified() && p.Proto == 58 && (p.Dst.IsLinkLocalUnicast() || p.Dst.IsLinkLocalMulticast()):
		return true
	case n.local(p.Src, p.In) || p.Src.Is6() && n.shared[p.Src] != nil:
		return false
	case n.shared[p.Src] != nil: // the kernel takes a broadcast address as one behind its own port
		return slices.Contains(n.shared[p.Src], p.In)
	case linkLocal.Contains(p.Src):
		return true
	}
	return slices.Contains(n.lookup(p.Src), p.In)
}

// way is where a packet goes: to the box, or out by a device ("" without a
// route). Multicast is never forwarded; the box is taken to have joined the group.
func (n network) way(p firewall.Packet) (local bool, out string) {
	switch {
	case n.local(p.Dst, p.In) || n.shared[p.Dst] != nil || p.Dst == limited || p.Dst.IsMulticast():
		return true, ""
	case p.Src == netip.IPv4Unspecified() && p.Dst == p.Src: // the old way to write a broadcast
		return true, ""
	case linkLocal.Contains(p.Dst), p.Dst.IsLinkLocalUnicast() && p.Dst.Is6() && slices.Contains(n.lookup(p.Dst), p.In):
		return false, p.In
	case p.Dst.IsLinkLocalUnicast() && p.Dst.Is6(): // never to another link
		return false, ""
	}
	if devices := n.lookup(p.Dst); len(devices) > 0 {
		return false, devices[0]
	}
	return false, ""
}

// impossible reports whether the kernel's routing drops a packet by itself for
// its addresses (ip_route_input_slow, ip6_forward).
func (n network) impossible(p firewall.Packet, out string) bool {
	if p.Src.Is6() {
		return out != "" && (p.Src.IsUnspecified() || p.Src.IsLinkLocalUnicast() && out != p.In)
	}
	switch {
	case p.Src.IsMulticast(), p.Src == limited, p.Src.IsLoopback(), p.Dst.IsLoopback():
		return true
	case n.local(p.Src, p.In), n.shared[p.Src] != nil && out == p.In:
		return true
	case p.Src.IsUnspecified():
		return p.Dst != limited && p.Dst != p.Src && !multicast.Contains(p.Dst)
	}
	return p.Dst.IsUnspecified()
}

// impossible6 reports whether the kernel drops an IPv6 packet before any rule
// sees it (ip6_rcv_core; RFC 4291, 2.5.3 and 2.7).
func impossible6(p firewall.Packet) bool {
	return p.Src.IsLoopback() || p.Dst.IsLoopback() || p.Src.IsMulticast() || p.Src.Is4In6() ||
		p.Dst.IsUnspecified() || p.Dst.IsInterfaceLocalMulticast()
}
