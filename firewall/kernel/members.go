package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// Stamp is the comment of the rule in the stamp chain: which configuration the
// kernel runs. It is "" when the table or the chain is missing.
func (k *Kernel) Stamp(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var a attrs
	a.text(unix.NFTA_RULE_TABLE, ruleset.Table)
	a.text(unix.NFTA_RULE_CHAIN, ruleset.StampChain)
	var stamp string
	err := k.sock.request(nft(unix.NFT_MSG_GETRULE), unix.NLM_F_DUMP, unix.NFPROTO_INET, a, func(m message) error {
		if str(find(m.body, unix.NFTA_RULE_CHAIN)) == ruleset.StampChain {
			stamp = readRule(m.body).comment
		}
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return "", fmt.Errorf("read the stamp: %w", err)
	}
	return stamp, nil
}

// Counters is the values of all named counters, by name.
func (k *Kernel) Counters(ctx context.Context) ([]ruleset.Counter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	all, err := k.counters()
	if err != nil {
		return nil, fmt.Errorf("read the counters: %w", err)
	}
	list := slices.Collect(maps.Values(all))
	slices.SortFunc(list, func(a, b ruleset.Counter) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Members is what is in the set now, with what is left of the timeouts.
func (k *Kernel) Members(ctx context.Context, set string) ([]ruleset.Member, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s, err := k.lookSet(set)
	if err != nil {
		return nil, err
	}
	for range attempts {
		elements, err := k.elements(set)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read set %s: %w", set, err)
		}
		var out []ruleset.Member
		for _, e := range membersOf(s.def.shape(), elements) {
			out = append(out, ruleset.Member{Set: set, Element: e})
		}
		return out, nil
	}
	return nil, fmt.Errorf("read set %s: %w", set, errChanged)
}

// Fill makes members the only ones of a Runtime set, at one moment. A member's
// Left, when set, is what remains of its Timeout.
func (k *Kernel) Fill(ctx context.Context, set string, members []ruleset.Element) error {
	return k.transact(ctx, true, func(uint32) (*batch, error) {
		s, err := k.lookSet(set)
		if err != nil {
			return nil, err
		}
		have, err := k.elements(set)
		if errors.Is(err, errChanged) {
			return nil, unix.ERESTART
		}
		if err != nil {
			return nil, fmt.Errorf("read set %s: %w", set, err)
		}
		b := &batch{}
		b.setMembers(s.shape(), members, have)
		return b, b.problem()
	})
}

// Add puts members into their sets, all or none. One that is there already gets
// its timeout anew.
func (k *Kernel) Add(ctx context.Context, members ...ruleset.Member) error {
	return k.edit(ctx, members, true)
}

// Remove takes members out of their sets, all or none. One that is not there is no error.
func (k *Kernel) Remove(ctx context.Context, members ...ruleset.Member) error {
	return k.edit(ctx, members, false)
}

// edit puts each member in, which changes nothing if it is there, takes it
// out, and to keep it puts it in again: in one batch this neither fails for a
// member that is there nor for one that is not.
func (k *Kernel) edit(ctx context.Context, members []ruleset.Member, keep bool) error {
	return k.transact(ctx, true, func(uint32) (*batch, error) {
		b := &batch{}
		shapes := map[string]ruleset.Set{}
		for _, m := range members {
			if _, ok := shapes[m.Set]; !ok {
				s, err := k.lookSet(m.Set)
				if err != nil {
					return nil, err
				}
				shapes[m.Set] = s.shape()
			}
			b.edit(shapes[m.Set], m.Element, keep)
		}
		return b, b.problem()
	})
}

func (b *batch) edit(s ruleset.Set, member ruleset.Element, keep bool) {
	list, err := elementsOf(s, []ruleset.Element{member})
	if err != nil {
		b.refuse(s.Origin, "set "+s.Name, err)
		return
	}
	if len(list) > 1 && list[0].isEnd { // the end at zero is none of this member
		list = list[1:]
	}
	b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s.Origin, s.Name, 0, list)
	b.elements(unix.NFT_MSG_DELSETELEM, 0, s.Origin, s.Name, 0, list)
	if keep {
		b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s.Origin, s.Name, 0, list)
	}
}
