// Package aliases is the pages of the aliases: their list, their editor with
// import and export, and what a deletion does to those who use one.
package aliases

import (
	"net/http"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// bodyLimit is enough for 100,000 lines of IPv6 ranges with notes, as a browser
// sends them: up to three bytes for one.
const bodyLimit = 32 << 20

// New returns the routes of the aliases.
func New(d draft.Desk) []page.Route {
	p := &pages{d}
	return []page.Route{
		{Method: http.MethodGet, Path: "/aliases", Serve: p.list},
		{Method: http.MethodPost, Path: "/aliases", Serve: p.act},
		{Method: http.MethodGet, Path: "/aliases/new", Serve: p.new},
		{Method: http.MethodPost, Path: "/aliases/new", Body: bodyLimit, Serve: p.save},
		{Method: http.MethodPost, Path: "/aliases/new/check", Body: bodyLimit, Serve: p.check},
		{Method: http.MethodPost, Path: "/aliases/new/import", Body: bodyLimit, Serve: p.carryIn},
		{Method: http.MethodGet, Path: "/aliases/{name}", Serve: p.edit},
		{Method: http.MethodPost, Path: "/aliases/{name}", Body: bodyLimit, Serve: p.save},
		{Method: http.MethodPost, Path: "/aliases/{name}/check", Body: bodyLimit, Serve: p.check},
		{Method: http.MethodPost, Path: "/aliases/{name}/import", Body: bodyLimit, Serve: p.carryIn},
		{Method: http.MethodGet, Path: "/aliases/{name}/export", Serve: p.carryOut},
		{Method: http.MethodGet, Path: "/aliases/{name}/delete", Serve: p.askDelete},
		{Method: http.MethodPost, Path: "/aliases/{name}/delete", Serve: p.replace},
	}
}

type pages struct{ draft.Desk }

func ref(n firewall.Name) firewall.Ref { return firewall.Ref{Kind: "alias", Key: string(n)} }

// at is where an alias stands in the list.
func at(n firewall.Name) string { return "/aliases#a-" + string(n) }

func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	l := find(p.View(r), strings.TrimSpace(r.URL.Query().Get("q")))
	if page.IsPartial(r) {
		return page.Render(w, r, http.StatusOK, rows(l))
	}
	l.Frame = page.FrameFor(r, "Aliases", "/aliases")
	return page.Render(w, r, http.StatusOK, listPage(l))
}

// act deletes an alias that nobody uses, or takes the changes of one back: verb:name:hash.
func (p *pages) act(w http.ResponseWriter, r *http.Request) error {
	op, err := draft.ReadOp(r)
	if err != nil {
		return err
	}
	v, name := p.View(r), firewall.Name(op.Key)
	if op.Verb == "delete" {
		return p.delete(w, r, v, name, op.Hash)
	}
	if op.Verb != "undo" {
		return op.Unknown()
	}
	toast, err := p.Undo(r, ref(name))
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, at(name))
}

// new is the editor of a new alias: empty, a copy of one, or what a link asks for.
func (p *pages) new(w http.ResponseWriter, r *http.Request) error {
	v, q := p.View(r), r.URL.Query()
	f := form{Name: q.Get("name"), Kind: string(firewall.Addresses), Descr: q.Get("descr"), Items: q.Get("items")}
	if q.Get("kind") == string(firewall.PortList) {
		f.Kind = string(firewall.PortList)
	}
	if old, ok := v.Config.Alias(firewall.Name(q.Get("copy"))); ok {
		f = show(old)
		f.Name = free(v.Config, old.Name)
	}
	return p.editor(w, r, http.StatusOK, v, editor{form: f})
}

func (p *pages) edit(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	old, ok := v.Config.Alias(firewall.Name(r.PathValue("name")))
	if !ok {
		return page.NotFound{What: "This alias"}
	}
	e := editor{form: show(old), Old: old}
	e.Hash = v.Config.Hash(ref(old.Name))
	return p.editor(w, r, http.StatusOK, v, e)
}

// sent is the editor of the alias that a POST is about, as it was sent.
func (p *pages) sent(r *http.Request, in *page.Form) (commit.View, editor, error) {
	e := editor{form: read(in), Editor: draft.Read(in)}
	v := p.View(r)
	if err := in.Done(); err != nil {
		return v, e, err
	}
	if name := firewall.Name(r.PathValue("name")); name != "" {
		var ok bool
		if e.Old, ok = v.Config.Alias(name); !ok {
			return v, e, page.NotFound{What: "This alias"}
		}
	}
	return v, e, nil
}

// save keeps a new alias, or one that is there, or shows the editor again with
// everything that is wrong.
func (p *pages) save(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	v, e, err := p.sent(r, in)
	if err != nil {
		return err
	}
	value, items, ps := e.alias(v.Config)
	if e.File != "" {
		ps = append(ps, firewall.Problem{Field: "file", Text: "The file was not read yet. Press “Look at the file” first, or take it out."})
	}
	if len(ps) > 0 {
		e.Problems = page.And(ps, e.wrong(v.Config, value))
		return p.editor(w, r, http.StatusUnprocessableEntity, v, e)
	}
	status, err := p.Save(w, r, v, &e.Editor, draft.Edit{Changes: []firewall.Change{e.change(value)}, Stale: stale(value.Name),
		Said: e.toast(v.Config, value, items), Back: at(value.Name)})
	if status == http.StatusUnprocessableEntity {
		if ps := e.wrong(v.Config, value); len(ps) > 0 {
			e.Problems = ps
		}
	}
	if status != 0 {
		return p.editor(w, r, status, v, e)
	}
	return err
}

// check answers the editor while somebody types: what the list is now. Whether
// the alias is still there matters only when it is saved.
func (p *pages) check(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	f := read(in)
	return page.Render(w, r, http.StatusOK, said(f.say(p.View(r).Config)))
}

// editor is the page of one alias.
type editor struct {
	draft.Editor
	form
	Old     firewall.Alias // as it is in the draft; without name: a new one
	Said    summary
	Uses    []use
	Brought brought // what an imported file brings
}

func (p *pages) editor(w http.ResponseWriter, r *http.Request, status int, v commit.View, e editor) error {
	name := "New alias"
	if e.Old.Name != "" {
		name = "Alias " + string(e.Old.Name)
		e.Uses = uses(v.Config, v.Config.AliasUses()[e.Old.Name])
	}
	e.Said = e.say(v.Config)
	e.Open(r, v, ref(e.Old.Name), name, "/aliases")
	return page.Render(w, r, status, editPage(e))
}
