package compile

import (
	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// nat is the forwards, their reflection and the automatic outbound NAT. Chains
// named dnat or snat could not be loaded back as text (kernel fact 6).
func (b *builder) nat() {
	var pre, post []ruleset.Rule
	for _, f := range b.cfg.Forwards {
		if in, ok := b.cfg.Interface(f.In); ok && f.On && in.On {
			pre = append(pre, b.forwardRules(f, in)...)
		}
	}
	for _, in := range b.on(inside) {
		// A client on the target's own network must be answered through the box (C07).
		for _, v6 := range []bool{false, true} {
			post = append(post, line("auto/reflection", "same network as the target", interfaces(ruleset.OIFName, []firewall.Interface{in}), family(v6),
				ruleset.Match{Field: addrField(v6, false), Set: NetSet(in.Name, v6)},
				ruleset.Match{Field: ruleset.CTStatusField, In: []ruleset.Range{ruleset.One(ruleset.U32(ruleset.StatusDNAT))}},
				ruleset.Masquerade{}))
		}
	}
	if wans := b.on(isWAN); len(wans) > 0 {
		post = append(post, line("auto/outbound", "automatic outbound NAT", interfaces(ruleset.OIFName, wans), family(false), ruleset.Masquerade{}))
	}
	b.chain(ruleset.Chain{Name: "nat_pre", Hook: &ruleset.Hook{Type: "nat", Name: "prerouting", Priority: dstnat}, Rules: pre})
	b.chain(ruleset.Chain{Name: "nat_post", Hook: &ruleset.Hook{Type: "nat", Name: "postrouting", Priority: srcnat}, Rules: post})
}

// forwardRules is the lines of one forward, one protocol at a time: the port of
// a translation needs to know whose port it is.
func (b *builder) forwardRules(f firewall.Forward, in firewall.Interface) (out []ruleset.Rule) {
	origin := ruleset.Origin("forward/" + string(f.ID))
	from := []firewall.Interface{in}
	if f.Reflect {
		for _, other := range b.on(inside) {
			if other.Name != in.Name {
				from = append(from, other)
			}
		}
	}
	fam, v6 := firewall.IPv4, f.To.Is6()
	if v6 {
		fam = firewall.IPv6
	}
	count := b.counter(RuleCounter(f.ID))
	shift := b.shiftMap(f, v6, origin)
	for _, pr := range []firewall.Proto{firewall.TCP, firewall.UDP} {
		if f.Proto != pr && f.Proto != firewall.TCPUDP {
			continue
		}
		to := ruleset.DNAT{To: f.To, Port: f.ToPort}
		if f.ToPort == f.Ports.From {
			to.Port = 0
		}
		if shift != "" {
			to = ruleset.DNAT{Map: shift, ByUDP: pr == firewall.UDP, IPv6: v6}
		}
		dst := firewall.Ends{Of: []firewall.End{f.Dst}}
		for _, match := range b.matches(fam, pr, nil, f.From, nil, dst, firewall.Ports{{Range: f.Ports}}) {
			stmts := append([]ruleset.Stmt{interfaces(ruleset.IIFName, from)}, match...)
			out = append(out, line(origin, string(f.ID), append(stmts, count, to)...))
		}
	}
	return out
}

// shiftMap is the map that shifts a range of ports one to one: a plain range as
// target would send them all to its first port (kernel fact 5). "" when the
// ports stay as they are or there is only one.
func (b *builder) shiftMap(f firewall.Forward, v6 bool, origin ruleset.Origin) string {
	if f.Ports.Len() == 1 || f.ToPort == f.Ports.From {
		return ""
	}
	s := ruleset.Set{Name: "ports_" + string(f.ID), Origin: origin,
		Key: []ruleset.Type{ruleset.InetService}, Data: []ruleset.Type{addrType(v6), ruleset.InetService}}
	for i := range f.Ports.Len() {
		s.Elements = append(s.Elements, ruleset.Element{
			Key:  []ruleset.Range{ruleset.One(ruleset.Port(f.Ports.From + uint16(i)))},
			Data: []ruleset.Value{ruleset.Addr(f.To), ruleset.Port(f.ToPort + uint16(i))}})
	}
	b.set(s)
	return s.Name
}
