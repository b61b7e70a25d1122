// Package interfaces is the pages of the interfaces: which port has which role
// and address, and their editor.
package interfaces

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/link"
	"gatehouse/web/page"
)

// Drafts keeps the changes of an account until it applies them: commit.Writer.
type Drafts interface {
	View(account string) commit.View
	Save(ctx context.Context, who commit.Who, hash string, changes ...firewall.Change) error
	Discard(ctx context.Context, who commit.Who, refs ...firewall.Ref) error
}

// Deps is what the pages need; nothing may be nil.
type Deps struct {
	Drafts Drafts
	Ports  func() []link.Port             // every port as it is now: link.Service.Status
	Who    func(*http.Request) commit.Who // who sends a request
	// Apply applies the draft and answers the request; it must not read the body.
	Apply page.Handler
}

// New returns the routes of the interfaces.
func New(d Deps) []page.Route {
	p := &pages{d}
	return []page.Route{
		{Method: http.MethodGet, Path: "/interfaces", Serve: p.list},
		{Method: http.MethodPost, Path: "/interfaces", Serve: p.act},
		{Method: http.MethodGet, Path: "/interfaces/new", Serve: p.new},
		{Method: http.MethodPost, Path: "/interfaces/new", Serve: p.save},
		{Method: http.MethodGet, Path: "/interfaces/{name}", Serve: p.edit},
		{Method: http.MethodPost, Path: "/interfaces/{name}", Serve: p.save},
	}
}

type pages struct{ Deps }

func ref(n firewall.Name) firewall.Ref { return firewall.Ref{Kind: "interface", Key: string(n)} }

func (p *pages) view(r *http.Request) (commit.Who, commit.View) {
	who := p.Who(r)
	return who, p.Drafts.View(who.Account)
}

func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	_, v := p.view(r)
	l := find(v, p.Ports())
	if page.IsPartial(r) {
		return page.Render(w, r, http.StatusOK, tables(l))
	}
	l.Frame = page.FrameFor(r, "Interfaces", "/interfaces")
	return page.Render(w, r, http.StatusOK, listPage(l))
}

// act deletes an interface in the draft or takes that back: verb:name:hash.
func (p *pages) act(w http.ResponseWriter, r *http.Request) error {
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	parts := append(strings.SplitN(f.Get("op"), ":", 3), "", "")
	if err := f.Done(); err != nil {
		return err
	}
	verb, name, hash := parts[0], firewall.Name(parts[1]), parts[2]
	who, v := p.view(r)
	toast := page.Toast{Text: "Taken out of the draft."}
	switch _, there := v.Config.Interface(name); {
	case verb == "undo":
		err = p.Drafts.Discard(r.Context(), who, ref(name))
	case verb != "delete":
		return page.BadForm{Err: errors.New("op " + verb)}
	case !there:
		return page.NotFound{What: "This interface"}
	default:
		toast = page.Toast{Text: "Deleted: " + string(name) + ", with all that belongs to it.", Undo: "/discard", With: ref(name).String()}
		err = p.Drafts.Save(r.Context(), who, hash, firewall.DeleteInterface{Name: name})
	}
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		old, _ := v.Config.Interface(name)
		e := editor{form: show(old), Old: old, Problems: stillUsed(v.Config, ps)}
		e.Hash = v.Config.Hash(ref(name))
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	if s, ok := errors.AsType[*commit.StaleError](err); ok {
		return stale(s)
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, "/interfaces")
}

// new is the editor of an interface on the first free port, or on ?device=.
func (p *pages) new(w http.ResponseWriter, r *http.Request) error {
	_, v := p.view(r)
	f := blank(v.Config, p.Ports())
	if d := r.URL.Query().Get("device"); d != "" {
		f.Device = d
	}
	return p.editor(w, r, http.StatusOK, v, editor{form: f})
}

func (p *pages) edit(w http.ResponseWriter, r *http.Request) error {
	_, v := p.view(r)
	old, ok := v.Config.Interface(firewall.Name(r.PathValue("name")))
	if !ok {
		return page.NotFound{What: "This interface"}
	}
	f := show(old)
	f.Along = true
	f.Hash = v.Config.Hash(ref(old.Name))
	return p.editor(w, r, http.StatusOK, v, editor{form: f, Old: old})
}

