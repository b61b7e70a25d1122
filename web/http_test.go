package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"gatehouse/assets"
	"gatehouse/services/events"
	"gatehouse/web/page"
)

func TestEveryAnswerCarriesTheHeaders(t *testing.T) {
	r := newRig(t, samplePages()...)
	in, out := r.signedIn(), r.client()
	check := func(who string, c *http.Client, method, path string, more ...string) {
		t.Helper()
		a := r.do(c, method, path, "", more...)
		for name, want := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Strict-Transport-Security": "max-age=31536000", "Cache-Control": "no-store",
		} {
			if strings.HasPrefix(path, assets.Prefix+"app") && name == "Cache-Control" {
				want = "public, max-age=31536000, immutable"
			}
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s %s %s: %s: %q, want %q", who, method, path, name, got, want)
			}
		}
		if s := a.Header.Get("Server"); s != "" {
			t.Errorf("%s: says what it is: %q", path, s)
		}
	}
	for _, route := range r.routes {
		check("signed in", in, route.Method, route.Path)
		check("stranger", out, route.Method, route.Path)
		check("foreign host", out, route.Method, route.Path, "Host", "evil.example")
		check("foreign origin", out, route.Method, route.Path, "Origin", "https://evil.example")
	}
	check("stranger", out, "GET", "/nowhere")
	check("stranger", out, "DELETE", "/")
	check("stranger", out, "GET", assets.URL("app.css"))
	check("stranger", out, "GET", assets.Prefix+"nothing.css")
}

func TestHostAnswersOnlyToItsNames(t *testing.T) {
	r := newRig(t, samplePages()...)
	_, port, _ := net.SplitHostPort(r.host)
	c := r.client()
	for _, host := range []string{"fw1", "FW1.home.arpa", "fw1.home.arpa.", "fw1:" + port, "localhost:" + port, "127.0.0.1", "[::1]:" + port} {
		if a := r.do(c, "GET", "/login", "", "Host", host); a.StatusCode != http.StatusOK {
			t.Errorf("Host %s: %s", host, a.Status)
		}
	}
	for _, host := range []string{"evil.example", "fw1.evil.example", "192.0.2.1", "127.0.0.1.evil.example", "[2001:db8::1]"} {
		a := r.do(c, "POST", "/login", loginForm("admin", goodPassword, ""), "Host", host, "Origin", "https://"+host)
		if a.StatusCode/100 != 4 || len(a.Cookies()) > 0 {
			t.Errorf("Host %s: %s, cookies %v", host, a.Status, a.Cookies())
		}
	}
	if a := r.do(c, "GET", "/login", "", "Host", "evil.example"); a.StatusCode != 421 || !strings.Contains(a.body, "https://127.0.0.1/") {
		t.Errorf("421 page does not say the way: %s %s", a.Status, a.body)
	}
}

func TestForeignOriginChangesNothing(t *testing.T) {
	r := newRig(t, samplePages()...)
	c := r.signedIn()
	for _, route := range r.routes {
		if route.Method == "GET" {
			continue
		}
		for _, h := range [][]string{
			{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://" + r.host + ".evil.example"},
		} {
			if a := r.do(c, route.Method, route.Path, "known=1", h...); a.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s with %v: %s", route.Method, route.Path, h, a.Status)
			}
		}
	}
	if a := r.do(c, "GET", "/events", "", "Sec-Fetch-Site", "cross-site"); a.StatusCode != http.StatusForbidden {
		t.Errorf("live events for a foreign site: %s", a.Status)
	}
	if a := r.do(c, "POST", "/echo", "known=1", "Origin", "https://"+r.host, "Sec-Fetch-Site", "same-origin"); a.StatusCode != http.StatusSeeOther {
		t.Errorf("own origin: %s", a.Status)
	}
}

