package kernel

import (
	"context"
	"fmt"

	"gatehouse/firewall/ruleset"
)

// Mismatch is the first difference found between a ruleset and the kernel.
type Mismatch struct{ What string }

// Error is the mismatch on one line.
func (m *Mismatch) Error() string { return "the kernel's ruleset is not the compiled one: " + m.What }

func mismatch(format string, args ...any) error {
	return &Mismatch{What: fmt.Sprintf(format, args...)}
}

// Verify reads the table back and compares it with rs: hook, priority and
// policy of every base chain; definition of every set and the members of those
// that are not Runtime; number, order and hash of the rules of every chain; and
// nothing beside them. An ingress chain may be missing, or hang on its device
// under another name: devices come and go at any moment, and prerouting does the
// same as it. The error is a *Mismatch unless reading failed.
func (k *Kernel) Verify(ctx context.Context, rs ruleset.Ruleset) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k.mu.Lock()
	now, err := k.look(k.readFor(rs))
	k.mu.Unlock()
	if err != nil {
		return err
	}
	if !now.table {
		return mismatch("the table is missing")
	}
	if now.dormant {
		return mismatch("the table is dormant")
	}
	if err := verifyCounters(rs.Counters, now.counters); err != nil {
		return err
	}
	if err := verifySets(rs.Sets, now.sets); err != nil {
		return err
	}
	return verifyChains(rs.AllChains(), now.chains)
}

func verifyCounters(want []ruleset.Counter, have map[string]ruleset.Counter) error {
	for _, c := range want {
		if _, ok := have[c.Name]; !ok {
			return mismatch("counter %s is missing", c.Name)
		}
	}
	if len(have) != len(want) {
		return mismatch("%d counters, want %d", len(have), len(want))
	}
	return nil
}

func verifySets(want []ruleset.Set, have map[string]*liveSet) error {
	for _, s := range want {
		h := have[s.Name]
		switch {
		case h == nil:
			return mismatch("set %s is missing", s.Name)
		case h.def != define(s):
			return mismatch("set %s is defined as %+v, want %+v", s.Name, h.def, define(s))
		case s.Runtime:
			continue
		}
		if err := verifyMembers(s, h.elements); err != nil {
			return err
		}
	}
	if len(have) != len(want) {
		return mismatch("%d sets, want %d", len(have), len(want))
	}
	return nil
}

// verifyMembers does not mind how the members of a paired set are divided.
func verifyMembers(s ruleset.Set, have []element) error {
	want, err := elementsOf(s, s.Elements)
	if err != nil {
		return err
	}
	if define(s).paired() {
		gone, added := apart(s, membersOf(s, have), s.Elements)
		if len(gone) > 0 {
			return mismatch("set %s has %s", s.Name, s.ElementText(gone[0]))
		}
		if len(added) > 0 {
			return mismatch("set %s lacks %s", s.Name, s.ElementText(added[0]))
		}
		return nil
	}
	if len(have) != len(want) {
		return mismatch("set %s has %d elements, want %d", s.Name, len(have), len(want))
	}
	if gone := difference(want, have); len(gone) > 0 {
		return mismatch("set %s lacks %d elements, the first %x", s.Name, len(gone), gone[0].key)
	}
	return nil
}

func verifyChains(want []ruleset.Chain, have map[string]*liveChain) error {
	absent := 0
	for _, c := range want {
		h := have[c.Name]
		if h == nil && byDevice(c) {
			absent++
			continue
		}
		if h == nil {
			return mismatch("chain %s is missing", c.Name)
		}
		if err := verifyHook(c.Name, c.Hook, h.hook); err != nil {
			return err
		}
		if len(h.rules) != len(c.Rules) {
			return mismatch("chain %s has %d rules, want %d", c.Name, len(h.rules), len(c.Rules))
		}
		for i, r := range c.Rules {
			p, err := assemble(r)
			if err != nil {
				return err
			}
			comment, hash := fromUserData(p.userData(c.Name, r.Comment))
			if h.rules[i] != (liveRule{comment, hash}) {
				return mismatch("rule %d of chain %s is not the one of %s", i+1, c.Name, r.Origin)
			}
		}
	}
	if len(have) != len(want)-absent {
		return mismatch("%d chains, want %d", len(have), len(want)-absent)
	}
	return nil
}

func verifyHook(chain string, want, have *ruleset.Hook) error {
	switch {
	case want == nil && have == nil:
		return nil
	case want == nil:
		return mismatch("chain %s is hooked: %s", chain, have)
	case have == nil:
		return mismatch("chain %s is not hooked, want: %s", chain, want)
	case !sameButDevice(*want, *have):
		return mismatch("chain %s: %s want: %s", chain, have, want)
	}
	return nil
}

func sameButDevice(a, b ruleset.Hook) bool {
	if a.Device != "" && b.Device != "" {
		a.Device = b.Device
	}
	return a == b
}
