// Package web is the way of a request to its page: limits, guards, session,
// route, and the one place where errors become pages. The pages live in the
// folders below.
package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"gatehouse/assets"
	"gatehouse/services/events"
	"gatehouse/web/auth"
	"gatehouse/web/page"
)

// bodyLimit is the largest request body in bytes, unless a route says more.
const bodyLimit = 2 << 20

// drainLimit is how much of a body that is too large is read and thrown away: a
// browser looks for the answer only when it has sent everything, and one that is
// cut off shows an error of its own in place of ours.
const drainLimit = 32 << 20

// Sessions is who may in.
type Sessions interface {
	// Of returns the session of a request; person says whether it counts as a
	// sign of life.
	Of(r *http.Request, person bool) (auth.Session, bool, error)
	// Any reports whether there is an administrator at all.
	Any() (bool, error)
}

// Events is what happens on the box.
type Events interface {
	// Subscribe delivers events until ctx ends, then closes the channel.
	Subscribe(ctx context.Context) <-chan events.Event
}

// Box says what the router must know of the box it runs on.
type Box interface {
	// Names are the host names that the pages answer to, beside localhost:
	// host, full name and the configured extra ones.
	Names() []string
	// Ours reports whether an address belongs to the box.
	Ours(netip.Addr) bool
	// Frame returns host, WAN pill and bar as this account sees them now;
	// account is empty for a browser that is not signed in.
	Frame(ctx context.Context, account string) page.Frame
}

// Deps is everything that New needs; no field may be nil.
type Deps struct {
	Log      *slog.Logger
	Sessions Sessions
	Events   Events
	Box      Box
	Routes   []page.Route // of all pages
}

type router struct{ Deps }

// New returns the handler of all pages, the assets, the live events and the
// fragment of the change bar. It fails when a route is not well formed or
// there twice.
func New(d Deps) (http.Handler, error) {
	rt := &router{d}
	m := chi.NewRouter()
	m.Use(rt.recover, headers, rt.host, rt.crossOrigin)
	m.NotFound(rt.wrap(page.Route{Open: true, Serve: func(http.ResponseWriter, *http.Request) error {
		return page.NotFound{What: "This page"}
	}}))
	m.MethodNotAllowed(rt.wrap(page.Route{Open: true, Serve: func(http.ResponseWriter, *http.Request) error {
		return page.Refused{Status: http.StatusMethodNotAllowed, Title: "Not that way", Text: "This address does not take such a request."}
	}}))
	own := []page.Route{
		{Method: http.MethodGet, Path: "/bar", Serve: bar},
		{Method: http.MethodGet, Path: "/events", Serve: rt.events},
	}
	seen := map[string]bool{}
	for _, r := range append(own, d.Routes...) {
		key := r.Method + " " + r.Path
		if r.Serve == nil || !strings.HasPrefix(r.Path, "/") || r.Method == "" || seen[key] {
			return nil, fmt.Errorf("route %q is there twice or not well formed", key)
		}
		seen[key] = true
		m.Method(r.Method, r.Path, rt.wrap(r))
		if r.Method == http.MethodGet {
			m.Method(http.MethodHead, r.Path, rt.wrap(r))
		}
	}
	m.Method(http.MethodGet, assets.Prefix+"*", assets.Handler())
	m.Method(http.MethodHead, assets.Prefix+"*", assets.Handler())
	return m, nil
}

// wrap puts limits, session and error pages around one route.
func (rt *router) wrap(route page.Route) http.HandlerFunc {
	limit := route.Body
	if limit == 0 {
		limit = bodyLimit
	}
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		whole := r.Body
		r.Body = http.MaxBytesReader(w, r.Body, limit)
		s, signed, err := rt.Sessions.Of(r, person(r))
		if err != nil {
			rt.fail(w, r, err)
			return
		}
		ctx := r.Context()
		if signed {
			ctx = auth.WithSession(ctx, s)
		}
		ctx = page.WithFrames(ctx, func(r *http.Request) page.Frame {
			f := rt.Box.Frame(r.Context(), s.Account)
			f.User = s.Account
			return f
		})
		r = r.WithContext(ctx)
		switch {
		case !signed && !route.Open:
			rt.signIn(w, r)
		case r.ContentLength > limit:
			err = &http.MaxBytesError{Limit: limit}
		default:
			err = route.Serve(w, r)
		}
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			_, _ = io.CopyN(io.Discard, whole, drainLimit) // the server's read timeout bounds it
		}
		if err != nil {
			rt.fail(w, r, err)
		}
	}
}

// person reports whether a request was made by hand: pages that refresh
// themselves and live events keep no session alive.
func person(r *http.Request) bool {
	switch r.URL.Path {
	case "/bar", "/events", "/confirm":
		return false
	}
	return r.Header.Get("HX-Request") == "" || r.Method != http.MethodGet
}

// signIn answers a request that needs a session: a person who opens a page is
// sent to the login (or to the wizard while there is no administrator), and
// comes back; everything else gets 401.
func (rt *router) signIn(w http.ResponseWriter, r *http.Request) {
	there, err := rt.Sessions.Any()
	if err != nil {
		rt.fail(w, r, err)
		return
	}
	to := "/setup"
	if there {
		to = "/login"
		if next := page.Local(r.URL.RequestURI()); r.Method == http.MethodGet && next != "/" {
			to = "/login?next=" + url.QueryEscape(next)
		}
	}
	if r.Header.Get("HX-Request") == "true" {
		// The page stays as it is, with what was typed; its script says the rest.
		w.Header().Set("HX-Reswap", "none")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	rt.fail(w, r, page.Refused{
		Status: http.StatusUnauthorized, Title: "Please sign in",
		Text: "You are not signed in, or were signed out because nothing happened for 15 minutes. What you sent was not saved.",
	})
}

// bar is the fragment that the change bar refetches.
func bar(w http.ResponseWriter, r *http.Request) error {
	return page.Render(w, r, http.StatusOK, page.BarView(page.FrameFor(r, "", "").Bar))
}
