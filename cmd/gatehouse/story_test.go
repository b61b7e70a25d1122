package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
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

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/commit"
	"gatehouse/services/events"
	"gatehouse/web/auth"
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
	if product = os.Getenv("GATEHOUSE"); product == "" { // gatelab guest has built it
		product = filepath.Join(dir, "gatehouse")
		cmd := exec.Command("go", "build", "-o", product, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build the product: %v\n%s", err, out)
			return 1
		}
	}
	// Stories mostly wait: for timers, leases, silence. So more of them run beside
	// each other than there are processors; -parallel says otherwise.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
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
	isp   *netlab.Process // the provider's DHCP server
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
	s.provide(netlab.DHCP{})
	t.Cleanup(func() {
		if t.Failed() && s.box != nil {
			t.Logf("the box said:\n%s", s.box.Output())
		}
	})
	return s
}

// provide puts a provider's DHCP server in place of the one that is there.
func (s *story) provide(d netlab.DHCP) {
	s.Helper()
	if s.isp != nil {
		s.isp.Stop(s.ctx)
	}
	var err error
	if s.isp, err = s.lab.ServeDHCP(s.ctx, d); err != nil {
		s.Fatal(err)
	}
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
	return s.hearWithin(patience, pattern)
}

func (s *story) hearWithin(d time.Duration, pattern string) []string {
	s.Helper()
	ctx, stop := context.WithTimeout(s.ctx, d)
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

// The network that most stories start with.
const (
	wanAddr   = "203.0.113.2"
	lanAddr   = "192.168.1.1"
	guestAddr = "192.168.2.1"
	lan1Addr  = "192.168.1.20"
	lan2Addr  = "192.168.1.21"
	guestHost = "192.168.2.20"
)

// home is that network as changes of the configuration: a static WAN, a LAN and
// a guest net, both families, DHCP inside, and the wizard's one rule.
func home() []firewall.Change {
	face := func(name, device string, role firewall.Role, v4, gw4, v6, gw6 string) firewall.Change {
		in := firewall.Interface{Name: firewall.Name(name), Device: device, Role: role, On: true,
			V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix(v4)}, V6: firewall.V6{Mode: firewall.Static, Addr: netip.MustParsePrefix(v6)}}
		if gw4 != "" {
			in.V4.Gateway, in.V6.Gateway = netip.MustParseAddr(gw4), netip.MustParseAddr(gw6)
		}
		return firewall.AddInterface{Interface: in}
	}
	scope := func(in, net string) firewall.Change {
		from, to := firewall.DefaultPool(netip.MustParsePrefix(net))
		return firewall.PutScope{Scope: firewall.Scope{In: firewall.Name(in), On: true, From: from, To: to, Lease: 7200}}
	}
	return []firewall.Change{
		face("WAN", "eth0", firewall.WAN, wanAddr+"/24", netlab.Gateway4, netlab.BoxWAN6+"/64", netlab.Gateway6),
		face("LAN", "eth1", firewall.LAN, lanAddr+"/24", "", "2001:db8:100:1::1/64", ""),
		face("GUEST", "eth2", firewall.Other, guestAddr+"/24", "", "2001:db8:100:2::1/64", ""),
		scope("LAN", lanAddr+"/24"), scope("GUEST", guestAddr+"/24"),
		firewall.AddRule{Rule: pass("LANANY", "LAN", "any", "any")},
	}
}

// pass is a rule of any protocol and family.
func pass(id, in, src, dst string) firewall.Rule {
	ends := func(s string) firewall.Ends {
		e, err := firewall.ParseEnds(s)
		if err != nil {
			panic(err)
		}
		return e
	}
	return firewall.Rule{ID: firewall.ID(id), On: true, Action: firewall.Pass, In: firewall.Name(in), Family: firewall.Both,
		Proto: firewall.AnyProto, Src: ends(src), Dst: ends(dst), Descr: id}
}

// seed writes a confirmed revision and the owner's account into the state folder,
// as the product itself would, before the box is started.
func (s *story) seed(changes ...firewall.Change) {
	s.Helper()
	s.onPaper(func(w *commit.Writer, by commit.Who) error {
		for _, c := range changes {
			if err := w.Save(s.ctx, by, commit.AnyHash, c); err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
		}
		if _, err := w.Apply(s.ctx, by, commit.Options{}); err != nil {
			return err
		}
		return w.Confirm(s.ctx, by, "", time.Now().Add(time.Hour))
	})
}

// draft puts changes into the owner's draft, before the box is started.
func (s *story) draft(changes ...firewall.Change) {
	s.Helper()
	s.onPaper(func(w *commit.Writer, by commit.Who) error { return w.Save(s.ctx, by, commit.AnyHash, changes...) })
}

