package web

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/commit"
	"gatehouse/services/events"
	"gatehouse/store"
	"gatehouse/web/aliases"
	"gatehouse/web/auth"
	"gatehouse/web/changes"
	"gatehouse/web/draft"
	"gatehouse/web/forwards"
	"gatehouse/web/page"
	"gatehouse/web/rules"
)

// desk is the pages of rules, forwards and changes on the real writer and the
// real router; only the kernel forgets nothing and refuses nothing.
type desk struct {
	t       *testing.T
	w       *commit.Writer
	bus     *events.Bus
	routes  []page.Route
	handler http.Handler
	reaches func(firewall.Config, commit.Who) (bool, string)
	dry     error // what the kernel says to a dry run
	applied int
	network network // what the pages of the network see
	jail    jail    // who is shut out

	mu  sync.Mutex // guards hit
	hit map[firewall.ID]uint64
}

func newDesk(t *testing.T, start firewall.Config) *desk {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", fmt.Sprintf("gatehouse-web-%d-", os.Getpid())) // many fsyncs, none of which is tested here
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	log := slog.New(slog.DiscardHandler)
	db, err := store.Open(filepath.Join(dir, "gatehouse.db"), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	d := &desk{t: t, bus: events.NewBus(), reaches: func(firewall.Config, commit.Who) (bool, string) { return true, "" }}
	d.w = commit.New(log, commit.Deps{
		Revisions: store.NewLog[commit.Record](db, "revisions"), Drafts: store.NewTable[commit.Draft](db, "drafts"),
		Snapshots: store.NewSnapshots(filepath.Join(dir, "snapshots")), Kernel: deskKernel{d}, Cutter: deskCutter{},
		Extra:      func() ([]byte, error) { return nil, nil },
		Forwarding: func(context.Context, bool) error { return nil }, NewID: commit.NewID, Publish: d.bus.Publish,
		Reaches: func(c firewall.Config, who commit.Who) (bool, string) { return d.reaches(c, who) },
	})
	t.Cleanup(d.w.Close)
	if err := d.w.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.install(start)
	who := func(r *http.Request) commit.Who {
		s, _ := auth.SessionOf(r.Context())
		return commit.Who{Account: s.Account, Door: "web", Addr: page.ConnOf(r.Context()).Peer}
	}
	behind := changes.New(d.w, d.w, who)
	at := draft.Desk{Drafts: d.w, Who: who, Apply: behind.Now}
	routes := append(behind.Routes(), rules.New(rules.Deps{Desk: at, Hits: d.hits})...)
	routes = append(routes, forwards.New(forwards.Deps{Desk: at, Hits: d.hits,
		Hosts: func() []forwards.Host {
			return []forwards.Host{{Addr: netip.MustParseAddr("192.168.1.120"), Name: "laptop"}}
		}})...)
	routes = append(routes, aliases.New(at)...)
	routes = append(routes, d.network.routes(at)...)
	routes = append(routes, d.jail.routes(at, d)...)
	routes = append(routes, page.Route{Method: http.MethodGet, Path: "/", Serve: func(w http.ResponseWriter, r *http.Request) error {
		return page.Go(w, r, "/rules")
	}})
	d.routes = routes
	d.handler, err = New(Deps{Log: log, Sessions: headerSessions{}, Events: d.bus, Box: d, Routes: routes})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// install makes a configuration what runs, confirmed.
func (d *desk) install(c firewall.Config) {
	d.t.Helper()
	setup := commit.Who{Account: "setup", Door: "console"}
	if err := d.w.Save(d.t.Context(), setup, commit.AnyHash, firewall.ReplaceAll{Config: c, Why: "Set up"}); err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.w.Apply(d.t.Context(), setup, commit.Options{}); err != nil {
		d.t.Fatal(err)
	}
	if err := d.w.Confirm(d.t.Context(), setup, "", time.Now().Add(time.Hour)); err != nil {
		d.t.Fatal(err)
	}
	d.applied = 0
}

func (d *desk) hits() map[firewall.ID]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hit
}

func (d *desk) Names() []string      { return []string{"fw1.home.arpa"} }
func (d *desk) Ours(netip.Addr) bool { return false }

// Frame is the bar as serve.go makes it.
func (d *desk) Frame(_ context.Context, account string) page.Frame {
	f := page.Frame{Host: "fw1.home.arpa"}
	if account == "" {
		return f
	}
	f.WAN = page.Status{Kind: page.Pass, Text: "WAN up"}
	shut := d.jail.Counts()
	f.ShutOut = shut.Quarantine + shut.LockOuts
	v := d.w.View(account)
	f.Bar = page.Bar{Safe: v.SafeMode, Pending: v.Objects, Draft: changes.Version(v)}
	for _, i := range v.Items {
		if i.Misfit != "" {
			f.Bar.Misfits = append(f.Bar.Misfits, i.Sentence+": "+i.Misfit)
		}
	}
	if t := v.Trial; t != nil {
		f.Bar.Testing = page.Testing{Revision: int(t.Revision), Account: t.Account, Mine: t.Mine, Left: time.Until(t.Deadline), Auto: !t.Human}
	}
	if u := v.Undo; u != nil {
		f.Bar.Undo = page.Undo{Revision: int(u.Revision), Left: time.Until(u.Until)}
	}
	return f
}

// headerSessions takes the account from a header; without one nobody is signed in.
type headerSessions struct{}

func (headerSessions) Any() (bool, error) { return true, nil }
func (headerSessions) Of(r *http.Request, _ bool) (auth.Session, bool, error) {
	name := r.Header.Get("Account")
	return auth.Session{ID: name, Account: name}, name != "", nil
}

type deskKernel struct{ d *desk }

func (k deskKernel) DryRun(context.Context, ruleset.Ruleset) error { return k.d.dry }
func (k deskKernel) Apply(context.Context, ruleset.Ruleset) error  { k.d.applied++; return nil }
func (deskKernel) Verify(context.Context, ruleset.Ruleset) error   { return nil }
func (deskKernel) Stamp(context.Context) (string, error)           { return "", nil }

type deskCutter struct{}

func (deskCutter) Cut(context.Context, firewall.Config) error { return nil }

// visit is one request of one person on one connection.
type visit struct {
	account string
	since   time.Time // when the connection was accepted; zero = now
	headers map[string]string
}

// by asks as an account.
func by(account string) visit { return visit{account: account} }

// ask sends a request through the router and gives the answer with its body.
func (d *desk) ask(v visit, method, path string, form url.Values) answer {
	d.t.Helper()
	r := httptest.NewRequest(method, "https://localhost"+path, strings.NewReader(form.Encode()))
	r.Header.Set("Accept", "text/html")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if v.account != "" {
		r.Header.Set("Account", v.account)
	}
	for k, s := range v.headers {
		r.Header.Set(k, s)
	}
	if v.since.IsZero() {
		v.since = time.Now()
	}
	r = r.WithContext(page.WithConn(d.t.Context(), page.Conn{Peer: netip.MustParseAddr("192.168.1.20"), Since: v.since}))
	rec := httptest.NewRecorder()
	d.handler.ServeHTTP(rec, r)
	return answer{rec.Result(), rec.Body.String()}
}

func (d *desk) get(account, path string) answer { return d.ask(by(account), "GET", path, nil) }

func (d *desk) post(account, path string, pairs ...string) answer {
	d.t.Helper()
	return d.ask(by(account), "POST", path, values(pairs...))
}

func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v
}

