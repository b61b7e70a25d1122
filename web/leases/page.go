// Package leases is the pages of the DHCP server: who has which address, the
// static mappings, and the editors of scopes and mappings.
package leases

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/dhcp"
	"gatehouse/web/page"
)

// Drafts keeps the changes of an account until it applies them: commit.Writer.
type Drafts interface {
	View(account string) commit.View
	Save(ctx context.Context, who commit.Who, hash string, changes ...firewall.Change) error
	Discard(ctx context.Context, who commit.Who, refs ...firewall.Ref) error
}

// Server is the DHCP server that runs: dhcp.Server.
type Server interface {
	List() []dhcp.Lease
	// Serving returns the devices that are served, and why others are not.
	Serving() (devices []string, failed map[string]string)
	Release(ctx context.Context, a netip.Addr) error
	Delete(ctx context.Context, a netip.Addr) error
}

// Deps is what the pages need; nothing may be nil.
type Deps struct {
	Drafts Drafts
	Server Server
	Who    func(*http.Request) commit.Who // who sends a request
	// Apply applies the draft and answers the request; it must not read the body.
	Apply page.Handler
}

// New returns the routes of leases, scopes and static mappings.
func New(d Deps) []page.Route {
	p := &pages{d}
	return []page.Route{
		{Method: http.MethodGet, Path: "/leases", Serve: p.list},
		{Method: http.MethodPost, Path: "/leases", Serve: p.act},
		{Method: http.MethodGet, Path: "/leases/scope/{in}", Serve: p.editScope},
		{Method: http.MethodPost, Path: "/leases/scope/{in}", Serve: p.saveScope},
		{Method: http.MethodGet, Path: "/leases/static/new", Serve: p.newStatic},
		{Method: http.MethodPost, Path: "/leases/static/new", Serve: p.saveStatic},
		{Method: http.MethodGet, Path: "/leases/static/{id}", Serve: p.editStatic},
		{Method: http.MethodPost, Path: "/leases/static/{id}", Serve: p.saveStatic},
	}
}

type pages struct{ Deps }

func staticRef(id firewall.ID) firewall.Ref { return firewall.Ref{Kind: "static", Key: string(id)} }
func scopeRef(n firewall.Name) firewall.Ref { return firewall.Ref{Kind: "scope", Key: string(n)} }

func (p *pages) view(r *http.Request) (commit.Who, commit.View) {
	who := p.Who(r)
	return who, p.Drafts.View(who.Account)
}

func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	_, v := p.view(r)
	l := p.find(v, strings.TrimSpace(r.URL.Query().Get("q")), time.Now())
	if page.IsPartial(r) {
		return page.Render(w, r, http.StatusOK, sections(l))
	}
	l.Frame = page.FrameFor(r, "DHCP", "/leases")
	return page.Render(w, r, http.StatusOK, listPage(l))
}

// act does what a row's button asks for: verb:key or verb:key:hash. Releasing
// and deleting a lease happens at once; what is done to a static mapping goes
// into the draft.
func (p *pages) act(w http.ResponseWriter, r *http.Request) error {
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	parts := append(strings.SplitN(f.Get("op"), ":", 3), "", "")
	q := f.Get("q")
	if err := f.Done(); err != nil {
		return err
	}
	var toast page.Toast
	switch verb, key, hash := parts[0], parts[1], parts[2]; verb {
	case "release", "delete":
		toast.Text, err = p.runtime(r, verb, key)
	case "undo":
		toast.Text = "Taken out of the draft."
		err = p.Drafts.Discard(r.Context(), p.Who(r), staticRef(firewall.ID(key)))
	case "unmap":
		toast, err = p.unmap(r, firewall.ID(key), hash)
	default:
		err = page.BadForm{Err: errors.New("op " + verb)}
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, at(q))
}

// runtime releases or deletes a lease and says what became of it.
func (p *pages) runtime(r *http.Request, verb, key string) (string, error) {
	a, err := netip.ParseAddr(key)
	if err != nil {
		return "", page.BadForm{Err: err}
	}
	ctx, stop := context.WithTimeout(r.Context(), 10*time.Second)
	defer stop()
	said := ""
	if verb == "release" {
		said = a.String() + " is free again. Its client learns of it when it renews, and may then get it anew."
		err = p.Server.Release(ctx, a)
	} else {
		said = "Deleted the lease of " + a.String() + "."
		err = p.Server.Delete(ctx, a)
	}
	if errors.Is(err, dhcp.ErrNoLease) {
		return a.String() + " was free already.", nil // what was asked for is so
	}
	return said, err
}

// unmap deletes a static mapping in the draft.
func (p *pages) unmap(r *http.Request, id firewall.ID, hash string) (page.Toast, error) {
	who, v := p.view(r)
	_, st, there := v.Config.Static(id)
	if !there {
		return page.Toast{}, page.NotFound{What: "This static mapping"}
	}
	err := p.Drafts.Save(r.Context(), who, hash, firewall.DeleteStatic{ID: id, Descr: title(st)})
	if s, ok := errors.AsType[*commit.StaleError](err); ok {
		return page.Toast{}, staleStatic(s)
	}
	return page.Toast{Text: "Deleted the static mapping of " + title(st) + ".", Undo: "/discard", With: staticRef(id).String()}, err
}

// keep is what the editors of scopes and mappings have in common when they save.
type keep struct {
	hash    string
	then    string
	text    string // of the toast
	changes []firewall.Change
}

// save keeps the changes. Problems and a conflict are for the editor to show;
// when there is neither, the request is answered or err says why not.
func (p *pages) save(w http.ResponseWriter, r *http.Request, k keep) (firewall.Problems, *commit.StaleError, error) {
	target := k.changes[0].Ref()
	err := p.Drafts.Save(r.Context(), p.Who(r), k.hash, k.changes...)
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		return page.Beside(ps, target), nil, nil
	}
	if s, ok := errors.AsType[*commit.StaleError](err); ok {
		return nil, s, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if k.then == "apply" {
		return nil, nil, p.Deps.Apply(w, r)
	}
	page.Say(w, page.Toast{Text: k.text, Undo: "/discard", With: target.String()})
	return nil, nil, page.Go(w, r, "/leases")
}

// editor is what both editors show beside their fields.
type editor struct {
	Frame    page.Frame
	Problems firewall.Problems
	Warnings []string
	Stale    page.StaleError
	Others   int // objects with pending changes, beside this one
}

// others counts the objects of the draft beside ref.
func others(v commit.View, ref firewall.Ref) int {
	n := v.Objects
	for _, i := range v.Items {
		if i.Ref == ref {
			return n - 1
		}
	}
	return n
}
