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

// Members is what is in the set now, with what is left of the timeouts. A large
// set takes a while to read, and meanwhile others may change sets.
func (k *Kernel) Members(ctx context.Context, set string) ([]ruleset.Member, error) {
	s, err := k.dial()
	if err != nil {
		return nil, err
	}
	defer s.close()
	for try := range attempts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if try == patience {
			k.mu.Lock()
			defer k.mu.Unlock()
		}
		out, err := s.members(set)
		if !errors.Is(err, errChanged) {
			return out, err
		}
	}
	return nil, fmt.Errorf("read set %s: %w", set, errChanged)
}

// patience is how often a set is read anew because it changed meanwhile, before
// the writer is made to wait.
const patience = 3

func (s *sock) members(set string) (out []ruleset.Member, err error) {
	is, err := s.lookSet(set)
	if err != nil {
		return nil, err
	}
	shape := is.shape()
	if is.def.paired() {
		var list []element
		list, err = s.elements(set)
		for _, e := range membersOf(shape, list) {
			out = append(out, ruleset.Member{Set: set, Element: e})
		}
	} else {
		err = s.eachElement(set, func(e element) {
			out = append(out, ruleset.Member{Set: set, Element: e.whole(shape)})
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read set %s: %w", set, err)
	}
	return out, nil
}

// Fill makes members the only ones of a Runtime set, at one moment. A member's
// Left, when set, is what remains of its Timeout.
func (k *Kernel) Fill(ctx context.Context, set string, members []ruleset.Element) error {
	return k.transact(ctx, true, func(uint32) (*batch, error) {
		s, err := k.sock.lookSet(set)
		if err != nil {
			return nil, err
		}
		have, err := k.sock.elements(set)
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
