package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a-h/templ"

	"gatehouse/firewall"
	"gatehouse/services/events"
	"gatehouse/web/auth"
	"gatehouse/web/login"
	"gatehouse/web/page"
)

const goodPassword = "correct horse battery"

// box is the box that the tests look at.
type box struct {
	bar  atomic.Pointer[page.Bar]
	safe string
}

func (b *box) Names() []string      { return []string{"fw1", "fw1.home.arpa"} }
func (b *box) Ours(netip.Addr) bool { return false }
func (b *box) set(bar page.Bar)     { b.bar.Store(&bar) }
func (b *box) Frame(_ context.Context, account string) page.Frame {
	f := page.Frame{Host: "fw1.home.arpa", Bar: page.Bar{Safe: b.safe}}
	if account != "" {
		f.WAN = page.Status{Kind: page.Pass, Text: "WAN up"}
		if bar := b.bar.Load(); bar != nil {
			f.Bar = *bar
		}
	}
	return f
}

// rig is a whole server on loopback, with real TLS.
type rig struct {
	t       *testing.T
	box     *box
	auth    *auth.Auth
	bus     *events.Bus
	cert    *Cert
	routes  []page.Route
	handler http.Handler
	host    string // 127.0.0.1:port of HTTPS
	plain   string // of HTTP
}

func newRig(t *testing.T, more ...page.Route) *rig {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	r := &rig{t: t, box: &box{}, bus: events.NewBus()}
	r.auth = auth.New(log, auth.NewMemory[auth.Account](nil), auth.NewMemory[auth.Session](nil),
		auth.NewHasher(), auth.NewThrottle(10, 10*time.Minute))
	if _, err := r.auth.Create(t.Context(), "admin", goodPassword); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.cert, err = OpenCert(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := r.cert.Cover([]string{"fw1", "fw1.home.arpa"}, nil); err != nil {
		t.Fatal(err)
	}
	r.routes = append(login.New(r.auth, r.cert.Fingerprint).Routes(), more...)
	r.handler, err = New(Deps{Log: log, Sessions: r.auth, Events: r.bus, Box: r.box, Routes: r.routes})
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(context.Background(), log, r.handler, r.cert)
	secure, plain := listen(t), listen(t)
	r.host, r.plain = secure.Addr().String(), plain.Addr().String()
	s.Serve(secure, plain)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// client is a browser without a window: its own cookies, no redirects.
func (r *rig) client() *http.Client {
	jar, _ := cookiejar.New(nil) // never fails
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Jar: jar, Transport: tr, Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	body string
}

func (r *rig) do(c *http.Client, method, path, body string, headers ...string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "https://"+r.host+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp, string(b)}
}

func loginForm(name, password, next string) string {
	return url.Values{"name": {name}, "password": {password}, "next": {next}}.Encode()
}

// signedIn is a client with a session.
func (r *rig) signedIn() *http.Client {
	r.t.Helper()
	c := r.client()
	if a := r.do(c, "POST", "/login", loginForm("admin", goodPassword, "")); a.StatusCode != http.StatusSeeOther {
		r.t.Fatalf("login: %s", a.Status)
	}
	return c
}

// samplePages is a page with every shared part, and pages that fail.
func samplePages() []page.Route {
	get := func(path string, serve page.Handler) page.Route {
		return page.Route{Method: "GET", Path: path, Serve: serve}
	}
	fail := func(err error) page.Handler {
		return func(http.ResponseWriter, *http.Request) error { return err }
	}
	return []page.Route{
		get("/", sampleTable), get("/rules", sampleForm),
		get("/fail/broken", fail(fmt.Errorf("open /secret/path: no such file"))),
		get("/fail/stale", fail(page.StaleError{What: "Rule “web”", Back: "/rules", Fields: []page.Stale{{Field: "Port", Theirs: "443", Yours: "8443"}}})),
		get("/fail/missing", fail(page.NotFound{What: "This rule"})),
		get("/fail/problems", fail(firewall.Problems{{Field: "rule/1.dport", Text: "Port must be 1–65535."}})),
		get("/fail/panic", func(http.ResponseWriter, *http.Request) error { panic("secret") }),
		{Method: "POST", Path: "/echo", Serve: echo},
	}
}

// echo knows one field.
func echo(w http.ResponseWriter, r *http.Request) error {
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	f.Get("known")
	if err := f.Done(); err != nil {
		return err
	}
	page.Say(w, page.Toast{Text: "Saved <b>it</b>.", Undo: "/undo", With: "7"})
	return page.Go(w, r, "/")
}

func body(parts ...templ.Component) templ.Component { return templ.Join(parts...) }

func within(outer, inner templ.Component) templ.Component {
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		return outer.Render(templ.WithChildren(ctx, inner), w)
	})
}

