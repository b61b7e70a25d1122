package quarantine

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
)

const (
	gaugeEvery = 30 * time.Second
	gaugeGap   = 2 * time.Second  // between two rounds, whoever asks
	fullStays  = 10 * time.Minute // how long a source that did not fit is told of
	nearlyFull = 0.8
)

// meter is a set in which a limit remembers sources.
type meter struct {
	rule firewall.ID
	what string
	set  string
	six  bool
	size int
}

// level is how full a meter is.
type level struct {
	used int
	full time.Time // when a source last did not fit; zero: not yet
}

// metersOf is the meters that the limits of cfg have in the kernel.
func metersOf(cfg firewall.Config) (list []meter) {
	for _, m := range compile.MeterSets(cfg) {
		list = append(list, meter{m.Rule, m.What, m.Name, m.V6, m.Size})
	}
	return list
}

// gauge looks how full the meters are, those that did not hold a source at once.
func (s *Service) gauge(ctx context.Context) {
	for {
		if !s.round(ctx) || !sleep(ctx, gaugeGap) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.gauges:
		case <-time.After(gaugeEvery - gaugeGap):
		}
	}
}

// round looks at every meter once; false when ctx ended.
func (s *Service) round(ctx context.Context) bool {
	s.mu.Lock()
	list := slices.Clone(s.meters)
	slices.SortStableFunc(list, func(a, b meter) int { return s.overflows[b.rule].Compare(s.overflows[a.rule]) })
	s.mu.Unlock()
	used := map[string]int{}
	for i, m := range list {
		began := time.Now()
		members, err := s.deps.Sets.Members(ctx, m.set)
		if ctx.Err() != nil {
			return false
		}
		if err == nil { // a meter that is not there holds nobody
			used[m.set] = len(members)
		}
		if i+1 == len(list) || list[i+1].rule != m.rule {
			s.gauged(m.rule, used)
		}
		// Who reads keeps others from the kernel: one part in twenty.
		if !sleep(ctx, 20*time.Since(began)) {
			return false
		}
	}
	s.forgetLevels()
	return true
}

// gauged takes over how many sources the meters of a rule hold. A line says only
// that one of them was full: it was the fullest.
func (s *Service) gauged(rule firewall.ID, used map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var mine []meter
	for _, m := range s.meters {
		if m.rule == rule {
			mine = append(mine, m)
		}
	}
	if len(mine) == 0 {
		return
	}
	fullest := slices.MaxFunc(mine, func(a, b meter) int { return cmp.Compare(used[a.set]*b.size, used[b.set]*a.size) })
	overflow := s.overflows[rule]
	delete(s.overflows, rule)
	for _, m := range mine {
		old := s.levels[m.set]
		now := level{used[m.set], old.full}
		if !overflow.IsZero() && (m.set == fullest.set || nearly(now.used, m.size)) {
			now.full = overflow
		}
		s.levels[m.set] = now
		if alarming(m, old) != alarming(m, now) {
			signal(s.changed)
		}
	}
}

func nearly(used, size int) bool { return used >= int(nearlyFull*float64(size)) }

// alarming reports whether people should know.
func alarming(m meter, l level) bool { return nearly(l.used, m.size) || time.Since(l.full) < fullStays }

// forgetLevels forgets meters that are no more.
func (s *Service) forgetLevels() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for set := range s.levels {
		if !slices.ContainsFunc(s.meters, func(m meter) bool { return m.set == set }) {
			delete(s.levels, set)
		}
	}
	for id := range s.overflows {
		if _, ok := s.limits[id]; !ok {
			delete(s.overflows, id)
		}
	}
}

// Full is the meters that are nearly full, or did not hold a source lately, and
// the lists of those that are shut out when they are nearly full.
func (s *Service) Full() (list []Alarm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.meters {
		if l := s.levels[m.set]; alarming(m, l) {
			list = append(list, m.alarm(l))
		}
	}
	for _, set := range []string{blocked4, blocked6} {
		if n := s.book.sizes[set]; nearly(n, maxBlocked) {
			list = append(list, Alarm{V6: set == blocked6, Used: n, Size: maxBlocked})
		}
	}
	return list
}

// Meters is every meter of a limit, as full as it was when it was last looked at.
func (s *Service) Meters() (list []Alarm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.meters {
		list = append(list, m.alarm(s.levels[m.set]))
	}
	return list
}

func (m meter) alarm(l level) Alarm {
	return Alarm{Rule: m.rule, What: m.what, V6: m.six, Used: l.used, Size: m.size, Time: l.full}
}

// metersFor is the sets in which a limit may remember a source. The caller holds mu.
func (s *Service) metersFor(src netip.Prefix) (sets []string) {
	for _, m := range s.meters {
		if m.six == src.Addr().Is6() {
			sets = append(sets, m.set)
		}
	}
	return sets
}
