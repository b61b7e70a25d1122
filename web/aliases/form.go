package aliases

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// form is the editor's fields as a person typed them, byte for byte.
type form struct {
	Name, Kind, Descr string
	Items             string
	Skip              bool   // leave out what cannot be read
	File              string // name of a file that was chosen
	Mode              string // what a file does: add or swap
}

// show gives the fields of an alias. show and form.alias undo each other.
func show(a firewall.Alias) form {
	return form{Name: string(a.Name), Kind: string(a.Kind), Descr: a.Descr, Items: a.Lines()}
}

func read(p *page.Form) form {
	return form{Name: p.Get("name"), Kind: p.Get("kind"), Descr: p.Raw("descr"), Items: p.Raw("items"), Skip: p.On("skip"),
		File: p.Get("file"), Mode: p.Get("mode")}
}

// free is a name for the copy of an alias that no other has.
func free(c firewall.Config, n firewall.Name) string {
	for i := 2; i < 100; i++ {
		s := fmt.Sprintf("%s_%d", n, i)
		if _, taken := c.Alias(firewall.Name(s)); !taken && len(s) <= 31 {
			return s
		}
	}
	return ""
}

// kind is what the alias is to hold.
func (f form) kind() firewall.AliasKind { return firewall.AliasKind(f.Kind) }

// known says which names a list may hold: those of all aliases, and the
// alias's own, for validation to tell the loop.
func (f form) known(c firewall.Config) func(firewall.Name) bool {
	names := map[firewall.Name]bool{firewall.Name(f.Name): f.Name != ""}
	for _, a := range c.Aliases {
		names[a.Name] = true
	}
	return func(n firewall.Name) bool { return names[n] }
}

// told is up to how many lines that cannot be read are named.
const told = 10

// alias gives the value of the fields, and what its list says. What cannot be
// read is told, line by line, and left out.
func (e editor) alias(c firewall.Config) (firewall.Alias, firewall.Items, firewall.Problems) {
	var ps firewall.Problems
	add := func(field, text string) { ps = append(ps, firewall.Problem{Field: field, Text: text}) }
	f := e.form
	switch {
	case f.Name == "new":
		add("name", "`new` is a reserved name; choose another.") // the page of a new alias has this path
	case e.taken(c):
		add("name", f.Name+" is already an alias.")
	}
	it := firewall.ParseItems(f.kind(), f.Items, f.known(c))
	a := firewall.Alias{Name: firewall.Name(f.Name), Kind: f.kind(), Descr: f.Descr, Addrs: it.Addrs, Ports: it.Ports}
	if f.Skip {
		return a, it, ps
	}
	for i, b := range it.Bad {
		if i == told {
			add("items", fmt.Sprintf("And %s more. Mend them, or tick “Skip bad lines”.", page.Count(len(it.Bad)-told, "problem")))
			break
		}
		add("items", fmt.Sprintf("Line %d: %s.", b.Line, b.Text))
	}
	return a, it, ps
}

// change is what saving does.
func (e editor) change(value firewall.Alias) firewall.Change {
	if e.Old.Name == "" {
		return firewall.AddAlias{Alias: value}
	}
	return firewall.UpdateAlias{Name: e.Old.Name, Alias: value}
}

// taken reports whether another alias has the name.
func (e editor) taken(c firewall.Config) bool {
	_, there := c.Alias(firewall.Name(e.Name))
	return there && firewall.Name(e.Name) != e.Old.Name
}

// wrong is what saving would make wrong, beside the fields of the form. The
// alias is looked at as the last of all: of two that collide the later one is
// told, and here the person edits this one.
func (e editor) wrong(c firewall.Config, value firewall.Alias) firewall.Problems {
	if e.taken(c) { // told already: look at the rest of it
		value.Name = firewall.Name(free(c, value.Name))
	}
	next, err := e.change(value).Apply(c)
	if err != nil {
		return firewall.Problems{{Field: "name", Text: page.Sentence(err)}}
	}
	own := slices.IndexFunc(next.Aliases, func(a firewall.Alias) bool { return a.Name == value.Name })
	last := next.Aliases[own]
	next.Aliases = append(slices.Delete(slices.Clone(next.Aliases), own, own+1), last)
	return elsewhere(next, page.Found(c, next, ref(value.Name)))
}

// elsewhere names the objects that problems of other pages are about.
func elsewhere(c firewall.Config, ps firewall.Problems) firewall.Problems {
	for i, p := range ps {
		object, _, _ := strings.Cut(p.Field, ".")
		kind, key, ok := strings.Cut(object, "/")
		if !ok {
			continue
		}
		if u := used(c, firewall.Ref{Kind: kind, Key: key}); u.Text != "" {
			ps[i].Text = u.Kind + " " + u.Text + ": " + p.Text
		}
	}
	return ps
}

// stale turns commit's error into the page's: both versions, field by field.
// now is what the alias is called in the version of whoever saves.
func stale(now firewall.Name) func(*commit.StaleError) page.StaleError {
	return func(err *commit.StaleError) page.StaleError {
		name := firewall.Name(err.Ref.Key)
		theirs, there := err.Theirs.Alias(name)
		yours, mine := err.Yours.Alias(cmp.Or(now, name))
		out := page.StaleError{What: "Alias " + string(name), Back: "/aliases/" + string(name)}
		switch {
		case !there && !mine:
			out.Back = "/aliases"
		case !there:
			out.Back = "/aliases"
			out.Fields = []page.Stale{{Field: "Alias", Theirs: "not there", Yours: yours.String()}}
		case !mine:
			out.Fields = []page.Stale{{Field: "Alias", Theirs: theirs.String(), Yours: "deleted"}}
		default:
			out.Fields = fields(theirs, yours)
		}
		return out
	}
}

// fields is two aliases field by field, where they differ; of the lists only
// what stands in one of them.
func fields(theirs, yours firewall.Alias) []page.Stale {
	out := page.Differ([]string{"Name", "Holds", "Description"},
		[]string{string(theirs.Name), string(theirs.Kind), theirs.Descr}, []string{string(yours.Name), string(yours.Kind), yours.Descr})
	old, now := theirs.Lines(), yours.Lines()
	if old == now {
		return out
	}
	gone, fresh := difference(old, now)
	if len(gone)+len(fresh) == 0 {
		return append(out, page.Stale{Field: "Entries", Theirs: "the same", Yours: "in another order"})
	}
	return append(out, page.Stale{Field: "Entries", Theirs: only(gone), Yours: only(fresh)})
}

func only(lines []string) string {
	if len(lines) == 0 {
		return "nothing of its own"
	}
	return "only here: " + some(lines, 10, ", ")
}

// some is the first lines of a list, and how many more there are.
func some(lines []string, most int, between string) string {
	if len(lines) <= most {
		return strings.Join(lines, between)
	}
	return strings.Join(lines[:most], between) + fmt.Sprintf(" and %s more", digits(uint64(len(lines)-most)))
}

// difference is the lines that stand in only one of two texts, each in its order.
func difference(old, now string) (gone, fresh []string) {
	was, is := lineSet(old), lineSet(now)
	for line := range strings.Lines(old) {
		if line = strings.TrimSuffix(line, "\n"); !is[line] {
			gone = append(gone, line)
		}
	}
	for line := range strings.Lines(now) {
		if line = strings.TrimSuffix(line, "\n"); !was[line] {
			fresh = append(fresh, line)
		}
	}
	return gone, fresh
}

func lineSet(text string) map[string]bool {
	set := make(map[string]bool, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		set[strings.TrimSuffix(line, "\n")] = true
	}
	return set
}