func TestBadRequestsHaveTheirStatus(t *testing.T) {
	r := newRig(t, samplePages()...)
	c := r.signedIn()
	for _, x := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/echo", "known=1&role=root", 400, "role"},
		{"POST", "/echo", "known=%zz", 400, "could not be read"},
		{"POST", "/echo", "known=" + strings.Repeat("x", bodyLimit), 413, "2048 KiB"},
		{"GET", "/nowhere", "", 404, "This page is not there"},
		{"GET", "/fail/missing", "", 404, "This rule is not there"},
		{"PUT", "/", "", 405, "does not take"},
		{"GET", "/fail/stale", "", 409, "8443"},
		{"GET", "/fail/problems", "", 422, "Port must be"},
		{"GET", "/fail/broken", "", 500, "log of the box"},
		{"GET", "/fail/panic", "", 500, "log of the box"},
	} {
		a := r.do(c, x.method, x.path, x.body)
		if a.StatusCode != x.status || !strings.Contains(a.body, x.says) {
			t.Errorf("%s %s: %s, want %d with %q:\n%s", x.method, x.path, a.Status, x.status, x.says, a.body)
		}
		if x.status == 500 && strings.Contains(a.body, "secret") {
			t.Errorf("%s tells strangers what is inside", x.path)
		}
	}
	if a := r.do(c, "POST", "/echo", "known=1", "Content-Type", "text/plain"); a.StatusCode != http.StatusBadRequest {
		t.Errorf("a form as plain text: %s", a.Status)
	}
}

func TestBodyWithoutLengthIsCutOff(t *testing.T) {
	r := newRig(t, samplePages()...)
	c := r.signedIn()
	body := struct{ *strings.Reader }{strings.NewReader("known=" + strings.Repeat("x", bodyLimit))} // hides its length
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "https://"+r.host+"/echo", body)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("got %s", resp.Status)
	}
}

func TestPlainPortLeadsToTheAddressOfTheConnection(t *testing.T) {
	r := newRig(t)
	_, port, _ := net.SplitHostPort(r.host)
	for _, target := range []string{"/rules?a=b", "http://evil.example/rules?a=b"} {
		conn, err := net.Dial("tcp", r.plain)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: evil.example\r\nCookie: __Host-session=x\r\n\r\n", target)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Location"); resp.StatusCode != 308 || got != "https://127.0.0.1:"+port+"/rules?a=b" || len(resp.Cookies()) > 0 {
			t.Errorf("%s: %s to %q", target, resp.Status, got)
		}
	}
}

func TestSlowClientIsDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, dial := range map[string]func() (net.Conn, error){
		"headers": func() (net.Conn, error) {
			c, err := tls.Dial("tcp", r.host, &tls.Config{InsecureSkipVerify: true})
			if err == nil {
				_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: fw1\r\nX: "))
			}
			return c, err
		},
		"handshake": func() (net.Conn, error) { return net.Dial("tcp", r.host) },
		"plain":     func() (net.Conn, error) { return net.Dial("tcp", r.plain) },
	} {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		for err = nil; err == nil; { // a 408 may come first
			_, err = c.Read(make([]byte, 512))
		}
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("%s: still open after a minute", name)
		}
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	r := newRig(t)
	for name, conf := range map[string]*tls.Config{
		"TLS 1.1": {MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10},
		"CBC":     {MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256}},
	} {
		conf.InsecureSkipVerify = true
		if c, err := tls.Dial("tcp", r.host, conf); err == nil {
			c.Close()
			t.Errorf("%s is taken", name)
		}
	}
}

func TestOneSourceCannotTakeAllConnections(t *testing.T) {
	r := newRig(t)
	var open []net.Conn
	dial := func() bool {
		c, err := net.Dial("tcp", r.host)
		if err != nil {
			return false
		}
		open = append(open, c)
		tc := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		return tc.HandshakeContext(t.Context()) == nil
	}
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for i := range connsSource {
		if !dial() {
			t.Fatalf("connection %d is refused", i)
		}
	}
	if dial() {
		t.Errorf("connection %d is taken", connsSource)
	}
	elsewhere := r.client()
	elsewhere.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
	if a := r.do(elsewhere, "GET", "/login", ""); a.StatusCode != http.StatusOK {
		t.Errorf("a neighbour: %s", a.Status)
	}
}

