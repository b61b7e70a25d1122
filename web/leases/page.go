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
	"gatehouse/services/dhcp"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

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
	draft.Desk
	Server Server
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

func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
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
	op, err := draft.ReadOp(r, "q")
	if err != nil {
		return err
	}
	var toast page.Toast
	switch op.Verb {
	case "release", "delete":
		toast.Text, err = p.runtime(r, op.Verb, op.Key)
	case "undo":
		toast, err = p.Undo(r, staticRef(firewall.ID(op.Key)))
	case "unmap":
		toast, err = p.unmap(r, firewall.ID(op.Key), op.Hash)
	default:
		err = op.Unknown()
	}
	if err != nil {
		return err
	}
	page.Say(w, toast)
	return page.Go(w, r, at(op.Also.Get("q")))
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
	v := p.View(r)
	_, st, there := v.Config.Static(id)
	if !there {
		return page.Toast{}, page.NotFound{What: "This static mapping"}
	}
	return p.Put(r, v, draft.Edit{Changes: []firewall.Change{firewall.DeleteStatic{ID: id, Descr: title(st)}}, Hash: hash, Stale: staleStatic,
		Said: "Deleted the static mapping of " + title(st) + "."})
}
