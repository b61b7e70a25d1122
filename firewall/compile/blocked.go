package compile

import (
	"net/netip"
	"slices"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// blockedSize is how many sources of a family can be locked out or in quarantine.
const blockedSize = 65536

// The runtime sets of who is shut out, and who never may be: services/quarantine
// fills them, and rules add to the first. They exist in every ruleset.

// BlockedSet is the set of sources of one family that are shut out: with a
// timeout locked out, without one in quarantine. An IPv6 source is the first
// address of its prefix.
func BlockedSet(v6 bool) string { return "blocked" + digit(v6) }

// BlockedNets is the set of networks of one family that were shut out by hand.
func BlockedNets(v6 bool) string { return "blocked_nets" + digit(v6) }

// ExemptSet is the set of sources of one family that no limit shuts out.
func ExemptSet(v6 bool) string { return "exempt" + digit(v6) }

// ForgedSet is the set of sources of one family in whose name somebody forged a
// connection not long ago: they are limited, but not shut out.
func ForgedSet(v6 bool) string { return "forged" + digit(v6) }

// source is what sources of one family are told apart by: a field, and those of its bits that count.
type source struct {
	field ruleset.Field
	mask  ruleset.Value
}

func (b *builder) source(v6 bool) source {
	s := source{field: addrField(v6, false)}
	if n := b.cfg.Sources.Prefix(); v6 && n < 128 {
		m, _ := netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").Prefix(n)
		s.mask = ruleset.Addr(m.Addr())
	}
	return s
}

// in matches sources that are in the set.
func (s source) in(set string) ruleset.Match {
	return ruleset.Match{Field: s.field, Mask: s.mask, Set: set}
}

// notIn matches sources that are not in the set.
func (s source) notIn(set string) ruleset.Match {
	return ruleset.Match{Field: s.field, Mask: s.mask, Set: set, Not: true}
}

// blocked is the sets of who is shut out, and the chains that drop all that
// comes from there: at ingress, where it costs least, and in prerouting for
// ports that have no ingress chain because they are off or came later.
func (b *builder) blocked() {
	origin := ruleset.Origin("auto/blocked")
	for _, v6 := range []bool{false, true} {
		key := []ruleset.Type{addrType(v6)}
		b.set(ruleset.Set{Name: BlockedSet(v6), Origin: origin, Key: key, Runtime: true, Timeout: true, Dynamic: true, Counter: true, Size: blockedSize})
		b.set(ruleset.Set{Name: BlockedNets(v6), Origin: origin, Key: key, Runtime: true, Timeout: true, Interval: true, Counter: true})
		b.set(ruleset.Set{Name: ExemptSet(v6), Origin: origin, Key: key, Runtime: true})
		b.set(ruleset.Set{Name: ForgedSet(v6), Origin: origin, Key: key, Runtime: true, Timeout: true, Dynamic: true, Size: blockedSize})
	}
	b.chain(ruleset.Chain{Name: autoChain("blocked"), Rules: b.dropBlocked()})
	for _, in := range b.on(anyRole) {
		b.chain(ruleset.Chain{Name: "ingress_" + string(in.Name), Rules: b.fromBlocked(),
			Hook: &ruleset.Hook{Type: "filter", Name: "ingress", Priority: early, Device: in.Device}})
	}
	b.chain(ruleset.Chain{Name: "raw", Rules: b.fromBlocked(), Hook: &ruleset.Hook{Type: "filter", Name: "prerouting", Priority: raw}})
}

func (b *builder) fromBlocked() (rules []ruleset.Rule) {
	for _, v6 := range []bool{false, true} {
		rules = append(rules,
			line("auto/blocked", "", family(v6), b.source(v6).in(BlockedSet(v6)), gotoChain(autoChain("blocked"))),
			line("auto/blocked", "", family(v6), ruleset.Match{Field: addrField(v6, false), Set: BlockedNets(v6)}, gotoChain(autoChain("blocked"))))
	}
	return rules
}

// dropBlocked drops what comes from a source that is shut out. A host inside
// keeps its address and its neighbours meanwhile, so that a release works at
// once; and the box goes on talking to itself, though an IPv6 prefix that is
// shut out may be its own.
func (b *builder) dropBlocked() []ruleset.Rule {
	rules := []ruleset.Rule{line("auto/loopback", "", devices(ruleset.IIFName, "lo"), back)}
	if on := b.on(inside); len(on) > 0 {
		rules = append(rules,
			line("auto/blocked", "DHCP requests", interfaces(ruleset.IIFName, on), family(false), proto(17), port(ruleset.UDPSport, 68), port(ruleset.UDPDport, 67), back),
			line("auto/blocked", "neighbour discovery", interfaces(ruleset.IIFName, on), family(true), hopLimit(255), proto(58), icmp6Types(133, 134, 135, 136), back))
	}
	return append(rules, line("auto/blocked", "blocked", b.counter(AutoCounter("blocked")), drop))
}

// neverSets is the IPv6 prefixes of which a part is in an alias that a limit
// never shuts out: a prefix is shut out as a whole.
func (b *builder) neverSets() {
	done := map[firewall.Name]bool{}
	for _, l := range b.limiters {
		name := l.Never
		if name == "" || done[name] || !l.judged() || !slices.Contains(l.fams, true) {
			continue
		}
		done[name] = true
		var wide []firewall.AddrRange
		for _, r := range b.cfg.AliasAddrs(name) {
			if r.From.Is6() {
				wide = append(wide, firewall.AddrRange{From: b.cfg.Sources.Of(r.From).Addr(), To: firewall.LastAddr(b.cfg.Sources.Of(r.To))})
			}
		}
		_, v6 := byFamily(firewall.Merge(wide))
		b.set(intervals(neverSet(name, true), ruleset.Origin("alias/"+string(name)), true, v6))
	}
}

func neverSet(n firewall.Name, v6 bool) string {
	if !v6 {
		return aliasSet(n, false) // an IPv4 source is one address
	}
	return "never_" + string(n) + digit(v6)
}
