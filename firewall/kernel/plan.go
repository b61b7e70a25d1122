package kernel

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// refuse notes what cannot be encoded, as if the kernel had refused it.
func (b *batch) refuse(origin ruleset.Origin, what string, err error) {
	b.refused = append(b.refused, &Refusal{Part: origin, Detail: what + ": " + err.Error(), Errno: syscall.EINVAL})
}

// problem is all that could not be encoded, nil when all could.
func (b *batch) problem() error { return errors.Join(b.refused...) }

// readFor picks the sets whose members the plan for rs depends on: those that
// should hold exactly what rs says, and those to be replaced.
func (k *Kernel) readFor(rs ruleset.Ruleset) func(*liveSet) bool {
	want := map[string]ruleset.Set{}
	for _, s := range rs.Sets {
		want[s.Name] = s
	}
	return func(s *liveSet) bool {
		w, ok := want[s.name]
		return ok && (!w.Runtime || !w.Meter && define(w) != s.def)
	}
}

// plan is the batch that turns what is into rs. All rules go and come again;
// chains, sets and counters that stay as they are, are not touched.
func (k *Kernel) plan(rs ruleset.Ruleset, now *live) (*batch, error) {
	b := &batch{}
	var table attrs
	table.text(unix.NFTA_TABLE_NAME, ruleset.Table)
	table.u32(unix.NFTA_TABLE_FLAGS, 0) // wakes a table that somebody made dormant
	b.add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, "auto/table", "the table", table)
	if now.table {
		var rules attrs
		rules.text(unix.NFTA_RULE_TABLE, ruleset.Table)
		b.add(unix.NFT_MSG_DELRULE, 0, "auto/table", "the old rules", rules)
	}
	for _, c := range rs.Counters {
		if _, ok := now.counters[c.Name]; !ok {
			b.counter(unix.NFT_MSG_NEWOBJ, c.Name)
		}
	}
	for _, s := range rs.Sets {
		b.set(s, now.sets[s.Name])
	}
	chains := k.chainsFor(rs, now)
	for _, c := range chains {
		b.chain(c, now.chains[c.Name])
	}
	for _, c := range chains {
		for i, r := range c.Rules {
			b.rule(c.Name, i+1, r)
		}
	}
	b.leftovers(rs, chains, now)
	return b, b.problem()
}

// leftovers takes away what rs does not name.
func (b *batch) leftovers(rs ruleset.Ruleset, chains []ruleset.Chain, now *live) {
	for name := range now.chains {
		if !slices.ContainsFunc(chains, func(c ruleset.Chain) bool { return c.Name == name }) {
			b.delChain(name)
		}
	}
	for name := range now.sets {
		if !slices.ContainsFunc(rs.Sets, func(s ruleset.Set) bool { return s.Name == name }) {
			b.delSet(name)
		}
	}
	wanted := map[string]bool{}
	for _, c := range rs.Counters {
		wanted[c.Name] = true
	}
	for name := range now.counters {
		if !wanted[name] {
			b.counter(unix.NFT_MSG_DELOBJ, name)
		}
	}
}

func (b *batch) counter(msg uint16, name string) {
	var a attrs
	a.text(unix.NFTA_OBJ_TABLE, ruleset.Table)
	a.text(unix.NFTA_OBJ_NAME, name)
	a.u32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
	var flags uint16
	if msg == unix.NFT_MSG_NEWOBJ {
		var data attrs
		data.u64(unix.NFTA_COUNTER_BYTES, 0)
		data.u64(unix.NFTA_COUNTER_PACKETS, 0)
		a.nest(unix.NFTA_OBJ_DATA, data)
		flags = unix.NLM_F_CREATE
	}
	b.add(msg, flags, "auto/counter", "counter "+name, a)
}

