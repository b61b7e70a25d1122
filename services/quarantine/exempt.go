package quarantine

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall/ruleset"
)

const (
	adminStays   = 15 * time.Minute // after a person last did something
	maxExemption = 30 * 24 * time.Hour
	excuseEvery  = 30 * time.Second // looked at without being told
	excuseGap    = 2 * time.Second  // between two changes of the sets
)

// filling is the sets of sources that limits do not punish: IPv4 and IPv6.
var filling = [2]string{exempt4, exempt6}

// Look tells that addresses, routes, resolvers or sessions may have changed. It returns at once.
func (s *Service) Look() { signal(s.sets) }

// excuse keeps the exempt sets as they should be.
func (s *Service) excuse(ctx context.Context) {
	said := ""
	for {
		err := s.renew(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && err.Error() != said {
			s.log.Warn("exempt sources from punishment", "err", err)
		}
		if said = ""; err != nil {
			said = err.Error()
		}
		if !sleep(ctx, excuseGap) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.sets:
		case <-time.After(excuseEvery - excuseGap):
		}
	}
}

// renew fills the exempt sets if they should hold something else.
func (s *Service) renew(ctx context.Context) error {
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.release()
	return s.fillExempt(ctx, false)
}

// Refill puts the exempt sources in again, and asks who is shut out: after
// somebody else changed our table.
func (s *Service) Refill(ctx context.Context) error {
	signal(s.look)
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.release()
	return s.fillExempt(ctx, true)
}

// fillExempt is renew; all fills sets that hold the same already, as after our
// table was made anew. The caller has the turn.
func (s *Service) fillExempt(ctx context.Context, all bool) error {
	facts, resolvers, admins := s.deps.Facts(), s.deps.Resolvers(), s.deps.Admins()
	now := time.Now()
	s.mu.Lock()
	exempt := map[netip.Prefix]Exemption{}
	for src, e := range s.given {
		if now.Before(e.Until) {
			exempt[src] = e
		} else {
			delete(s.given, src)
			s.save.exemptions[src] = true
			signal(s.unsaved)
		}
	}
	add := func(a netip.Addr, why string, until time.Time) {
		if a = a.Unmap().WithZone(""); a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() {
			src := s.sources.Of(a)
			exempt[src] = Exemption{Source: src, Why: why, Until: until}
		}
	}
	for a, seen := range admins {
		if seen.After(s.admins[a]) {
			s.admins[a] = seen
		}
	}
	for a, seen := range s.admins { // who signed out stays for a while, too
		if now.Sub(seen) < adminStays {
			add(a, "admin", seen.Add(adminStays))
		} else {
			delete(s.admins, a)
		}
	}
	for _, a := range resolvers {
		add(a, "resolver", time.Time{})
	}
	for _, r := range facts.Routes {
		add(r.Via, "gateway", time.Time{})
	}
	for _, ps := range facts.Addrs {
		for _, p := range ps {
			if p.Addr().Is4() { // the prefix of an IPv6 one is the whole network's
				add(p.Addr(), "box", time.Time{})
			}
		}
	}
	s.exempt = exempt
	fill := [2][]ruleset.Element{elements(exempt, false), elements(exempt, true)}
	s.mu.Unlock()
	for i, set := range filling {
		is := fmt.Sprint(fill[i])
		if is == s.filled[i] && !all {
			continue
		}
		s.filled[i] = ""
		if err := s.deps.Sets.Fill(ctx, set, fill[i]); err != nil {
			return fmt.Errorf("fill set %s: %w", set, err)
		}
		s.filled[i] = is
	}
	return nil
}

// elements is the exempt sources of one family, in order.
func elements(exempt map[netip.Prefix]Exemption, six bool) []ruleset.Element {
	list := []ruleset.Element{}
	for _, src := range slices.SortedFunc(maps.Keys(exempt), netip.Prefix.Compare) {
		if src.Addr().Is6() == six {
			list = append(list, ruleset.Element{Key: []ruleset.Range{ruleset.One(ruleset.Addr(src.Addr()))}})
		}
	}
	return list
}

// Exemptions is the sources that limits do not punish, beside the aliases that they name.
func (s *Service) Exemptions() []Exemption {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.exempt), func(a, b Exemption) int { return a.Source.Compare(b.Source) })
}

// Exempt is why an address is not punished; false when it would be.
func (s *Service) Exempt(a netip.Addr) (Exemption, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.exempt[s.sources.Of(a.Unmap().WithZone(""))]
	return e, ok
}
