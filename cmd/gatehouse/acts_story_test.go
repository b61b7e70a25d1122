package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
	"gatehouse/services/commit"
	"gatehouse/store"
	"gatehouse/web/api"
)

// What people do in stories, beyond looking at pages.

// try sends a form and takes whatever the answer is.
func (p *person) try(path string, form url.Values) reply {
	p.s.Helper()
	r, err := p.do("POST", path, form)
	if err != nil {
		p.s.Fatalf("POST %s: %v", path, err)
	}
	return r
}

// wants is try with an answer that must have a status and say some words.
func (p *person) wants(status int, words, path string, form url.Values) reply {
	p.s.Helper()
	r := p.try(path, form)
	if said := html.UnescapeString(text(r.body)); r.status != status || !strings.Contains(said, words) {
		p.s.Errorf("POST %s %v: %d, want %d and %q; it says:\n%s", path, form, r.status, status, words, said)
	}
	return r
}

// wrong is wants for a form that comes back with problems: the words must stand
// in the summary of what is wrong, not just anywhere on the page.
func (p *person) wrong(words, path string, form url.Values) reply {
	p.s.Helper()
	r := p.try(path, form)
	told := html.UnescapeString(text(problems.FindString(r.body)))
	if r.status != http.StatusUnprocessableEntity || !strings.Contains(told, words) {
		p.s.Errorf("POST %s %v: %d, want 422 and %q; it says: %s", path, form, r.status, words, told)
	}
	return r
}

var problems = regexp.MustCompile(`(?s)<div class="problems".*?</div>`)

