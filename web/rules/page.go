// Package rules is the pages of the firewall rules: the lists of every
// interface in the order in which they are evaluated, and the editor.
package rules

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// Deps is what the pages need; only Hits may be nil.
type Deps struct {
	draft.Desk
	Hits func() map[firewall.ID]uint64 // packets by rule; one that is missing shows none
}

// New returns the routes of the rules.
func New(d Deps) []page.Route {
	p := &pages{d}
	return []page.Route{
		{Method: http.MethodGet, Path: "/rules", Serve: p.list},
		{Method: http.MethodPost, Path: "/rules", Serve: p.act},
		{Method: http.MethodGet, Path: "/rules/new", Serve: p.new},
		{Method: http.MethodPost, Path: "/rules/new", Serve: p.add},
		{Method: http.MethodGet, Path: "/rules/{id}", Serve: p.edit},
		{Method: http.MethodPost, Path: "/rules/{id}", Serve: p.save},
	}
}

type pages struct{ Deps }

func (p *pages) hits() map[firewall.ID]uint64 {
	if p.Hits == nil {
		return nil
	}
	return p.Deps.Hits()
}

// list shows the rules of one tab; a search asks for the lists alone.
func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	l := find(v, p.hits(), r.URL.Query())
	if page.IsPartial(r) {
		return page.Render(w, r, http.StatusOK, lists(l))
	}
	l.Frame = page.FrameFor(r, "Firewall rules", "/rules")
	return page.Render(w, r, http.StatusOK, listPage(l))
}

// act does what a row's button asks for. Everything goes into the draft.
func (p *pages) act(w http.ResponseWriter, r *http.Request) error {
	asked, err := draft.ReadOp(r, "tab", "q")
	if err != nil {
		return err
	}
	o := op{asked}
	v := p.View(r)
	var toast page.Toast
	if o.Verb == "undo" {
		toast, err = p.Undo(r, ref(o.id()))
	} else {
		toast, err = p.put(r, v, o)
	}
	if page.IsPartial(r) {
		return p.again(w, r, o.Also, toast, err)
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, list{Tab: o.Also.Get("tab"), Query: o.Also.Get("q")}.at()+"#r-"+o.Key)
}

// again answers a button that htmx pressed: the lists as they are now, with
// what was done or why not. A whole error page has no place in a list.
func (p *pages) again(w http.ResponseWriter, r *http.Request, want url.Values, toast page.Toast, failed error) error {
	status, alert := http.StatusOK, ""
	if failed != nil {
		var known bool
		if status, alert, known = told(failed); !known {
			return failed
		}
		toast = page.Toast{}
	}
	v := p.View(r)
	l := find(v, p.hits(), want)
	l.Alert = alert
	l.Frame = page.FrameFor(r, "Firewall rules", "/rules")
	l.Frame.Toast = toast
	return page.Render(w, r, status, fragment(l))
}

// told is an error in a sentence above the lists; false for one that is ours to read.
func told(err error) (status int, text string, known bool) {
	if e, ok := errors.AsType[page.StaleError](err); ok {
		text := e.Error()
		for _, f := range e.Fields {
			text += " " + f.Field + " is now " + cmp.Or(f.Theirs, "empty") + "."
		}
		return http.StatusConflict, text + " Nothing of yours was saved.", true
	}
	if e, ok := errors.AsType[page.NotFound](err); ok {
		return http.StatusNotFound, e.Error(), true
	}
	if e, ok := errors.AsType[page.Refused](err); ok {
		return e.Status, e.Text, true
	}
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		text := "Not saved."
		for _, p := range ps {
			text += " " + p.Text
		}
		return http.StatusUnprocessableEntity, text, true
	}
	if e, ok := errors.AsType[*commit.NeededError](err); ok {
		return http.StatusConflict, "A later change needs this one: " + e.By + ". Discard that one first.", true
	}
	if e, ok := errors.AsType[*commit.SafeModeError](err); ok {
		return http.StatusServiceUnavailable, e.Error() + ".", true
	}
	return 0, "", false
}

// put keeps the changes of an op.
func (p *pages) put(r *http.Request, v commit.View, o op) (page.Toast, error) {
	changes, text, err := o.changes(v.Config)
	if err != nil || len(changes) == 0 {
		return page.Toast{Text: "It is already there."}, err
	}
	return p.Put(r, v, draft.Edit{Changes: changes, Hash: o.full(v.Config.Hash(ref(o.id()))), Said: text, Stale: stale})
}

