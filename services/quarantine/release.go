package quarantine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// undoWait is how long a release can be taken back.
const undoWait = 10 * time.Second

// fewElements is how many elements are taken out without looking whether they are there.
const fewElements = 1000

// ErrTooLate says that a release cannot be taken back any more.
var ErrTooLate = errors.New("this release cannot be taken back any more")

// receipt is what a release took, for as long as it can be taken back.
type receipt struct {
	at       time.Time
	records  []*record
	strikes  map[netip.Prefix][]time.Time
	exempted map[netip.Prefix]Exemption // who got an exemption, and which it had before
	undone   bool
}

// Release lets sources go: their next SYN is as if there had been none before.
// One that is not shut out (any more) is no error: what was asked for is so.
// Errors: firewall.Problems, the context's, the kernel's; nothing is released then.
func (s *Service) Release(ctx context.Context, by Who, srcs []netip.Prefix, o Options) (Receipt, error) {
	if o.Exempt < 0 || o.Exempt > maxExemption {
		return Receipt{}, firewall.Problems{{Field: "exempt", Text: "An exemption lasts 30 days at most."}}
	}
	if o.Exempt > 0 && len(srcs) > maxExemptions/10 {
		return Receipt{}, firewall.Problems{{Field: "exempt", Text: fmt.Sprintf("At most %d sources can be exempted at once.", maxExemptions/10)}}
	}
	if err := s.turn.take(ctx); err != nil {
		return Receipt{}, err
	}
	defer s.turn.release()
	ctx = context.WithoutCancel(ctx) // a browser that goes away must not stop it half way
	now := time.Now()
	r := &receipt{at: now, strikes: map[netip.Prefix][]time.Time{}, exempted: map[netip.Prefix]Exemption{}}
	srcs = s.choose(srcs, r, now)
	if o.Exempt > 0 {
		s.exemptAll(srcs, r, now.Add(o.Exempt))
		if err := s.fillExempt(ctx, false); err != nil {
			s.log.Warn("exempt released sources", "err", err) // tried again by excuse
		}
	}
	if err := s.letGo(ctx, srcs); err != nil {
		s.unexempt(r)
		return Receipt{}, err
	}
	token := s.forgive(by, srcs, r, o)
	s.flushAct("a release")
	out := Receipt{Token: token}
	for _, one := range r.records {
		out.Released = append(out.Released, one.entry())
	}
	return out, nil
}

// choose gives the sources as they are listed, each once, and puts what is shut
// out of them on the receipt.
func (s *Service) choose(srcs []netip.Prefix, r *receipt, now time.Time) (list []netip.Prefix) {
	seen := map[netip.Prefix]bool{}
	each(s, srcs, func(src netip.Prefix) {
		src = s.canonical(src)
		if !src.IsValid() || seen[src] {
			return
		}
		seen[src] = true
		list = append(list, src)
		if old := s.book.all[key{src: src}]; old != nil && !old.over(now) {
			r.records = append(r.records, old)
		}
	})
	return list
}

// letGo takes sources out of the kernel: out of the blocked sets, whether listed
// or not, and out of every meter, since what they did before counts no more.
func (s *Service) letGo(ctx context.Context, srcs []netip.Prefix) error {
	var blocked []ruleset.Member
	metered := map[string][]ruleset.Element{}
	count := 0
	each(s, srcs, func(src netip.Prefix) {
		m := memberOf(src, s.book.prefix6)
		if m.Set != blocked4 && m.Set != blocked6 {
			if s.book.nets[src] {
				blocked = append(blocked, m)
			}
			return
		}
		blocked = append(blocked, m)
		for _, set := range s.metersFor(src) {
			metered[set] = append(metered[set], m.Element)
			count++
		}
	})
	if count <= fewElements {
		all := blocked
		for set, list := range metered {
			all = append(all, membersOf(set, list)...)
		}
		if len(all) == 0 || s.deps.Sets.Remove(ctx, all...) == nil {
			return nil
		}
		// A meter that is full, or gone with its rule, must not keep anybody in.
	}
	for _, set := range blockedSets {
		list := slices.DeleteFunc(slices.Clone(blocked), func(m ruleset.Member) bool { return m.Set != set })
		if len(list) == 0 {
			continue
		}
		if err := s.deps.Sets.Remove(ctx, list...); err != nil {
			if _, gone := s.deps.Sets.Made(ctx, set); gone != nil {
				continue // there is no such set: it keeps nobody out
			}
			return fmt.Errorf("release: %w", err)
		}
	}
	for set, list := range metered {
		s.clearMeter(ctx, set, list)
	}
	return nil
}

