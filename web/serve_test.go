package web

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"gatehouse/web/page"
)

// freePort is a port that was free a moment ago.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func TestListenMovesToAnotherPort(t *testing.T) {
	r := newRig(t)
	s := NewServer(context.Background(), slog.New(slog.DiscardHandler), r.handler, r.cert)
	defer s.Close()
	answers := func(port uint16) bool {
		r.host = (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)}).String()
		c, err := tls.Dial("tcp", r.host, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return false
		}
		c.Close()
		return r.do(r.client(), "GET", "/login", "").StatusCode == http.StatusOK
	}
	first, second := freePort(t), freePort(t)
	if err := s.Listen(first, 0); err != nil || !answers(first) {
		t.Fatalf("first port: %v", err)
	}
	if err := s.Listen(first, 0); err != nil || !answers(first) {
		t.Fatalf("the same port again: %v", err)
	}
	taken := listen(t)
	defer taken.Close()
	if err := s.Listen(uint16(taken.Addr().(*net.TCPAddr).Port), 0); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a taken port: %v", err)
	}
	if err := s.Listen(second, uint16(taken.Addr().(*net.TCPAddr).Port)); err == nil || answers(second) {
		t.Errorf("half of it is done: %v", err)
	}
	if !answers(first) {
		t.Error("a failed move closes the port that works")
	}
	if err := s.Listen(second, 0); err != nil || !answers(second) || answers(first) {
		t.Errorf("the move: %v", err)
	}
}

func TestCertificateChangesWithoutRestart(t *testing.T) {
	r := newRig(t)
	serial := func() string {
		t.Helper()
		c, err := tls.Dial("tcp", r.host, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	if err := r.cert.Cover([]string{"fw2"}, nil); err != nil {
		t.Fatal(err)
	}
	if serial() == before {
		t.Error("the listener still shows the old certificate")
	}
}

func TestConnectionSaysWhenItCame(t *testing.T) {
	seen := make(chan page.Conn, 2)
	r := newRig(t, page.Route{Method: "GET", Path: "/conn", Open: true, Serve: func(w http.ResponseWriter, r *http.Request) error {
		seen <- page.ConnOf(r.Context())
		w.Header().Set("Connection", "close") // as Apply answers: the next request comes on a new one
		return nil
	}})
	start, c := time.Now(), r.client()
	r.do(c, "GET", "/conn", "")
	r.do(c, "GET", "/conn", "")
	first, second := <-seen, <-seen
	if first.Since.Before(start) || !second.Since.After(first.Since) {
		t.Errorf("accepted %v, then %v; began %v", first.Since, second.Since, start)
	}
	if first.Peer.String() != "127.0.0.1" || first.Local.String() != "127.0.0.1" {
		t.Errorf("peer %v, local %v", first.Peer, first.Local)
	}
}

func TestLoginPageSaysSafeMode(t *testing.T) {
	r := newRig(t)
	r.box.safe = "Snapshot 41 runs, read-only."
	a := r.do(r.client(), "GET", "/login", "")
	if !strings.Contains(a.body, "SAFE MODE") || !strings.Contains(a.body, "Snapshot 41 runs, read-only.") {
		t.Errorf("login page: %s", a.body)
	}
	if plain := strings.ReplaceAll(a.body, "<wbr>", ""); !strings.Contains(plain, r.cert.Fingerprint()) {
		t.Error("the login page does not show the fingerprint of the certificate")
	}
}

func TestBindTakesPortsBeforeItAnswers(t *testing.T) {
	r := newRig(t)
	s := NewServer(context.Background(), slog.New(slog.DiscardHandler), r.handler, r.cert)
	defer s.Close()
	taken := listen(t)
	defer taken.Close()
	first := freePort(t)
	if err := s.Bind(first, uint16(taken.Addr().(*net.TCPAddr).Port)); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("a taken port: %v", err)
	}
	if err := s.Bind(first); err != nil {
		t.Fatalf("the refusal kept a port open: %v", err)
	}
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(first)}).String()
	if l, err := net.Listen("tcp", addr); err == nil {
		l.Close()
		t.Error("a bound port is free for others")
	}
	if err := s.Listen(first, 0); err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatalf("it does not answer: %v", err)
	}
	c.Close()
}
