package quarantine

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// workRetry is how long after a refusal the kernel is told again.
const workRetry = time.Second

// work tells the kernel what follows from a lock-out: promotion, or that the
// source is exempt after all.
func (s *Service) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.jobs:
		}
		if err := s.turn.take(ctx); err != nil {
			return
		}
		err := s.promoteAll(ctx)
		if err == nil {
			err = s.spareAll(ctx)
		}
		s.turn.release()
		if err == nil || ctx.Err() != nil {
			continue
		}
		s.log.Warn("change who is shut out", "err", err)
		if !sleep(ctx, workRetry) {
			return
		}
		signal(s.jobs)
	}
}

// promoteAll makes those quarantine that are due. The caller has the turn.
func (s *Service) promoteAll(ctx context.Context) error {
	for {
		s.mu.Lock()
		now := time.Now()
		var members []ruleset.Member
		var some []netip.Prefix
		for src := range s.promote {
			if len(some) == saveChunk {
				break
			}
			if r := s.book.all[key{src: src}]; r != nil && r.due {
				some, members = append(some, src), append(members, r.member(s.book.prefix6, now))
			} else {
				delete(s.promote, src)
			}
		}
		s.mu.Unlock()
		if len(some) == 0 {
			return nil
		}
		if err := s.deps.Sets.Add(ctx, members...); err != nil {
			return fmt.Errorf("make a lock-out quarantine: %w", err)
		}
		s.mu.Lock()
		for _, src := range some {
			delete(s.promote, src)
			old := s.book.all[key{src: src}]
			if old == nil {
				continue
			}
			r := *old
			r.kind, r.until, r.due = Quarantine, time.Time{}, false
			s.put(&r)
			s.note(Act{What: Quarantined, Source: src, Reason: reason(&r)})
		}
		s.mu.Unlock()
	}
}

// spareAll lets those go that the kernel locked out although they are exempt. The caller has the turn.
func (s *Service) spareAll(ctx context.Context) error {
	s.mu.Lock()
	var members []ruleset.Member
	some := slices.Collect(maps.Keys(s.spare))
	for _, src := range some {
		if s.book.all[key{src: src}] == nil {
			members = append(members, memberOf(src, s.book.prefix6))
		}
	}
	s.mu.Unlock()
	if len(members) > 0 {
		if err := s.deps.Sets.Remove(ctx, members...); err != nil {
			return fmt.Errorf("let exempt sources go: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, src := range some {
		delete(s.spare, src)
	}
	return nil
}

// cutting cuts the connections of those who were shut out: theirs would go on
// once they are let in again. Many sources share one pass over conntrack, and it
// takes a third of a processor at most.
func (s *Service) cutting(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.cuts:
		}
		s.mu.Lock()
		some := s.cut
		s.cut = map[netip.Prefix]bool{}
		s.mu.Unlock()
		began := time.Now()
		if err := s.cutAll(ctx, some); err != nil && ctx.Err() == nil {
			s.log.Warn("cut connections of those who are shut out", "sources", len(some), "err", err)
		}
		if !sleep(ctx, 2*time.Since(began)) {
			return
		}
	}
}

func (s *Service) cutAll(ctx context.Context, sources map[netip.Prefix]bool) error {
	if len(sources) <= fewSources {
		for src := range sources {
			if _, err := s.deps.Conntrack.CutFrom(ctx, src); err != nil {
				return err
			}
		}
		return nil
	}
	s.mu.Lock()
	of := s.sources
	s.mu.Unlock()
	nets := slices.DeleteFunc(slices.Collect(maps.Keys(sources)), func(p netip.Prefix) bool { return of.Of(p.Addr()) == p })
	var flows []firewall.Flow
	err := s.deps.Conntrack.Flows(ctx, func(f firewall.Flow) error {
		if sources[of.Of(f.Src)] || slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(f.Src) }) {
			flows = append(flows, f)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = s.deps.Conntrack.Cut(ctx, flows)
	return err
}
