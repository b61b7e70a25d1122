package kernel

import (
	"slices"
	"strings"

	"gatehouse/firewall/ruleset"
)

// exchange is what to take out of a paired set and what to put in, so that it
// holds members. On kernel 6.1 a beginning that comes or goes hides the one it
// stands in for until the change is complete: a packet of a member that stays
// would not be found meanwhile. So what stays is not touched: of a member that
// grows only the new parts are put in, beside the old ones. Only one that loses a
// part must be made anew.
func exchange(s ruleset.Set, members []ruleset.Element, have []element) (gone, added []element) {
	old, anew := apart(s, membersOf(s, have), members)
	for _, m := range old {
		m.Timeout, m.Left, m.Packets, m.Bytes = 0, 0, 0, 0 // it is named by its ends
		gone = append(gone, lone(s, m)...)
	}
	for _, m := range anew {
		added = append(added, lone(s, m)...)
	}
	return gone, added
}

// lone is the elements of one member of a paired set, without the end at zero
// that stands before all. The member must fit the set (elementsOf).
func lone(s ruleset.Set, m ruleset.Element) []element {
	list, _ := elementsOf(s, []ruleset.Element{m})
	if len(list) > 1 && list[0].isEnd {
		list = list[1:]
	}
	return list
}

// apart is the members of have that do not stay, and what to put in beside those
// that do to have all of want.
func apart(s ruleset.Set, have, want []ruleset.Element) (gone, added []ruleset.Element) {
	want = slices.Clone(want)
	slices.SortFunc(want, func(a, b ruleset.Element) int { return strings.Compare(string(a.Key[0].Lo), string(b.Key[0].Lo)) })
	for _, w := range want {
		rest, more := w, true
		for len(have) > 0 && have[0].Key[0].Lo <= w.Key[0].Hi {
			h := have[0]
			have = have[1:]
			if !stays(s, h, w) {
				gone = append(gone, h)
				continue
			}
			if h.Key[0].Lo > rest.Key[0].Lo {
				added = append(added, piece(rest, rest.Key[0].Lo, ruleset.Value(before([]byte(h.Key[0].Lo)))))
			}
			var lo []byte
			lo, more = next([]byte(h.Key[0].Hi))
			rest = piece(rest, ruleset.Value(lo), w.Key[0].Hi)
		}
		if more && rest.Key[0].Lo <= rest.Key[0].Hi {
			added = append(added, rest)
		}
	}
	return append(gone, have...), added
}

// stays reports whether the member h can stay for w. One that has a timeout, a
// count or a value of its own is whole or not at all.
func stays(s ruleset.Set, h, w ruleset.Element) bool {
	if s.Timeout || s.Counter || len(s.Data) > 0 {
		return h.Key[0] == w.Key[0] && h.Timeout == 0 && w.Timeout == 0 && slices.Equal(h.Data, w.Data)
	}
	return w.Key[0].Lo <= h.Key[0].Lo && h.Key[0].Hi <= w.Key[0].Hi
}

// piece is the member from lo to hi.
func piece(m ruleset.Element, lo, hi ruleset.Value) ruleset.Element {
	m.Key = []ruleset.Range{{Lo: lo, Hi: hi}}
	return m
}
