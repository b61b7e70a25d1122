package quarantine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// ErrGone says that there is nothing to keep: the source is not shut out any more.
var ErrGone = errors.New("this source is not shut out any more")

// Bounds of what a person shuts out for a time.
const (
	shortestHand = 10 * time.Second
	longestHand  = 365 * 24 * time.Hour
)

// Meant is what Add makes of a source: an IPv6 host becomes its prefix, and host
// bits of a network are left out.
func (s *Service) Meant(src netip.Prefix) netip.Prefix {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meant(src)
}

// meant is Meant. The caller holds mu.
func (s *Service) meant(src netip.Prefix) netip.Prefix {
	if a := src.Addr(); a.Is4In6() && src.Bits() >= 96 {
		src = netip.PrefixFrom(a.Unmap(), src.Bits()-96)
	}
	if src.IsValid() && src.Addr().Is6() && src.Bits() == 128 {
		return s.sources.Of(src.Addr())
	}
	return src.Masked()
}

// Add shuts a host or a network out, for a time or (0) until it is released, and
// cuts its connections. Errors: firewall.Problems with the fields address, reason
// and duration, the context's, the kernel's.
func (s *Service) Add(ctx context.Context, by Who, src netip.Prefix, reason string, lasts time.Duration) error {
	reason = strings.TrimSpace(reason)
	facts, resolvers := s.deps.Facts(), s.deps.Resolvers()
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.release()
	ctx = context.WithoutCancel(ctx)
	now := time.Now()
	s.mu.Lock()
	typed := src
	src = s.meant(src)
	ps := s.refusals(by, typed, src, facts, resolvers)
	r := record{src: src, kind: Quarantine, why: s.because(watched{}, ""), reason: reason, by: by.Account, since: now}
	if lasts > 0 {
		r.kind, r.until = LockOut, now.Add(lasts)
	}
	if old := s.book.all[key{src: src}]; old != nil {
		r.times, r.packets, r.bytes, r.last = old.times, old.packets, old.bytes, old.last
	}
	bits := s.book.prefix6
	s.mu.Unlock()
	if err := append(append(ps, checkReason(reason)...), checkLasts(lasts)...).Or(); err != nil {
		return err
	}
	if err := s.deps.Sets.Add(ctx, r.member(bits, now)); err != nil {
		return fmt.Errorf("shut out %s: %w", text(src), err)
	}
	s.mu.Lock()
	s.enter(&r)
	s.note(Act{Who: by, What: Added, Source: src, Reason: reason})
	s.mu.Unlock()
	s.flushAct("an added source")
	return nil
}

// flushAct saves what a person did before it is answered. A full disk is told of
// in the log and tried again: what was done is done in the kernel.
func (s *Service) flushAct(what string) {
	if err := s.flush(false); err != nil {
		s.log.Error("write down "+what, "err", err)
		signal(s.unsaved)
	}
}

// refusals says why src must not be shut out by hand. The caller holds mu.
func (s *Service) refusals(by Who, typed, src netip.Prefix, facts firewall.Facts, resolvers []netip.Addr) (ps firewall.Problems) {
	add := func(format string, args ...any) {
		ps = append(ps, firewall.Problem{Field: "address", Text: fmt.Sprintf(format, args...)})
	}
	if !src.IsValid() || typed.Addr().Zone() != "" {
		add("Write an address or a network.")
		return ps
	}
	a := typed.Addr().Unmap()
	if typed.IsSingleIP() && a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		add("No host has the address %s.", text(typed))
		return ps
	}
	if a.Is6() && a.IsLinkLocalUnicast() {
		add("%s can be a host on any link: shut out another address of it.", text(typed))
		return ps
	}
	whole := "" // what a host was widened to, or a network, contains it
	if !src.IsSingleIP() {
		whole = text(src) + " contains "
	}
	say := func(alone, within string) {
		if whole == "" {
			add("%s", alone)
		} else {
			add("%s%s.", whole, within)
		}
	}
	if mine := by.Addr.Unmap().WithZone(""); mine.IsValid() && src.Contains(mine) {
		say("That is the address you are using.", "the address you are using, "+mine.String())
	}
	for _, list := range facts.Addrs {
		for _, p := range list {
			if own := p.Addr().WithZone(""); src.Contains(own) && !own.IsLoopback() {
				say("That is this box.", "this box, "+own.String())
			}
		}
	}
	for _, r := range facts.Routes {
		if gw := r.Via.WithZone(""); gw.IsValid() && src.Contains(gw) {
			say("That is a gateway of this box.", "a gateway of this box, "+gw.String())
		}
	}
	for _, r := range resolvers {
		if src.Contains(r) {
			say("That is a name server of this box.", "a name server of this box, "+r.String())
		}
	}
	return append(dedupe(ps), s.room(src)...)
}

