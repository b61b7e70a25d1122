package quarantine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

const (
	saveGap   = time.Second     // changes of so long are one write
	saveRetry = 5 * time.Second // after the disk refused
	countGap  = 5 * time.Minute // between writes of nothing but counters
	saveChunk = 2000            // rows of one transaction: others wait for it
)

// unsaved is what is not on disk as it is now. Whoever uses it holds Service.mu.
type unsaved struct {
	entries    map[netip.Prefix]bool
	counters   map[netip.Prefix]bool // entries of which only the counters changed
	strikes    map[netip.Prefix]bool
	exemptions map[netip.Prefix]bool
	acts       map[string]*Act // nil: to be deleted
}

func newUnsaved() unsaved {
	return unsaved{map[netip.Prefix]bool{}, map[netip.Prefix]bool{}, map[netip.Prefix]bool{}, map[netip.Prefix]bool{}, map[string]*Act{}}
}

// load reads what is on disk.
func (s *Service) load(now time.Time) {
	entries, err := s.deps.Entries.All()
	s.damaged("entries", err)
	for name, e := range entries {
		if e.Source.IsValid() {
			s.remind(e, now)
		} else {
			s.log.Error("an entry has no source", "name", name)
		}
	}
	strikes, err := s.deps.Strikes.All()
	s.damaged("strikes", err)
	for name, list := range strikes {
		if src, err := netip.ParsePrefix(name); err == nil && len(list) > 0 {
			s.strikes[src] = list
		}
	}
	exemptions, err := s.deps.Exemptions.All()
	s.damaged("exemptions", err)
	for _, e := range exemptions {
		if e.Source.IsValid() {
			e.Until = restored(now, e.Until, now, maxExemption)
			s.given[e.Source] = e
		}
	}
	acts, err := s.deps.Acts.All()
	s.damaged("acts", err)
	s.recall(acts)
}

func (s *Service) damaged(what string, err error) {
	if err != nil {
		s.log.Error("some of what quarantine knew cannot be read", "what", what, "err", err)
	}
}

// remind takes over an entry of the disk with the time that is left.
func (s *Service) remind(e Entry, now time.Time) {
	r := &record{src: e.Source.Masked(), kind: e.Kind, why: s.because(watched{id: e.Rule, limit: e.Limit}, e.What), reason: e.Reason, by: e.By,
		open: e.Open, times: e.Times, since: e.Since, until: e.Until, last: e.Last, packets: e.Packets, bytes: e.Bytes}
	if r.kind = Quarantine; !e.Until.IsZero() {
		r.kind, r.until = LockOut, restored(now, e.Until, e.Since, 0)
	}
	if r.over(now) {
		s.save.entries[r.src] = true // to be deleted
		return
	}
	s.book.put(r)
}

// restored is an end of the disk by the clock of now: never further away than it
// was at first, whatever the clock says, since a clock that was lost stands at 1970.
func restored(now, until, since time.Time, most time.Duration) time.Time {
	if most == 0 {
		most = until.Sub(since)
	}
	return now.Add(min(until.Sub(now), most))
}

// write saves what changes, in groups.
func (s *Service) write(ctx context.Context) {
	counters := time.NewTicker(countGap)
	defer counters.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-s.unsaved:
		case <-counters.C:
			all = true
		}
		if !sleep(ctx, saveGap) {
			return
		}
		if err := s.flush(all); err != nil {
			s.log.Error("write down who is shut out", "err", err)
			if !sleep(ctx, saveRetry) {
				return
			}
			signal(s.unsaved)
		}
	}
}

// flush saves what is unsaved; counters says whether counters count.
func (s *Service) flush(counters bool) error {
	s.saving <- struct{}{}
	defer s.saving.release()
	if counters {
		s.mu.Lock()
		for src := range s.save.counters {
			s.save.entries[src] = true
		}
		clear(s.save.counters)
		s.mu.Unlock()
	}
	return errors.Join(
		saveAll(s, "entries", s.deps.Entries, s.save.entries, func(src netip.Prefix) (Entry, bool) {
			r := s.book.all[key{src: src}]
			if r == nil {
				return Entry{}, false
			}
			return r.entry(), true
		}),
		saveAll(s, "strikes", s.deps.Strikes, s.save.strikes, func(src netip.Prefix) ([]time.Time, bool) {
			list, ok := s.strikes[src]
			return slices.Clone(list), ok
		}),
		saveAll(s, "exemptions", s.deps.Exemptions, s.save.exemptions, func(src netip.Prefix) (Exemption, bool) {
			e, ok := s.given[src]
			return e, ok
		}),
		s.saveActs())
}

// saveAll writes the rows of one table whose sources are in dirty, as they are by
// then, and deletes those that are no more. What the disk refuses stays in dirty.
func saveAll[T any](s *Service, what string, t Table[T], dirty map[netip.Prefix]bool, now func(netip.Prefix) (T, bool)) error {
	for {
		var some []netip.Prefix
		var gone []string
		rows := map[string]T{}
		s.mu.Lock()
		for src := range dirty {
			if len(some) == saveChunk {
				break
			}
			delete(dirty, src)
			some = append(some, src)
			if v, there := now(src); there {
				rows[src.String()] = v
			} else {
				gone = append(gone, src.String())
			}
		}
		s.mu.Unlock()
		if len(some) == 0 {
			return nil
		}
		if err := store(t, rows, gone); err != nil {
			s.mu.Lock()
			for _, src := range some {
				dirty[src] = true
			}
			s.mu.Unlock()
			return fmt.Errorf("save %s: %w", what, err)
		}
	}
}

func store[T any](t Table[T], rows map[string]T, gone []string) error {
	if len(rows) > 0 {
		if err := t.PutAll(rows); err != nil {
			return err
		}
	}
	if len(gone) > 0 {
		return t.Delete(gone...)
	}
	return nil
}

// saveActs writes new acts and deletes those that are too many.
func (s *Service) saveActs() error {
	s.mu.Lock()
	acts := s.save.acts
	s.save.acts = map[string]*Act{}
	s.mu.Unlock()
	rows, gone := map[string]Act{}, []string{}
	for name, a := range acts {
		if a == nil {
			gone = append(gone, name)
		} else {
			rows[name] = *a
		}
	}
	err := store(s.deps.Acts, rows, gone)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, a := range acts {
		if _, newer := s.save.acts[name]; !newer {
			s.save.acts[name] = a
		}
	}
	return fmt.Errorf("save acts: %w", err)
}

// Renewed tells that the tables are empty ones now: everything is written to them.
func (s *Service) Renewed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.book.all {
		if !r.would {
			s.save.entries[k.src] = true
		}
	}
	for src := range s.strikes {
		s.save.strikes[src] = true
	}
	for src := range s.given {
		s.save.exemptions[src] = true
	}
	for _, list := range [][]entered{s.audit.people, s.audit.limits} {
		for i := range list {
			s.save.acts[list[i].name] = &list[i].Act
		}
	}
	signal(s.unsaved)
}
