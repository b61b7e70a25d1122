package rules

import (
	"net/http"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// op is what a row's button asks for.
type op struct{ draft.Op }

func (o op) id() firewall.ID { return firewall.ID(o.Key) }

// briefLen is how much of a hash a button carries: 48 bits tell an old page
// from a new one, and a hash is what compresses worst in a thousand rows.
const briefLen = 12

func brief(hash string) string { return hash[:min(briefLen, len(hash))] }

// full is the hash that the button meant: the rule's own when it begins so.
func (o op) full(now string) string {
	if len(o.Hash) == briefLen && strings.HasPrefix(now, o.Hash) {
		return now
	}
	return o.Hash
}

// errListChanged is the answer to a move past a rule that is not where the page showed it.
var errListChanged = page.Refused{Status: http.StatusConflict, Title: "The list has changed",
	Text: "The rule was not moved: the list is not as this page showed it any more. Open the list again and look."}

// changes turns an op into typed changes and the sentence for the toast.
func (o op) changes(c firewall.Config) ([]firewall.Change, string, error) {
	r, ok := c.Rule(o.id())
	if !ok {
		return nil, "", page.NotFound{What: "This rule"}
	}
	name := "“" + title(r) + "”"
	switch o.Verb {
	case "toggle":
		r.On = !r.On
		if r.On {
			return []firewall.Change{firewall.UpdateRule{Rule: r}}, "Switched on: " + name, nil
		}
		return []firewall.Change{firewall.UpdateRule{Rule: r}}, "Switched off: " + name, nil
	case "delete":
		return []firewall.Change{firewall.DeleteRule{ID: r.ID, Descr: title(r)}}, "Deleted: " + name, nil
	case "up", "down", "top", "end":
		cs, err := o.move(c, r)
		return cs, "Moved: " + name, err
	}
	return nil, "", o.Unknown()
}

// move places a rule beside a neighbour of the same list. At the border of a
// section it joins the neighbour's section first, so that a move never tears
// a section in two.
func (o op) move(c firewall.Config, r firewall.Rule) ([]firewall.Change, error) {
	var same []firewall.Rule
	for _, x := range c.Rules {
		if x.In == r.In {
			same = append(same, x)
		}
	}
	me, other := index(same, r.ID), index(same, firewall.ID(o.Past))
	switch o.Verb {
	case "top":
		if me == 0 {
			return nil, nil
		}
		return joined(r, same[0].Section, firewall.MoveRule{ID: r.ID, Place: firewall.Place{Before: same[0].ID}}), nil
	case "end":
		if me == len(same)-1 {
			return nil, nil
		}
		return joined(r, same[len(same)-1].Section, firewall.MoveRule{ID: r.ID, Place: firewall.Place{After: same[len(same)-1].ID}}), nil
	}
	up := o.Verb == "up"
	if other < 0 || up != (other < me) {
		return nil, errListChanged
	}
	next := same[other]
	if adjacent := other == me-1 || other == me+1; adjacent && next.Section != r.Section {
		return joined(r, next.Section), nil
	}
	place := firewall.Place{After: next.ID}
	if up {
		place = firewall.Place{Before: next.ID}
	}
	return joined(r, next.Section, firewall.MoveRule{ID: r.ID, Place: place}), nil
}

// joined puts the rule into a section, when it is another one, after cs.
func joined(r firewall.Rule, section string, cs ...firewall.Change) []firewall.Change {
	if r.Section != section {
		r.Section = section
		cs = append(cs, firewall.UpdateRule{Rule: r})
	}
	return cs
}

func index(rules []firewall.Rule, id firewall.ID) int {
	for i, r := range rules {
		if r.ID == id {
			return i
		}
	}
	return -1
}

func stale(err *commit.StaleError) page.StaleError {
	return draft.Kind[firewall.Rule, firewall.ID]{Word: "Rule", Home: "/rules", Path: "/rules/", Get: firewall.Config.Rule,
		Name: func(r firewall.Rule) string { return "Rule “" + title(r) + "”" }, Line: firewall.Rule.String, Fields: fields}.Stale(err)
}
