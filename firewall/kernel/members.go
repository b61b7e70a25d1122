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
// set takes a while to read, and others may change sets meanwhile. Where time
// takes a member away while it is read, the kernel may leave another one out: one
// that is missing once need not be gone.
func (k *Kernel) Members(ctx context.Context, set string) ([]ruleset.Member, error) {
	s, err := k.dial()
	if err != nil {
		return nil, err
	}
	defer s.close()
	var r reading
	for try := range attempts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if try == patience {
			k.mu.Lock()
			defer k.mu.Unlock()
		}
		switch err := s.read(set, &r); {
		case errors.Is(err, errChanged):
			r = reading{}
		case err != nil:
			return nil, err
		case !r.twice || try >= patience:
			return r.members, nil
		}
	}
	return nil, fmt.Errorf("read set %s: %w", set, errChanged)
}

// patience is how often a set is read anew because it changed meanwhile, before
// the writer is made to wait.
const patience = 3

// reading is what was read of a set, in one or more goes.
type reading struct {
	members []ruleset.Member
	spots   map[string]spot // by key
	goes    int
	// twice: the last go met a member twice. The kernel's table was growing or a
	// rule added a member, and in its place another may have been left out.
	twice bool
}

type spot struct{ at, goes int }

func (s *sock) read(set string, r *reading) error {
	before, err := s.generation()
	if err != nil {
		return fmt.Errorf("ask nftables for its generation: %w", err)
	}
	is, err := s.lookSet(set)
	if err != nil {
		return err
	}
	if is.def.paired() {
		err = s.readPairs(is, r)
	} else {
		err = s.readEach(is, r)
	}
	if err != nil {
		return fmt.Errorf("read set %s: %w", set, err)
	}
	after, err := s.generation()
	if err == nil && after != before { // of elements alone the kernel does not tell that
		err = errChanged
	}
	return err
}

func (s *sock) readPairs(set *liveSet, r *reading) error {
	list, err := s.elements(set.name)
	r.members = nil
	for _, e := range membersOf(set.shape(), list) {
		r.members = append(r.members, ruleset.Member{Set: set.name, Element: e})
	}
	return err
}

func (s *sock) readEach(set *liveSet, r *reading) error {
	shape := set.shape()
	if r.spots == nil {
		r.spots = map[string]spot{}
	}
	r.goes++
	r.twice = false
	return s.eachElement(set.name, func(e element) {
		p, known := r.spots[string(e.key)]
		r.twice = r.twice || known && p.goes == r.goes
		key := string(e.key)
		m := ruleset.Member{Set: set.name, Element: e.whole(shape, key)}
		if known {
			r.members[p.at] = m
		} else {
			p.at, r.members = len(r.members), append(r.members, m)
		}
		r.spots[key] = spot{p.at, r.goes}
	})
}

// Fill makes members the only ones of a Runtime set, at one moment. A member's
// Left, when set, is what remains of its Timeout. Members of an interval set may
// then be divided otherwise, and those that stay go on counting.
func (k *Kernel) Fill(ctx context.Context, set string, members []ruleset.Element) (err error) {
	for range attempts {
		err = k.fill(ctx, set, members)
		var r *Refusal
		if !errors.As(err, &r) || r.Errno != unix.ENOENT {
			return err
		}
		// The time of a member was up between its reading and the change.
	}
	return err
}

func (k *Kernel) fill(ctx context.Context, set string, members []ruleset.Element) error {
	return k.transact(ctx, true, func(uint32) (*batch, error) {
		s, err := k.sock.lookSet(set)
		if err != nil {
			return nil, err
		}
		have, err := k.sock.elements(set)
		if err != nil {
			return nil, fmt.Errorf("read set %s: %w", set, err)
		}
		b := &batch{}
		b.setMembers(s.shape(), members, have)
		return b, b.problem()
	})
}
