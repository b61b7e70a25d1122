// Package compile turns a valid configuration into the ruleset that means the
// same. It is pure and deterministic, and keeps the order of design 6:
// automatic rules, floating rules, the list of the in-interface, default deny.
// This emitter is linear: every rule of a list is looked at in turn.
package compile

import (
	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// The NFLOG groups: what rules log, and who exceeds a limit (firewall.ParseLimitPrefix).
const (
	LogGroup   = 100
	LimitGroup = 101
)

// Priorities of the base chains (nft(8), "Standard priority names"); ingress has none but ours.
const (
	early  = -500
	raw    = -300
	mangle = -150
	dstnat = -100
	filter = 0
	srcnat = 100
)

// Compile gives the ruleset of c, which must be valid (Config.Validate).
func Compile(c firewall.Config) ruleset.Ruleset {
	b := &builder{cfg: c, numbers: c.RuleNumbers(), stamp: c.Stamp()}
	b.limiters = limited(c)
	b.interfaceSets()
	b.aliasSets()
	b.blockSets()
	b.neverSets()
	b.meters()
	b.blocked()
	b.auto()
	b.base()
	b.metered()
	b.lists()
	b.nat()
	b.rs.Stamp = b.stamp
	return b.rs
}

// Lockdown lets nothing in and nothing through; replies to the box itself still come back.
func Lockdown() ruleset.Ruleset { return Compile(firewall.Config{Schema: firewall.Schema}) }

// builder gathers the parts of one ruleset.
type builder struct {
	cfg      firewall.Config
	numbers  map[firewall.ID]uint32
	limiters []limiter // of the rules that are on, in their order
	stamp    string
	rs       ruleset.Ruleset
}

func (b *builder) chain(c ruleset.Chain) { b.rs.Chains = append(b.rs.Chains, c) }

func (b *builder) set(s ruleset.Set) { b.rs.Sets = append(b.rs.Sets, s) }

func (b *builder) counter(name string) ruleset.Stmt {
	b.rs.Counters = append(b.rs.Counters, ruleset.Counter{Name: name})
	return ruleset.Count{Name: name}
}

// on is the interfaces that are switched on and hold for want.
func (b *builder) on(want func(firewall.Interface) bool) (out []firewall.Interface) {
	for _, in := range b.cfg.Interfaces {
		if in.On && want(in) {
			out = append(out, in)
		}
	}
	return out
}

func isWAN(in firewall.Interface) bool  { return in.Role == firewall.WAN }
func inside(in firewall.Interface) bool { return in.Role != firewall.WAN }
func anyRole(firewall.Interface) bool   { return true }

// The runtime sets of an interface: services/link fills them with what the
// device has (design 7).

// AddrSet is the set of an interface's addresses in one family.
func AddrSet(in firewall.Name, v6 bool) string { return "addr_" + string(in) + digit(v6) }

// NetSet is the set of an interface's networks in one family.
func NetSet(in firewall.Name, v6 bool) string { return "net_" + string(in) + digit(v6) }

func aliasSet(n firewall.Name, v6 bool) string { return "alias_" + string(n) + digit(v6) }

func digit(v6 bool) string {
	if v6 {
		return "6"
	}
	return "4"
}

func addrType(v6 bool) ruleset.Type {
	if v6 {
		return ruleset.IPv6Addr
	}
	return ruleset.IPv4Addr
}

func (b *builder) interfaceSets() {
	for _, in := range b.cfg.Interfaces {
		origin := ruleset.Origin("interface/" + string(in.Name))
		for _, v6 := range []bool{false, true} {
			key := []ruleset.Type{addrType(v6)}
			b.set(ruleset.Set{Name: AddrSet(in.Name, v6), Origin: origin, Key: key, Runtime: true})
			b.set(ruleset.Set{Name: NetSet(in.Name, v6), Origin: origin, Key: key, Interval: true, Runtime: true})
		}
	}
}

func (b *builder) aliasSets() {
	for _, a := range b.cfg.Aliases {
		if a.Kind != firewall.Addresses {
			continue
		}
		v4, v6 := byFamily(b.cfg.AliasAddrs(a.Name))
		origin := ruleset.Origin("alias/" + string(a.Name))
		b.set(intervals(aliasSet(a.Name, false), origin, false, v4))
		b.set(intervals(aliasSet(a.Name, true), origin, true, v6))
	}
}

func intervals(name string, origin ruleset.Origin, v6 bool, rs []ruleset.Range) ruleset.Set {
	s := ruleset.Set{Name: name, Origin: origin, Key: []ruleset.Type{addrType(v6)}, Interval: true}
	for _, r := range rs {
		s.Elements = append(s.Elements, ruleset.Element{Key: []ruleset.Range{r}})
	}
	return s
}

// byFamily divides merged ranges into those of IPv4 and of IPv6.
func byFamily(rs []firewall.AddrRange) (v4, v6 []ruleset.Range) {
	for _, r := range rs {
		out := ruleset.Range{Lo: ruleset.Addr(r.From), Hi: ruleset.Addr(r.To)}
		if r.From.Is4() {
			v4 = append(v4, out)
		} else {
			v6 = append(v6, out)
		}
	}
	return v4, v6
}
