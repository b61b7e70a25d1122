package quarantine

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// A SYN beyond the limit proves nothing: anybody can write any address on it. So
// conntrack is asked how many connections of the source are established, at once
// and, since handshakes may be under way, again a few times. Many suspects share
// one pass over conntrack, and the passes take a third of a processor at most.
var looks = []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond, 60 * time.Millisecond}

const (
	maxSuspects = 1024
	maxCleared  = 4096
	clearedFor  = time.Second // a suspect that was cleared is not asked about again
	fewSources  = 4           // looked at each by itself; more are cheaper in one pass
)

// suspicion is a source that sent more SYNs than a rule allows connections.
type suspicion struct {
	src    netip.Prefix
	number uint32 // of the rule, in the ct mark
}

type suspect struct {
	rule  firewall.ID
	since time.Time
	next  int // of looks
}

// suspect takes a SYN beyond the limit. The caller holds mu.
func (s *Service) suspect(w watched, src netip.Prefix, l Line) {
	k := suspicion{src, w.number}
	if s.suspects[k] != nil || len(s.suspects) >= maxSuspects || s.book.all[key{src: src}] != nil {
		return
	}
	if t, ok := s.cleared[k]; ok && time.Since(t) < clearedFor {
		return
	}
	s.suspects[k] = &suspect{rule: w.id, since: l.Time}
	signal(s.doubt)
}

// ask looks at the suspects as they come.
func (s *Service) ask(ctx context.Context) {
	var rest time.Time // until then conntrack is left alone
	for {
		due := s.nextLook()
		if due.IsZero() {
			select {
			case <-ctx.Done():
				return
			case <-s.doubt:
			}
			continue
		}
		if due.Before(rest) {
			due = rest
		}
		if !sleep(ctx, time.Until(due)) {
			return
		}
		began := time.Now()
		s.examine(ctx, began)
		ended := time.Now()
		rest = ended.Add(2 * ended.Sub(began))
	}
}

// nextLook is when the next suspect is due; zero without one.
func (s *Service) nextLook() (due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.suspects {
		if t := x.since.Add(looks[x.next]); due.IsZero() || t.Before(due) {
			due = t
		}
	}
	return due
}

// examine counts what the suspects have open, punishes, and lets those go that
// were looked at often enough.
func (s *Service) examine(ctx context.Context, now time.Time) {
	s.mu.Lock()
	open := make(map[suspicion]int, len(s.suspects))
	for k := range s.suspects {
		open[k] = 0
	}
	sources := s.sources
	s.mu.Unlock()
	if err := s.tally(ctx, sources, open); err != nil && ctx.Err() == nil {
		s.log.Warn("ask for open connections", "err", err)
	}
	guilty := map[suspicion]int{}
	s.mu.Lock()
	for k, n := range open {
		x := s.suspects[k]
		w, known := s.limits[x.rule]
		switch {
		case !known || w.number != k.number || w.limit.Open == 0:
			delete(s.suspects, k)
		case n >= w.limit.Open && w.limit.DryRun:
			s.wouldHave(w, k.src, firewall.OverOpen, n, x.since)
			s.clearSuspect(k, now)
		case n >= w.limit.Open:
			guilty[k] = n
		default:
			for x.next < len(looks) && !x.since.Add(looks[x.next]).After(now) {
				x.next++
			}
			if x.next == len(looks) {
				s.clearSuspect(k, now)
			}
		}
	}
	s.mu.Unlock()
	if len(guilty) > 0 {
		s.punish(ctx, guilty, now)
	}
}

// clearSuspect lets a suspect go for a moment. The caller holds mu.
func (s *Service) clearSuspect(k suspicion, now time.Time) {
	delete(s.suspects, k)
	if len(s.cleared) >= maxCleared {
		for k, t := range s.cleared {
			if now.Sub(t) >= clearedFor {
				delete(s.cleared, k)
			}
		}
	}
	if len(s.cleared) < maxCleared {
		s.cleared[k] = now
	}
}

// tally counts the established connections of each suspicion: those whose
// handshake the rules have counted (conntrack alone takes a stranger's guess for
// one) and not refused, since nothing passes by these.
func (s *Service) tally(ctx context.Context, sources firewall.Sources, open map[suspicion]int) error {
	count := func(f firewall.Flow) error {
		n := f.Mark & firewall.MarkRule >> firewall.MarkShift
		if n == 0 || !f.Open || f.Mark&(firewall.MarkPending|firewall.MarkRefused) != 0 {
			return nil
		}
		k := suspicion{sources.Of(f.Src), n}
		if _, asked := open[k]; asked {
			open[k]++
		}
		return nil
	}
	var few []netip.Prefix
	for k := range open {
		if !slices.Contains(few, k.src) {
			if few = append(few, k.src); len(few) > fewSources {
				return s.deps.Conntrack.Flows(ctx, count)
			}
		}
	}
	for _, src := range few {
		if err := s.deps.Conntrack.FlowsOf(ctx, src, count); err != nil {
			return err
		}
	}
	return nil
}

// penalty is a punishment: what to tell the kernel, and what to write down then.
type penalty struct {
	suspicion
	w      watched
	record record
}

// punish shuts out those who have as many connections open as they may, and wanted more.
func (s *Service) punish(ctx context.Context, guilty map[suspicion]int, now time.Time) {
	s.mu.Lock()
	var list []penalty
	bits := s.book.prefix6
	for k, n := range guilty {
		x := s.suspects[k]
		w, known := s.limits[x.rule]
		gone, lately := s.released[k.src]
		if !known || !w.limit.Punishes() || s.spared(w, k.src) || s.book.all[key{src: k.src}] != nil || lately && !x.since.After(gone) ||
			slices.ContainsFunc(list, func(o penalty) bool { return o.src == k.src }) {
			s.clearSuspect(k, now)
			continue
		}
		r := record{src: k.src, kind: LockOut, why: s.because(w, firewall.OverOpen), open: n, since: now, until: now.Add(seconds(w.limit.LockFor))}
		if ladder(w.limit, s.struck(k.src, now, w.limit)+1) {
			r.kind, r.until = Quarantine, time.Time{}
		}
		list = append(list, penalty{k, w, r})
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b penalty) int { return cmp.Compare(a.number, b.number) })
	done := s.tellKernel(ctx, list, bits, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		one := &list[i]
		s.clearSuspect(one.suspicion, now)
		if !done[one.src] {
			continue
		}
		r := one.record
		r.times = s.strike(r.src, now, one.w.limit)
		s.enter(&r)
		s.note(Act{What: map[Kind]string{LockOut: LockedOut, Quarantine: Quarantined}[r.kind], Source: r.src, Reason: reason(&r)})
	}
}

// tellKernel puts the guilty into the kernel: all at once, and where that is
// refused each by itself, so that one does not save the others. It returns who is in.
func (s *Service) tellKernel(ctx context.Context, list []penalty, bits int, now time.Time) map[netip.Prefix]bool {
	var all []ruleset.Member
	for _, one := range list {
		all = append(all, one.record.member(bits, now))
	}
	done := map[netip.Prefix]bool{}
	refused := s.deps.Sets.Add(ctx, all...)
	for i, one := range list {
		err := refused
		if err != nil && len(list) > 1 {
			err = s.deps.Sets.Add(ctx, all[i])
		}
		if done[one.src] = err == nil; err != nil && ctx.Err() == nil {
			s.log.Error("shut out a source", "source", one.src, "err", err)
		}
	}
	return done
}