// save keeps a new interface, or one that is there, with what moves along.
func (p *pages) save(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	f, then := read(in), in.Get("then")
	if err := in.Done(); err != nil {
		return err
	}
	who, v := p.view(r)
	e := editor{form: f}
	if name := firewall.Name(r.PathValue("name")); name != "" {
		var ok bool
		if e.Old, ok = v.Config.Interface(name); !ok {
			return page.NotFound{What: "This interface"}
		}
	}
	value, ps := f.value(e.Old)
	if value.Device != e.Old.Device && !slices.ContainsFunc(p.Ports(), func(q link.Port) bool { return q.Present && q.Device == value.Device }) {
		ps = append(ps, firewall.Problem{Field: "device", Text: "There is no such port now. Choose one from the list."})
	}
	changes := f.changes(v.Config, e.Old, value)
	if len(ps) > 0 {
		e.Problems = page.And(ps, wrong(v.Config, changes, value))
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	err = p.Drafts.Save(r.Context(), who, f.Hash, changes...)
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		if e.Problems = wrong(v.Config, changes, value); len(e.Problems) == 0 {
			e.Problems = page.Beside(ps, ref(value.Name))
		}
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	if s, ok := errors.AsType[*commit.StaleError](err); ok {
		if _, there := s.Theirs.Interface(firewall.Name(s.Ref.Key)); !there {
			return stale(s)
		}
		e.Stale = stale(s)
		e.Hash = s.Theirs.Hash(s.Ref)
		return p.editor(w, r, http.StatusConflict, v, e)
	}
	if err != nil {
		return err
	}
	if then == "apply" {
		return p.Deps.Apply(w, r)
	}
	page.Say(w, said(changes, value))
	return page.Go(w, r, "/interfaces")
}

// said is what the toast says; several changes are taken back in the bar only.
func said(changes []firewall.Change, in firewall.Interface) page.Toast {
	t := page.Toast{Text: "Saved: " + string(in.Name) + "."}
	if len(changes) == 1 {
		t.Undo, t.With = "/discard", changes[0].Ref().String()
		return t
	}
	t.Text = "Saved: " + string(in.Name) + ", and its DHCP server moves along."
	for _, c := range changes {
		if s, ok := c.(firewall.PutScope); ok && !s.Scope.On {
			t.Text = "Saved: " + string(in.Name) + ", and its DHCP server goes off."
		}
	}
	return t
}

// stale turns commit's error into the page's: both versions, field by field.
func stale(err *commit.StaleError) page.StaleError {
	name := firewall.Name(err.Ref.Key)
	theirs, there := err.Theirs.Interface(name)
	yours, mine := err.Yours.Interface(name)
	if !mine { // renamed: the port is the same
		if other, ok := err.Yours.ByDevice(theirs.Device); ok && there && other.Name != name {
			yours, mine = other, true
		}
	}
	out := page.StaleError{What: "Interface " + string(name), Back: "/interfaces/" + string(name)}
	switch {
	case !there:
		out.Back = "/interfaces"
		out.Fields = []page.Stale{{Field: "Interface", Theirs: "not there", Yours: yours.String()}}
	case !mine:
		out.Fields = []page.Stale{{Field: "Interface", Theirs: theirs.String(), Yours: "deleted"}}
	default:
		out.Fields = fields(theirs, yours)
	}
	return out
}

// editor is the page of one interface.
type editor struct {
	form
	Frame    page.Frame
	Old      firewall.Interface // as it is in the draft; without name: a new one
	Devices  []page.Option
	Port     link.Port // as it is now; zero: it is not there
	Scope    firewall.Scope
	HasScope bool
	Gone     goes // what a deletion takes with it
	Problems firewall.Problems
	Stale    page.StaleError
	Others   int // objects with pending changes, beside this one
}

func (p *pages) editor(w http.ResponseWriter, r *http.Request, status int, v commit.View, e editor) error {
	name := "New interface"
	ports := p.Ports()
	e.Others = v.Objects
	if e.Old.Name != "" {
		name = "Interface " + string(e.Old.Name)
		e.Scope, e.HasScope = v.Config.Scope(e.Old.Name)
		e.Gone = wouldGo(v.Config, e.Old.Name)
		if slices.ContainsFunc(v.Items, func(i commit.Item) bool { return i.Ref == ref(e.Old.Name) }) {
			e.Others--
		}
	}
	if i := slices.IndexFunc(ports, func(q link.Port) bool { return q.Device == e.Old.Device && e.Old.Name != "" }); i >= 0 {
		e.Port = ports[i]
	}
	e.Devices = devices(v.Config, ports, e.Old.Device, e.Device)
	e.Frame = page.FrameFor(r, name, "/interfaces")
	return page.Render(w, r, status, editPage(e))
}
