// Package interfaces is the pages of the interfaces: which port has which role
// and address, and their editor.
package interfaces

import (
	"errors"
	"net/http"
	"slices"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/link"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// Deps is what the pages need; nothing may be nil.
type Deps struct {
	draft.Desk
	Ports func() []link.Port // every port as it is now: link.Service.Status
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

func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	l := find(v, p.Ports())
	if page.IsPartial(r) {
		return page.Render(w, r, http.StatusOK, tables(l))
	}
	l.Frame = page.FrameFor(r, "Interfaces", "/interfaces")
	return page.Render(w, r, http.StatusOK, listPage(l))
}

// act deletes an interface in the draft or takes that back: verb:name:hash.
func (p *pages) act(w http.ResponseWriter, r *http.Request) error {
	op, err := draft.ReadOp(r)
	if err != nil {
		return err
	}
	v, name := p.View(r), firewall.Name(op.Key)
	old, there := v.Config.Interface(name)
	var toast page.Toast
	switch {
	case op.Verb == "undo":
		toast, err = p.Undo(r, ref(name))
	case op.Verb != "delete":
		return op.Unknown()
	case !there:
		return page.NotFound{What: "This interface"}
	default:
		toast, err = p.Put(r, v, draft.Edit{Changes: []firewall.Change{firewall.DeleteInterface{Name: name}}, Hash: op.Hash, Stale: stale,
			Said: "Deleted: " + string(name) + ", with all that belongs to it."})
	}
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		e := editor{form: show(old), Old: old}
		e.Problems, e.Hash = stillUsed(v.Config, ps), v.Config.Hash(ref(name))
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, "/interfaces")
}

// new is the editor of an interface on the first free port, or on ?device=.
func (p *pages) new(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	f := blank(v.Config, p.Ports())
	if d := r.URL.Query().Get("device"); d != "" {
		f.Device = d
	}
	return p.editor(w, r, http.StatusOK, v, editor{form: f})
}

func (p *pages) edit(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	old, ok := v.Config.Interface(firewall.Name(r.PathValue("name")))
	if !ok {
		return page.NotFound{What: "This interface"}
	}
	e := editor{form: show(old), Old: old}
	e.Along = true
	e.Hash = v.Config.Hash(ref(old.Name))
	return p.editor(w, r, http.StatusOK, v, e)
}

// save keeps a new interface, or one that is there, with what moves along.
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
	if name := firewall.Name(r.PathValue("name")); name != "" {
		var ok bool
		if e.Old, ok = v.Config.Interface(name); !ok {
			return page.NotFound{What: "This interface"}
		}
	}
	value, ps := e.value(e.Old)
	if value.Device != e.Old.Device && !slices.ContainsFunc(p.Ports(), func(q link.Port) bool { return q.Present && q.Device == value.Device }) {
		ps = append(ps, firewall.Problem{Field: "device", Text: "There is no such port now. Choose one from the list."})
	}
	changes := e.changes(v.Config, e.Old, value)
	if len(ps) > 0 {
		e.Problems = page.And(ps, wrong(v.Config, changes, value))
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	status, err := p.Save(w, r, v, &e.Editor, draft.Edit{Changes: changes, Stale: stale, Said: said(changes, value), Back: "/interfaces"})
	if status == http.StatusUnprocessableEntity {
		if ps := wrong(v.Config, changes, value); len(ps) > 0 {
			e.Problems = ps
		}
	}
	if status != 0 {
		return p.editor(w, r, status, v, e)
	}
	return err
}

// said is what the toast says.
func said(changes []firewall.Change, in firewall.Interface) string {
	if len(changes) == 1 {
		return "Saved: " + string(in.Name) + "."
	}
	for _, c := range changes {
		if s, ok := c.(firewall.PutScope); ok && !s.Scope.On {
			return "Saved: " + string(in.Name) + ", and its DHCP server goes off."
		}
	}
	return "Saved: " + string(in.Name) + ", and its DHCP server moves along."
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
	draft.Editor
	form
	Old      firewall.Interface // as it is in the draft; without name: a new one
	Devices  []page.Option
	Port     link.Port // as it is now; zero: it is not there
	Scope    firewall.Scope
	HasScope bool
	Gone     goes // what a deletion takes with it
}

func (p *pages) editor(w http.ResponseWriter, r *http.Request, status int, v commit.View, e editor) error {
	name := "New interface"
	ports := p.Ports()
	if e.Old.Name != "" {
		name = "Interface " + string(e.Old.Name)
		e.Scope, e.HasScope = v.Config.Scope(e.Old.Name)
		e.Gone = wouldGo(v.Config, e.Old.Name)
	}
	if i := slices.IndexFunc(ports, func(q link.Port) bool { return q.Device == e.Old.Device && e.Old.Name != "" }); i >= 0 {
		e.Port = ports[i]
	}
	e.Devices = devices(v.Config, ports, e.Old.Device, e.Device)
	e.Open(r, v, ref(e.Old.Name), name, "/interfaces")
	return page.Render(w, r, status, editPage(e))
}
