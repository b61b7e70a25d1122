package changes

import (
	"cmp"
	"slices"

	"gatehouse/firewall"
	"gatehouse/services/commit"
)

// side is one of the two versions of an object that a change does not fit.
type side struct{ whose, text string }

// sides is what runs, and what the person wanted; nothing when the change fits.
func (s review) sides(ref firewall.Ref) []side {
	i := slices.IndexFunc(s.View.Items, func(it commit.Item) bool { return it.Ref == ref && it.Misfit != "" })
	if i < 0 {
		return nil
	}
	it := s.View.Items[i]
	return []side{{"Runs now:", cmp.Or(it.Theirs, "deleted")}, {"Yours:", cmp.Or(it.Yours, "deleted")}}
}
