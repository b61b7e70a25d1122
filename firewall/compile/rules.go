package compile

import (
	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

func listChain(in firewall.Name) string { return "list_" + string(in) }

const floating = "floating"

// lists is the chain of each interface's rules, the floating rules before them,
// and the action chain of every rule.
func (b *builder) lists() {
	lists := map[firewall.Name][]ruleset.Rule{}
	for _, r := range b.cfg.Rules {
		if !r.On {
			continue
		}
		b.chain(b.action(r))
		lists[r.In] = append(lists[r.In], b.rule(r)...)
	}
	b.chain(ruleset.Chain{Name: floating, Rules: lists[""]})
	for _, in := range b.on(anyRole) {
		rules := append([]ruleset.Rule{line("auto/floating", "", jump(floating))}, lists[in.Name]...)
		b.chain(ruleset.Chain{Name: listChain(in.Name), Rules: rules})
	}
}

func actionChain(id firewall.ID) string { return "r_" + string(id) }

// RuleCounter is the name of the counter of a rule or forward.
func RuleCounter(id firewall.ID) string { return "c_" + string(id) }

// action is what a rule does once it matched: log, count, verdict. Its limit
// comes first, so that only what passes is logged and counted.
func (b *builder) action(r firewall.Rule) ruleset.Chain {
	origin := ruleset.Origin("rule/" + string(r.ID))
	c := ruleset.Chain{Name: actionChain(r.ID)}
	if r.Limit.On() {
		c.Rules = append(c.Rules, line(origin, "", jump("l_"+string(r.ID))))
	}
	if r.Log {
		c.Rules = append(c.Rules, logRule(origin, r.Action))
	}
	count := b.counter(RuleCounter(r.ID))
	switch r.Action {
	case firewall.Pass:
		c.Rules = append(c.Rules, line(origin, "", count, b.label(r.ID), accept))
	case firewall.Reject:
		c.Rules = append(c.Rules,
			line(origin, "", count),
			line(origin, "", proto(6), ruleset.RejectWith{Reset: true}),
			line(origin, "", ruleset.RejectWith{}))
	default:
		c.Rules = append(c.Rules, line(origin, "", count, drop))
	}
	return c
}

// rule is the lines of a rule: one for each way in which a packet can match.
func (b *builder) rule(r firewall.Rule) (out []ruleset.Rule) {
	for _, match := range b.matches(r.Family, r.Proto, r.ICMP, r.Src, r.SrcPorts, r.Dst, r.DstPorts) {
		out = append(out, line(ruleset.Origin("rule/"+string(r.ID)), string(r.ID), append(match, gotoChain(actionChain(r.ID)))...))
	}
	return out
}
