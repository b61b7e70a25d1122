package web

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"

	"gatehouse/web/page"
)

// policy is the content security policy of every answer: nothing from
// elsewhere, nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"

// headers sets what every answer carries, errors and assets included.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		// By IP address browsers ignore it, by name it holds (RFC 6797 8.1.1).
		h.Set("Strict-Transport-Security", "max-age=31536000")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// recover turns a panic into a 500 page with an id; the log has the stack.
func (rt *router) recover(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch p := recover(); p {
			case nil:
			case http.ErrAbortHandler: //nolint:errorlint // panicked as is, by contract of net/http
				panic(p)
			default:
				id := rand.Text()[:8]
				rt.Log.Error("page panicked", "id", id, "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				rt.show(w, r, broken(id), page.StaleError{})
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// host refuses names that are not ours, before anything looks at cookies: with
// a name of its own an attacker's page would be same-origin with us (DNS
// rebinding). Addresses of the box always work, so nobody is locked out.
func (rt *router) host(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rt.known(r) {
			next.ServeHTTP(w, r)
			return
		}
		way := "the address of the box"
		if local := page.ConnOf(r.Context()).Local; local.IsValid() {
			way = "https://" + literal(local) + "/"
		}
		rt.show(w, r, page.Refused{
			Status: http.StatusMisdirectedRequest, Title: "This box has another name",
			Text: "It does not answer to the name in your address bar. Open " + way +
				" instead, or add the name to the host names of the admin access.",
		}, page.StaleError{})
	})
}

func (rt *router) known(r *http.Request) bool {
	name := r.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if a, err := netip.ParseAddr(name); err == nil {
		a = a.Unmap().WithZone("")
		return a.IsLoopback() || a == page.ConnOf(r.Context()).Local || rt.Box.Ours(a)
	}
	return name == "localhost" || name != "" && slices.ContainsFunc(rt.Box.Names(), func(n string) bool {
		return strings.EqualFold(strings.TrimSuffix(n, "."), name)
	})
}

// crossOrigin refuses what another site makes a browser send: every method
// that changes something, and the live events.
func (rt *router) crossOrigin(next http.Handler) http.Handler {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rt.Log.Warn("foreign origin refused", "origin", r.Header.Get("Origin"), "site", r.Header.Get("Sec-Fetch-Site"),
			"path", r.URL.Path, "from", page.ConnOf(r.Context()).Peer)
		rt.show(w, r, page.Refused{
			Status: http.StatusForbidden, Title: "Refused",
			Text: "This request was made by another web site, not by a page of this box. Nothing was changed.",
		}, page.StaleError{})
	})
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(refuse)
	guarded := guard.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		if r.URL.Path == "/events" && site != "" && site != "same-origin" {
			refuse.ServeHTTP(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// literal writes an address as it stands in a URL.
func literal(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}