// send is a request by hand: any header, any host.
func (p *person) send(method, path, body string, header map[string]string) reply {
	p.s.Helper()
	req, err := http.NewRequestWithContext(p.s.ctx, method, p.base+path, strings.NewReader(body))
	if err != nil {
		p.s.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for k, v := range header {
		req.Header.Set(k, v)
	}
	if h := header["Host"]; h != "" {
		req.Host = h
	}
	resp, err := p.http.Do(req)
	if err != nil {
		p.s.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.s.Fatalf("%s %s: %v", method, path, err)
	}
	return reply{resp.StatusCode, resp.Request.URL.Path, string(b)}
}

// rule is the form of a new rule on the LAN list; pairs replace its fields.
func rule(pairs ...string) url.Values {
	v := fields("on", "1", "action", "pass", "in", "LAN", "family", "both", "proto", "tcp", "src", "any", "dst", "any", "hash", "")
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

// op finds the button of a row as a page shows it: toggle, delete, up ... of a rule.
func (p *person) op(page reply, verb, id string) string {
	p.s.Helper()
	m := regexp.MustCompile(`value="(` + verb + `:` + id + `:[^"]*)"`).FindStringSubmatch(page.body)
	if m == nil {
		p.s.Fatalf("the page has no button %s of %s:\n%s", verb, id, text(page.body))
	}
	return m[1]
}

// status is what `gatehouse status --json` tells.
func (s *story) status() (st api.Status) {
	s.Helper()
	if err := json.Unmarshal([]byte(s.verb("status", "--json")), &st); err != nil {
		s.Fatal(err)
	}
	return st
}

// until waits for a fact that has no event on the outside, by asking again.
func (s *story) until(what string, fact func() bool) {
	s.Helper()
	s.within(patience, what, fact)
}

func (s *story) within(d time.Duration, what string, fact func() bool) {
	s.Helper()
	ctx, stop := context.WithTimeout(s.ctx, d)
	defer stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !fact() {
		select {
		case <-ctx.Done():
			s.Fatalf("never came true: %s", what)
		case <-tick.C:
		}
	}
}

// serveAlso is serve with arguments, and without waiting for the pages.
func (s *story) serveAlso(args ...string) *netlab.Process {
	s.Helper()
	p, err := s.lab.Box.Start(s.ctx, product, append([]string{"serve", "--state", s.state}, args...)...)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// refuses wants that a start of the product ends by itself and says why.
func (s *story) refuses(p *netlab.Process, words ...string) {
	s.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		p.Kill()
		s.Fatalf("it did not end:\n%s", p.Output())
	}
	if p.Wait() == nil {
		s.Errorf("it ended as if all were well:\n%s", p.Output())
	}
	for _, w := range words {
		if !strings.Contains(p.Output(), w) {
			s.Errorf("it does not say %q:\n%s", w, p.Output())
		}
	}
}

// kill ends the product as kill -9 does and waits until it is gone.
func (s *story) kill() {
	s.Helper()
	s.box.Kill()
	<-s.box.Done()
}

// web8080 is a forward from the WAN to a server on lan1, with its rule.
func web8080() firewall.Change {
	return firewall.AddForward{Forward: firewall.Forward{ID: "FWDWEB", On: true, In: "WAN", Proto: firewall.TCP, From: firewall.Anyone(),
		Dst: firewall.End{Kind: firewall.EndIfAddr, Name: "WAN"}, Ports: firewall.PortRange{From: 8080, To: 8080},
		To: netip.MustParseAddr(lan1Addr), ToPort: 80, Rule: "FWDRULE", Descr: "web"}}
}

const outside = wanAddr + ":8080" // where web8080 is reached

// open wants that the forward answers from the internet.
func (s *story) open(when string) {
	s.Helper()
	if line, err := s.reaches(s.lab.Inet, "tcp", "", outside); err != nil {
		s.Fatalf("the open forward does not work %s: %q %v", when, line, err)
	}
}

// talk is a connection that must go on: each ping is one line there and back.
type talk struct {
	s *story
	c net.Conn
	r *bufio.Reader
	n int
}

func (s *story) talk(h *netlab.Host, to string) *talk {
	s.Helper()
	return s.talkFrom(h, "", to)
}

// talkFrom is talk from one of the host's addresses; "" is any.
func (s *story) talkFrom(h *netlab.Host, from, to string) *talk {
	s.Helper()
	src := netip.AddrPort{}
	if from != "" {
		src = as(from)
	}
	c, err := h.DialFrom(s.ctx, "tcp", src, netip.MustParseAddrPort(to))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	t := &talk{s: s, c: c, r: bufio.NewReader(c)}
	if _, err := t.r.ReadString('\n'); err != nil { // the greeting
		s.Fatal(err)
	}
	return t
}

func (t *talk) ping(when string) {
	t.s.Helper()
	t.n++
	word := fmt.Sprintf("line-%d", t.n)
	_ = t.c.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintln(t.c, word); err != nil {
		t.s.Fatalf("the running connection broke %s: %v", when, err)
	}
	line, err := t.r.ReadString('\n')
	if err != nil || !strings.Contains(line, word) {
		t.s.Fatalf("the running connection broke %s: %q %v", when, line, err)
	}
}

// answers dials every given port of some addresses from a host and gives those
// that answered; a refusal counts as an answer, a firewall says nothing.
func (s *story) answers(h *netlab.Host, ports []int, addrs ...string) (got []string) {
	s.Helper()
	type result struct {
		to  string
		err error
	}
	results := make(chan result)
	n := 0
	for _, a := range addrs {
		for _, port := range ports {
			to := netip.AddrPortFrom(netip.MustParseAddr(a), uint16(port))
			n++
			go func() {
				ctx, stop := context.WithTimeout(s.ctx, 3*time.Second)
				defer stop()
				c, err := h.Dial(ctx, "tcp", to)
				if err == nil {
					c.Close()
				}
				results <- result{to.String(), err}
			}()
		}
	}
	for range n {
		r := <-results
		if r.err == nil || strings.Contains(r.err.Error(), "refused") {
			got = append(got, r.to)
		}
	}
	slices.Sort(got)
	return got
}

// linkTo is the first link on a page that begins with a path and goes on with an id.
func linkTo(s *story, body, path string) string {
	s.Helper()
	for _, m := range regexp.MustCompile(`href="(`+regexp.QuoteMeta(path)+`[^"?#]+)"`).FindAllStringSubmatch(body, -1) {
		if m[1] != path+"new" {
			return m[1]
		}
	}
	s.Fatalf("no link to %s…:\n%s", path, text(body))
	return ""
}

// confirmed is the configuration of the newest snapshot: what the box would boot
// without its database.
func (s *story) confirmed() firewall.Config {
	s.Helper()
	all, err := store.NewSnapshots(filepath.Join(s.state, "snapshots")).Snapshots()
	if err != nil || len(all) == 0 {
		s.Fatalf("no snapshot: %v", err)
	}
	_, c, err := commit.ReadSnapshot(all[0])
	if err != nil {
		s.Fatal(err)
	}
	return c
}
