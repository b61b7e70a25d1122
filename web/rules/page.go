// Package rules is the pages of the firewall rules: the lists of every
// interface in the order in which they are evaluated, and the editor.
package rules

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// Drafts keeps the changes of an account until it applies them: commit.Writer.
type Drafts interface {
	View(account string) commit.View
	Save(ctx context.Context, who commit.Who, hash string, changes ...firewall.Change) error
	Discard(ctx context.Context, who commit.Who, refs ...firewall.Ref) error
}

// Deps is what the pages need; only Hits may be nil.
type Deps struct {
	Drafts Drafts
	Who    func(*http.Request) commit.Who // who sends a request
	Hits   func() map[firewall.ID]uint64  // packets by rule; one that is missing shows none
	// Apply applies the draft and answers the request; it must not read the body.
	Apply page.Handler
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

func (p *pages) view(r *http.Request) (commit.Who, commit.View) {
	who := p.Who(r)
	return who, p.Drafts.View(who.Account)
}

func (p *pages) hits() map[firewall.ID]uint64 {
	if p.Hits == nil {
		return nil
	}
	return p.Deps.Hits()
}

// list shows the rules of one tab; a search asks for the lists alone.
func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	_, v := p.view(r)
	l := find(v, p.hits(), r.URL.Query())
	if page.IsPartial(r) {
		return page.Render(w, r, http.StatusOK, lists(l))
	}
	l.Frame = page.FrameFor(r, "Firewall rules", "/rules")
	return page.Render(w, r, http.StatusOK, listPage(l))
}

// act does what a row's button asks for. Everything goes into the draft.
func (p *pages) act(w http.ResponseWriter, r *http.Request) error {
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	asked, tab, query := f.Get("op"), f.Get("tab"), f.Get("q")
	if err := f.Done(); err != nil {
		return err
	}
	o, err := parseOp(asked)
	if err != nil {
		return err
	}
	who, v := p.view(r)
	toast := page.Toast{}
	if o.verb == "undo" {
		toast.Text = "Taken out of the draft."
		err = p.Drafts.Discard(r.Context(), who, ref(o.id))
	} else {
		toast, err = p.apply(r.Context(), who, v, o)
	}
	if page.IsPartial(r) {
		return p.again(w, r, url.Values{"tab": {tab}, "q": {query}}, toast, err)
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, list{Tab: tab, Query: query}.at()+"#r-"+string(o.id))
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
	_, v := p.view(r)
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

// apply saves the changes of an op.
func (p *pages) apply(ctx context.Context, who commit.Who, v commit.View, o op) (page.Toast, error) {
	changes, text, err := o.changes(v.Config)
	if err != nil || len(changes) == 0 {
		return page.Toast{Text: "It is already there."}, err
	}
	err = p.Drafts.Save(ctx, who, o.full(v.Config.Hash(ref(o.id))), changes...)
	if s, ok := errors.AsType[*commit.StaleError](err); ok {
		return page.Toast{}, stale(s)
	}
	return undoable(text, v, ref(o.id)), err
}

// undoable is a toast with an Undo, but not for an object that had changes in
// the draft before: Undo takes all of an object's changes out.
func undoable(text string, v commit.View, target firewall.Ref) page.Toast {
	if slices.ContainsFunc(v.Items, func(i commit.Item) bool { return i.Ref == target }) {
		return page.Toast{Text: text}
	}
	return page.Toast{Text: text, Undo: "/discard", With: target.String()}
}

// new shows an empty editor: for a list, beside a rule, or as a copy of one.
func (p *pages) new(w http.ResponseWriter, r *http.Request) error {
	_, v := p.view(r)
	q := r.URL.Query()
	f := blank(firewall.Name(q.Get("in")))
	if c, ok := v.Config.Rule(firewall.ID(q.Get("copy"))); ok {
		c.Forward = ""
		f = show(c)
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
	f := read(in, false)
	f.Before, f.After = in.Get("before"), in.Get("after")
	then := in.Get("then")
	if err := in.Done(); err != nil {
		return err
	}
	who, v := p.view(r)
	rule, ps := f.rule(commit.NewID())
	change := firewall.AddRule{Rule: rule, Place: firewall.Place{Before: firewall.ID(f.Before), After: firewall.ID(f.After)}}
	return p.keep(w, r, who, v, editor{form: f, Problems: ps, then: then}, change)
}

// edit shows the editor of a rule.
func (p *pages) edit(w http.ResponseWriter, r *http.Request) error {
	_, v := p.view(r)
	rule, ok := v.Config.Rule(firewall.ID(r.PathValue("id")))
	if !ok {
		return page.NotFound{What: "This rule"}
	}
	f := show(rule)
	f.Hash = v.Config.Hash(ref(rule.ID))
	return p.editor(w, r, http.StatusOK, v, editor{form: f, Rule: rule})
}

// save puts the changed rule into the draft.
func (p *pages) save(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	who, v := p.view(r)
	old, ok := v.Config.Rule(firewall.ID(r.PathValue("id")))
	if !ok {
		return page.NotFound{What: "This rule"}
	}
	f := read(in, old.Forward != "")
	then := in.Get("then")
	if err := in.Done(); err != nil {
		return err
	}
	var ps firewall.Problems
	rule := old
	if old.Forward != "" {
		rule.On, rule.Log, rule.Descr, rule.Section = f.On, f.Log, f.Descr, f.Section
		locked := show(rule)
		locked.Hash = f.Hash
		f = locked
	} else {
		rule, ps = f.rule(old.ID)
	}
	return p.keep(w, r, who, v, editor{form: f, Rule: old, Problems: ps, then: then}, firewall.UpdateRule{Rule: rule})
}

// keep saves a change, or shows the editor again with everything that is wrong.
func (p *pages) keep(w http.ResponseWriter, r *http.Request, who commit.Who, v commit.View, e editor, change firewall.Change) error {
	target := change.Ref()
	if len(e.Problems) > 0 {
		e.Problems = alsoWrong(e.Problems, v.Config, change)
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	err := p.Drafts.Save(r.Context(), who, e.Hash, change)
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		e.Problems = page.Beside(ps, target)
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	if s, ok := errors.AsType[*commit.StaleError](err); ok {
		if _, there := s.Theirs.Rule(firewall.ID(target.Key)); !there {
			return stale(s)
		}
		e.Stale = stale(s)
		e.Hash = s.Theirs.Hash(target)
		return p.editor(w, r, http.StatusConflict, v, e)
	}
	if err != nil {
		return err
	}
	if e.then == "apply" {
		return p.Deps.Apply(w, r)
	}
	_, now := p.view(r)
	rule, _ := now.Config.Rule(firewall.ID(target.Key))
	page.Say(w, undoable("Saved: “"+title(rule)+"”", v, target))
	back := list{Tab: string(rule.In)}
	if rule.In == "" {
		back.Tab = tabFloating
	}
	return page.Go(w, r, back.at()+"#r-"+target.Key)
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
	form
	Frame    page.Frame
	Config   firewall.Config
	Rule     firewall.Rule // as it is in the draft; without ID: a new one
	Problems firewall.Problems
	Stale    page.StaleError
	Hits     string
	Others   int // objects with pending changes, beside this rule
	then     string
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
	e.Config, e.Others = v.Config, v.Objects
	for i, it := range v.Items {
		first := slices.IndexFunc(v.Items, func(o commit.Item) bool { return o.Ref == it.Ref })
		if first == i && it.Ref == ref(e.Rule.ID) {
			e.Others--
		}
	}
	e.Frame = page.FrameFor(r, name, "/rules")
	return page.Render(w, r, status, editPage(e))
}
