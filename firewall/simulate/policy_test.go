package simulate_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"gatehouse/firewall"
)

// worlds is what the box has when a policy is tried: far from what the policies
// themselves say, since facts decide.
var worlds = []firewall.Facts{
	{Addrs: map[string][]netip.Prefix{
		"eth0": {prefix("11.0.0.2/24"), prefix("2a00:1::2/64"), prefix("fe80::10/64")},
		"eth1": {prefix("192.168.1.1/24"), prefix("192.168.3.129/25"), prefix("fd00:1::1/64"), prefix("fe80::1/64")},
		"eth2": {prefix("192.168.2.1/24"), prefix("2a00:2::1/64"), prefix("fe80::1/64")},
		"eth3": {prefix("172.16.0.1/30"), prefix("fe80::13/64")}},
		Routes: []firewall.Route{
			{Dst: prefix("0.0.0.0/0"), Via: addr("11.0.0.1"), Device: "eth0"}, {Dst: prefix("::/0"), Via: addr("fe80::99"), Device: "eth0"},
			{Dst: prefix("10.50.0.0/16"), Via: addr("192.168.1.254"), Device: "eth1"}, {Dst: prefix("2a00:5::/48"), Via: addr("2a00:2::9"), Device: "eth2"}}},
	{Addrs: map[string][]netip.Prefix{ // a private address outside, a second way out, no IPv6 default
		"eth0": {prefix("10.64.0.2/22"), prefix("2a00:1::2/127"), prefix("fe80::10/64")},
		"eth1": {prefix("192.168.0.1/16"), prefix("fd00:1::1/64"), prefix("fe80::11/64")},
		"eth2": {prefix("8.8.8.1/31"), prefix("2a00:2::1/64"), prefix("2a00:2:0:1::1/64"), prefix("fe80::12/64")},
		"eth3": {prefix("fe80::13/64")}}, // a port has it as soon as IPv6 is on
		Routes: []firewall.Route{
			{Dst: prefix("0.0.0.0/0"), Via: addr("10.64.0.1"), Device: "eth0"}, {Dst: prefix("128.0.0.0/1"), Via: addr("8.8.8.0"), Device: "eth2"}}},
	{Addrs: map[string][]netip.Prefix{ // the line is down
		"eth0": {prefix("fe80::10/64")},
		"eth1": {prefix("192.168.1.1/24"), prefix("fd00:1::1/64"), prefix("fe80::1/64")},
		"eth2": {prefix("192.168.2.1/30"), prefix("fe80::2/64")},
		"eth3": {prefix("255.255.254.1/23"), prefix("fe80::3/64")}}},
}

// draw makes random policies and packets out of the values that bite.
type draw struct {
	*rand.Rand
	facts firewall.Facts
	cfg   firewall.Config
	ids   int
}

func pick[T any](r *draw, from ...T) T { return from[r.IntN(len(from))] }

func (r *draw) chance(percent int) bool { return r.IntN(100) < percent }

// addr is an address on or beside a border of something.
func (r *draw) addr(v6 bool) netip.Addr {
	if v6 {
		if r.chance(30) {
			return addr(pick(r, "2001:4860::8", "fd00:1::", "fd00:1::ffff:ffff:ffff:ffff", "2a00:1::3", "2a00:2::ffff", "fe80::5", "2a00:5::1", "ff02::1", "fc00::1", "2001:db8::1"))
		}
	} else if r.chance(30) {
		return addr(pick(r, "8.8.8.8", "1.1.1.1", "10.50.3.4", "192.168.1.255", "192.168.2.0", "255.255.255.255", "223.255.255.255", "240.0.0.1",
			"224.0.0.1", "172.15.255.255", "172.16.0.0", "192.168.1.254", "10.64.3.255", "203.0.113.9", "0.0.0.0", "127.0.0.1", "255.255.255.254"))
	}
	var of []netip.Prefix
	for _, d := range devices {
		for _, p := range r.facts.Addrs[d] {
			if p.Addr().Is6() == v6 {
				of = append(of, p)
			}
		}
	}
	p := pick(r, of...)
	return near(r, p)
}

// near is an address in a network, most often on its borders, the box's own, or one of a few hosts.
func near(r *draw, p netip.Prefix) netip.Addr {
	first, last := p.Masked().Addr(), firewall.LastAddr(p)
	a := pick(r, first, first.Next(), last, last.Prev(), p.Addr(), p.Addr().Next(), p.Addr().Next())
	if host := first.AsSlice(); r.chance(60) {
		host[len(host)-1] |= byte(pick(r, 5, 6, 10, 200))
		if b, _ := netip.AddrFromSlice(host); p.Contains(b) {
			return b
		}
	}
	if !p.Contains(a) {
		return p.Addr()
	}
	return a
}

func (r *draw) family() bool { return r.chance(35) }

