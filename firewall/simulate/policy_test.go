package simulate_test

import (
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
			"224.0.0.1", "172.15.255.255", "172.16.0.0", "192.168.1.254", "10.64.3.255", "203.0.113.9", "0.0.0.0", "0.1.2.3", "127.0.0.1", "255.255.255.254"))
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
	r.cfg.Sources = r.sources()
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
		r.cfg.Aliases = append(r.cfg.Aliases, firewall.Alias{Name: firewall.Name(fmt.Sprintf("PORTS_%d", i)), Kind: firewall.PortList, Ports: portLines(r.ports())})
	}
	slices.Reverse(r.cfg.Aliases[5:])
}

func portLines(ports firewall.Ports) (out []firewall.PortEntry) {
	for _, p := range ports {
		out = append(out, firewall.PortEntry{End: p})
	}
	return out
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
	if out.Action == firewall.Pass && r.chance(50) {
		out.Limit = r.limit(out.Proto)
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
	next, err := add.Apply(r.cfg)
	if err == nil && add.Forward.Rule != "" && r.chance(50) {
		next, err = firewall.SetLimit{Rule: add.Forward.Rule, Limit: r.limit(f.Proto)}.Apply(next)
	}
	if err == nil {
		r.cfg = next
	}
}
