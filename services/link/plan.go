package link

import (
	"fmt"
	"net/netip"
	"slices"

	"gatehouse/firewall"
	"gatehouse/services/link/wan"
)

// firstMetric is the metric of the first WAN's routes, and otherMetric that of
// the first other interface with a gateway; each further one gets one more, so
// that two default routes never replace each other, and a WAN's wins.
const firstMetric, otherMetric = 100, 200

// want is how one configured interface should be.
type want struct {
	firewall.Interface
	off    bool // switched off: no address, no route
	addrs  []netip.Prefix
	routes []route
	mtu    int      // 0 = as the port is
	notes  []string // what could not be honoured, for the page
}

// wishes is how every configured interface should be. leases are the granted
// ones by device; keep are further addresses to leave in place, by device.
func wishes(cfg firewall.Config, leases map[string]wan.Lease, keep map[string][]netip.Prefix) []want {
	var list []want
	metrics := map[bool]int{true: firstMetric, false: otherMetric}
	for _, i := range cfg.Interfaces {
		w := want{Interface: i, off: !i.On, mtu: i.MTU}
		if i.On {
			w.static()
			if lease, ok := leases[i.Device]; ok && dynamic(i) {
				w.lease(lease, inside(cfg))
			}
		}
		for n := range w.routes {
			w.routes[n].metric = metrics[i.Role == firewall.WAN]
		}
		metrics[i.Role == firewall.WAN]++
		list = append(list, w)
	}
	for n := range list {
		for _, p := range keep[list[n].Device] {
			// On a WAN it would be an address of the wrong side, for forwards too.
			if !list[n].off && list[n].Role != firewall.WAN && !slices.Contains(list[n].addrs, p) && !claimed(list, n, p) {
				list[n].addrs = append(list[n].addrs, p)
			}
		}
	}
	return list
}

// dynamic reports whether the interface runs the DHCP client. A valid
// configuration has it on a WAN only; a box with a single port, before the
// wizard, runs it on the port that shows its pages.
func dynamic(i firewall.Interface) bool { return i.On && i.V4.Mode == firewall.DHCP }

// claimed reports whether another interface than list[n] has a network that p
// overlaps: one network on two ports leaves the second dead.
func claimed(list []want, n int, p netip.Prefix) bool {
	for m, w := range list {
		if m != n && slices.ContainsFunc(w.addrs, p.Overlaps) {
			return true
		}
	}
	return false
}

// inside are the networks of the interfaces that are no WAN.
func inside(cfg firewall.Config) (list []netip.Prefix) {
	for _, i := range cfg.Interfaces {
		if i.Role != firewall.WAN && i.On && i.V4.Mode == firewall.Static {
			list = append(list, i.V4.Addr)
		}
	}
	return list
}

func (w *want) static() {
	def := func(zero, via netip.Addr) {
		if via.IsValid() {
			w.routes = append(w.routes, route{dst: netip.PrefixFrom(zero, 0), via: via, device: w.Device})
		}
	}
	if w.V4.Mode == firewall.Static {
		w.addrs = append(w.addrs, w.V4.Addr)
		def(netip.IPv4Unspecified(), w.V4.Gateway)
	}
	if w.V6.Mode == firewall.Static {
		w.addrs = append(w.addrs, w.V6.Addr)
		def(netip.IPv6Unspecified(), w.V6.Gateway)
	}
}

func (w *want) lease(l wan.Lease, inside []netip.Prefix) {
	l, w.notes = l.Beside(inside)
	w.addrs = append(w.addrs, l.Addr)
	for _, way := range l.Ways() {
		w.routes = append(w.routes, route{dst: way.Dst, via: way.Via, device: w.Device})
	}
	switch {
	case w.mtu != 0 || l.MTU == 0:
	case l.MTU < 1280 && w.V6.Mode != firewall.None && w.V6.Mode != "":
		// Linux takes IPv6 off a port below this (RFC 8200 §5).
		w.notes = append(w.notes, fmt.Sprintf("The provider's MTU %d is not used: IPv6 needs 1280.", l.MTU))
	default:
		w.mtu = l.MTU
	}
}

// touched is what we have done to devices since we started, so that it can be undone.
type touched struct {
	mtu   map[string]int                   // what it was before we changed it
	addrs map[string]map[netip.Prefix]bool // set by us
	on    map[string]bool                  // switched on by us
}

