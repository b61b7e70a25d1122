package compile

import (
	"slices"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// matches gives the conditions under which a packet matches: a list of
// alternatives, each a list of statements that must all hold. No alternative
// means that nobody matches (an empty alias, say).
func (b *builder) matches(fam firewall.Family, pr firewall.Proto, icmp []string, src firewall.Ends, sports firewall.Ports, dst firewall.Ends, dports firewall.Ports) (out [][]ruleset.Stmt) {
	if fam == firewall.Both && pr != firewall.ICMP && src.IsAny() && dst.IsAny() {
		return b.conditions(nil, pr, nil, false, [][]ruleset.Stmt{nil}, sports, [][]ruleset.Stmt{nil}, dports)
	}
	for _, v6 := range []bool{false, true} {
		if v6 && fam == firewall.IPv4 || !v6 && fam == firewall.IPv6 {
			continue
		}
		out = append(out, b.conditions([]ruleset.Stmt{family(v6)}, pr, icmp, v6, b.ends(src, v6, false), sports, b.ends(dst, v6, true), dports)...)
	}
	return out
}

// conditions is every source with every destination, between the family and the protocol.
func (b *builder) conditions(head []ruleset.Stmt, pr firewall.Proto, icmp []string, v6 bool, srcs [][]ruleset.Stmt, sports firewall.Ports, dsts [][]ruleset.Stmt, dports firewall.Ports) (out [][]ruleset.Stmt) {
	tail, ok := b.transport(pr, icmp, v6, sports, dports)
	if !ok {
		return nil
	}
	for _, s := range srcs {
		for _, d := range dsts {
			var all []ruleset.Stmt
			for _, part := range [][]ruleset.Stmt{head, s, d, tail} {
				all = append(all, part...)
			}
			out = append(out, all)
		}
	}
	return out
}

// ends is the alternatives of a source or destination in one family. nil in an
// alternative means no condition; no alternative means that nobody matches.
func (b *builder) ends(e firewall.Ends, v6, dst bool) (out [][]ruleset.Stmt) {
	f := addrField(v6, dst)
	var plain []firewall.AddrRange
	add := func(m ruleset.Match) {
		m.Not = e.Not
		out = append(out, []ruleset.Stmt{m})
	}
	for _, m := range e.Of {
		switch m.Kind {
		case firewall.EndAny:
			out = append(out, nil)
		case firewall.EndAlias:
			add(ruleset.Match{Field: f, Set: aliasSet(m.Name, v6)})
		case firewall.EndIfNet:
			add(ruleset.Match{Field: f, Set: NetSet(m.Name, v6)})
		case firewall.EndIfAddr:
			add(ruleset.Match{Field: f, Set: AddrSet(m.Name, v6)})
		case firewall.EndSelf:
			add(ruleset.Match{Field: ruleset.FibDaddrType, In: []ruleset.Range{ruleset.One(ruleset.U32(ruleset.AddrLocal))}})
		default:
			r, _ := m.Range()
			plain = append(plain, r)
		}
	}
	if len(plain) == 0 {
		return out
	}
	four, six := byFamily(firewall.Merge(plain))
	if v6 {
		four = six
	}
	switch {
	case len(four) > 0:
		add(ruleset.Match{Field: f, In: four})
	case e.Not: // none of this family is excluded
		out = append(out, nil)
	}
	return out
}

// transport is the protocol with its types or ports; false when nobody can match.
func (b *builder) transport(pr firewall.Proto, icmp []string, v6 bool, sports, dports firewall.Ports) (out []ruleset.Stmt, ok bool) {
	numbers, _ := pr.Numbers(v6)
	if numbers == nil {
		return nil, true
	}
	m := ruleset.Match{Field: ruleset.L4Proto}
	for _, n := range numbers {
		m.In = append(m.In, ruleset.One(ruleset.Byte(n)))
	}
	out = append(out, m)
	if len(icmp) > 0 {
		types, any := icmpMatch(icmp, v6)
		return append(out, types), any
	}
	sf, df := portFields(pr)
	for _, p := range []struct {
		field ruleset.Field
		ports firewall.Ports
	}{{sf, sports}, {df, dports}} {
		if len(p.ports) == 0 {
			continue
		}
		m := ruleset.Match{Field: p.field}
		for _, r := range b.cfg.Numbers(p.ports) {
			m.In = append(m.In, ruleset.Range{Lo: ruleset.Port(r.From), Hi: ruleset.Port(r.To)})
		}
		if m.In == nil {
			return nil, false
		}
		out = append(out, m)
	}
	return out, true
}

// icmpMatch is the type numbers of names in one family; false when it has none of them.
func icmpMatch(names []string, v6 bool) (ruleset.Match, bool) {
	m := ruleset.Match{Field: ruleset.ICMPTypeField}
	if v6 {
		m.Field = ruleset.ICMPv6TypeField
	}
	for n := range 256 { // in the order of numbers, each once
		for _, name := range names {
			if k, ok := firewall.ICMPNumber(name, v6); ok && int(k) == n {
				m.In = append(m.In, ruleset.One(ruleset.Byte(k)))
				break
			}
		}
	}
	return m, m.In != nil
}

func portFields(pr firewall.Proto) (src, dst ruleset.Field) {
	switch pr {
	case firewall.TCP:
		return ruleset.TCPSport, ruleset.TCPDport
	case firewall.UDP:
		return ruleset.UDPSport, ruleset.UDPDport
	case firewall.SCTP:
		return ruleset.SCTPSport, ruleset.SCTPDport
	}
	return ruleset.THSport, ruleset.THDport
}

func addrField(v6, dst bool) ruleset.Field {
	switch {
	case v6 && dst:
		return ruleset.IP6Daddr
	case v6:
		return ruleset.IP6Saddr
	case dst:
		return ruleset.IPDaddr
	}
	return ruleset.IPSaddr
}

func family(v6 bool) ruleset.Stmt {
	n := uint8(2) // NFPROTO_IPV4
	if v6 {
		n = 10
	}
	return ruleset.Match{Field: ruleset.NFProtoField, In: []ruleset.Range{ruleset.One(ruleset.Byte(n))}}
}

func proto(n uint8) ruleset.Stmt {
	return ruleset.Match{Field: ruleset.L4Proto, In: []ruleset.Range{ruleset.One(ruleset.Byte(n))}}
}

func tcpFlags(mask, is uint8) ruleset.Match {
	return ruleset.Match{Field: ruleset.TCPFlagsField, Mask: ruleset.Byte(mask), In: []ruleset.Range{ruleset.One(ruleset.Byte(is))}}
}

func devices(f ruleset.Field, names ...string) ruleset.Stmt {
	m := ruleset.Match{Field: f}
	for _, n := range slices.Sorted(slices.Values(names)) {
		m.In = append(m.In, ruleset.One(ruleset.Iface(n)))
	}
	return m
}

func interfaces(f ruleset.Field, ins []firewall.Interface) ruleset.Stmt {
	names := make([]string, len(ins))
	for i, in := range ins {
		names[i] = in.Device
	}
	return devices(f, names...)
}
