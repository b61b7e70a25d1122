package quarantine

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// Elements that rules add and elements that end raise no event, and log lines
// can be lost: so the kernel is asked again and again.
const (
	often      = 5 * time.Second // while a page looks
	seldom     = 30 * time.Second
	pageLooks  = 15 * time.Second // since the last look of a page
	pollGap    = time.Second      // between two polls
	settles    = time.Second      // how long the line of a lock-out may be on its way
	drift      = 2 * time.Second  // ends that differ less are the same
	chunk      = 512              // records that are changed in one go under mu
	lostReason = "The line of the log that names the limit was lost."
	handReason = "Somebody put it into the kernel by hand."
)

var blockedSets = []string{blocked4, blocked6, blockedNets4, blockedNets6}

// watch polls, and lets go what has ended, at its moment.
func (s *Service) watch(ctx context.Context) {
	due := time.Now()
	var last time.Time
	for {
		wait := time.Until(due)
		s.mu.Lock()
		if end := s.book.nextEnd(); !end.IsZero() {
			wait = min(wait, max(time.Until(end), 20*time.Millisecond)) // many that end together are one turn
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-s.ends: // wait anew
			continue
		case <-s.look:
			if soon := last.Add(pollGap); soon.Before(due) {
				due = soon
			}
			continue
		case <-time.After(wait):
		}
		s.expire(time.Now())
		if time.Now().Before(due) {
			continue
		}
		began := time.Now()
		again, err := s.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		s.pollSaid(err)
		last = time.Now()
		gap := seldom
		switch {
		case again:
			gap = pollGap
		case s.watched(last):
			gap = often
		}
		// A long list costs a tenth of a processor at most.
		last = last.Add(9 * last.Sub(began))
		due = last.Add(gap)
	}
}

// watched reports whether a page looks.
func (s *Service) watched(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.looked) < pageLooks
}

// pollSaid tells of an error once.
func (s *Service) pollSaid(err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	s.mu.Lock()
	news := s.wrong != said
	s.wrong = said
	s.mu.Unlock()
	if news && err != nil {
		s.log.Warn("ask the kernel who is shut out", "err", err)
	}
}

// expire takes out what has ended, and forgets what was released long ago.
func (s *Service) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		at := s.book.nextEnd()
		if at.IsZero() || at.After(now) {
			break
		}
		k := s.book.ends[0].key
		s.drop(s.book.all[k])
	}
	for src, t := range s.released {
		if now.Sub(t) > forget {
			delete(s.released, src)
		}
	}
	for token, r := range s.receipts {
		if now.Sub(r.at) > undoWait {
			delete(s.receipts, token)
		}
	}
	if len(s.strikes) > 0 && now.Sub(s.swept) > time.Hour {
		s.swept = now
		s.forgetStrikes(maxStruck)
	}
}

// poll makes the list as the kernel has it; again reports that something was too
// fresh to judge. An error says that a set cannot be read, as when our table is
// not there: nothing is concluded from that.
func (s *Service) poll(ctx context.Context) (again bool, err error) {
	if err := s.turn.take(ctx); err != nil {
		return false, err
	}
	defer s.turn.release()
	for _, set := range blockedSets {
		s.mu.Lock()
		from := s.book.version
		s.mu.Unlock()
		made, err := s.deps.Sets.Made(ctx, set)
		if err != nil {
			return false, err
		}
		members, err := s.deps.Sets.Members(ctx, set)
		if err != nil {
			return false, err
		}
		if now, err := s.deps.Sets.Made(ctx, set); err != nil || now != made {
			return true, err
		}
		p := pass{s: s, set: set, from: from, now: time.Now(), first: s.made[set] == ""}
		p.fresh = !p.first && s.made[set] != made
		if err := p.compare(ctx, members); err != nil {
			return false, err
		}
		s.made[set] = made
		again = again || p.again
	}
	s.mu.Lock()
	s.updated = time.Now()
	s.mu.Unlock()
	signal(s.changed)
	return again, nil
}

// pass is one set at one poll.
type pass struct {
	s     *Service
	set   string
	from  uint64 // version of the book before the kernel was asked: what is newer is not judged
	now   time.Time
	first bool // the first poll: times of the disk are only as good as the clock was
	fresh bool // the set was made anew by somebody since the last poll
	again bool
	out   []ruleset.Member // what should not be in the kernel
}

// compare brings the list and the set's members together.
func (p *pass) compare(ctx context.Context, members []ruleset.Member) error {
	in := make(map[netip.Prefix]bool, len(members))
	each(p.s, members, func(m ruleset.Member) {
		src, ok := sourceOf(p.set, m.Element, p.s.book.prefix6)
		if !ok || home(src, p.s.book.prefix6) != p.set {
			return // it shuts nobody out that could be named
		}
		in[src] = true
		if r := p.s.book.all[key{src: src}]; r != nil {
			p.follow(r, m)
		} else {
			p.unknown(src, m)
		}
	})
	back := p.missing(in)
	for part := range slices.Chunk(back, 4*chunk) {
		if err := p.s.deps.Sets.Add(ctx, part...); err != nil {
			return fmt.Errorf("put back what a foreign change took: %w", err)
		}
	}
	if len(p.out) > 0 {
		return p.s.deps.Sets.Remove(ctx, p.out...)
	}
	return nil
}

