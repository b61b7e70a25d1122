// Package page is what every web page is made of: the frame with its menu and
// change bar, the shared templ parts, the form reader, and the small values
// that pages and the router exchange. It holds no state.
package page

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/a-h/templ"
)

// Handler answers one request. An error it returns is turned into an error
// page by the router, in one place: see the Err types of this package,
// firewall.Problems (422); everything else is 500 with an opaque id. A handler
// that returns an error must not have written anything.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Route is one method and path of a page.
type Route struct {
	Method string // "GET" answers HEAD too
	Path   string // "/rules/{id}"; read with r.PathValue("id")
	// Open lets a browser in that is not signed in: login, setup, confirm.
	// The zero value asks for a session.
	Open bool
	// Body is the largest body in bytes; 0 means the usual 2 MiB.
	Body  int64
	Serve Handler
}

// Render writes the component as a whole page or fragment with the status,
// compressed when the browser takes it. A component that fails writes nothing
// and the error is returned, so that half a page is never sent.
func Render(w http.ResponseWriter, r *http.Request, status int, c templ.Component) error {
	var b bytes.Buffer
	if err := c.Render(r.Context(), &b); err != nil {
		return fmt.Errorf("render page: %w", err)
	}
	return write(w, r, status, b.Bytes())
}

func write(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Add("Vary", "Accept-Encoding")
	h.Add("Vary", "HX-Request")
	if len(body) > 1024 && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		var z bytes.Buffer
		gz, _ := gzip.NewWriterLevel(&z, 5) // a valid level
		_, _ = gz.Write(body)               // a bytes.Buffer takes everything
		_ = gz.Close()
		h.Set("Content-Encoding", "gzip")
		body = z.Bytes()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if _, sent := toastFrom(r); sent && !IsPartial(r) && r.Method == http.MethodGet {
		http.SetCookie(w, toastCookie("", -1))
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a reader that went away is not our fault
	}
	return nil
}

// IsPartial reports whether htmx asks for a fragment of the page it shows
// (htmx 4: HX-Request-Type "partial").
func IsPartial(r *http.Request) bool {
	return r.Header.Get("HX-Request") == "true" && r.Header.Get("HX-Request-Type") == "partial"
}

// Go sends the browser on to a path of ours with 303, after a POST.
func Go(w http.ResponseWriter, r *http.Request, path string) error {
	http.Redirect(w, r, path, http.StatusSeeOther)
	return nil
}

// Local returns next when it is a path on this box that a redirect may lead
// to, else "/": it starts with exactly one slash and holds no backslash, no
// control character and nothing outside printable ASCII (browsers read "//x",
// "/\x" and a path with a tab in it as another host).
func Local(next string) string {
	if len(next) > 512 || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") {
		return "/"
	}
	for i := range len(next) {
		if c := next[i]; c <= ' ' || c > '~' || c == '\\' {
			return "/"
		}
	}
	path, _, _ := strings.Cut(next, "?")
	if strings.HasPrefix(path, "/login") || strings.HasPrefix(path, "/logout") {
		return "/"
	}
	return next
}

// frameKey carries the maker of frames; see WithFrames.
type frameKey struct{}

// WithFrames returns a context whose requests get their frame from make. The
// router calls it once per request; make runs only when a page asks, so that
// the bar shows the draft after the page changed it.
func WithFrames(ctx context.Context, make func(*http.Request) Frame) context.Context {
	return context.WithValue(ctx, frameKey{}, make)
}

// FrameFor returns the frame of this request (host, user, bar, toast) with a
// title and the menu entry, named by its path, that is lit.
func FrameFor(r *http.Request, title, active string) Frame {
	f := Frame{}
	if frames, ok := r.Context().Value(frameKey{}).(func(*http.Request) Frame); ok {
		f = frames(r)
	}
	f.Title, f.Active = title, active
	if t, ok := toastFrom(r); ok {
		f.Toast = t
	}
	return f
}