// room says what else is in the way of a source. The caller holds mu.
func (s *Service) room(src netip.Prefix) (ps firewall.Problems) {
	set := home(src, s.book.prefix6)
	old := s.book.all[key{src: src}]
	if set == blocked4 || set == blocked6 {
		if old == nil && s.book.sizes[set] >= maxBlocked {
			ps = append(ps, firewall.Problem{Field: "address", Text: fmt.Sprintf("The list is full: it holds %d sources.", maxBlocked)})
		}
		return ps
	}
	for net := range s.book.nets {
		if net.Overlaps(src) {
			ps = append(ps, firewall.Problem{Field: "address", Text: fmt.Sprintf("%s is shut out already; release it first.", net)})
		}
	}
	if s.book.sizes[set] >= maxNets {
		ps = append(ps, firewall.Problem{Field: "address", Text: fmt.Sprintf("The list is full: it holds %d networks.", maxNets)})
	}
	slices.SortFunc(ps, func(a, b firewall.Problem) int { return strings.Compare(a.Text, b.Text) })
	return ps[:min(len(ps), 5)]
}

// dedupe sorts problems and leaves out those that say the same.
func dedupe(ps firewall.Problems) firewall.Problems {
	slices.SortFunc(ps, func(a, b firewall.Problem) int { return strings.Compare(a.Text, b.Text) })
	return slices.Compact(ps)
}

func checkReason(text string) firewall.Problems {
	switch {
	case utf8.RuneCountInString(text) > 200:
		return firewall.Problems{{Field: "reason", Text: fmt.Sprintf("Use at most 200 characters; this has %d.", utf8.RuneCountInString(text))}}
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return firewall.Problems{{Field: "reason", Text: "Remove the line breaks and control characters."}}
	}
	return nil
}

func checkLasts(d time.Duration) firewall.Problems {
	if d != 0 && (d < shortestHand || d > longestHand) {
		return firewall.Problems{{Field: "duration", Text: "The time must be 10 seconds to 1 year, or empty: until it is released."}}
	}
	return nil
}

// Keep gives who is shut out another time from now on; 0 is until somebody
// releases it. Errors: ErrGone, firewall.Problems, the context's, the kernel's.
func (s *Service) Keep(ctx context.Context, by Who, src netip.Prefix, lasts time.Duration) error {
	if err := checkLasts(lasts).Or(); err != nil {
		return err
	}
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.release()
	ctx = context.WithoutCancel(ctx)
	now := time.Now()
	s.mu.Lock()
	src = s.canonical(src)
	old := s.book.all[key{src: src}]
	if old == nil || old.over(now) {
		s.mu.Unlock()
		return ErrGone
	}
	next := func(old *record) record {
		r := *old
		r.kind, r.until, r.due = Quarantine, time.Time{}, false
		if lasts > 0 {
			r.kind, r.until = LockOut, now.Add(lasts)
		}
		return r
	}
	r := next(old)
	m := r.member(s.book.prefix6, now)
	s.mu.Unlock()
	if err := s.deps.Sets.Add(ctx, m); err != nil {
		return fmt.Errorf("keep %s: %w", text(src), err)
	}
	s.mu.Lock()
	if newer := s.book.all[key{src: src}]; newer != nil { // with what was learned meanwhile
		r = next(newer)
	}
	s.put(&r)
	said := "until it is released"
	if lasts > 0 {
		said = "for " + firewall.Seconds(int(lasts/time.Second))
	}
	s.note(Act{Who: by, What: Kept, Source: src, Reason: said})
	s.mu.Unlock()
	s.flushAct("a kept source")
	return nil
}

// rehouse moves IPv6 sources after the length of their prefix has changed: those
// of another length are networks from then on, so that exactly the same hosts
// stay shut out for as long as they would have been. The caller has the turn.
func (s *Service) rehouse(ctx context.Context, before, after int) error {
	if before == after {
		return nil
	}
	now := time.Now()
	s.mu.Lock()
	gone, in, out := s.moves(before, after, now)
	s.mu.Unlock()
	// In first: nobody gets in between.
	for _, step := range []struct {
		do   func(context.Context, ...ruleset.Member) error
		list []ruleset.Member
	}{{s.deps.Sets.Remove, gone}, {s.deps.Sets.Add, in}, {s.deps.Sets.Remove, out}} {
		for part := range slices.Chunk(step.list, saveChunk) {
			if err := step.do(ctx, part...); err != nil {
				return fmt.Errorf("move IPv6 sources: %w", err)
			}
		}
	}
	return nil
}

// moves is what rehouse does: networks must not overlap, so of those that would
// only the one that lasts longest stays. The caller holds mu.
func (s *Service) moves(before, after int, now time.Time) (gone, in, out []ruleset.Member) {
	var nets []*record
	for _, r := range s.book.all {
		if r.would || r.src.Addr().Is4() {
			continue
		}
		if home(r.src, after) == blockedNets6 {
			nets = append(nets, r)
		} else if home(r.src, before) != blocked6 {
			in, out = append(in, r.member(after, now)), append(out, memberOf(r.src, before))
		}
	}
	slices.SortFunc(nets, longestFirst)
	stay := apart(nets)
	for _, r := range nets {
		if !stay[r] {
			gone = append(gone, memberOf(r.src, before))
			s.drop(r)
		} else if home(r.src, before) != blockedNets6 {
			in, out = append(in, r.member(after, now)), append(out, memberOf(r.src, before))
		}
	}
	return gone, in, out
}