// chain makes the chain, or gives an old one its policy. A base chain that was
// hooked elsewhere is made anew: the kernel cannot move it.
func (b *batch) chain(c ruleset.Chain, old *liveChain) {
	origin := ruleset.Origin("auto/chain")
	if len(c.Rules) > 0 {
		origin = c.Rules[0].Origin
	}
	if old != nil && !movable(old.hook, c.Hook) {
		b.delChain(c.Name)
		old = nil
	}
	if old != nil && (c.Hook == nil || old.hook.Drop == c.Hook.Drop) {
		return
	}
	var a attrs
	a.text(unix.NFTA_CHAIN_TABLE, ruleset.Table)
	a.text(unix.NFTA_CHAIN_NAME, c.Name)
	if c.Hook != nil {
		policy := uint32(1) // NF_ACCEPT
		if c.Hook.Drop {
			policy = 0
		}
		if old == nil {
			n := slices.Index(hookNames, c.Hook.Name)
			if n < 0 {
				b.refuse(origin, "chain "+c.Name, fmt.Errorf("unknown hook %q", c.Hook.Name))
				return
			}
			var h attrs
			h.u32(unix.NFTA_HOOK_HOOKNUM, uint32(n))
			h.u32(unix.NFTA_HOOK_PRIORITY, uint32(int32(c.Hook.Priority)))
			if c.Hook.Device != "" {
				h.text(unix.NFTA_HOOK_DEV, c.Hook.Device)
			}
			a.nest(unix.NFTA_CHAIN_HOOK, h)
		}
		a.u32(unix.NFTA_CHAIN_POLICY, policy)
		if old == nil {
			a.text(unix.NFTA_CHAIN_TYPE, c.Hook.Type)
		}
	}
	b.add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, origin, "chain "+c.Name, a)
}

// movable reports whether a chain can go from one hook to the other by an update.
func movable(from, to *ruleset.Hook) bool {
	if from == nil || to == nil {
		return from == to
	}
	a, b := *from, *to
	a.Drop, b.Drop = false, false
	return a == b
}

func (b *batch) delChain(name string) {
	var a attrs
	a.text(unix.NFTA_CHAIN_TABLE, ruleset.Table)
	a.text(unix.NFTA_CHAIN_NAME, name)
	b.add(unix.NFT_MSG_DELCHAIN, 0, "auto/chain", "old chain "+name, a)
}

func (b *batch) delSet(name string) {
	var a attrs
	a.text(unix.NFTA_SET_TABLE, ruleset.Table)
	a.text(unix.NFTA_SET_NAME, name)
	b.add(unix.NFT_MSG_DELSET, 0, "auto/set", "old set "+name, a)
}

// set makes the set, or gives an old one the members it should have.
func (b *batch) set(s ruleset.Set, old *liveSet) {
	members := s.Elements
	if old != nil && old.def == define(s) {
		if s.Runtime {
			return
		}
		b.setMembers(s, s.Elements, old.elements)
		return
	}
	if old != nil {
		b.delSet(s.Name)
		if s.Runtime && !s.Meter && sameTypes(s, old.def) {
			members = fitting(s, membersOf(old.def.shape(), old.elements))
		}
	}
	elements, err := elementsOf(s, members)
	if err != nil {
		b.refuse(s.Origin, "set "+s.Name, err)
		return
	}
	id := b.setID()
	b.add(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, s.Origin, "set "+s.Name, newSet(s.Name, id, define(s), userOrder(s.Key, s.Data)))
	b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s.Origin, s.Name, id, elements)
}

func sameTypes(s ruleset.Set, old definition) bool {
	d := define(s)
	return d.keyType == old.keyType && d.dataType == old.dataType
}

// fitting is the members that the set can hold, without timeouts if it has none.
func fitting(s ruleset.Set, members []ruleset.Element) []ruleset.Element {
	var out []ruleset.Element
	for _, m := range members {
		if !s.Timeout {
			m.Timeout, m.Left = 0, 0
		}
		if _, err := elementsOf(s, []ruleset.Element{m}); err == nil {
			out = append(out, m)
		}
	}
	return out
}

// setMembers makes members the set's only ones; have is what is in it. Members
// of a concatenated interval set are taken and put one by one, since its copy
// with all of them exchanged would become valid after the rules, and for a
// moment match nothing.
func (b *batch) setMembers(s ruleset.Set, members []ruleset.Element, have []element) {
	want, err := elementsOf(s, members)
	if err != nil {
		b.refuse(s.Origin, "set "+s.Name, err)
		return
	}
	var gone, added []element
	timed := func(e element) bool { return e.member.Timeout > 0 }
	switch {
	case len(have) == 0:
		added = want
	case define(s).paired():
		gone, added = exchange(s, members, have)
	case slices.ContainsFunc(have, timed) || slices.ContainsFunc(want, timed):
		b.add(unix.NFT_MSG_DELSETELEM, 0, s.Origin, "members of set "+s.Name, setElems(s.Name, 0))
		added = want
	default:
		gone, added = difference(have, want), difference(want, have)
	}
	b.elements(unix.NFT_MSG_DELSETELEM, 0, s.Origin, s.Name, 0, gone)
	b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s.Origin, s.Name, 0, added)
}

// difference is the elements of a that b has not.
func difference(a, b []element) []element {
	in := map[string]bool{}
	for _, e := range b {
		in[e.same()] = true
	}
	var out []element
	for _, e := range a {
		if !in[e.same()] {
			out = append(out, e)
		}
	}
	return out
}
