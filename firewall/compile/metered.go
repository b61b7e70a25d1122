package compile

import (
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// The chains of limits (design 5). A connection by a limited rule carries the
// rule's number in its ct mark. How many are open is asked at the first packet,
// where alone the kernel can say it. Of other protocols than TCP the first packet
// also counts as a new connection, so these are only dropped. A TCP connection is
// Pending until the packet that completes its handshake, and that packet counts:
// conntrack knows it by the acknowledgement, which only who heard the server can
// give, or one of 65,000 guesses. A guess that comes through is answered by a
// reset of the server before it says anything else (Shared without Pending is
// the time until then): somebody forges connections in the name of this source,
// which for a while is limited but not shut out.
//
// A meter that is full takes no further sources; those share one meter of the
// rule. Of TCP they are told at the first packet (Shared, with Pending) and
// counted with their handshake, so that forged ones take no share.

// limitRate bounds what one chain tells services/quarantine; fullRate, that a meter is full.
var (
	limitRate = ruleset.Limit{Rate: 500, Burst: 1000}
	fullRate  = ruleset.Limit{Rate: 1, Burst: 1}
)

var linkLocal = netip.MustParsePrefix("fe80::/10")

const (
	markRest = 0xffff // the part of the ct mark that is not of limits
	tcpFirst = ruleset.FIN | ruleset.SYN | ruleset.RST | ruleset.ACK
)

func (l limiter) chain(what string) string { return what + "_" + string(l.id) }

func (l limiter) line(stmts ...ruleset.Stmt) ruleset.Rule { return line(l.origin(), "", stmts...) }

// not is the opposite of m.
func not(m ruleset.Match) ruleset.Match {
	m.Not = !m.Not
	return m
}

// marked matches connections of which any bit of the mark is set.
func marked(bits uint32) ruleset.Match {
	return ruleset.Match{Field: ruleset.CTMark, Mask: ruleset.U32(bits), Not: true, In: []ruleset.Range{ruleset.One(ruleset.U32(0))}}
}

func state(s uint32) ruleset.Match {
	return ruleset.Match{Field: ruleset.CTStateField, In: []ruleset.Range{ruleset.One(ruleset.U32(s))}}
}

func direction(d uint8) ruleset.Match {
	return ruleset.Match{Field: ruleset.CTDirection, In: []ruleset.Range{ruleset.One(ruleset.Byte(d))}}
}

// unsettledFirst stands before known connections are accepted: those that are
// not settled, or were refused, are looked at.
func (b *builder) unsettledFirst() []ruleset.Rule {
	if len(b.counted()) == 0 {
		return nil
	}
	return []ruleset.Rule{line("auto/limits", "not settled, or refused", marked(firewall.MarkPending|firewall.MarkShared|firewall.MarkRefused), jump("metered"))}
}

// counted is where the handshakes of each limited rule are counted.
func (b *builder) counted() (arms []ruleset.Arm) {
	for _, l := range b.limiters {
		if l.tcp {
			arms = append(arms, ruleset.Arm{Key: ruleset.U32(l.mark), Verdict: gotoChain(l.chain("m"))})
		}
	}
	return arms
}

// begun is the connections that no second SYN may begin anew. When the server
// has reset one, the kernel lets the next SYN and its answer bring the entry back
// to life, with its mark: its new life would be counted nowhere.
func (b *builder) begun() (arms []ruleset.Arm) {
	for _, l := range b.limiters {
		if l.tcp && !l.DryRun {
			arms = append(arms, ruleset.Arm{Key: ruleset.U32(l.mark), Verdict: gotoChain(autoChain("stray"))})
		}
	}
	return arms
}

// metered is the chains that known connections go through, and those of each limit.
func (b *builder) metered() {
	if arms := b.counted(); len(arms) > 0 {
		b.dropChain("refused", false)
		b.dropChain("stray", false)
		b.chain(ruleset.Chain{Name: "metered", Rules: unsettled(arms)})
		b.chain(ruleset.Chain{Name: "answered", Rules: answered()})
		b.chain(ruleset.Chain{Name: "forged", Rules: b.forged()})
		// What the box itself says as a server.
		b.chain(ruleset.Chain{Name: "output", Hook: &ruleset.Hook{Type: "filter", Name: "output", Priority: filter}, Rules: b.unsettledFirst()})
	}
	if arms := b.begun(); len(arms) > 0 {
		b.chain(ruleset.Chain{Name: "begun", Rules: []ruleset.Rule{line("auto/limits", "begins again",
			state(ruleset.StateEstablished), direction(ruleset.DirOriginal), proto(6), tcpFlags(ruleset.ACK, 0),
			ruleset.VMap{Field: ruleset.CTMark, Mask: ruleset.U32(firewall.MarkRule | firewall.MarkPending), Arms: arms})}})
	}
	for _, l := range b.limiters {
		b.limit(l)
	}
}

// settled is the mark of a connection that needs no more looking at.
var settled = ruleset.SetMark{Keep: ^(firewall.MarkPending | firewall.MarkShared)}

// unsettled looks at a connection until its handshake is counted and the server
// has answered, and at all of one that was refused. What it returns is accepted as known.
func unsettled(counted []ruleset.Arm) []ruleset.Rule {
	return []ruleset.Rule{
		line("auto/limits", "", marked(firewall.MarkRefused), gotoChain(autoChain("refused"))),
		line("auto/limits", "", not(state(ruleset.StateEstablished)), back),
		line("auto/limits", "", direction(ruleset.DirReply), gotoChain("answered")),
		line("auto/limits", "counted", not(marked(firewall.MarkPending)), back),
		line("auto/limits", "no handshake yet", proto(6), not(tcpFlags(ruleset.SYN|ruleset.RST, 0)), back),
		line("auto/limits", "", ruleset.VMap{Field: ruleset.CTMark, Mask: ruleset.U32(firewall.MarkRule), Arms: counted}),
		line("auto/limits", "its limit is gone", settled),
	}
}

// answered looks at what the server says of a connection that is not settled.
func answered() []ruleset.Rule {
	return []ruleset.Rule{
		line("auto/limits", "the server wants none", marked(firewall.MarkPending), proto(6), tcpFlags(ruleset.RST, ruleset.RST), settled, back),
		line("auto/limits", "no handshake yet", marked(firewall.MarkPending), back),
		line("auto/limits", "the server waits for it still", proto(6), tcpFlags(ruleset.SYN, ruleset.SYN), back),
		// A wrong acknowledgement is reset without ACK; an application that will not talk resets with it (RFC 9293, 3.5.2).
		line("auto/limits", "a guess", proto(6), tcpFlags(ruleset.RST|ruleset.ACK, ruleset.RST), gotoChain("forged")),
		line("auto/limits", "", settled),
	}
}

// forged ends a connection that somebody forged, and spares the source for so
// long that whatever was counted for it is forgotten.
func (b *builder) forged() []ruleset.Rule {
	spare := 10 * time.Minute
	for _, l := range b.limiters {
		spare = max(spare, l.window())
	}
	rules := []ruleset.Rule{line("auto/limits", "", ruleset.SetMark{Keep: ^firewall.MarkShared, Set: firewall.MarkRefused})}
	for _, v6 := range []bool{false, true} {
		rules = append(rules, line("auto/limits", "", family(v6),
			ruleset.Meter{Set: ForgedSet(v6), Key: addrField(v6, true), Mask: b.source(v6).mask, Update: true, Timeout: spare}))
	}
	return rules
}

// limit is the chains of one limit.
func (b *builder) limit(l limiter) {
	over := b.counter(OverCounter(l.id))
	b.chain(ruleset.Chain{Name: l.chain("l"), Rules: b.first(l)})
	if l.tcp {
		b.chain(ruleset.Chain{Name: l.chain("m"), Rules: b.handshake(l)})
	}
	if l.Open > 0 {
		b.chain(ruleset.Chain{Name: l.chain("open"), Rules: b.overOpen(l, over)})
	}
	if l.Open > 0 && l.tcp {
		b.chain(ruleset.Chain{Name: l.chain("full"), Rules: []ruleset.Rule{l.tell(firewall.MeterFull, fullRate), l.line(ruleset.SetMark{Keep: ^uint32(0), Set: firewall.MarkShared})}})
	}
	if l.New > 0 {
		b.chain(ruleset.Chain{Name: l.chain("new"), Rules: b.overNew(l)})
	}
	b.chain(ruleset.Chain{Name: l.chain("share"), Rules: l.sharing()})
	b.chain(ruleset.Chain{Name: l.chain("refuse"), Rules: l.refuse(over)})
}

// first is what the first packet of a connection meets. It returns when the
// packet may pass.
func (b *builder) first(l limiter) []ruleset.Rule {
	rules := []ruleset.Rule{l.line(ruleset.Match{Field: ruleset.CTMark, Mask: ruleset.U32(firewall.MarkRule),
		In: []ruleset.Range{ruleset.One(ruleset.U32(l.mark))}}, back)} // it is not the first
	if l.tcp { // who begins in the middle has shown no handshake
		v := gotoChain(autoChain("stray"))
		if l.DryRun {
			v = back
		}
		rules = append(rules, l.line(proto(6), not(tcpFlags(tcpFirst, ruleset.SYN)), v))
	}
	if l.Open > 0 {
		v := gotoChain(l.chain("open"))
		if l.DryRun {
			v = jump(l.chain("open"))
		}
		rules = append(rules, b.from(l, func(s source, v6 bool) []ruleset.Stmt {
			return []ruleset.Stmt{ruleset.Meter{Set: l.openSet(b.cfg.Sources, v6), Key: s.field, Mask: s.mask, Open: uint32(l.Open)}, v}
		})...)
	}
	switch {
	case !l.others:
		return append(rules, b.begin(l)...)
	case l.tcp:
		b.chain(ruleset.Chain{Name: l.chain("tcp"), Rules: b.begin(l)})
		rules = append(rules, l.line(proto(6), gotoChain(l.chain("tcp"))))
	}
	if l.Open > 0 {
		rules = append(rules, b.strangers(l, l.openSet, "share")...)
	}
	rules = append(rules, b.newcomers(l)...)
	return append(rules, l.line(ruleset.SetMark{Keep: markRest, Set: l.mark}))
}

// begin lets a handshake begin, to be counted when it is complete.
func (b *builder) begin(l limiter) []ruleset.Rule {
	rules := []ruleset.Rule{l.line(ruleset.SetMark{Keep: markRest, Set: l.mark | firewall.MarkPending})}
	if l.Open > 0 {
		rules = append(rules, b.strangers(l, l.openSet, "full")...)
	}
	return rules
}

// handshake is what the packet meets that completes a handshake, or claims to:
// conntrack lets one through that acknowledges less than it may, but does not take it for an answer.
func (b *builder) handshake(l limiter) []ruleset.Rule {
	guess := gotoChain(autoChain("stray"))
	if l.DryRun {
		guess = back
	}
	assured := ruleset.Match{Field: ruleset.CTStatusField, In: []ruleset.Range{ruleset.One(ruleset.U32(ruleset.StatusAssured))}}
	rules := []ruleset.Rule{l.line(not(assured), guess)}
	if l.Open > 0 {
		rules = append(rules, l.line(marked(firewall.MarkShared), gotoChain(l.chain("share"))))
	}
	return append(append(rules, l.line(completed)), b.newcomers(l)...)
}

// completed is the mark of a connection whose handshake was counted.
var completed = ruleset.SetMark{Keep: ^firewall.MarkPending, Set: firewall.MarkShared}

// newcomers counts a new connection of its source.
func (b *builder) newcomers(l limiter) []ruleset.Rule {
	if l.New == 0 {
		return nil
	}
	return append(b.from(l, func(s source, v6 bool) []ruleset.Stmt {
		return []ruleset.Stmt{ruleset.Meter{Set: l.newSet(b.cfg.Sources, v6), Key: s.field, Mask: s.mask,
			Update: true, Timeout: l.window(), Limit: once(l.Limit)}, gotoChain(l.chain("new"))}
	}), b.strangers(l, l.newSet, "share")...)
}

// strangers go to another chain: sources that did not fit into the meter.
func (b *builder) strangers(l limiter, set func(firewall.Sources, bool) string, chain string) []ruleset.Rule {
	return b.from(l, func(s source, v6 bool) []ruleset.Stmt {
		return []ruleset.Stmt{s.notIn(set(b.cfg.Sources, v6)), gotoChain(l.chain(chain))}
	})
}

// from is a line for each family of the rule: what of gives for its sources.
func (b *builder) from(l limiter, of func(s source, v6 bool) []ruleset.Stmt) (out []ruleset.Rule) {
	for _, v6 := range l.fams {
		out = append(out, l.line(append([]ruleset.Stmt{family(v6)}, of(b.source(v6), v6)...)...))
	}
	return out
}

// overOpen is what becomes of a connection beyond Open. Whom it came from is
// judged by services/quarantine, by the connections that stand: the first packet
// may be forged.
func (b *builder) overOpen(l limiter, over ruleset.Stmt) []ruleset.Rule {
	rules, end := []ruleset.Rule{l.line(over)}, drop
	if l.DryRun {
		end = back
	}
	rules = append(rules, b.spared(l, end)...)
	rules = append(rules, l.tell(firewall.OverOpen, limitRate))
	if !l.DryRun {
		rules = append(rules, l.line(drop))
	}
	return rules
}

// overNew is what becomes of a connection beyond New in Window.
func (b *builder) overNew(l limiter) []ruleset.Rule {
	refuse := gotoChain(l.chain("refuse"))
	rules := b.spared(l, refuse)
	if l.Punishes() { // who is in quarantine stays there: an element that is there keeps its timeout, or none
		rules = append(rules, b.from(l, func(s source, v6 bool) []ruleset.Stmt {
			return []ruleset.Stmt{ruleset.Meter{Set: BlockedSet(v6), Key: s.field, Mask: s.mask, Timeout: time.Duration(l.LockFor) * time.Second}}
		})...)
	}
	return append(rules, l.tell(firewall.OverNew, limitRate), l.line(refuse))
}

// spared is the sources that are limited and never shut out, nor listed in a dry
// run. All hosts of all links share the prefix of link-local addresses.
func (b *builder) spared(l limiter, v ruleset.Verdict) (rules []ruleset.Rule) {
	if !l.judged() {
		return nil
	}
	if slices.Contains(l.fams, true) {
		rules = append(rules, l.line(family(true), ruleset.Match{Field: ruleset.IP6Saddr, In: []ruleset.Range{ruleset.Net(linkLocal)}}, v))
	}
	if l.Never != "" {
		rules = append(rules, b.from(l, func(s source, v6 bool) []ruleset.Stmt {
			return []ruleset.Stmt{ruleset.Match{Field: s.field, Set: neverSet(l.Never, v6)}, v}
		})...)
	}
	for _, set := range []func(bool) string{ExemptSet, ForgedSet} {
		rules = append(rules, b.from(l, func(s source, v6 bool) []ruleset.Stmt { return []ruleset.Stmt{s.in(set(v6)), v} })...)
	}
	return rules
}

// sharing counts a new connection of a source that did not fit into a meter.
func (l limiter) sharing() []ruleset.Rule {
	rules := []ruleset.Rule{l.tell(firewall.MeterFull, fullRate)}
	if l.tcp {
		rules = append(rules, l.line(proto(6), completed))
	}
	rules = append(rules, l.line(ruleset.Meter{Set: l.shareSet(), Key: ruleset.L4Proto, Limit: l.shared()}, gotoChain(l.chain("refuse"))))
	if l.tcp && l.others {
		rules = append(rules, l.line(proto(6), back))
	}
	if l.others {
		rules = append(rules, l.line(ruleset.SetMark{Keep: markRest, Set: l.mark}))
	}
	return rules
}

// refuse ends a connection beyond the limit. Of TCP both ends have seen a
// handshake, or believe so: nothing more of it passes either way.
func (l limiter) refuse(over ruleset.Stmt) []ruleset.Rule {
	refused := ruleset.SetMark{Keep: ^uint32(0), Set: firewall.MarkRefused}
	switch {
	case l.DryRun:
		return []ruleset.Rule{l.line(over)}
	case !l.tcp:
		return []ruleset.Rule{l.line(over, drop)}
	case !l.others:
		return []ruleset.Rule{l.line(over, refused, drop)}
	}
	return []ruleset.Rule{l.line(over), l.line(proto(6), refused), l.line(drop)}
}

// tell is a line that only tells services/quarantine what happened.
func (l limiter) tell(what string, rate ruleset.Limit) ruleset.Rule {
	return l.line(rate, ruleset.Log{Group: LimitGroup, Prefix: firewall.LimitPrefix(what, l.id)})
}
