package draft

import (
	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// Kind is how a person knows the objects of one kind.
type Kind[T any, K ~string] struct {
	Word   string                             // "Rule"
	Home   string                             // path of their list
	Path   string                             // of an editor, before the key
	Get    func(firewall.Config, K) (T, bool) // finds one
	Name   func(T) string                     // "Rule “web”", starts a sentence
	Line   func(T) string                     // all of it
	Fields func(theirs, yours T) []page.Stale // what differs
}

// Stale turns commit's error into the page's: both versions, field by field.
func (k Kind[T, K]) Stale(err *commit.StaleError) page.StaleError {
	theirs, there := k.Get(err.Theirs, K(err.Ref.Key))
	yours, mine := k.Get(err.Yours, K(err.Ref.Key))
	out := page.StaleError{What: k.Name(yours), Back: k.Path + err.Ref.Key}
	switch {
	case !there && !mine:
		out.What, out.Back = k.Word, k.Home
	case !there:
		out.Back = k.Home
		out.Fields = []page.Stale{{Field: k.Word, Theirs: "deleted", Yours: k.Line(yours)}}
	case !mine:
		out.What = k.Name(theirs)
		out.Fields = []page.Stale{{Field: k.Word, Theirs: k.Line(theirs), Yours: "deleted"}}
	default:
		out.Fields = k.Fields(theirs, yours)
	}
	return out
}
