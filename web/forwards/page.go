// Package forwards is the pages of the port forwards: their list and editor.
package forwards

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

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

// Host is a machine inside that a forward can lead to.
type Host struct {
	Addr netip.Addr
	Name string // as leases or static mappings know it; empty: unknown
}

// Deps is what the pages need; Hits and Hosts may be nil.
type Deps struct {
	Drafts Drafts
	Who    func(*http.Request) commit.Who // who sends a request
	Hits   func() map[firewall.ID]uint64  // packets by forward
	Hosts  func() []Host                  // leases and the like, for suggestions
	// Apply applies the draft and answers the request; it must not read the body.
	Apply page.Handler
}

// New returns the routes of the forwards.
func New(d Deps) []page.Route {
	p := &pages{d}
	return []page.Route{
		{Method: http.MethodGet, Path: "/forwards", Serve: p.list},
		{Method: http.MethodPost, Path: "/forwards", Serve: p.act},
		{Method: http.MethodGet, Path: "/forwards/new", Serve: p.new},
		{Method: http.MethodPost, Path: "/forwards/new", Serve: p.add},
		{Method: http.MethodGet, Path: "/forwards/{id}", Serve: p.edit},
		{Method: http.MethodPost, Path: "/forwards/{id}", Serve: p.save},
	}
}

type pages struct{ Deps }

func ref(id firewall.ID) firewall.Ref { return firewall.Ref{Kind: "forward", Key: string(id)} }

func (p *pages) view(r *http.Request) (commit.Who, commit.View) {
	who := p.Who(r)
	return who, p.Drafts.View(who.Account)
}

func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	_, v := p.view(r)
	l := p.find(v)
	l.Frame = page.FrameFor(r, "Port forwards", "/forwards")
	return page.Render(w, r, http.StatusOK, listPage(l))
}

// act does what a row's button asks for: verb:id:hash.
func (p *pages) act(w http.ResponseWriter, r *http.Request) error {
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	parts := append(strings.SplitN(f.Get("op"), ":", 3), "", "")
	if err := f.Done(); err != nil {
		return err
	}
	verb, id, hash := parts[0], firewall.ID(parts[1]), parts[2]
	who, v := p.view(r)
	toast := undoable("", v, ref(id))
	old, there := v.Config.Forward(id)
	name := "“" + title(old) + "”"
	var change firewall.Change
	switch {
	case verb == "undo":
		toast = page.Toast{Text: "Taken out of the draft."}
		err = p.Drafts.Discard(r.Context(), who, ref(id))
	case !there:
		return page.NotFound{What: "This forward"}
	case verb == "toggle":
		old.On = !old.On
		change = firewall.UpdateForward{Forward: old}
		toast.Text = map[bool]string{true: "Switched on: ", false: "Switched off: "}[old.On] + name
	case verb == "delete":
		change = firewall.DeleteForward{ID: id, Descr: title(old)}
		toast.Text = "Deleted: " + name
	default:
		return page.BadForm{Err: errors.New("op " + verb)}
	}
	if change != nil {
		err = p.Drafts.Save(r.Context(), who, hash, change)
	}
	if s, ok := errors.AsType[*commit.StaleError](err); ok {
		return stale(s)
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, "/forwards#f-"+string(id))
}

func (p *pages) new(w http.ResponseWriter, r *http.Request) error {
	_, v := p.view(r)
	f := blank(v.Config)
	if old, ok := v.Config.Forward(firewall.ID(r.URL.Query().Get("copy"))); ok {
		f = show(old)
	}
	return p.editor(w, r, http.StatusOK, v, editor{form: f})
}

func (p *pages) edit(w http.ResponseWriter, r *http.Request) error {
	_, v := p.view(r)
	old, ok := v.Config.Forward(firewall.ID(r.PathValue("id")))
	if !ok {
		return page.NotFound{What: "This forward"}
	}
	f := show(old)
	f.Hash = v.Config.Hash(ref(old.ID))
	return p.editor(w, r, http.StatusOK, v, editor{form: f, Old: old})
}

func (p *pages) add(w http.ResponseWriter, r *http.Request) error {
	return p.post(w, r, func(commit.View) (firewall.Forward, error) { return firewall.Forward{}, nil })
}

func (p *pages) save(w http.ResponseWriter, r *http.Request) error {
	return p.post(w, r, func(v commit.View) (firewall.Forward, error) {
		old, ok := v.Config.Forward(firewall.ID(r.PathValue("id")))
		if !ok {
			return old, page.NotFound{What: "This forward"}
		}
		return old, nil
	})
}

// post reads the form and keeps it in the draft.
func (p *pages) post(w http.ResponseWriter, r *http.Request, find func(commit.View) (firewall.Forward, error)) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	f := read(in)
	then := in.Get("then")
	if err := in.Done(); err != nil {
		return err
	}
	who, v := p.view(r)
	old, err := find(v)
	if err != nil {
		return err
	}
	value, ps := f.forward(old, commit.NewID())
	var change firewall.Change = firewall.UpdateForward{Forward: value}
	if old.ID == "" {
		value.ID = commit.NewID()
		change = firewall.AddForward{Forward: value}
	}
	e := editor{form: f, Old: old, Problems: ps, then: then}
	if len(ps) > 0 {
		e.Problems = alsoWrong(ps, v.Config, change)
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	return p.keep(w, r, who, v, e, change)
}

