// Package forwards is the pages of the port forwards: their list and editor.
package forwards

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// Host is a machine inside that a forward can lead to.
type Host struct {
	Addr netip.Addr
	Name string // as leases or static mappings know it; empty: unknown
}

// Deps is what the pages need; Hits and Hosts may be nil.
type Deps struct {
	draft.Desk
	Hits  func() map[firewall.ID]uint64 // packets by forward
	Hosts func() []Host                 // leases and the like, for suggestions
}

// New returns the routes of the forwards.
func New(d Deps) []page.Route {
	p := &pages{d}
	return []page.Route{
		{Method: http.MethodGet, Path: "/forwards", Serve: p.list},
		{Method: http.MethodPost, Path: "/forwards", Serve: p.act},
		{Method: http.MethodGet, Path: "/forwards/new", Serve: p.new},
		{Method: http.MethodPost, Path: "/forwards/new", Serve: p.save},
		{Method: http.MethodGet, Path: "/forwards/{id}", Serve: p.edit},
		{Method: http.MethodPost, Path: "/forwards/{id}", Serve: p.save},
	}
}

type pages struct{ Deps }

func ref(id firewall.ID) firewall.Ref { return firewall.Ref{Kind: "forward", Key: string(id)} }

func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	l := p.find(v)
	l.Frame = page.FrameFor(r, "Port forwards", "/forwards")
	return page.Render(w, r, http.StatusOK, listPage(l))
}

// act does what a row's button asks for: verb:id:hash.
func (p *pages) act(w http.ResponseWriter, r *http.Request) error {
	op, err := draft.ReadOp(r)
	if err != nil {
		return err
	}
	v, id := p.View(r), firewall.ID(op.Key)
	old, there := v.Config.Forward(id)
	name := "“" + title(old) + "”"
	edit := draft.Edit{Hash: op.Hash, Stale: stale}
	var toast page.Toast
	switch {
	case op.Verb == "undo":
		toast, err = p.Undo(r, ref(id))
	case !there:
		return page.NotFound{What: "This forward"}
	case op.Verb == "toggle":
		old.On = !old.On
		edit.Changes = []firewall.Change{firewall.UpdateForward{Forward: old}}
		edit.Said = map[bool]string{true: "Switched on: ", false: "Switched off: "}[old.On] + name
	case op.Verb == "delete":
		edit.Changes = []firewall.Change{firewall.DeleteForward{ID: id, Descr: title(old)}}
		edit.Said = "Deleted: " + name
	default:
		return op.Unknown()
	}
	if edit.Changes != nil {
		toast, err = p.Put(r, v, edit)
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, at(id))
}

// at is where a forward stands in the list.
func at(id firewall.ID) string { return "/forwards#f-" + string(id) }

func (p *pages) new(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	f := blank(v.Config)
	if old, ok := v.Config.Forward(firewall.ID(r.URL.Query().Get("copy"))); ok {
		f = show(old)
	}
	return p.editor(w, r, http.StatusOK, v, editor{form: f})
}

func (p *pages) edit(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	old, ok := v.Config.Forward(firewall.ID(r.PathValue("id")))
	if !ok {
		return page.NotFound{What: "This forward"}
	}
	e := editor{form: show(old), Old: old}
	e.Hash = v.Config.Hash(ref(old.ID))
	return p.editor(w, r, http.StatusOK, v, e)
}

// save keeps a new forward, or one that is there, or shows the editor again
// with everything that is wrong.
func (p *pages) save(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	e := editor{form: read(in), Editor: draft.Read(in)}
	if err := in.Done(); err != nil {
		return err
	}
	v := p.View(r)
	if id := firewall.ID(r.PathValue("id")); id != "" {
		var ok bool
		if e.Old, ok = v.Config.Forward(id); !ok {
			return page.NotFound{What: "This forward"}
		}
	}
	value, ps := e.forward(e.Old, commit.NewID())
	var change firewall.Change = firewall.UpdateForward{Forward: value}
	if e.Old.ID == "" {
		value.ID = commit.NewID()
		change = firewall.AddForward{Forward: value}
	}
	if len(ps) > 0 {
		e.Problems = once(alsoWrong(ps, v.Config, change))
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	status, err := p.Save(w, r, v, &e.Editor, draft.Edit{Changes: []firewall.Change{change}, Stale: stale,
		Said: "Saved: “" + title(value) + "”", Back: at(value.ID)})
	if status != 0 {
		e.Problems = once(e.Problems)
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
	return page.And(ps, page.Found(c, next, change.Ref()))
}

// once leaves out what the linked rule repeats of its forward's problems.
func once(ps firewall.Problems) firewall.Problems {
	ofRule := func(p firewall.Problem) bool { return strings.HasPrefix(p.Field, "rule/") }
	if len(ps) == 0 || ofRule(ps[0]) { // its own come first
		return ps
	}
	return slices.DeleteFunc(ps, ofRule)
}

func stale(err *commit.StaleError) page.StaleError {
	return draft.Kind[firewall.Forward, firewall.ID]{Word: "Forward", Home: "/forwards", Path: "/forwards/", Get: firewall.Config.Forward,
		Name: func(f firewall.Forward) string { return "Forward “" + title(f) + "”" }, Line: firewall.Forward.String, Fields: fields}.Stale(err)
}

// editor is the page of one forward.
type editor struct {
	draft.Editor
	form
	Config firewall.Config
	Old    firewall.Forward // as it is in the draft; without ID: a new one
	Hosts  []Host
}

func (p *pages) editor(w http.ResponseWriter, r *http.Request, status int, v commit.View, e editor) error {
	name := "New port forward"
	if e.Old.ID != "" {
		name = "Edit port forward"
	}
	e.Open(r, v, ref(e.Old.ID), name, "/forwards")
	e.Config, e.Hosts = v.Config, p.hosts(v.Config)
	e.Warnings = warnings(v.Config)[e.Old.ID]
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