// config is the configuration with the draft of an account.
func (d *desk) config(account string) firewall.Config { return d.w.View(account).Config }

// serveTLS is the pages on loopback, every browser signed in as admin.
func (d *desk) serveTLS() string {
	d.t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Account", "admin")
		d.handler.ServeHTTP(w, r)
	}))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return page.WithConn(ctx, page.Conn{Peer: netip.MustParseAddr("192.168.1.20"), Since: time.Now()})
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	d.t.Cleanup(s.CloseClientConnections)
	d.t.Cleanup(s.Close)
	return s.URL
}

// wantStatus fails with what the page says.
func wantStatus(t *testing.T, a answer, status int) {
	t.Helper()
	if a.StatusCode != status {
		t.Fatalf("%s, want %d: %s", a.Status, status, text(a.body))
	}
}

// text is a page without its tags.
func text(html string) string {
	html = strings.NewReplacer("<code>", "`", "</code>", "`").Replace(html) // as the messages are written
	var b strings.Builder
	in := false
	for _, r := range html {
		switch {
		case r == '<':
			in = true
			b.WriteByte(' ')
		case r == '>':
			in = false
		case !in:
			b.WriteRune(r)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// unescape is what a browser reads.
func unescape(s string) string {
	return strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(s)
}

// home is the configuration of a small office.
func home() firewall.Config {
	c := firewall.Factory()
	pre := netip.MustParsePrefix
	c.System.Host = "fw1"
	c.Interfaces = []firewall.Interface{
		{Name: "WAN", Device: "eth0", Role: firewall.WAN, On: true, V4: firewall.V4{Mode: firewall.DHCP}, V6: firewall.V6{Mode: firewall.None}, BlockPrivate: true, BlockBogons: true},
		{Name: "LAN", Device: "eth1", Role: firewall.LAN, On: true, V4: firewall.V4{Mode: firewall.Static, Addr: pre("192.168.1.1/24")}, V6: firewall.V6{Mode: firewall.None}},
		{Name: "GUEST", Device: "eth2", Role: firewall.Other, On: true, V4: firewall.V4{Mode: firewall.Static, Addr: pre("192.168.2.1/24")}, V6: firewall.V6{Mode: firewall.None}},
	}
	addr := func(s string) firewall.End { e, _ := firewall.ParseEnd(s); return e }
	c.Aliases = []firewall.Alias{
		{Name: "WEB_SERVERS", Kind: firewall.Addresses, Addrs: []firewall.Entry{{End: addr("192.168.1.10")}, {End: addr("192.168.1.11")}}},
		{Name: "BAD_NETS", Kind: firewall.Addresses, Addrs: []firewall.Entry{{End: addr("198.51.100.0/24")}}},
		{Name: "NOBODY", Kind: firewall.Addresses},
		{Name: "MAIL", Kind: firewall.PortList, Ports: []firewall.PortEntry{{End: firewall.PortEnd{Range: firewall.PortRange{From: 25, To: 25}}}, {End: firewall.PortEnd{Range: firewall.PortRange{From: 587, To: 587}}, Note: "submission"}}},
	}
	for i, r := range []struct{ in, section, action, family, proto, src, dst, port, descr string }{
		{"", "", "block", "both", "any", "BAD_NETS", "any", "", "Known bad networks"},
		{"LAN", "Servers", "pass", "v4", "tcp", "LAN net", "WEB_SERVERS", "443", "Web servers"},
		{"LAN", "Servers", "pass", "both", "tcp+udp", "LAN net", "this box", "53", "Names"},
		{"LAN", "Servers", "reject", "both", "tcp", "192.168.1.50-192.168.1.60", "any", "MAIL", "No mail from printers"},
		{"LAN", "Internet", "block", "v4", "udp", "any", "any", "443", "No QUIC"},
		{"LAN", "Internet", "pass", "both", "any", "LAN net", "any", "", "Allow LAN to any"},
		{"GUEST", "", "block", "both", "any", "GUEST net", "LAN net", "", "Guests stay out"},
		{"GUEST", "", "pass", "v4", "tcp", "GUEST net", "any", "80, 443", "Guests may browse"},
	} {
		src, _ := firewall.ParseEnds(r.src)
		dst, _ := firewall.ParseEnds(r.dst)
		ports, _ := firewall.ParsePorts(r.port)
		c.Rules = append(c.Rules, firewall.Rule{ID: ruleID(i), On: r.descr != "No QUIC", Action: firewall.Action(r.action), In: firewall.Name(r.in),
			Family: firewall.Family(r.family), Proto: firewall.Proto(r.proto), Src: src, Dst: dst, DstPorts: ports, Descr: r.descr, Section: r.section})
	}
	f := firewall.Forward{ID: "01JFORWARD0000000000000001", On: true, Descr: "Web from outside", In: "WAN", Proto: firewall.TCP, From: firewall.Anyone(),
		Dst: firewall.End{Kind: firewall.EndIfAddr, Name: "WAN"}, Ports: firewall.PortRange{From: 443, To: 443}, To: netip.MustParseAddr("192.168.1.10"),
		ToPort: 8443, Rule: "01JFORWARDRULE000000000001", Reflect: true}
	c, err := firewall.AddForward{Forward: f}.Apply(c)
	if err != nil {
		panic(err) // the sample is wrong
	}
	c.Scopes = []firewall.Scope{{In: "LAN", On: true, From: netip.MustParseAddr("192.168.1.100"), To: netip.MustParseAddr("192.168.1.199"), Lease: 7200,
		Statics: []firewall.StaticLease{{ID: "01JSTATIC00000000000000001", MAC: "02:00:00:00:00:01", Addr: netip.MustParseAddr("192.168.1.10"), Host: "nas"}}}}
	return c
}

// ruleID is the id of the sample's rules, in their order.
func ruleID(i int) firewall.ID { return firewall.ID(fmt.Sprintf("01JRULE%019d", i+1)) }

// toast is what the next page of the browser says, with what its Undo is for.
func (d *desk) toast(a answer) string {
	d.t.Helper()
	for _, c := range a.Cookies() {
		if b, err := base64.RawURLEncoding.DecodeString(c.Value); c.Name == "__Host-toast" && err == nil {
			return string(b)
		}
	}
	d.t.Error("there is no toast")
	return ""
}
