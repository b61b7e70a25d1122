package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall/netlab"
)

// product is the binary that the stories run.
var product string

func TestMain(m *testing.M) {
	netlab.Main()
	os.Exit(build(m))
}

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gatehouse-story-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	product = filepath.Join(dir, "gatehouse")
	cmd := exec.Command("go", "build", "-o", product, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the product: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// story is one box in its lab, as a stranger would find it.
type story struct {
	*testing.T
	ctx   context.Context
	lab   *netlab.Lab
	state string
	box   *netlab.Process
}

const (
	ownerName     = "admin"
	ownerPassword = "seven grey herons wade"
	patience      = 2 * time.Minute // for an event, on a busy machine
)

// begin builds the lab with a provider's DHCP server; the box is not started.
func begin(t *testing.T) *story {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(stop)
	s := &story{T: t, ctx: ctx, lab: netlab.Start(t, netlab.Options{})}
	s.state = filepath.Join(s.lab.Box.Dir, "state")
	if _, err := s.lab.ServeDHCP(ctx, netlab.DHCP{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && s.box != nil {
			t.Logf("the box said:\n%s", s.box.Output())
		}
	})
	return s
}

// serve starts the product in the box and waits until its pages answer.
func (s *story) serve() {
	s.Helper()
	var err error
	if s.box, err = s.lab.Box.Start(s.ctx, product, "serve", "--state", s.state); err != nil {
		s.Fatal(err)
	}
	s.hear(`certificate fingerprint: \S`)
}

// hear waits for a line of the console and gives its matches.
func (s *story) hear(pattern string) []string {
	s.Helper()
	ctx, stop := context.WithTimeout(s.ctx, patience)
	defer stop()
	m, err := s.box.Find(ctx, pattern)
	if err != nil {
		s.Fatalf("the console never said %q: %v\n%s", pattern, err, s.box.Output())
	}
	return m
}

// verb runs another verb of the product in the box and gives what it printed.
func (s *story) verb(args ...string) string {
	s.Helper()
	out, err := s.lab.Box.Run(s.ctx, product, args...)
	if err != nil {
		s.Fatalf("gatehouse %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// lease gives a host an address by DHCP and returns the client.
func (s *story) lease(h *netlab.Host) *netlab.Client {
	s.Helper()
	c, err := h.DHClient(s.ctx, "eth0")
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithTimeout(s.ctx, patience)
	defer stop()
	if _, err := c.Await(ctx, "BOUND", "REBOOT"); err != nil {
		s.Fatalf("no lease: %v\n%s", err, s.box.Output())
	}
	return c
}

// person is a browser without script: cookies, forms, no more.
type person struct {
	s    *story
	http *http.Client
	base string
}

// from is a person at a host who types an address of the box.
func (s *story) from(h *netlab.Host, addr string) *person {
	jar, _ := cookiejar.New(nil) // never fails without options
	p := &person{s: s, base: "https://" + addr}
	p.http = &http.Client{Jar: jar, Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return h.Dial(ctx, "tcp", netip.MustParseAddrPort(addr))
		},
		DisableKeepAlives: true, // each click on a connection of its own
	}}
	return p
}

// page is an answer, read whole.
type reply struct {
	status int
	path   string
	body   string
}

func (p *person) do(method, path string, form url.Values) (reply, error) {
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(p.s.ctx, method, p.base+path, body)
	if err != nil {
		return reply{}, err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", p.base)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Request.URL.Path, string(b)}, err
}

// get loads a page that must be there.
func (p *person) get(path string) reply {
	p.s.Helper()
	r, err := p.do("GET", path, nil)
	if err != nil || r.status != http.StatusOK {
		p.s.Fatalf("GET %s: %d %v\n%s", path, r.status, err, text(r.body))
	}
	return r
}

// post sends a form and wants an answer below 400.
func (p *person) post(path string, form url.Values) reply {
	p.s.Helper()
	r, err := p.do("POST", path, form)
	if err != nil || r.status >= 400 {
		p.s.Fatalf("POST %s: %d %v\n%s", path, r.status, err, text(r.body))
	}
	return r
}

// fields reads name=value pairs by alternation; lists of one.
func fields(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v
}

var (
	tags   = regexp.MustCompile(`(?s)<(script|style|svg).*?</(script|style|svg)>|<[^>]*>`)
	blanks = regexp.MustCompile(`\s+`)
)

// text is what a page says, without its markup.
func text(body string) string { return blanks.ReplaceAllString(tags.ReplaceAllString(body, " "), " ") }

// hidden is the value of the first input with a name on a page.
func hidden(s *story, body, name string) string {
	s.Helper()
	m := regexp.MustCompile(`<input[^>]*name="` + name + `"[^>]*>`).FindString(body)
	v := regexp.MustCompile(`value="([^"]*)"`).FindStringSubmatch(m)
	if v == nil {
		s.Fatalf("the page has no field %q:\n%s", name, text(body))
	}
	return v[1]
}

// setup walks the wizard at 192.168.N.1 from lan1, applies, and waits until the
// result is kept. It gives the signed-in owner.
func (s *story) setup() *person {
	s.Helper()
	s.serve()
	code := s.hear(`setup code: (\S+)`)[1]
	s.lease(s.lab.LAN1)
	gw, err := s.lab.LAN1.Gateway()
	if err != nil {
		s.Fatal(err)
	}
	owner := s.from(s.lab.LAN1, gw.String()+":443")
	owner.post("/setup/1", fields("code", code, "admin", ownerName, "password", ownerPassword, "host", "fw1", "domain", "home.arpa", "zone", "UTC"))
	owner.post("/setup/2", fields("wan", "eth0", "lan", "eth1"))
	form := owner.get("/setup/3").body
	owner.post("/setup/3", fields("type", "dhcp", "hash", hidden(s, form, "hash"), "block_private", "1"))
	form = owner.get("/setup/4").body
	owner.post("/setup/4", fields("addr", hidden(s, form, "addr"), "was", hidden(s, form, "was"), "dhcp", "1",
		"from", hidden(s, form, "from"), "to", hidden(s, form, "to"), "hash", hidden(s, form, "hash")))
	owner.apply()
	return owner
}

// apply makes the draft run and keeps it, as a person without script does.
func (p *person) apply() {
	p.s.Helper()
	form := p.get("/review").body
	r := p.post("/apply", fields("draft", hidden(p.s, form, "draft")))
	p.keep(r)
}

// keep clicks Keep until the connection is young enough to count.
func (p *person) keep(applied reply) {
	p.s.Helper()
	revision, token := hidden(p.s, applied.body, "revision"), hidden(p.s, applied.body, "token")
	ctx, stop := context.WithTimeout(p.s.ctx, patience)
	defer stop()
	tick := time.NewTicker(500 * time.Millisecond) // the protocol's own poll
	defer tick.Stop()
	for {
		r, err := p.do("POST", "/confirm", fields("revision", revision, "token", token))
		if err == nil && r.status < 400 {
			return
		}
		select {
		case <-ctx.Done():
			p.s.Fatalf("the revision was never kept: %d %v\n%s", r.status, err, text(r.body))
		case <-tick.C:
		}
	}
}
