// Package login is the page where people sign in, and the way out.
package login

import (
	"context"
	"errors"
	"net/http"
	"net/netip"

	"gatehouse/web/auth"
	"gatehouse/web/page"
)

// Doorman checks passwords and starts and ends sessions.
type Doorman interface {
	// Check returns the account; errors auth.ErrWrong, auth.Throttled.
	Check(ctx context.Context, from netip.Addr, name, password string) (auth.Account, error)
	// Begin starts a session and sets its cookie.
	Begin(w http.ResponseWriter, r *http.Request, acc auth.Account, from netip.Addr) (auth.Session, error)
	// End ends the session of the request and takes the cookie back.
	End(w http.ResponseWriter, r *http.Request) error
	// Any reports whether there is an administrator.
	Any() (bool, error)
}

// Page is the login page.
type Page struct {
	door        Doorman
	fingerprint func() string
}

// New returns the page; fingerprint gives the certificate's as of now.
func New(door Doorman, fingerprint func() string) *Page {
	return &Page{door: door, fingerprint: fingerprint}
}

// Routes are the addresses of the page.
func (p *Page) Routes() []page.Route {
	return []page.Route{
		{Method: http.MethodGet, Path: "/login", Open: true, Serve: p.show},
		{Method: http.MethodPost, Path: "/login", Open: true, Serve: p.enter},
		{Method: http.MethodPost, Path: "/logout", Open: true, Serve: p.leave},
	}
}

// view is what the page shows.
type view struct {
	name, next, problem, fingerprint string
	left                             bool // has just signed out
}

func (p *Page) show(w http.ResponseWriter, r *http.Request) error {
	next := page.Local(r.URL.Query().Get("next"))
	if _, in := auth.SessionOf(r.Context()); in {
		return page.Go(w, r, next)
	}
	if there, err := p.door.Any(); err != nil {
		return err
	} else if !there {
		return page.Go(w, r, "/setup")
	}
	return p.render(w, r, http.StatusOK, view{next: next, left: r.URL.Query().Has("left")})
}

func (p *Page) enter(w http.ResponseWriter, r *http.Request) error {
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	name, password, next := f.Get("name"), f.Raw("password"), page.Local(f.Get("next"))
	if err := f.Done(); err != nil {
		return err
	}
	from := page.ConnOf(r.Context()).Peer
	acc, err := p.door.Check(r.Context(), from, name, password)
	if busy, ok := errors.AsType[auth.Throttled](err); ok {
		// The next try has to come on a connection of its own.
		w.Header().Set("Connection", "close")
		return p.render(w, r, http.StatusTooManyRequests, view{name: name, next: next, problem: busy.Error()})
	}
	if errors.Is(err, auth.ErrWrong) {
		return p.render(w, r, http.StatusUnprocessableEntity, view{name: name, next: next, problem: auth.WrongText})
	}
	if err != nil {
		return err
	}
	if _, err := p.door.Begin(w, r, acc, from); err != nil {
		return err
	}
	return page.Go(w, r, next)
}

func (p *Page) leave(w http.ResponseWriter, r *http.Request) error {
	if err := p.door.End(w, r); err != nil {
		return err
	}
	// Whatever the browser still holds of our pages is gone with the session.
	w.Header().Set("Clear-Site-Data", `"cache"`)
	return page.Go(w, r, "/login?left")
}

func (p *Page) render(w http.ResponseWriter, r *http.Request, status int, v view) error {
	v.fingerprint = p.fingerprint()
	f := page.FrameFor(r, "Sign in", "")
	f.User = "" // the page stands alone, whoever looks at it
	return page.Render(w, r, status, show(f, v))
}

// parts cuts a fingerprint after every fourth byte, where a line may end.
func parts(fingerprint string) []string {
	var ps []string
	for len(fingerprint) > 12 {
		ps = append(ps, fingerprint[:12])
		fingerprint = fingerprint[12:]
	}
	return append(ps, fingerprint)
}