// steps leads from what the kernel has to what is wanted: new things first, so
// that nobody is cut off by the way; then what must go. Devices without a role
// lose what we gave them, and are switched off when we had them on: whatever
// else is up on this machine was never ours. A configuration without any interface touches nothing.
func steps(list []want, have snapshot, t touched) []step {
	if len(list) == 0 {
		return nil
	}
	var make, drop []step
	for _, w := range list {
		d, ok := have.device(w.Device)
		if !ok {
			continue
		}
		make = append(make, making(w, d, have, t)...)
		drop = append(drop, dropping(w, d, have)...)
	}
	for _, d := range have.devices {
		if !d.port() || slices.ContainsFunc(list, func(w want) bool { return w.Device == d.name }) {
			continue
		}
		drop = append(drop, leaving(d, have, t)...)
	}
	return append(make, drop...)
}

func making(w want, d device, have snapshot, t touched) (list []step) {
	if w.off {
		return nil
	}
	if !d.up {
		list = append(list, step{device: d.name, up: true})
	}
	mtu := w.mtu
	if mtu == 0 {
		mtu = t.mtu[d.name]
	}
	if mtu != 0 && mtu != d.mtu {
		list = append(list, step{device: d.name, mtu: mtu})
	}
	for _, p := range w.addrs {
		if !d.has(p) {
			list = append(list, step{device: d.name, add: p})
		}
	}
	for _, r := range w.routes {
		if !slices.ContainsFunc(have.routes, r.is) {
			list = append(list, step{device: d.name, set: &r, onlink: r.via.IsValid() && !r.via.IsLinkLocalUnicast() && !w.reaches(r.via)})
		}
	}
	return list
}

// dropping takes away what a port with a role has and should not have.
func dropping(w want, d device, have snapshot) (list []step) {
	for _, r := range have.routes {
		if r.device == d.name && settled(r.proto) && !slices.ContainsFunc(w.routes, r.is) {
			list = append(list, step{device: d.name, cut: &r})
		}
	}
	for _, p := range d.prefixes() {
		if !slices.Contains(w.addrs, p) {
			list = append(list, step{device: d.name, del: p})
		}
	}
	if w.off && d.up {
		list = append(list, step{device: d.name, down: true})
	}
	return list
}

func leaving(d device, have snapshot, t touched) (list []step) {
	for _, r := range have.routes {
		if r.device == d.name && r.proto == protocol {
			list = append(list, step{device: d.name, cut: &r})
		}
	}
	for _, p := range d.prefixes() {
		if t.addrs[d.name][p] {
			list = append(list, step{device: d.name, del: p})
		}
	}
	if mtu := t.mtu[d.name]; mtu != 0 && mtu != d.mtu {
		list = append(list, step{device: d.name, mtu: mtu})
	}
	if d.up && t.on[d.name] {
		list = append(list, step{device: d.name, down: true})
	}
	return list
}

// settled reports whether routes of the protocol (linux/rtnetlink.h) on a port
// with a role are for us to decide: ours, and those set by hand, by ra or dhcp.
// Those of the kernel and of routing daemons are not.
func settled(proto int) bool { return slices.Contains([]int{protocol, 3, 4, 9, 16}, proto) }

// is reports whether the two are one route; who set it does not matter.
func (r route) is(o route) bool {
	return r.dst == o.dst && r.via == o.via && r.device == o.device && r.metric == o.metric
}

func (d device) has(p netip.Prefix) bool {
	return slices.ContainsFunc(d.addrs, func(a address) bool { return a.Prefix == p })
}

func (w *want) reaches(a netip.Addr) bool {
	return slices.ContainsFunc(w.addrs, func(p netip.Prefix) bool { return p.Contains(a) })
}

// problems is what is wrong with the port, for the page.
func (w *want) problems(have snapshot) []string {
	d, ok := have.device(w.Device)
	if !ok {
		return []string{fmt.Sprintf("The port %s is not there.", w.Device)}
	}
	list := slices.Clone(w.notes)
	for _, a := range d.addrs {
		if a.conflict {
			list = append(list, fmt.Sprintf("Another device uses the address %s.", a.Addr()))
		}
	}
	return list
}
