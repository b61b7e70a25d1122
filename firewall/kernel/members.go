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
// set takes a while to read, and others may change sets meanwhile. Where rules
// add members, or time takes some away, while it is read, the kernel may leave
// another one out: one that is missing once need not be gone.
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

func (s *sock) members(set string) ([]ruleset.Member, error) {
	before, err := s.generation()
	if err != nil {
		return nil, fmt.Errorf("ask nftables for its generation: %w", err)
	}
	is, err := s.lookSet(set)
	if err != nil {
		return nil, err
	}
	out, err := s.readMembers(is)
	if err != nil {
		return nil, fmt.Errorf("read set %s: %w", set, err)
	}
	after, err := s.generation()
	if err == nil && after != before { // of elements alone the kernel does not tell that
		err = errChanged
	}
	return out, err
}

func (s *sock) readMembers(set *liveSet) (out []ruleset.Member, err error) {
	shape := set.shape()
	if set.def.paired() {
		list, err := s.elements(set.name)
		for _, e := range membersOf(shape, list) {
			out = append(out, ruleset.Member{Set: set.name, Element: e})
		}
		return out, err
	}
	seen := map[string]bool{} // rules may make it list one twice
	err = s.eachElement(set.name, func(e element) {
		if !seen[string(e.key)] {
			key := string(e.key)
			seen[key] = true
			out = append(out, ruleset.Member{Set: set.name, Element: e.whole(shape, key)})
		}
	})
	return out, err
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