// follow takes over what the kernel says of a record. The caller holds mu.
func (p *pass) follow(old *record, m ruleset.Member) {
	if old.version > p.from {
		return
	}
	until := p.now.Add(m.Left)
	if m.Timeout > 0 && !p.first && (old.until.IsZero() || until.Sub(old.until).Abs() > drift) {
		p.unknown(old.src, m) // it was taken out, and locked out anew
		return
	}
	r := *old
	counted := m.Packets != old.packets || m.Bytes != old.bytes
	if r.packets, r.bytes = m.Packets, m.Bytes; counted && m.Packets > 0 {
		r.last = p.now
	}
	if m.Timeout == 0 {
		r.kind, r.until, r.due = Quarantine, time.Time{}, false
	} else if r.until.IsZero() || until.Sub(r.until).Abs() > drift || wallDrift(until, r.until) > drift {
		// The clock was set, while this ran or before it started.
		r.kind, r.until, r.since = LockOut, until, until.Add(-m.Timeout)
	}
	switch {
	case r.kind != old.kind || r.until != old.until:
		p.s.put(&r)
	case counted: // not worth a write of its own
		p.s.book.put(&r)
		p.s.save.counters[r.src] = true
	}
}

// wallDrift is how far apart two moments are by the clock on the wall.
func wallDrift(a, b time.Time) time.Duration { return a.Round(0).Sub(b.Round(0)).Abs() }

// unknown judges a member that is not in the list. The caller holds mu.
func (p *pass) unknown(src netip.Prefix, m ruleset.Member) {
	s := p.s
	since := p.now
	if m.Timeout > 0 {
		since = p.now.Add(m.Left - m.Timeout)
	}
	gone, lately := s.released[src]
	switch {
	case s.spare[src], lately && (m.Timeout == 0 || !since.After(gone)):
		p.out = append(p.out, m) // it is to go, or came back with a table that was being made when it went
		return
	case m.Timeout > 0 && (m.Left < settles || p.now.Sub(since) < settles): // it has just ended here, or its line comes
		p.again = true
		return
	}
	s.found(src, m, since, p.now)
}

// found writes down what is in the kernel and was not in the list. The caller holds mu.
func (s *Service) found(src netip.Prefix, m ruleset.Member, since, now time.Time) {
	r := &record{src: src, kind: Quarantine, why: s.because(watched{}, ""), since: since, packets: m.Packets, bytes: m.Bytes, reason: handReason}
	if m.Packets > 0 {
		r.last = now
	}
	if m.Timeout > 0 {
		r.kind, r.until = LockOut, now.Add(m.Left)
	}
	if w, n := s.whose(m.Timeout); n > 0 {
		if r.reason = lostReason; n == 1 {
			r.why, r.reason = s.because(w, firewall.OverNew), ""
		}
		r.times = s.strike(src, since, w.limit)
		r.due = ladder(w.limit, r.times)
	}
	s.enter(r)
	s.note(Act{What: map[Kind]string{LockOut: LockedOut, Quarantine: Quarantined}[r.kind], Source: src, Reason: reason(r)})
}

// whose is the limit that locks out for so long, if it is the only one, and how
// many there are. The caller holds mu.
func (s *Service) whose(lock time.Duration) (w watched, n int) {
	for _, o := range s.limits {
		if o.limit.New > 0 && o.limit.Punishes() && seconds(o.limit.LockFor) == lock {
			w = o
			n++
		}
	}
	if n > 1 {
		w = watched{}
	}
	return w, n
}

// missing takes out of the list what is not in the kernel any more, and returns
// what has to be put back, since the set is not the one that it was in.
func (p *pass) missing(in map[netip.Prefix]bool) (back []ruleset.Member) {
	s := p.s
	var gone []*record
	for _, r := range s.view.records(s) {
		if !r.would && !in[r.src] && r.version <= p.from {
			gone = append(gone, r)
		}
	}
	each(s, gone, func(r *record) {
		if s.book.all[r.key()] != r || home(r.src, s.book.prefix6) != p.set {
			return
		}
		over := !r.until.IsZero() && r.until.Before(p.now.Add(settles))
		released, lately := s.released[r.src]
		switch {
		case lately && r.since.Before(released): // its line came while it was being released
			s.drop(r)
		case p.fresh && !over:
			back = append(back, r.member(s.book.prefix6, p.now))
		case over && r.due: // it ended before it could be promoted, and is promoted all the same
		case over:
			s.drop(r)
		default:
			s.drop(r)
			s.note(Act{What: Vanished, Source: r.src, Reason: "Somebody took it out of the kernel by hand."})
		}
	})
	return back
}
