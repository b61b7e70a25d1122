package kernel_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"gatehouse/firewall/ruleset"
)

// gen makes random rules of the kind that the compiler writes.
type gen struct{ *rand.Rand }

func (g gen) value(t ruleset.Type) ruleset.Value {
	b := make([]byte, t.Len())
	for i := range b {
		b[i] = byte(g.IntN(256))
	}
	switch t {
	case ruleset.IfName:
		return ruleset.Iface(string(rune('a'+g.IntN(26))) + "if0")
	case ruleset.CTState:
		return ruleset.U32(1 << g.IntN(4))
	case ruleset.CTStatus:
		return ruleset.U32(ruleset.StatusDNAT)
	case ruleset.AddrType:
		return ruleset.U32(1 + uint32(g.IntN(5)))
	}
	return ruleset.Value(b)
}

func (g gen) span(t ruleset.Type) ruleset.Range {
	a, b := g.value(t), g.value(t)
	switch {
	case t == ruleset.IPv4Addr && g.IntN(2) == 0:
		return ruleset.Net(prefix(a, 1+g.IntN(32)))
	case t == ruleset.IPv6Addr && g.IntN(2) == 0:
		return ruleset.Net(prefix(a, 1+g.IntN(128)))
	case t != ruleset.IPv4Addr && t != ruleset.IPv6Addr && t != ruleset.InetService || g.IntN(2) == 0:
		return ruleset.One(a)
	}
	return ruleset.Range{Lo: min(a, b), Hi: max(a, b)}
}

// ranges is one range, or up to four that keep apart.
func (g gen) ranges(t ruleset.Type) []ruleset.Range {
	in := []ruleset.Range{g.span(t)}
	for range g.IntN(4) {
		r := g.span(t)
		if !slices.ContainsFunc(in, func(o ruleset.Range) bool { return r.Lo <= o.Hi && o.Lo <= r.Hi || adjacent(r, o) || adjacent(o, r) }) {
			in = append(in, r)
		}
	}
	if t == ruleset.AddrType || t == ruleset.CTState || t == ruleset.CTStatus {
		in = in[:1]
	}
	slices.SortFunc(in, func(a, b ruleset.Range) int {
		if a.Lo < b.Lo {
			return -1
		}
		return 1
	})
	return in
}

func (g gen) match(f ruleset.Field) ruleset.Match {
	return ruleset.Match{Field: f, Not: g.IntN(4) == 0, In: g.ranges(f.Type())}
}

func (g gen) rule() ruleset.Rule {
	var needed, free []ruleset.Stmt
	unequal := false
	add := func(fields ...ruleset.Field) {
		for _, f := range fields {
			if g.IntN(2) != 0 {
				continue
			}
			m := g.match(f)
			// nft 1.0.6 makes "sport != a dport != b" one comparison, which is
			// another condition: two such ports are left out here.
			if f.Type() == ruleset.InetService && m.Not && len(m.In) == 1 && m.In[0].Single() {
				m.Not, unequal = !unequal, true
			}
			free = append(free, m)
		}
	}
	family := g.IntN(3)
	switch family {
	case 1:
		needed = append(needed, v4)
		add(ruleset.IPSaddr, ruleset.IPDaddr)
	case 2:
		needed = append(needed, v6)
		add(ruleset.IP6Saddr, ruleset.IP6Daddr, ruleset.IP6HopLimit)
	}
	add(ruleset.IIFName, ruleset.OIFName, ruleset.CTStateField, ruleset.CTStatusField, ruleset.FibDaddrType)
	switch p := g.IntN(6); {
	case p == 0:
		needed = append(needed, tcp)
		add(ruleset.TCPSport, ruleset.TCPDport)
	case p == 1:
		needed = append(needed, udp)
		add(ruleset.UDPSport, ruleset.UDPDport)
	case p == 2:
		needed = append(needed, sctp)
		add(ruleset.SCTPSport, ruleset.SCTPDport)
	case p == 3:
		needed = append(needed, is(ruleset.L4Proto, num(6), num(17)))
		add(ruleset.THSport, ruleset.THDport)
	case p == 4 && family == 1:
		needed = append(needed, is(ruleset.L4Proto, num(1)))
		add(ruleset.ICMPTypeField)
	case p == 4 && family == 2:
		needed = append(needed, is(ruleset.L4Proto, num(58)))
		add(ruleset.ICMPv6TypeField)
	}
	g.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	return rule(append(append(needed, free...), drop)...)
}

// Rules of every shape, made by netlink and by the text of the same
// ruleset, are the same to the kernel.
func TestRandomRulesAreTheSameByNetlinkAndText(t *testing.T) {
	g := gen{rand.New(rand.NewPCG(1, 2))}
	rs := ruleset.Ruleset{Chains: []ruleset.Chain{{Name: "c"}}}
	for range 300 {
		rs.Chains[0].Rules = append(rs.Chains[0].Rules, g.rule())
	}
	var code, codeByNft string
	inside(t, func(t *testing.T) {
		apply(t, open(t), rs)
		_, code = listings(t)
	})
	inside(t, func(t *testing.T) {
		nft(t, rs.String())
		_, codeByNft = listings(t)
	})
	if d := firstDifference(code, codeByNft); d != "" {
		t.Error(d)
	}
}

func prefix(a ruleset.Value, bits int) netip.Prefix {
	ip, _ := netip.AddrFromSlice([]byte(a))
	return netip.PrefixFrom(ip, bits)
}

// adjacent reports whether b begins where a ends; nft joins the two.
func adjacent(a, b ruleset.Range) bool {
	v := []byte(a.Hi)
	for i := len(v) - 1; i >= 0; i-- {
		if v[i]++; v[i] != 0 {
			break
		}
	}
	return string(v) == string(b.Lo)
}
