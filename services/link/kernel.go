package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// protocol marks our routes in the kernel (services.md 8.1): routing daemons
// leave a stranger's protocol alone, and we leave theirs.
const protocol = 200

// snapshot is what the kernel had at one moment.
type snapshot struct {
	devices []device
	routes  []route // main table, unicast, one for each next hop
}

type device struct {
	index   int
	name    string
	kind    string // netlink's link type: device, veth, vlan, bridge ...
	mac     net.HardwareAddr
	mtu     int
	up      bool // switched on
	carrier bool // switched on and the cable is in
	master  bool // enslaved to a bridge or bond
	ether   bool
	addrs   []address
}

type address struct {
	netip.Prefix
	conflict bool // duplicate address detection failed (RFC 4862)
}

type route struct {
	dst    netip.Prefix
	via    netip.Addr
	device string
	metric int
	proto  int
}

func (s snapshot) device(name string) (device, bool) {
	i := slices.IndexFunc(s.devices, func(d device) bool { return d.name == name })
	if i < 0 {
		return device{}, false
	}
	return s.devices[i], true
}

// portKinds are the link types that can be a port: real hardware, and what
// containers and virtual machines have in its place.
var portKinds = []string{"device", "veth", "macvlan", "ipvlan", "bond", "vlan"}

// port reports whether the device can be given a role: it speaks Ethernet, is
// no loopback, bridge or tunnel, and belongs to no bridge or bond.
func (d device) port() bool {
	return d.ether && len(d.mac) == 6 && !d.master && slices.Contains(portKinds, d.kind)
}

// prefixes are the device's addresses without link-local IPv6 ones, which the kernel makes.
func (d device) prefixes() (list []netip.Prefix) {
	for _, a := range d.addrs {
		if !a.Addr().Is6() || !a.Addr().IsLinkLocalUnicast() {
			list = append(list, a.Prefix)
		}
	}
	return list
}

// whole repeats a list call that the kernel says was interrupted by a change:
// the library returns what it has, with an error, and does not try again.
func whole[T any](list func() (T, error)) (T, error) {
	var got T
	var err error
	for range 5 {
		if got, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return got, err
}

// look reads devices, addresses and main routes.
func look() (snapshot, error) {
	var s snapshot
	links, err := whole(netlink.LinkList)
	if err != nil {
		return s, fmt.Errorf("list ports: %w", err)
	}
	addrs, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return s, fmt.Errorf("list addresses: %w", err)
	}
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return s, fmt.Errorf("list routes: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		d := deviceOf(l)
		names[d.index] = d.name
		for _, a := range addrs {
			if a.LinkIndex == d.index {
				d.addrs = append(d.addrs, address{prefixOf(a.IPNet), a.Flags&unix.IFA_F_DADFAILED != 0})
			}
		}
		slices.SortFunc(d.addrs, func(a, b address) int { return a.Addr().Compare(b.Addr()) })
		s.devices = append(s.devices, d)
	}
	for _, r := range routes {
		s.routes = append(s.routes, routesOf(r, names)...)
	}
	return s, nil
}

func deviceOf(l netlink.Link) device {
	a := l.Attrs()
	return device{index: a.Index, name: a.Name, kind: l.Type(), mac: a.HardwareAddr, mtu: a.MTU,
		up: a.Flags&net.FlagUp != 0, carrier: a.Flags&net.FlagUp != 0 && a.RawFlags&unix.IFF_LOWER_UP != 0,
		master: a.MasterIndex != 0,
		ether:  a.EncapType == "ether" && a.Flags&net.FlagLoopback == 0}
}

func routesOf(r netlink.Route, names map[int]string) (list []route) {
	if r.Type != unix.RTN_UNICAST {
		return nil
	}
	dst := prefixOf(r.Dst)
	if !dst.IsValid() {
		dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if r.Family == netlink.FAMILY_V6 {
			dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	}
	one := func(gw net.IP, index int) {
		via, _ := netip.AddrFromSlice(gw)
		list = append(list, route{dst, via.Unmap(), names[index], r.Priority, int(r.Protocol)})
	}
	for _, hop := range r.MultiPath {
		one(hop.Gw, hop.LinkIndex)
	}
	if len(r.MultiPath) == 0 {
		one(r.Gw, r.LinkIndex)
	}
	return list
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, size := n.Mask.Size()
	if !ok || size == 0 {
		return netip.Prefix{}
	}
	if a = a.Unmap(); a.Is4() && size == 128 {
		ones -= 96
	}
	return netip.PrefixFrom(a, ones)
}

func netOf(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// step is one thing to do: the field that is set says what.
type step struct {
	device   string
	up, down bool
	mtu      int
	add, del netip.Prefix
	set, cut *route
	onlink   bool // of set: the gateway is outside the port's networks
}

// String says the step as a person would.
func (s step) String() string {
	switch {
	case s.up:
		return "switch on " + s.device
	case s.down:
		return "switch off " + s.device
	case s.mtu != 0:
		return fmt.Sprintf("set MTU %d on %s", s.mtu, s.device)
	case s.add.IsValid():
		return fmt.Sprintf("set address %s on %s", s.add, s.device)
	case s.del.IsValid():
		return fmt.Sprintf("remove address %s from %s", s.del, s.device)
	case s.set != nil:
		return fmt.Sprintf("set route to %s by %s", s.set.dst, s.device)
	}
	return fmt.Sprintf("remove route to %s by %s", s.cut.dst, s.device)
}

// take does one step on the device with that index.
func take(s step, index int) error {
	l := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index, Name: s.device}}
	var err error
	switch {
	case s.up:
		err = netlink.LinkSetUp(l)
	case s.down:
		err = netlink.LinkSetDown(l)
	case s.mtu != 0:
		err = netlink.LinkSetMTU(l, s.mtu)
	case s.add.IsValid():
		err = netlink.AddrReplace(l, &netlink.Addr{IPNet: netOf(s.add)})
	case s.del.IsValid():
		err = gone(netlink.AddrDel(l, &netlink.Addr{IPNet: netOf(s.del)}))
	case s.set != nil:
		err = netlink.RouteReplace(kernelRoute(*s.set, index, s.onlink))
	default:
		r := kernelRoute(*s.cut, index, false)
		r.Protocol = netlink.RouteProtocol(s.cut.proto)
		err = gone(netlink.RouteDel(r))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

// gone takes it as done that what should go is not there.
func gone(err error) error {
	for _, e := range []error{unix.EADDRNOTAVAIL, unix.ESRCH, unix.ENOENT, unix.ENODEV} {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}

func kernelRoute(r route, index int, onlink bool) *netlink.Route {
	k := &netlink.Route{LinkIndex: index, Dst: netOf(r.dst), Priority: r.metric, Protocol: protocol, Table: unix.RT_TABLE_MAIN}
	if r.via.IsValid() {
		k.Gw = r.via.AsSlice()
	} else if r.dst.Addr().Is4() {
		k.Scope = netlink.SCOPE_LINK
	}
	if onlink {
		k.Flags = int(netlink.FLAG_ONLINK)
	}
	return k
}

// safeName reports whether a device name can be a part of a path.
func safeName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) < unix.IFNAMSIZ && !strings.ContainsAny(name, "/\x00")
}