// member is an address, network or range.
func (r *draw) member() firewall.End {
	v6 := r.family()
	a := r.addr(v6)
	switch r.IntN(4) {
	case 0:
		bits := pick(r, 0, 1, 8, 20, 24, 25, 30, 31, 32)
		if v6 {
			bits = pick(r, 0, 3, 48, 64, 65, 127, 128)
		}
		p, _ := a.Prefix(bits)
		return firewall.End{Kind: firewall.EndNet, Net: p}
	case 1:
		b := r.addr(v6)
		if b.Less(a) {
			a, b = b, a
		}
		return firewall.End{Kind: firewall.EndRange, Addr: a, Last: b}
	}
	return firewall.End{Kind: firewall.EndAddr, Addr: a}
}

func (r *draw) end(dst bool) firewall.End {
	switch n := r.IntN(12); {
	case n < 2, n > 9:
		return firewall.End{Kind: firewall.EndAny}
	case n < 4:
		return firewall.End{Kind: firewall.EndAlias, Name: pick(r, r.named(firewall.Addresses)...)}
	case n < 6:
		return firewall.End{Kind: pick(r, firewall.EndIfNet, firewall.EndIfAddr), Name: pick(r, r.cfg.Interfaces...).Name}
	case n < 7 && dst:
		return firewall.End{Kind: firewall.EndSelf}
	}
	return r.member()
}

func (r *draw) ends(dst bool) firewall.Ends {
	e := firewall.Ends{Of: []firewall.End{r.end(dst)}}
	switch {
	case e.Of[0].Kind == firewall.EndAny:
	case r.chance(25):
		e.Not = true
	default:
		for range r.IntN(3) {
			if m := r.end(dst); m.Kind != firewall.EndAny {
				e.Of = append(e.Of, m)
			}
		}
	}
	return e
}

func (r *draw) named(k firewall.AliasKind) (out []firewall.Name) {
	for _, a := range r.cfg.Aliases {
		if a.Kind == k {
			out = append(out, a.Name)
		}
	}
	return out
}

var corners = []uint16{1, 22, 53, 67, 68, 80, 443, 8000, 8005, 8010, 9000, 65535}

func (r *draw) ports() (out firewall.Ports) {
	for range r.IntN(3) {
		if r.chance(25) {
			out = append(out, firewall.PortEnd{Alias: pick(r, r.named(firewall.PortList)...)})
			continue
		}
		a, b := pick(r, corners...), pick(r, corners...)
		if r.chance(50) {
			b = a
		}
		out = append(out, firewall.PortEnd{Range: firewall.PortRange{From: min(a, b), To: max(a, b)}})
	}
	return out
}

func (r *draw) id() firewall.ID {
	r.ids++
	return firewall.ID(fmt.Sprintf("01T%02d", r.ids))
}

// policy is a random configuration; not every one is valid.
func (r *draw) policy() firewall.Config {
	r.cfg = firewall.Factory()
	r.cfg.Admin.SSH, r.cfg.Admin.HTTP = r.chance(30), pick[uint16](r, 0, 80)
	r.cfg.Admin.HTTPS = pick[uint16](r, 443, 8443, 8005)
	r.interfaces()
	r.aliases()
	for range 1 + r.IntN(14) {
		r.cfg.Rules = append(r.cfg.Rules, r.rule())
	}
	for range r.IntN(5) {
		r.forward()
	}
	return r.cfg
}

func (r *draw) interfaces() {
	wan := firewall.V4{Mode: firewall.DHCP}
	if r.chance(40) {
		wan = firewall.V4{Mode: firewall.None}
	}
	none := firewall.V6{Mode: firewall.None}
	r.cfg.Interfaces = []firewall.Interface{
		{Name: "WAN", Device: "eth0", Role: firewall.WAN, V4: wan, V6: none},
		{Name: "LAN", Device: "eth1", Role: firewall.LAN, V4: firewall.V4{Mode: firewall.Static, Addr: prefix("192.168.77.1/24")}, V6: none},
		{Name: "GUEST", Device: "eth2", Role: pick(r, firewall.Other, firewall.LAN, firewall.WAN), V4: firewall.V4{Mode: firewall.None}, V6: none},
	}
	if r.chance(40) {
		r.cfg.Interfaces = append(r.cfg.Interfaces, firewall.Interface{Name: "OPT", Device: "eth3", Role: pick(r, firewall.Other, firewall.WAN), V4: firewall.V4{Mode: firewall.None}, V6: none})
	}
	for i := range r.cfg.Interfaces {
		in := &r.cfg.Interfaces[i]
		in.On, in.BlockPrivate, in.BlockBogons = r.chance(90), r.chance(20), r.chance(20)
	}
	if r.chance(50) {
		r.cfg.Scopes = []firewall.Scope{{In: "LAN", On: r.chance(80), From: addr("192.168.77.100"), To: addr("192.168.77.150"), Lease: 7200}}
	}
}

