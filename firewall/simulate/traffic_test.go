package simulate_test

import (
	"cmp"
	"net/netip"
	"slices"

	"gatehouse/firewall"
)

// outside is addresses that are far away, by family.
var outside = map[bool][]string{false: {"8.8.4.4", "1.1.1.1", "9.9.9.9", "203.0.113.9"}, true: {"2001:4860::8", "2606::1"}}

// packet is a random packet; not every one can be told from others.
func (r *draw) packet(number int) firewall.Packet {
	p := r.addressed(number)
	if len(r.facts.Blocked) > 0 && r.chance(15) {
		r.shut(&p)
	}
	r.shape(&p)
	return p
}

// addressed is a packet that goes from somewhere to somewhere.
func (r *draw) addressed(number int) firewall.Packet {
	p := firewall.Packet{In: pick(r, devices...), SrcPort: uint16(20000 + number)}
	v6 := r.family()
	p.Src, p.Dst = r.addr(v6), r.addr(v6)
	if own := slices.DeleteFunc(slices.Clone(r.facts.Addrs[p.In]), func(q netip.Prefix) bool { return q.Addr().Is6() != v6 }); len(own) > 0 && r.chance(75) {
		p.Src = near(r, pick(r, own...)) // an honest source, most often
	} else if p.In == "eth0" && r.chance(60) {
		p.Src = addr(pick(r, outside[v6]...))
	}
	if f, ok := r.anyForward(v6); ok && r.chance(25) {
		p.Dst = cmp.Or(f.Dst.Addr, p.Dst)
		if in, _ := r.cfg.Interface(f.In); f.Dst.Kind == firewall.EndIfAddr {
			for _, q := range r.facts.Addrs[in.Device] {
				if q.Addr().Is6() == v6 {
					p.Dst = q.Addr()
				}
			}
		}
		p.DstPort = f.Ports.From + uint16(r.IntN(f.Ports.Len()+1))
	}
	if len(r.cfg.Rules) > 0 && r.chance(50) {
		r.aim(&p, pick(r, r.cfg.Rules...), v6)
		return p
	}
	p.Proto = pick[uint8](r, 6, 6, 6, 17, 17, 17, 1, 1, 50, 47, 2, 132, 200)
	if p.DstPort == 0 {
		p.DstPort = pick(r, corners...) + pick[uint16](r, 0, 0, 0, 1)
	}
	if r.chance(15) {
		p.SrcPort = pick(r, corners...)
	}
	if v6 && p.Proto <= 2 {
		p.Proto = 58
	}
	if own := r.facts.Addrs[p.In]; r.chance(10) && len(own) > 0 { // an administrator
		at := pick(r, own...)
		p.Src, p.Dst, p.Proto, p.DstPort = near(r, at), at.Addr(), 6, r.cfg.Admin.HTTPS
		if there := r.facts.Addrs[pick(r, devices...)]; len(there) > 0 && r.chance(30) { // by another port's address
			if a := pick(r, there...).Addr(); a.Is4() == p.Src.Is4() {
				p.Dst = a
			}
		}
	}
	return p
}

// aim makes it likely that the packet meets the rule, or just misses it.
func (r *draw) aim(p *firewall.Packet, rule firewall.Rule, v6 bool) {
	if in, ok := r.cfg.Interface(rule.In); ok && r.chance(90) {
		if in.Device != p.In {
			p.In = in.Device
			for _, q := range r.facts.Addrs[p.In] {
				if q.Addr().Is6() == v6 && r.chance(60) {
					p.Src = near(r, q)
				}
			}
		}
	}
	if a, ok := r.sample(rule.Src, v6); ok && r.chance(50) {
		p.Src = a
	}
	if a, ok := r.sample(rule.Dst, v6); ok {
		p.Dst = a
	}
	p.Proto = 6
	if ns, _ := rule.Proto.Numbers(v6); len(ns) > 0 {
		p.Proto = pick(r, ns...)
	}
	if v6 && p.Proto == 2 {
		p.Proto = 17
	}
	port := func(ps firewall.Ports, old uint16) uint16 {
		if rs := r.cfg.Numbers(ps); len(rs) > 0 {
			one := pick(r, rs...)
			return pick(r, one.From, one.To, one.From-1, one.To+1)
		}
		return old
	}
	p.SrcPort, p.DstPort = port(rule.SrcPorts, p.SrcPort), port(rule.DstPorts, p.DstPort)
}

// sample is an address in, or just beside, a source or destination.
func (r *draw) sample(e firewall.Ends, v6 bool) (netip.Addr, bool) {
	m := pick(r, e.Of...)
	var rs []firewall.AddrRange
	switch m.Kind {
	case firewall.EndAlias:
		rs = r.cfg.AliasAddrs(m.Name)
	case firewall.EndIfNet, firewall.EndIfAddr, firewall.EndSelf:
		in, ok := r.cfg.Interface(m.Name)
		for d, ps := range r.facts.Addrs {
			for _, q := range ps {
				if !ok || d == in.Device {
					rs = append(rs, firewall.AddrRange{From: q.Addr(), To: q.Addr()})
				}
			}
		}
	default:
		if one, ok := m.Range(); ok {
			rs = []firewall.AddrRange{one}
		}
	}
	rs = slices.DeleteFunc(slices.Clone(rs), func(one firewall.AddrRange) bool { return one.From.Is6() != v6 })
	if len(rs) == 0 {
		return netip.Addr{}, false
	}
	rs = firewall.Merge(rs) // in one order, so that a seed repeats
	one := pick(r, rs...)
	a := pick(r, one.From, one.To, one.From.Next(), one.To.Prev(), one.From.Prev(), one.To.Next())
	return a, a.IsValid() && (!v6 || !a.IsUnspecified() && !a.IsLoopback())
}

func (r *draw) anyForward(v6 bool) (firewall.Forward, bool) {
	of := slices.DeleteFunc(slices.Clone(r.cfg.Forwards), func(f firewall.Forward) bool { return f.To.Is6() != v6 })
	if len(of) == 0 {
		return firewall.Forward{}, false
	}
	return pick(r, of...), true
}

// shape gives a packet what its protocol has.
func (r *draw) shape(p *firewall.Packet) {
	if p.Proto != 6 && p.Proto != 17 && p.Proto != 132 {
		p.SrcPort, p.DstPort = 0, 0
	}
	if p.Dst.IsMulticast() { // a group that every host has joined
		p.Dst = addr(map[bool]string{false: "224.0.0.1", true: "ff02::1"}[p.Dst.Is6()])
	}
	switch p.Proto {
	case 1:
		p.ICMP = pick[uint8](r, 8, 8, 8, 13, 0, 3, 5, 10, 11, 17)
	case 58:
		p.ICMP = cmp.Or(p.ICMP, pick[uint8](r, 128, 128, 128, 129, 1, 2, 4, 133, 134, 135, 136, 137, 130, 143))
		if p.ICMP >= 130 && p.ICMP <= 132 || p.ICMP == 143 { // listener messages never leave the link
			p.Src, p.Dst = addr("fe80::5"), addr("ff02::1")
		}
	}
}
