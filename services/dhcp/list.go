package dhcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// ErrNoLease says that there is nothing to release or delete.
var ErrNoLease = errors.New("no such lease")

// List returns every lease, offers and static leases whose client is not here
// included, by address. State is as of now.
func (s *Server) List() []Lease {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Lease
	for _, sv := range s.served {
		out = append(out, sv.pool.list(now)...)
	}
	for _, l := range s.others {
		l.State = l.At(now)
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
	return out
}

// list is the rows, offers and static leases of one pool.
func (p *Pool) list(now time.Time) []Lease {
	all := maps.Clone(p.rows)
	for a, o := range p.offers {
		if l := all[a]; now.Before(o.until) && !l.live(now) {
			all[a] = Lease{Addr: a, In: p.scope.In, Client: o.client, MAC: o.mac, State: Offered, Until: o.until, First: l.First}
		}
	}
	for mac, st := range p.scope.Statics {
		l := all[st.Addr]
		switch l.At(now) {
		case Active, Offered, Declined:
			continue
		}
		all[st.Addr] = Lease{Addr: st.Addr, In: p.scope.In, MAC: mac, Host: st.Host, State: Static, First: l.First, Last: l.Last}
	}
	out := make([]Lease, 0, len(all))
	for a, l := range all {
		l.State = l.At(now)
		if st, ok := p.scope.Statics[l.MAC]; ok && l.State != Declined {
			l.Pinned = st.Addr == a
			if !l.Pinned && l.live(now) {
				l.Moves = st.Addr
			}
		}
		out = append(out, l)
	}
	return out
}

// Recent returns the last exchanges, at most 50, the newest last.
func (s *Server) Recent() []Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.recent[max(0, len(s.recent)-50):])
}

// Stats returns the counts since the start.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Release takes an address back from its client, or out of quarantine. Its
// client learns of it at its next renewal, and may get it again. It returns when
// that is on disk, and needs Run to run. An address that is free already gives
// ErrNoLease.
func (s *Server) Release(ctx context.Context, a netip.Addr) error {
	now := time.Now()
	return s.act(ctx, a, func(p *Pool, l Lease) job {
		if p != nil {
			return job{addrs: addrsOf(p.Release(a, now))}
		}
		if l.State == Released {
			return job{}
		}
		l.State, l.Until = Released, now
		s.others[a] = l
		return job{addrs: []netip.Addr{a}}
	})
}

// Delete forgets an address and its client. It returns when that is on disk,
// and needs Run to run. An address without a row gives ErrNoLease.
func (s *Server) Delete(ctx context.Context, a netip.Addr) error {
	return s.act(ctx, a, func(p *Pool, _ Lease) job {
		if p != nil {
			p.Delete(a)
		}
		delete(s.others, a)
		return job{addrs: []netip.Addr{a}}
	})
}

// act changes the row of an address, in a pool or outside every scope, and
// waits until the change is stored.
func (s *Server) act(ctx context.Context, a netip.Addr, change func(*Pool, Lease) job) error {
	s.mu.Lock()
	l, ok := s.others[a]
	var pool *Pool
	if sv := s.holder(a); sv != nil {
		pool = sv.pool
		l, ok = pool.rows[a]
	}
	var j job
	if ok {
		j = change(pool, l)
	}
	s.mu.Unlock()
	if len(j.addrs) == 0 {
		return ErrNoLease
	}
	stored := make(chan error, 1)
	j.done = func(err error) { stored <- err }
	select {
	case s.queue <- j:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-stored:
		if err != nil {
			return fmt.Errorf("store lease: %w", err)
		}
		s.tell(Event{Kind: Removed, In: l.In, Addr: a, MAC: l.MAC, Host: l.Host})
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
