package quarantine

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall"
)

// Line is one log line of a limit: a packet that was beyond it.
type Line struct {
	Time time.Time
	What string      // firewall.OverNew, OverOpen or MeterFull
	Rule firewall.ID // whose limit
	Src  netip.Addr  // as on the wire
}

const (
	// echo is how far apart the lines of one lock-out can be: packets that were
	// on their way on another processor.
	echo = 2 * time.Second
	// maxLate is how many lines wait for their rule to be known.
	maxLate = 256
	// forget is how long a release makes what was seen before it count no more.
	forget = time.Minute
	// usualWindow is the time that strikes are counted over where a rule names none.
	usualWindow = time.Hour
	// strikesKept is how many strikes of one source are remembered: a limit asks for 100 at most.
	strikesKept   = 100
	longestWindow = 30 * 24 * time.Hour
)

// Offence takes a log line of a limit. It returns at once: it is called for each
// packet that is logged, however many strangers send.
func (s *Service) Offence(l Line) {
	l.Src = l.Src.Unmap().WithZone("")
	if !l.Src.IsValid() || l.Src.IsUnspecified() || l.Src.IsMulticast() {
		return
	}
	l.Time = onClock(l.Time, time.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.limits[l.Rule]; known {
		s.judge(l)
	} else if len(s.late) < maxLate { // the kernel has the rule already, Reload comes
		s.late = append(s.late, l)
	}
}

// onClock is a moment of the recent past that stays right when the wall clock is set.
func onClock(t, now time.Time) time.Time {
	age := now.Round(0).Sub(t.Round(0))
	return now.Add(-min(max(age, 0), time.Minute))
}

// judge decides what a line means. The caller holds mu.
func (s *Service) judge(l Line) {
	w, src := s.limits[l.Rule], s.sources.Of(l.Src)
	switch {
	case l.What == firewall.MeterFull:
		s.overflows[l.Rule] = l.Time
		signal(s.gauges)
	case !w.limit.Punishes() && !w.limit.DryRun:
	case w.limit.Over != firewall.DropExcess && s.spared(w, src):
		if l.What == firewall.OverNew && w.limit.Punishes() && s.book.all[key{src: src}] == nil {
			// The kernel has locked it out before it heard of the exemption.
			s.spare[src] = true
			signal(s.jobs)
		}
	case l.What == firewall.OverOpen:
		s.suspect(w, src, l)
	case w.limit.DryRun:
		s.wouldHave(w, src, l.What, 0, l.Time)
	default:
		s.locked(w, src, l.Time)
	}
}

// spared reports whether the limit must not punish a source: one that is exempt,
// of which a part is never to be touched, or that is no source, since all hosts
// of all links share the prefix of link-local addresses. The caller holds mu.
func (s *Service) spared(w watched, src netip.Prefix) bool {
	_, exempt := s.exempt[src]
	all := firewall.PrefixRange(src)
	return exempt || src.Addr().Is6() && src.Addr().IsLinkLocalUnicast() || slices.ContainsFunc(w.never, func(r firewall.AddrRange) bool {
		return r.From.BitLen() == all.From.BitLen() && r.From.Compare(all.To) <= 0 && all.From.Compare(r.To) <= 0
	})
}

// locked notes that the kernel has locked a source out. The caller holds mu.
func (s *Service) locked(w watched, src netip.Prefix, at time.Time) {
	old := s.book.all[key{src: src}]
	switch gone, lately := s.released[src]; {
	case lately && !at.After(gone): // that lock-out was released meanwhile
		return
	case old == nil && s.book.sizes[home(src, s.book.prefix6)] >= maxBlocked, old != nil && old.kind == Quarantine:
		signal(s.look) // the kernel knows
		return
	case old != nil && at.Before(old.since.Add(echo)):
		// One lock-out, of which little was known, or by two limits at once: the harder one counts.
		if old.why.rule == "" && old.by == "" || !old.due && ladder(w.limit, old.times) {
			s.explain(w, old)
		}
		return
	}
	s.lockOut(w, src, at)
}

// lockOut writes down a lock-out that is in the kernel. The caller holds mu.
func (s *Service) lockOut(w watched, src netip.Prefix, at time.Time) {
	times := s.strike(src, at, w.limit)
	r := &record{src: src, kind: LockOut, why: s.because(w, firewall.OverNew), times: times, since: at,
		until: at.Add(seconds(w.limit.LockFor)), due: ladder(w.limit, times)}
	s.enter(r)
	s.note(Act{What: LockedOut, Source: src, Reason: reason(r)})
}

// enter puts a record that has just come to be into the book, and has done what
// follows from it. The caller holds mu.
func (s *Service) enter(r *record) {
	s.put(r)
	s.cut[r.src] = true
	signal(s.cuts)
	if r.due {
		s.promote[r.src] = true
		signal(s.jobs)
	}
}

// put writes a record, to disk too. The caller holds mu.
func (s *Service) put(r *record) {
	s.book.put(r)
	if !r.would {
		s.save.entries[r.src] = true
	}
	s.stir()
	if !r.until.IsZero() {
		signal(s.ends)
	}
}

// drop takes a record out, of the disk too. The caller holds mu.
func (s *Service) drop(r *record) {
	s.book.drop(r.key())
	if !r.would {
		s.save.entries[r.src] = true
	}
	s.stir()
}

// explain gives a lock-out another reason than it had. The caller holds mu.
func (s *Service) explain(w watched, old *record) {
	r := *old
	r.why, r.reason = s.because(w, firewall.OverNew), ""
	r.times = s.struck(r.src, r.since, w.limit)
	if r.due = ladder(w.limit, r.times); r.due {
		s.promote[r.src] = true
		signal(s.jobs)
	}
	s.put(&r)
}

// because is the one copy of a cause. The caller holds mu.
func (s *Service) because(w watched, what string) *cause {
	c := cause{w.id, what, w.limit}
	if s.causes[c] == nil {
		if len(s.causes) > 4096 { // of limits that are no more
			clear(s.causes)
		}
		s.causes[c] = &c
	}
	return s.causes[c]
}

// reason says in the audit what a record is for.
func reason(r *record) string {
	if r.why.rule == "" {
		return r.reason
	}
	return "rule/" + string(r.why.rule) + ": " + r.why.limit.String()
}

// ladder reports whether so many lock-outs make it quarantine.
func ladder(l firewall.Limit, times int) bool {
	return l.Over == firewall.Quarantine || l.Strikes > 0 && times >= l.Strikes
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// strike counts a lock-out and returns how many there were within the window,
// this one included. The caller holds mu.
func (s *Service) strike(src netip.Prefix, at time.Time, l firewall.Limit) int {
	if len(s.strikes) >= maxStruck && s.strikes[src] == nil {
		s.forgetStrikes(maxStruck * 9 / 10)
	}
	list := append(s.strikes[src], at)
	s.strikes[src] = list[max(0, len(list)-strikesKept):]
	s.save.strikes[src] = true
	return s.struck(src, at, l)
}

// struck is how often a source was locked out in the window that ends at. The caller holds mu.
func (s *Service) struck(src netip.Prefix, at time.Time, l firewall.Limit) (n int) {
	window := cmp.Or(seconds(l.StrikeWindow), usualWindow)
	for _, t := range s.strikes[src] {
		if at.Sub(t) < window { // one of the future was noted before the clock was set back
			n++
		}
	}
	return n
}

// forgetStrikes forgets the sources whose last strike is longest ago, until at
// most n are left, and those that no window reaches any more. The caller holds mu.
func (s *Service) forgetStrikes(n int) {
	type struck struct {
		src  netip.Prefix
		last time.Time
	}
	now := time.Now()
	var all []struck
	for src, list := range s.strikes {
		if last := list[len(list)-1]; now.Sub(last) < longestWindow {
			all = append(all, struck{src, last})
			continue
		}
		s.clearStrikes(src)
	}
	if len(all) <= n {
		return
	}
	slices.SortFunc(all, func(a, b struck) int { return a.last.Compare(b.last) })
	for _, o := range all[:len(all)-n] {
		s.clearStrikes(o.src)
	}
}

// clearStrikes forgets the strikes of a source. The caller holds mu.
func (s *Service) clearStrikes(src netip.Prefix) {
	if _, has := s.strikes[src]; has {
		delete(s.strikes, src)
		s.save.strikes[src] = true
	}
}

// wouldHave notes whom a rule that only counts would have shut out. The caller holds mu.
func (s *Service) wouldHave(w watched, src netip.Prefix, what string, open int, at time.Time) {
	old := s.book.all[key{src, w.id}]
	if old == nil && s.book.counts.Would >= maxWould {
		s.forgetWould(maxWould * 9 / 10)
	}
	r := &record{src: src, would: true, why: s.because(w, what), open: open, times: 1, since: at, last: at, packets: 1}
	if w.limit.Over != firewall.DropExcess {
		r.kind = LockOut
	}
	if old != nil {
		r.packets, r.times, r.kind = old.packets+1, old.times, old.kind
		again := cmp.Or(seconds(w.limit.LockFor), seconds(w.limit.Window), 10*time.Second)
		window := cmp.Or(seconds(w.limit.StrikeWindow), usualWindow)
		switch gap := at.Sub(old.since); {
		case gap < again || old.kind == Quarantine: // it would still be shut out
			r.since = old.since
			r.open = max(open, old.open)
		case gap < window:
			r.times++
		default:
			r.times = 1
		}
	}
	if r.kind != "" && ladder(w.limit, r.times) {
		r.kind = Quarantine
	}
	s.book.put(r)
	signal(s.changed)
}

// forgetWould drops the would-be entries that were not seen for longest, until n are left. The caller holds mu.
func (s *Service) forgetWould(n int) {
	var all []*record
	for _, r := range s.book.all {
		if r.would {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *record) int { return a.last.Compare(b.last) })
	for _, r := range all[:max(0, len(all)-n)] {
		s.book.drop(r.key())
	}
}