func TestEventsNameWhatHappened(t *testing.T) {
	r := newRig(t)
	c := r.signedIn()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+r.host+"/events", nil)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	next := func() string {
		for in.Scan() {
			if s, ok := strings.CutPrefix(in.Text(), "event: "); ok {
				return s
			}
		}
		return ""
	}
	in.Scan() // the greeting: the stream is subscribed
	r.bus.Publish(events.Event{Name: "x\nevent: forged"})
	r.bus.Publish(events.Event{Name: "revision", Text: "private"})
	if got := next(); got != "revision" {
		t.Errorf("first event: %q", got)
	}
	if err := r.auth.EndAll("admin", ""); err != nil {
		t.Fatal(err)
	}
	r.bus.Publish(events.Event{Name: "lease"})
	if got := next(); got != "" {
		t.Errorf("an ended session still hears %q", got)
	}
}

func TestEventsOutliveTheLimitsOfRequests(t *testing.T) {
	r := newRig(t)
	c := r.signedIn()
	s := NewServer(context.Background(), slog.New(slog.DiscardHandler), r.handler, r.cert)
	s.https.ReadTimeout, s.https.WriteTimeout = time.Second, time.Second
	l := listen(t)
	s.Serve(l, nil)
	defer s.Close()
	addr := l.Addr().String()
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	u, _ := url.Parse("https://" + r.host)
	fmt.Fprintf(conn, "GET /events HTTP/1.1\r\nHost: fw1\r\nCookie: %s\r\n\r\n", c.Jar.Cookies(u)[0])
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("stream: %v %v", resp, err)
	}
	slow, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprint(slow, "POST /login HTTP/1.1\r\nHost: fw1\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 9\r\n\r\n")
	_, _ = io.Copy(io.Discard, slow) // ends when the limit is over for a body that never comes
	r.bus.Publish(events.Event{Name: "lease"})
	body := bufio.NewScanner(resp.Body)
	for body.Scan() {
		if body.Text() == "event: lease" {
			return
		}
	}
	t.Errorf("the stream ended before its event: %v", body.Err())
}

func TestBarFragmentShowsTheDraft(t *testing.T) {
	r := newRig(t)
	c := r.signedIn()
	r.box.set(page.Bar{Pending: 2})
	if a := r.do(c, "GET", "/bar", "", "HX-Request", "true"); !strings.Contains(a.body, "2 pending changes") || strings.Contains(a.body, "<html") {
		t.Errorf("bar: %s", a.body)
	}
}

func TestToastIsShownOnce(t *testing.T) {
	r := newRig(t, samplePages()...)
	c := r.signedIn()
	if a := r.do(c, "POST", "/echo", "known=1"); a.StatusCode != http.StatusSeeOther {
		t.Fatal(a.Status)
	}
	if a := r.do(c, "GET", "/", ""); !strings.Contains(a.body, "Saved &lt;b&gt;it&lt;/b&gt;.") || !strings.Contains(a.body, `action="/undo"`) {
		t.Error("no toast on the next page")
	}
	if a := r.do(c, "GET", "/", ""); strings.Contains(a.body, "Saved") {
		t.Error("the toast comes again")
	}
}

func TestRouterRefusesBadTables(t *testing.T) {
	ok := func(http.ResponseWriter, *http.Request) error { return nil }
	for name, routes := range map[string][]page.Route{
		"twice":      {{Method: "GET", Path: "/a", Serve: ok}, {Method: "GET", Path: "/a", Serve: ok}},
		"no handler": {{Method: "GET", Path: "/a"}},
		"no method":  {{Path: "/a", Serve: ok}},
		"no slash":   {{Method: "GET", Path: "a", Serve: ok}},
	} {
		if _, err := New(Deps{Routes: routes}); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
