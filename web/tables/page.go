// Package tables is the page of who is shut out and why: quarantine and lock-outs
// with the way to let go, what aliases and the box's own sets hold, and the one
// field that says where an address is.
package tables

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/dhcp"
	"gatehouse/services/quarantine"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// Lists is who is shut out: quarantine.Service.
type Lists interface {
	List(quarantine.Query) quarantine.List
	Counts() quarantine.Counts
	Get(netip.Prefix) (quarantine.Entry, bool)
	// Holding returns every entry that an address falls under.
	Holding(netip.Addr) []quarantine.Entry
	// Acts returns what was done last, newest first.
	Acts(n int) []quarantine.Act
}

// Keeper shuts out and lets go at once: quarantine.Service. What it refuses is
// firewall.Problems with the fields of the form: address, reason, duration.
type Keeper interface {
	// Meant returns what Add makes of a source: an IPv6 host becomes its prefix.
	Meant(netip.Prefix) netip.Prefix
	Add(ctx context.Context, by quarantine.Who, src netip.Prefix, reason string, d time.Duration) error
	Keep(ctx context.Context, by quarantine.Who, src netip.Prefix, d time.Duration) error
	Release(ctx context.Context, by quarantine.Who, srcs []netip.Prefix, o quarantine.Options) (quarantine.Receipt, error)
	Undo(ctx context.Context, by quarantine.Who, token string) error
}

// Watch is what limits count, and whom they spare: quarantine.Service.
type Watch interface {
	// Full returns the meters that are nearly full, Meters all of them.
	Full() []quarantine.Alarm
	Meters() []quarantine.Alarm
	Exemptions() []quarantine.Exemption
	// Exempt says why an address is spared; false when it is not.
	Exempt(netip.Addr) (quarantine.Exemption, bool)
}

// Deps is what the pages need; nothing may be nil.
type Deps struct {
	draft.Desk
	Lists   Lists
	Keeper  Keeper
	Watch   Watch
	Running func() firewall.Config                                       // what runs
	Facts   func() firewall.Facts                                        // addresses of the box
	Leases  func() []dhcp.Lease                                          // who is who inside
	Flows   func(ctx context.Context, f func(firewall.Flow) error) error // every connection
	Waiting func() map[netip.Prefix]time.Duration                        // who must wait for the next try to sign in
}

// New returns the routes of the tables.
func New(d Deps) []page.Route {
	p := &pages{d}
	return []page.Route{
		{Method: http.MethodGet, Path: "/tables", Serve: p.show},
		{Method: http.MethodPost, Path: "/tables", Serve: p.act},
		{Method: http.MethodGet, Path: "/tables/badge", Serve: p.badge},
		{Method: http.MethodPost, Path: "/tables/undo", Serve: p.undo},
		{Method: http.MethodGet, Path: "/tables/release", Serve: p.askAll},
		{Method: http.MethodGet, Path: "/tables/add", Serve: p.newEntry},
		{Method: http.MethodPost, Path: "/tables/add", Serve: p.add},
		{Method: http.MethodGet, Path: "/tables/keep", Serve: p.editTime},
		{Method: http.MethodPost, Path: "/tables/keep", Serve: p.keep},
		{Method: http.MethodGet, Path: "/tables/find", Serve: p.find},
		{Method: http.MethodGet, Path: "/tables/settings", Serve: p.settings},
		{Method: http.MethodPost, Path: "/tables/settings", Serve: p.saveSettings},
		{Method: http.MethodGet, Path: "/tables/{set}.csv", Serve: p.export},
	}
}

type pages struct{ Deps }

// by is who sends a request, as the audit has it.
func (p *pages) by(r *http.Request) quarantine.Who {
	w := p.Who(r)
	return quarantine.Who{Account: w.Account, Door: w.Door, Addr: w.Addr}
}

// show is the page with one of its tabs.
func (p *pages) show(w http.ResponseWriter, r *http.Request) error {
	a, err := readAsk(r.URL.Query())
	if err != nil {
		return err
	}
	switch a.Set {
	case setAliases:
		return p.aliases(w, r, a)
	case setAutomatic:
		return p.automatic(w, r, a)
	}
	l := p.list(r, a)
	if !page.IsPartial(r) {
		l.Frame = page.FrameFor(r, "Tables", "/tables")
		return page.Render(w, r, http.StatusOK, listPage(l))
	}
	if a.held() {
		// Rows stay where they are; only the line above says what has changed.
		w.Header().Set("HX-Reswap", "none")
		return page.Render(w, r, http.StatusOK, lineOnly(l))
	}
	return page.Render(w, r, http.StatusOK, refreshed(l))
}

// badge is the number beside the menu entry.
func (p *pages) badge(w http.ResponseWriter, r *http.Request) error {
	c := p.Lists.Counts()
	return page.Render(w, r, http.StatusOK, page.Badge(c.Quarantine+c.LockOuts))
}

// whose gives the names of hosts inside by their address.
func (p *pages) whose() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for _, l := range p.Leases() {
		if l.Host != "" {
			names[l.Addr] = page.Harmless(l.Host)
		}
	}
	for _, s := range p.Running().Scopes {
		for _, st := range s.Statics {
			if st.Host != "" {
				names[st.Addr] = page.Harmless(st.Host)
			}
		}
	}
	return names
}

// mine is the address that the person sits at, and whether limits spare it.
func (p *pages) mine(r *http.Request) (a netip.Addr, exempt bool) {
	a = page.ConnOf(r.Context()).Peer
	_, exempt = p.Watch.Exempt(a)
	return a, exempt
}

// source is an entry's address as forms send it.
func source(s string) (netip.Prefix, error) {
	src, err := netip.ParsePrefix(strings.TrimSpace(s))
	if err != nil || src != src.Masked() {
		return src, page.BadForm{Err: err}
	}
	return src, nil
}