func (r *draw) aliases() {
	for i := range 5 {
		a := firewall.Alias{Name: firewall.Name(fmt.Sprintf("NETS_%d", i)), Kind: firewall.Addresses}
		for range r.IntN(5) { // none: an empty alias matches nobody
			e := r.member()
			if i > 0 && r.chance(30) {
				e = firewall.End{Kind: firewall.EndAlias, Name: firewall.Name(fmt.Sprintf("NETS_%d", r.IntN(i)))}
			}
			a.Addrs = append(a.Addrs, firewall.Entry{End: e})
		}
		r.cfg.Aliases = append(r.cfg.Aliases, a)
	}
	r.cfg.Aliases = append(r.cfg.Aliases, firewall.Alias{Name: "PORTS_0", Kind: firewall.PortList})
	for i := 1; i < 4; i++ {
		r.cfg.Aliases = append(r.cfg.Aliases, firewall.Alias{Name: firewall.Name(fmt.Sprintf("PORTS_%d", i)), Kind: firewall.PortList, Ports: r.ports()})
	}
	slices.Reverse(r.cfg.Aliases[5:])
}

func (r *draw) rule() firewall.Rule {
	out := firewall.Rule{ID: r.id(), On: r.chance(90), Action: pick(r, firewall.Pass, firewall.Pass, firewall.Block, firewall.Reject),
		Family: pick(r, firewall.IPv4, firewall.IPv6, firewall.Both, firewall.Both), Log: r.chance(20),
		Proto: pick(r, firewall.AnyProto, firewall.TCP, firewall.UDP, firewall.TCPUDP, firewall.TCPUDP, firewall.ICMP, firewall.ESP, firewall.GRE, firewall.IGMP, firewall.SCTP, "200"),
		Src:   r.ends(false), Dst: r.ends(true)}
	if !r.chance(20) {
		out.In = pick(r, r.cfg.Interfaces...).Name
	}
	if out.Proto.HasPorts() {
		out.DstPorts = r.ports()
		if r.chance(20) {
			out.SrcPorts = r.ports()
		}
	}
	if out.Proto == firewall.ICMP && r.chance(60) {
		for range 1 + r.IntN(3) {
			out.ICMP = append(out.ICMP, pick(r, firewall.ICMPTypes()...))
		}
	}
	return out
}

func (r *draw) forward() {
	in := pick(r, r.cfg.Interfaces...)
	f := firewall.Forward{ID: r.id(), On: r.chance(90), In: in.Name, Proto: pick(r, firewall.TCP, firewall.UDP, firewall.TCPUDP),
		From: firewall.Anyone(), Dst: firewall.End{Kind: firewall.EndIfAddr, Name: in.Name}, Reflect: r.chance(60), To: r.addr(r.family())}
	if r.chance(40) {
		f.From = r.ends(false)
	}
	if r.chance(30) {
		f.Dst = firewall.End{Kind: firewall.EndAddr, Addr: r.addr(f.To.Is6())}
	}
	from, to := pick(r, corners...), pick(r, corners...)
	f.Ports = firewall.PortRange{From: min(from, to), To: min(max(from, to), min(from, to)+10)}
	f.ToPort = pick(r, f.Ports.From, 9000, 1, 65535, 80)
	if int(f.ToPort)+f.Ports.Len() > 65536 {
		f.Ports.To = f.Ports.From
	}
	add := firewall.AddForward{Forward: f}
	if r.chance(70) {
		add.Forward.Rule = r.id()
	}
	if next, err := add.Apply(r.cfg); err == nil {
		r.cfg = next
	}
}

// packet is a random packet; not every one can be told from others.
func (r *draw) packet(number int) firewall.Packet {
	p := firewall.Packet{In: pick(r, devices...), SrcPort: uint16(20000 + number)}
	v6 := r.family()
	p.Src, p.Dst = r.addr(v6), r.addr(v6)
	if own := slices.DeleteFunc(slices.Clone(r.facts.Addrs[p.In]), func(q netip.Prefix) bool { return q.Addr().Is6() != v6 }); len(own) > 0 && r.chance(75) {
		p.Src = near(r, pick(r, own...)) // an honest source, most often
	} else if p.In == "eth0" && r.chance(60) {
		p.Src = addr(pick(r, map[bool][]string{false: {"8.8.4.4", "1.1.1.1", "9.9.9.9", "203.0.113.9"}, true: {"2001:4860::8", "2606::1"}}[v6]...))
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
		r.shape(&p)
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
	r.shape(&p)
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
		p.ICMP = pick[uint8](r, 128, 128, 128, 129, 1, 2, 4, 133, 134, 135, 136, 137, 130, 143)
		if p.ICMP >= 130 && p.ICMP <= 132 || p.ICMP == 143 { // listener messages never leave the link
			p.Src, p.Dst = addr("fe80::5"), addr("ff02::1")
		}
	}
}