func html(s string) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	})
}

func sampleTable(w http.ResponseWriter, r *http.Request) error {
	var rows []templ.Component
	for i, row := range []struct{ class, action, proto, src, dst, port, name, hits string }{
		{"", "pass", "TCP", "any", "WEB_SERVERS", "443", "Web", "1 204"},
		{"changed", "block", "any", "BAD_NETS", "any", "any", "Bad networks", "37"},
		{"off", "pass", "UDP", "LAN net", "any", "53", "Names from outside", "0"},
		{"", "reject", "TCP", "GUEST net", "LAN net", "22, 3389", "Guests stay out", "8"},
	} {
		kind := page.Kind(row.action)
		if row.class == "off" {
			kind = page.Off
		}
		rows = append(rows,
			html(`<tr class="`+row.class+`"><td>`), page.Pill(kind, row.action),
			html(`</td><td data-label="Name" class="name">`+row.name+`</td><td data-label="Protocol">`+row.proto+`</td><td data-label="Source" class="mono">`+row.src+
				`</td><td data-label="Destination" class="mono">`+row.dst+`</td><td data-label="Port" class="mono">`+row.port+`</td><td data-label="Hits" class="num">`+row.hits+`</td><td class="acts"><form method="post" action="/rules"><span class="row">`),
			page.Switch("op", fmt.Sprintf("toggle:%d", i), "Rule "+row.name, row.class != "off"),
			html(`<button class="btn btn-small btn-icon" type="button" aria-label="More">`), page.Icon("ellipsis"), html(`</button></span></form></td></tr>`))
	}
	cols := []page.Column{{Label: "Action"}, {Label: "Name"}, {Label: "Protocol"}, {Label: "Source"}, {Label: "Destination"}, {Label: "Port"}, {Label: "Hits", Num: true}, {Label: "Actions", Quiet: true}}
	inner := body(
		within(page.Title("Firewall rules"), html(`<a class="btn btn-primary" href="/rules/new">Add rule</a>`)),
		html(`<nav class="tabs" aria-label="Interface"><a href="/">Floating</a><a href="/" aria-current="page">LAN</a><a href="/">WAN</a><a href="/">All</a></nav>`),
		html(`<div class="row"><input type="search" class="search" aria-label="Search rules" placeholder="Search ( / )"></div>`),
		within(page.Table("Rules of LAN", cols), body(rows...)),
		within(page.Empty("network", "Nobody has a lease.", "Leases show up here as soon as a client asks for an address."), html(`<a class="btn" href="/">DHCP settings</a>`)),
	)
	return page.Render(w, r, http.StatusOK, within(page.Page(page.FrameFor(r, "Firewall rules", "/rules")), inner))
}

func sampleForm(w http.ResponseWriter, r *http.Request) error {
	ps := firewall.Problems{{Field: "dport", Text: "Port must be 1–65535."}, {Field: "src", Text: "`10.0.0.256` is not an IP address."}}
	fields := body(
		html(`<div class="fields">`),
		page.Input(page.Field{Name: "proto", Label: "Protocol", Value: "TCP", Options: page.Options("any", "TCP", "UDP")}),
		page.Input(page.Field{Name: "src", Label: "Source", Value: "10.0.0.256", Error: page.ErrorOf(ps, "src"), Mono: true}),
		page.Input(page.Field{Name: "dport", Label: "Destination port", Value: "70000", Mode: "numeric", Error: page.ErrorOf(ps, "dport"), Hint: "Port, range or alias.", Mono: true}),
		page.Input(page.Field{Name: "descr", Label: "Description", Value: `"><script>alert(1)</script>`}),
		html(`</div>`),
		page.Tick(page.Check{Name: "log", Label: "Log", Hint: "Writes a line for each new connection.", On: true}),
		html(`<div class="actions"><button class="btn btn-primary" type="submit">Save</button><button class="btn" type="submit" name="apply" value="1">Save and apply</button><a class="btn" href="/">Cancel</a></div>`),
	)
	inner := body(page.Title("Edit rule"), page.Summary(ps),
		html(`<form class="card stack" method="post" action="/rules">`), fields, html(`</form>`))
	return page.Render(w, r, http.StatusUnprocessableEntity, within(page.Page(page.FrameFor(r, "Edit rule", "/rules")), inner))
}