// onPaper opens the state folder with the product's writer and a kernel of paper.
func (s *story) onPaper(do func(w *commit.Writer, by commit.Who) error) {
	s.Helper()
	if err := os.MkdirAll(s.state, 0o700); err != nil {
		s.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	d, err := openDisk(s.state, log)
	if err != nil {
		s.Fatal(err)
	}
	defer d.close()
	w := commit.New(log, commit.Deps{Revisions: d.revisions, Drafts: d.drafts, Snapshots: d.snapshots,
		Extra: (&box{disk: d}).accounts, Kernel: paper{}, Forwarding: func(context.Context, bool) error { return nil }, Cutter: paper{},
		Reaches: func(firewall.Config, commit.Who) (bool, string) { return true, "" }, Publish: func(events.Event) {}, NewID: commit.NewID})
	defer w.Close()
	if err := w.Boot(s.ctx); err != nil {
		s.Fatal(err)
	}
	a := auth.New(log, d.accounts, d.sessions, auth.NewHasher(), auth.NewThrottle(10, time.Minute))
	if _, err := a.Create(s.ctx, ownerName, ownerPassword); err != nil && !errors.Is(err, auth.ErrTaken) {
		s.Fatal(err)
	}
	if err := do(w, commit.Who{Account: ownerName, Door: "console"}); err != nil {
		s.Fatal(err)
	}
}

// paper is a kernel that takes everything: seed only writes.
type paper struct{}

func (paper) DryRun(context.Context, ruleset.Ruleset) error { return nil }
func (paper) Apply(context.Context, ruleset.Ruleset) error  { return nil }
func (paper) Verify(context.Context, ruleset.Ruleset) error { return nil }
func (paper) Stamp(context.Context) (string, error)         { return "", nil }
func (paper) Cut(context.Context, firewall.Config) error    { return nil }

// settle gives the hosts inside fixed addresses of the home network.
func (s *story) settle() {
	s.Helper()
	for _, h := range []struct {
		host     *netlab.Host
		v4, v6   string
		gw4, gw6 string
	}{
		{s.lab.LAN1, lan1Addr + "/24", "2001:db8:100:1::20/64", lanAddr, "2001:db8:100:1::1"},
		{s.lab.LAN2, lan2Addr + "/24", "2001:db8:100:1::21/64", lanAddr, "2001:db8:100:1::1"},
		{s.lab.Guest, guestHost + "/24", "2001:db8:100:2::20/64", guestAddr, "2001:db8:100:2::1"},
	} {
		if err := errors.Join(h.host.SetUp("eth0", true), h.host.AddAddr("eth0", h.v4, h.v6), h.host.AddRoute("default", h.gw4), h.host.AddRoute("default6", h.gw6)); err != nil {
			s.Fatal(err)
		}
	}
}

// athome is a box that runs the home network, with its hosts settled and the
// changes on top, and its owner signed in from lan1.
func athome(t *testing.T, more ...firewall.Change) (*story, *person) {
	t.Helper()
	s := begin(t)
	s.seed(append(home(), more...)...)
	s.serve()
	s.settle()
	owner := s.from(s.lab.LAN1, lanAddr+":443")
	owner.login(ownerName, ownerPassword)
	return s, owner
}

func (p *person) login(name, password string) {
	p.s.Helper()
	p.post("/login", fields("name", name, "password", password, "next", "/"))
}

// reaches dials from a host and gives the greeting of the echo server that answered.
func (s *story) reaches(h *netlab.Host, network, from, to string) (string, error) {
	src := netip.AddrPort{}
	if from != "" {
		src = netip.MustParseAddrPort(from)
	}
	ctx, stop := context.WithTimeout(s.ctx, 20*time.Second)
	defer stop()
	c, err := h.DialFrom(ctx, network, src, netip.MustParseAddrPort(to))
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return "", err
	}
	if network == "udp" {
		if _, err := io.WriteString(c, "hello\n"); err != nil {
			return "", err
		}
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

// refused is true when a SYN or datagram gets no answer of an echo server within
// two seconds; a firewall that drops says nothing, so there is no event to wait for.
func (s *story) refused(h *netlab.Host, network, from, to string) bool {
	src := netip.AddrPort{}
	if from != "" {
		src = netip.MustParseAddrPort(from)
	}
	ctx, stop := context.WithTimeout(s.ctx, 2*time.Second)
	defer stop()
	c, err := h.DialFrom(ctx, network, src, netip.MustParseAddrPort(to))
	if err != nil {
		return true
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if network == "udp" {
		_, _ = io.WriteString(c, "hello\n")
	}
	_, err = bufio.NewReader(c).ReadString('\n')
	return err != nil
}

// rules is the table in the box's kernel as nft lists it, counters left out.
func (s *story) rules() string {
	s.Helper()
	out, err := s.lab.Box.Run(s.ctx, "nft", "-s", "list", "table", "inet", "gatehouse")
	if err != nil {
		s.Fatal(err)
	}
	return exempts.ReplaceAllString(out, "")
}

// exempts is who is spared by limits: people come and go, whatever the rules are.
var exempts = regexp.MustCompile(`(?s)\tset exempt[46] \{.*?\n\t\}\n`)