func membersOf(set string, list []ruleset.Element) (out []ruleset.Member) {
	for _, e := range list {
		out = append(out, ruleset.Member{Set: set, Element: e})
	}
	return out
}

// clearMeter takes those out of a meter that are in it.
func (s *Service) clearMeter(ctx context.Context, set string, list []ruleset.Element) {
	have, err := s.deps.Sets.Members(ctx, set)
	if err != nil {
		return // there is no such meter any more
	}
	in := map[ruleset.Value]bool{}
	for _, m := range have {
		in[m.Key[0].Lo] = true
	}
	list = slices.DeleteFunc(list, func(e ruleset.Element) bool { return !in[e.Key[0].Lo] })
	for part := range slices.Chunk(list, saveChunk) {
		if err := s.deps.Sets.Remove(ctx, membersOf(set, part)...); err != nil {
			s.log.Warn("clear a meter", "set", set, "err", err)
		}
	}
}

// forgive writes down what was released, and returns the token of the way back.
func (s *Service) forgive(by Who, srcs []netip.Prefix, r *receipt, o Options) string {
	now := time.Now()
	each(s, srcs, func(src netip.Prefix) {
		s.released[src] = now
		if list, has := s.strikes[src]; has && !o.KeepStrikes {
			r.strikes[src] = list
			s.clearStrikes(src)
		}
	})
	each(s, r.records, func(one *record) {
		switch now := s.book.all[one.key()]; {
		case now == nil:
		case now.since.Equal(one.since): // the same, if with more known of it
			s.drop(now)
		default:
			signal(s.look) // it was locked out again: before or after, the kernel knows
		}
	})
	touched := r.touched(srcs)
	r.at = now
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteAll(Act{Who: by, What: Released, Reason: released(o)}, touched)
	return s.file(r)
}

// file keeps a receipt, in place of the oldest if there are many, and returns
// its token. The caller holds mu.
func (s *Service) file(r *receipt) string {
	for len(s.receipts) >= maxReceipts {
		oldest := ""
		for token, old := range s.receipts {
			if oldest == "" || old.at.Before(s.receipts[oldest].at) {
				oldest = token
			}
		}
		delete(s.receipts, oldest)
	}
	token := rand.Text()
	s.receipts[token] = r
	return token
}

// touched is those of the sources that the release made a difference to.
func (r *receipt) touched(srcs []netip.Prefix) []netip.Prefix {
	held := map[netip.Prefix]bool{}
	for _, one := range r.records {
		held[one.src] = true
	}
	return slices.DeleteFunc(slices.Clone(srcs), func(src netip.Prefix) bool {
		_, exempted := r.exempted[src]
		_, struck := r.strikes[src]
		return !held[src] && !exempted && !struck
	})
}

// released says in the audit how something was released.
func released(o Options) string {
	text := ""
	if o.KeepStrikes {
		text = "strikes kept"
	}
	if o.Exempt > 0 {
		if text != "" {
			text += ", "
		}
		text += "exempt for " + firewall.Seconds(int(o.Exempt/time.Second))
	}
	return text
}

