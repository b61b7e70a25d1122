package quarantine

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// How many acts are remembered. What limits do, which a flood can make many,
// never pushes out what people did.
const (
	actsOfPeople = 5000
	actsOfLimits = 2000
	actsOneByOne = 1000 // an act on more sources is one line with their number
)

// audit is who did what. Whoever uses it holds Service.mu.
type audit struct {
	people, limits []entered // oldest first
	count          int       // makes names
}

// entered is an act and its name on disk.
type entered struct {
	name string
	Act
}

// note enters an act. The caller holds mu.
func (s *Service) note(a Act) {
	if a.Time.IsZero() {
		a.Time = time.Now()
	}
	s.audit.count++
	e := entered{fmt.Sprintf("%020d-%06d", a.Time.UnixNano(), s.audit.count%1_000_000), a}
	s.save.acts[e.name] = &e.Act
	list, most := &s.audit.people, actsOfPeople
	if a.Who == (Who{}) {
		list, most = &s.audit.limits, actsOfLimits
	}
	*list = append(*list, e)
	for len(*list) > most {
		s.unnote((*list)[0].name)
		*list = (*list)[1:]
	}
	signal(s.unsaved)
}

// unnote has an act deleted from the disk, or not written at all. The caller holds mu.
func (s *Service) unnote(name string) {
	if s.save.acts[name] != nil {
		delete(s.save.acts, name)
	} else {
		s.save.acts[name] = nil
	}
}

// noteAll enters what a person did to many sources: the same for each.
// The caller holds mu.
func (s *Service) noteAll(a Act, srcs []netip.Prefix) {
	if len(srcs) > actsOneByOne {
		a.Count = len(srcs)
		s.note(a)
		return
	}
	for _, src := range srcs {
		a.Source = src
		s.note(a)
	}
}

// recall takes over the acts on disk.
func (s *Service) recall(all map[string]Act) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if e := (entered{name, all[name]}); e.Who == (Who{}) {
			s.audit.limits = append(s.audit.limits, e)
		} else {
			s.audit.people = append(s.audit.people, e)
		}
	}
}

// Acts is the newest n acts, newest first: what people did and what limits did.
func (s *Service) Acts(n int) []Act {
	s.mu.Lock()
	defer s.mu.Unlock()
	people, limits := s.audit.people, s.audit.limits
	var out []Act
	for len(out) < n && len(people)+len(limits) > 0 {
		from := &people
		if p, l := len(people), len(limits); p == 0 || l > 0 && limits[l-1].Time.After(people[p-1].Time) {
			from = &limits
		}
		out = append(out, (*from)[len(*from)-1].Act)
		*from = (*from)[:len(*from)-1]
	}
	return out
}
