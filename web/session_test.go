package web

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"gatehouse/web/auth"
)

func TestSessionCookieIsGuarded(t *testing.T) {
	r := newRig(t)
	a := r.do(r.client(), "POST", "/login", loginForm("admin", goodPassword, "/rules?x=1"))
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/rules?x=1" || len(a.Cookies()) != 1 {
		t.Fatalf("login: %s to %q", a.Status, a.Header.Get("Location"))
	}
	c := a.Cookies()[0]
	if c.Name != "__Host-session" || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || len(c.Value) != 43 {
		t.Errorf("cookie: %s", a.Header.Get("Set-Cookie"))
	}
	sessions, err := r.auth.Sessions()
	if err != nil || len(sessions) != 1 {
		t.Fatalf("sessions: %v %v", sessions, err)
	}
	if strings.Contains(fmt.Sprint(sessions), c.Value) {
		t.Error("the secret itself is stored")
	}
}

func TestOldCookieIsWorthless(t *testing.T) {
	r := newRig(t, samplePages()...)
	login := func(old *http.Cookie) *http.Cookie {
		t.Helper()
		h := []string{}
		if old != nil {
			h = []string{"Cookie", old.Name + "=" + old.Value}
		}
		a := r.do(r.client(), "POST", "/login", loginForm("admin", goodPassword, ""), h...)
		if len(a.Cookies()) == 0 {
			t.Fatalf("login: %s", a.Status)
		}
		return a.Cookies()[0]
	}
	status := func(c *http.Cookie) int {
		return r.do(r.client(), "GET", "/", "", "Cookie", c.Name+"="+c.Value).StatusCode
	}
	first := login(nil)
	second := login(first)
	if first.Value == second.Value || status(first) != 401 || status(second) != 200 {
		t.Error("a login keeps the session from before")
	}
	r.do(r.client(), "POST", "/logout", "", "Cookie", second.Name+"="+second.Value)
	if status(second) != 401 {
		t.Error("the cookie works after the logout")
	}
	mine, other := login(nil), login(nil)
	all, _ := r.auth.Sessions()
	keep := ""
	for _, s := range all {
		req, _ := http.NewRequest("GET", "/", nil)
		req.AddCookie(mine)
		if of, ok, _ := r.auth.Of(req, false); ok && of.ID == s.ID {
			keep = s.ID
		}
	}
	if err := r.auth.SetPassword(t.Context(), "admin", goodPassword+" 2", keep); err != nil {
		t.Fatal(err)
	}
	if status(mine) != 200 || status(other) != 401 {
		t.Errorf("after the new password: mine %d, other %d", status(mine), status(other))
	}
	if status(&http.Cookie{Name: auth.CookieName, Value: strings.Repeat("A", 43)}) != 401 {
		t.Error("an invented cookie works")
	}
}

func TestStrangerIsSentToTheLoginAndBack(t *testing.T) {
	r := newRig(t, samplePages()...)
	c := r.client()
	a := r.do(c, "GET", "/rules?in=LAN", "", "Accept", "text/html")
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/login?next="+url.QueryEscape("/rules?in=LAN") {
		t.Errorf("page: %s to %s", a.Status, a.Header.Get("Location"))
	}
	if a := r.do(c, "GET", "/bar", "", "HX-Request", "true"); a.StatusCode != 401 || a.Header.Get("HX-Reswap") != "none" {
		t.Errorf("fragment: %s", a.Status)
	}
	if a := r.do(c, "POST", "/echo", "known=1"); a.StatusCode != 401 || !strings.Contains(a.body, "was not saved") {
		t.Errorf("form: %s", a.Status)
	}
	for _, next := range hostileNext() {
		if a := r.do(r.client(), "POST", "/login", loginForm("admin", goodPassword, next)); a.Header.Get("Location") != "/" {
			t.Errorf("next %q leads to %q", next, a.Header.Get("Location"))
		}
	}
}

// hostileNext are places that a login must not lead to.
func hostileNext() []string {
	return []string{
		"//evil.example", "https://evil.example", "http:evil.example", `\\evil.example`, `/\evil.example`, "/\t/evil.example", "/\n/evil.example",
		"/a\r\nSet-Cookie: x=y", "javascript:alert(1)", " //evil.example", "evil.example", "///evil.example", "/\x00", "/ä", "",
		"/login", "/logout", "/" + strings.Repeat("a", 600),
	}
}

func TestWrongUserAndWrongPasswordReadTheSame(t *testing.T) {
	r := newRig(t)
	user := r.do(r.client(), "POST", "/login", loginForm("nobody", goodPassword, ""))
	word := r.do(r.client(), "POST", "/login", loginForm("admin", "wrong horse battery", ""))
	if user.StatusCode != 422 || word.StatusCode != 422 || !strings.Contains(user.body, auth.WrongText) ||
		strings.ReplaceAll(user.body, "nobody", "admin") != word.body {
		t.Error("the answers tell whether the name exists")
	}
	if strings.Contains(word.body, "wrong horse") {
		t.Error("the password comes back")
	}
}

func TestGuessingOnOneConnectionIsStopped(t *testing.T) {
	r := newRig(t)
	conn, err := tls.Dial("tcp", r.host, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	post := func(i int) *http.Response {
		t.Helper()
		body := loginForm("admin", fmt.Sprintf("wrong horse %d", i), "")
		fmt.Fprintf(conn, "POST /login HTTP/1.1\r\nHost: fw1\r\nX-Forwarded-For: 192.0.2.%d\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("try %d: %v", i, err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for i := range 10 {
		if resp := post(i); resp.StatusCode != http.StatusUnprocessableEntity {
			t.Fatalf("try %d: %s", i, resp.Status)
		}
	}
	if resp := post(10); resp.StatusCode != http.StatusTooManyRequests || !resp.Close {
		t.Errorf("the eleventh try: %s, close %v", resp.Status, resp.Close)
	}
	if _, err := in.ReadByte(); err == nil {
		t.Error("the connection stays open")
	}
	if a := r.do(r.client(), "POST", "/login", loginForm("admin", goodPassword, "")); a.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a new connection from the same place: %s", a.Status)
	}
	elsewhere := r.client()
	elsewhere.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
	if a := r.do(elsewhere, "POST", "/login", loginForm("admin", goodPassword, "")); a.StatusCode != http.StatusSeeOther {
		t.Errorf("the right password from elsewhere: %s", a.Status)
	}
}
