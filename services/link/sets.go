package link

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"gatehouse/firewall/ruleset"
)

// fill gives each interface's four sets what its device really has. An address
// that is only there for a confirm window is in them too. Sets that hold the
// same already are left alone unless all is asked for.
func (s *Service) fill(ctx context.Context, list []want, have snapshot, all bool) (errs []error) {
	if all {
		clear(s.filled)
	}
	for _, w := range list {
		d, _ := have.device(w.Device)
		for set, members := range members(string(w.Name), d) {
			now := fmt.Sprint(members)
			if old, ok := s.filled[set]; ok && old == now {
				continue
			}
			if err := s.sets.Fill(ctx, set, members); err != nil {
				delete(s.filled, set)
				errs = append(errs, fmt.Errorf("fill set %s: %w", set, err))
				continue
			}
			s.filled[set] = now
		}
	}
	return errs
}

// members are the elements of the sets of the interface called name: addr_N4 and
// addr_N6 its addresses, net_N4 and net_N6 its networks (design.md §7). Networks
// leave link-local IPv6 out: "LAN net" means routable neighbours.
func members(name string, d device) map[string][]ruleset.Element {
	var addrs [2][]netip.Addr
	var nets [2][]netip.Prefix
	for _, a := range d.addrs {
		six := 0
		if a.Addr().Is6() {
			six = 1
		}
		if !slices.Contains(addrs[six], a.Addr()) {
			addrs[six] = append(addrs[six], a.Addr())
		}
		if six == 0 || !a.Addr().IsLinkLocalUnicast() {
			nets[six] = append(nets[six], a.Masked())
		}
	}
	m := map[string][]ruleset.Element{}
	for six, v := range []string{"4", "6"} {
		slices.SortFunc(addrs[six], netip.Addr.Compare)
		singles := make([]ruleset.Element, 0, len(addrs[six]))
		for _, a := range addrs[six] {
			singles = append(singles, ruleset.Element{Key: []ruleset.Range{ruleset.One(ruleset.Addr(a))}})
		}
		m["addr_"+name+v], m["net_"+name+v] = singles, merged(nets[six])
	}
	return m
}

// merged are the networks as interval elements: sorted, none overlapping or touching another.
func merged(nets []netip.Prefix) []ruleset.Element {
	ranges := make([]ruleset.Range, 0, len(nets))
	for _, p := range nets {
		ranges = append(ranges, ruleset.Net(p))
	}
	slices.SortFunc(ranges, func(a, b ruleset.Range) int { return strings.Compare(string(a.Lo), string(b.Lo)) })
	elements := make([]ruleset.Element, 0, len(ranges))
	for _, r := range ranges {
		if n := len(elements); n > 0 {
			if last := &elements[n-1].Key[0]; r.Lo <= last.Hi || follows(last.Hi, r.Lo) {
				last.Hi = max(last.Hi, r.Hi)
				continue
			}
		}
		elements = append(elements, ruleset.Element{Key: []ruleset.Range{r}})
	}
	return elements
}

// follows reports whether b is the value right after a.
func follows(a, b ruleset.Value) bool {
	next := []byte(a)
	for i := len(next) - 1; i >= 0; i-- {
		next[i]++
		if next[i] != 0 {
			return bytes.Equal(next, []byte(b))
		}
	}
	return false
}
