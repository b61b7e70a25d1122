package quarantine

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall/ruleset"
)

// Members is what new sets start with: who is shut out, with the time that is
// left, and who is exempt. A table that is made anew shuts out the same from its
// first packet on.
func (s *Service) Members() map[string][]ruleset.Element {
	all := map[string][]ruleset.Element{}
	now := time.Now()
	records := s.view.records(s)
	s.mu.Lock()
	bits := s.book.prefix6
	for i := range filling {
		all[filling[i]] = elements(s.exempt, i == 1)
	}
	s.mu.Unlock()
	homes := map[string][]*record{}
	for _, r := range records {
		if !r.would && !r.over(now) {
			set := home(r.src, bits)
			homes[set] = append(homes[set], r)
		}
	}
	for set, list := range homes {
		list = fitting(set, list)
		out := make([]ruleset.Element, len(list))
		for i, r := range list {
			out[i] = r.member(bits, now).Element
		}
		all[set] = out
	}
	return all
}

// fitting leaves out what would make the kernel refuse the whole ruleset: more
// than a set can hold, and networks that overlap. Those that last longest stay.
func fitting(set string, list []*record) []*record {
	nets := set == blockedNets4 || set == blockedNets6
	if !nets && len(list) <= maxBlocked {
		return list
	}
	slices.SortStableFunc(list, longestFirst)
	if nets {
		stay := apart(list)
		list = slices.DeleteFunc(list, func(r *record) bool { return !stay[r] })
	}
	return list[:min(len(list), maxBlocked)]
}

// lasting is when a record ends, for comparing.
func lasting(r *record) time.Time {
	if r.until.IsZero() || r.due {
		return time.Unix(1<<40, 0)
	}
	return r.until
}

func longestFirst(a, b *record) int {
	return cmp.Or(lasting(b).Compare(lasting(a)), a.src.Bits()-b.src.Bits())
}

// apart picks networks that do not overlap, the first in the list first.
func apart(list []*record) map[*record]bool {
	lengths := map[int]bool{}
	for _, r := range list {
		lengths[r.src.Bits()] = true
	}
	picked, above := map[*record]bool{}, map[netip.Prefix]bool{} // above: networks that hold a picked one
	in := map[netip.Prefix]bool{}
	for _, r := range list {
		clash := above[r.src]
		for bits := range lengths {
			if p, err := r.src.Addr().Prefix(bits); err == nil && bits <= r.src.Bits() && in[p] {
				clash = true
			}
		}
		if clash {
			continue
		}
		picked[r], in[r.src] = true, true
		for bits := range lengths {
			if p, err := r.src.Addr().Prefix(bits); err == nil && bits <= r.src.Bits() {
				above[p] = true
			}
		}
	}
	return picked
}