// exemptAll gives sources an exemption; networks are no sources of offences.
func (s *Service) exemptAll(srcs []netip.Prefix, r *receipt, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, src := range srcs {
		if set := home(src, s.book.prefix6); set != blocked4 && set != blocked6 {
			continue
		}
		if len(s.given) >= maxExemptions && s.given[src] == (Exemption{}) {
			s.endOldest()
		}
		r.exempted[src] = s.given[src]
		s.given[src] = Exemption{Source: src, Why: "released", Until: until}
		s.save.exemptions[src] = true
	}
	signal(s.unsaved)
}

// endOldest makes room for an exemption. The caller holds mu.
func (s *Service) endOldest() {
	var first Exemption
	for _, e := range s.given {
		if !first.Source.IsValid() || e.Until.Before(first.Until) {
			first = e
		}
	}
	delete(s.given, first.Source)
	s.save.exemptions[first.Source] = true
}

// unexempt takes back what exemptAll did.
func (s *Service) unexempt(r *receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for src, before := range r.exempted {
		if s.save.exemptions[src] = true; before.Source.IsValid() {
			s.given[src] = before
		} else {
			delete(s.given, src)
		}
	}
	if len(r.exempted) > 0 {
		signal(s.sets)
		signal(s.unsaved)
	}
}

// Undo takes a release back for 10 seconds: with the time that was left then,
// and the strikes. Errors: ErrTooLate, the context's, the kernel's.
func (s *Service) Undo(ctx context.Context, by Who, token string) error {
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.release()
	ctx = context.WithoutCancel(ctx)
	now := time.Now()
	s.mu.Lock()
	r := s.receipts[token]
	if r == nil || now.Sub(r.at) > undoWait {
		s.mu.Unlock()
		return ErrTooLate
	}
	if r.undone { // a second click
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	var back []*record
	var members []ruleset.Member
	each(s, r.records, func(old *record) {
		if one := s.revived(old, r.at, now); one != nil {
			back = append(back, one)
			members = append(members, one.member(s.book.prefix6, now))
		}
	})
	s.unexempt(r)
	if err := s.fillExempt(ctx, false); err != nil {
		s.log.Warn("take exemptions back", "err", err)
	}
	for part := range slices.Chunk(members, saveChunk) {
		if err := s.deps.Sets.Add(ctx, part...); err != nil {
			return fmt.Errorf("take a release back: %w", err)
		}
	}
	s.restore(by, r, back)
	s.flushAct("an undo")
	return nil
}

// revived is a released record as it comes back, nil when something that lasts
// as long has taken its place. The caller holds mu.
func (s *Service) revived(old *record, released, now time.Time) *record {
	one := *old
	if !one.until.IsZero() && !one.due {
		one.until = now.Add(one.until.Sub(released))
	}
	if one.due { // it would be quarantine by now
		one.kind, one.until, one.due = Quarantine, time.Time{}, false
	}
	if here := s.book.all[one.key()]; here != nil && !lasting(here).Before(lasting(&one)) {
		return nil
	}
	if set := home(one.src, s.book.prefix6); set == blockedNets4 || set == blockedNets6 {
		for net := range s.book.nets {
			if net.Overlaps(one.src) { // somebody added another one
				return nil
			}
		}
	}
	return &one
}

// restore writes down what came back.
func (s *Service) restore(by Who, r *receipt, back []*record) {
	var srcs []netip.Prefix
	each(s, back, func(one *record) {
		delete(s.released, one.src)
		s.put(one)
		s.cut[one.src] = true
		srcs = append(srcs, one.src)
	})
	each(s, slices.Collect(maps.Keys(r.strikes)), func(src netip.Prefix) {
		list := append(slices.Clone(r.strikes[src]), s.strikes[src]...) // it may have struck again
		s.strikes[src] = list[max(0, len(list)-strikesKept):]
		s.save.strikes[src] = true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteAll(Act{Who: by, What: Undone}, srcs)
	r.undone = true
	signal(s.cuts)
}