// new shows an empty editor: for a list, beside a rule, or as a copy of one.
func (p *pages) new(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	q := r.URL.Query()
	f := blank(v.Config, firewall.Name(q.Get("in")))
	if c, ok := v.Config.Rule(firewall.ID(q.Get("copy"))); ok {
		c.Forward = ""
		f = show(v.Config, c)
		f.After = string(c.ID)
	} else {
		f.Before, f.After = q.Get("before"), q.Get("after")
		if in, ok := v.Config.Interface(firewall.Name(f.In)); ok && q.Get("allow") == "all" {
			f.Descr, f.Src, f.Proto = "Allow "+string(in.Name)+" to any", string(in.Name)+" net", string(firewall.AnyProto)
		}
		if n, ok := v.Config.Rule(firewall.ID(f.Before + f.After)); ok {
			f.In, f.Section = string(n.In), n.Section
		}
	}
	return p.editor(w, r, http.StatusOK, v, editor{form: f})
}

// add puts a new rule into the draft.
func (p *pages) add(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	e := editor{form: read(in, false), Editor: draft.Read(in)}
	e.Before, e.After = in.Get("before"), in.Get("after")
	if err := in.Done(); err != nil {
		return err
	}
	v := p.View(r)
	var rule firewall.Rule
	rule, e.Problems = e.rule(v.Config, firewall.Rule{ID: commit.NewID()})
	return p.keep(w, r, v, e, rule, firewall.AddRule{Rule: rule, Place: firewall.Place{Before: firewall.ID(e.Before), After: firewall.ID(e.After)}})
}

// edit shows the editor of a rule.
func (p *pages) edit(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	rule, ok := v.Config.Rule(firewall.ID(r.PathValue("id")))
	if !ok {
		return page.NotFound{What: "This rule"}
	}
	e := editor{form: show(v.Config, rule), Rule: rule}
	e.Hash = v.Config.Hash(ref(rule.ID))
	return p.editor(w, r, http.StatusOK, v, e)
}

// save puts the changed rule into the draft.
func (p *pages) save(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	v := p.View(r)
	old, ok := v.Config.Rule(firewall.ID(r.PathValue("id")))
	if !ok {
		return page.NotFound{What: "This rule"}
	}
	e := editor{form: read(in, old.Forward != ""), Editor: draft.Read(in), Rule: old}
	if err := in.Done(); err != nil {
		return err
	}
	rule := old
	if old.Forward != "" {
		rule.On, rule.Log, rule.Descr, rule.Section = e.On, e.Log, e.Descr, e.Section
		typed := e.Limit
		rule.Limit, e.Problems = typed.Value(v.Config, old.Limit)
		e.form = show(v.Config, rule)
		e.Limit = typed
	} else {
		rule, e.Problems = e.rule(v.Config, old)
	}
	return p.keep(w, r, v, e, rule, firewall.UpdateRule{Rule: rule})
}

// keep saves a rule, or shows the editor again with everything that is wrong.
func (p *pages) keep(w http.ResponseWriter, r *http.Request, v commit.View, e editor, rule firewall.Rule, change firewall.Change) error {
	if len(e.Problems) > 0 {
		e.Problems = alsoWrong(e.Problems, v.Config, change)
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	status, err := p.Save(w, r, v, &e.Editor, draft.Edit{Changes: []firewall.Change{change}, Stale: stale,
		Said: "Saved: “" + title(rule) + "”", Back: home(string(rule.In)) + "#r-" + string(rule.ID)})
	if status != 0 {
		return p.editor(w, r, status, v, e)
	}
	return err
}

// alsoWrong adds what validation finds in the fields that could be read.
func alsoWrong(ps firewall.Problems, c firewall.Config, change firewall.Change) firewall.Problems {
	next, err := change.Apply(c)
	if err != nil {
		return append(ps, firewall.Problem{Text: page.Sentence(err)})
	}
	found := page.Found(c, next, change.Ref())
	if page.ErrorOf(ps, "number") != "" {
		found = slices.DeleteFunc(found, func(p firewall.Problem) bool { return p.Field == "proto" })
	}
	return page.And(ps, found)
}

// editor is the page of one rule.
type editor struct {
	draft.Editor
	form
	Config firewall.Config
	Rule   firewall.Rule // as it is in the draft; without ID: a new one
	Hits   string
}

func (p *pages) editor(w http.ResponseWriter, r *http.Request, status int, v commit.View, e editor) error {
	name := "New rule"
	if e.Rule.ID != "" {
		name = "Edit rule"
		if n, ok := p.hits()[e.Rule.ID]; ok {
			e.Hits = short(n)
		}
	}
	// A neighbour that is gone would refuse the form for ever: the end then.
	if _, ok := v.Config.Rule(firewall.ID(e.Before + e.After)); !ok {
		e.Before, e.After = "", ""
	}
	e.Config, e.Warnings = v.Config, page.Warnings(v.Config)[ref(e.Rule.ID)]
	e.Open(r, v, ref(e.Rule.ID), name, "/rules")
	return page.Render(w, r, status, editPage(e))
}