// keep saves a change, or shows the editor again with everything that is wrong.
func (p *pages) keep(w http.ResponseWriter, r *http.Request, who commit.Who, v commit.View, e editor, change firewall.Change) error {
	target := change.Ref()
	err := p.Drafts.Save(r.Context(), who, e.Hash, change)
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		e.Problems = once(page.Beside(ps, target))
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	if s, ok := errors.AsType[*commit.StaleError](err); ok {
		if _, there := s.Theirs.Forward(firewall.ID(target.Key)); !there {
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
	saved, _ := now.Config.Forward(firewall.ID(target.Key))
	page.Say(w, undoable("Saved: “"+title(saved)+"”", v, target))
	return page.Go(w, r, "/forwards#f-"+target.Key)
}

// undoable is a toast with an Undo, but not for an object that had changes in
// the draft before: Undo takes all of an object's changes out.
func undoable(text string, v commit.View, target firewall.Ref) page.Toast {
	if slices.ContainsFunc(v.Items, func(i commit.Item) bool { return i.Ref == target }) {
		return page.Toast{Text: text}
	}
	return page.Toast{Text: text, Undo: "/discard", With: target.String()}
}

// alsoWrong adds what validation finds in the fields that could be read.
func alsoWrong(ps firewall.Problems, c firewall.Config, change firewall.Change) firewall.Problems {
	next, err := change.Apply(c)
	if err != nil {
		return append(ps, firewall.Problem{Text: page.Sentence(err)})
	}
	return once(page.And(ps, page.Found(c, next, change.Ref())))
}

// once leaves out what the linked rule repeats of its forward's problems.
func once(ps firewall.Problems) firewall.Problems {
	ofRule := func(p firewall.Problem) bool { return strings.HasPrefix(p.Field, "rule/") }
	if len(ps) == 0 || ofRule(ps[0]) { // its own come first
		return ps
	}
	return slices.DeleteFunc(ps, ofRule)
}

// stale turns commit's error into the page's: both versions, field by field.
func stale(err *commit.StaleError) page.StaleError {
	id := firewall.ID(err.Ref.Key)
	theirs, there := err.Theirs.Forward(id)
	yours, mine := err.Yours.Forward(id)
	out := page.StaleError{What: "Forward “" + title(yours) + "”", Back: "/forwards/" + string(id)}
	switch {
	case !there:
		out.Back = "/forwards"
		out.Fields = []page.Stale{{Field: "Forward", Theirs: "deleted", Yours: yours.String()}}
	case !mine:
		out.What = "Forward “" + title(theirs) + "”"
		out.Fields = []page.Stale{{Field: "Forward", Theirs: theirs.String(), Yours: "deleted"}}
	default:
		out.Fields = fields(theirs, yours)
	}
	return out
}

// editor is the page of one forward.
type editor struct {
	form
	Frame    page.Frame
	Config   firewall.Config
	Old      firewall.Forward // as it is in the draft; without ID: a new one
	Hosts    []Host
	Problems firewall.Problems
	Warnings []string
	Stale    page.StaleError
	Others   int // objects with pending changes, beside this one
	then     string
}

func (p *pages) editor(w http.ResponseWriter, r *http.Request, status int, v commit.View, e editor) error {
	name := "New port forward"
	if e.Old.ID != "" {
		name = "Edit port forward"
	}
	e.Config, e.Others = v.Config, v.Objects
	if slices.ContainsFunc(v.Items, func(i commit.Item) bool { return i.Ref == ref(e.Old.ID) }) {
		e.Others--
	}
	e.Hosts = p.hosts(v.Config)
	e.Warnings = warnings(v.Config)[e.Old.ID]
	e.Frame = page.FrameFor(r, name, "/forwards")
	return page.Render(w, r, status, editPage(e))
}

// hosts is who a forward can lead to: static mappings first, then leases.
func (p *pages) hosts(c firewall.Config) (list []Host) {
	for _, s := range c.Scopes {
		for _, m := range s.Statics {
			list = append(list, Host{m.Addr, m.Host})
		}
	}
	if p.Deps.Hosts == nil {
		return list
	}
	for _, h := range p.Deps.Hosts() {
		if !slices.ContainsFunc(list, func(o Host) bool { return o.Addr == h.Addr }) {
			list = append(list, h)
		}
	}
	return list
}

// warnings is what valid forwards do that their owner may not expect.
func warnings(c firewall.Config) map[firewall.ID][]string {
	out := map[firewall.ID][]string{}
	for _, p := range c.Warnings() {
		if rest, ok := strings.CutPrefix(p.Field, "forward/"); ok {
			id, _, _ := strings.Cut(rest, ".")
			out[firewall.ID(id)] = append(out[firewall.ID(id)], p.Text)
		}
	}
	return out
}
