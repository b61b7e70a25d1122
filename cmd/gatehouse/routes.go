package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web"
	"gatehouse/web/aliases"
	"gatehouse/web/auth"
	"gatehouse/web/changes"
	"gatehouse/web/dashboard"
	"gatehouse/web/draft"
	"gatehouse/web/forwards"
	"gatehouse/web/interfaces"
	"gatehouse/web/leases"
	"gatehouse/web/login"
	"gatehouse/web/page"
	"gatehouse/web/revisions"
	"gatehouse/web/rules"
	"gatehouse/web/setup"
)

// routes wires the pages.
func (b *box) routes(ctx context.Context) error {
	var all []page.Route
	all = append(all, login.New(b.auth, b.cert.Fingerprint).Routes()...)
	all = append(all, setup.New(setup.Deps{Ports: b.setup, Drafts: b.writer, Accounts: b.auth, Code: b.setupCodeNow,
		Throttle: auth.NewThrottle(5, time.Minute), NewID: commit.NewID})...)
	behind := changes.New(b.writer, b.writer, who)
	all = append(all, behind.Routes()...)
	desk := draft.Desk{Drafts: b.writer, Who: who, Apply: behind.Now}
	all = append(all, rules.New(rules.Deps{Desk: desk, Hits: b.hits})...)
	all = append(all, forwards.New(forwards.Deps{Desk: desk, Hits: b.hits, Hosts: b.hosts})...)
	all = append(all, aliases.New(desk)...)
	all = append(all, interfaces.New(interfaces.Deps{Desk: desk, Ports: b.link.Status})...)
	all = append(all, leases.New(leases.Deps{Desk: desk, Server: b.dhcp})...)
	all = append(all, b.tables(desk)...)
	all = append(all, revisions.New(b.writer, who)...)
	all = append(all, dashboard.New(dashboard.Deps{Config: b.running, Revision: func() commit.Revision { _, r := b.writer.Running(); return r },
		Ports: b.link.Status, Leases: b.dhcp.List, Drops: b.ring.Last, Settings: b.settings, Shut: b.quarantine})...)
	h, err := web.New(web.Deps{Log: b.log, Sessions: b.auth, Events: b.bus, Box: b, Routes: all})
	if err != nil {
		return fmt.Errorf("wire the pages: %w", err)
	}
	b.server = web.NewServer(ctx, b.log, h, b.cert)
	return nil
}

// admin is how the pages are reached.
func (b *box) admin() firewall.Admin {
	c, _ := b.writer.Running()
	if b.writer.Status().Lockdown { // whose rules open the factory's ports
		return firewall.Factory().Admin
	}
	return c.Admin
}

// bind takes the ports of the pages before anything in the kernel is touched.
func (b *box) bind() error {
	a := b.admin()
	if err := b.server.Bind(a.HTTPS, a.HTTP); err != nil {
		return fmt.Errorf("the web pages cannot start: %w; stop the program that has the port (`ss -ltnp` shows it); nothing was changed", err)
	}
	return nil
}

// open lets people in: the pages and the socket.
func (b *box) open(ctx context.Context) error {
	b.covers()
	a := b.admin()
	if err := b.server.Listen(a.HTTPS, a.HTTP); err != nil {
		return fmt.Errorf("the web pages cannot start: %w", err)
	}
	b.opened.Store(true)
	return b.listen(ctx)
}

// who is the account of a request and how it came.
func who(r *http.Request) commit.Who {
	s, _ := auth.SessionOf(r.Context())
	return commit.Who{Account: s.Account, Door: "web", Addr: page.ConnOf(r.Context()).Peer}
}

// hosts is the hosts inside that a forward can lead to.
func (b *box) hosts() (out []forwards.Host) {
	for _, l := range b.dhcp.List() {
		out = append(out, forwards.Host{Name: l.Host, Addr: l.Addr})
	}
	return out
}

// running is the configuration that runs.
func (b *box) running() firewall.Config {
	c, _ := b.writer.Running()
	return c
}

// settings is the kernel settings that are not as wanted, a sentence each.
func (b *box) settings() (out []string) {
	for _, s := range b.link.Sysctls() {
		out = append(out, fmt.Sprintf("The kernel setting %s is %q and should be %s: %s.", s.Path, s.Is, s.Want, s.Error))
	}
	return out
}

// hits is the packets that each rule and forward has matched.
func (b *box) hits() map[firewall.ID]uint64 {
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	all, err := b.kernel.Counters(ctx)
	if err != nil {
		b.log.Warn("read counters", "err", err)
		return nil
	}
	out := make(map[firewall.ID]uint64, len(all))
	for _, c := range all {
		if id, ok := strings.CutPrefix(c.Name, "c_"); ok {
			out[firewall.ID(id)] = c.Packets
		}
	}
	return out
}

// deviceOf is the device that an address is reached through; "" for the console
// and what has no way to it.
func deviceOf(f firewall.Facts, a netip.Addr) string {
	if !a.IsValid() || a.IsLoopback() {
		return ""
	}
	for device, ps := range f.Addrs {
		for _, p := range ps {
			if device != "lo" && p.Contains(a) {
				return device
			}
		}
	}
	var best firewall.Route
	for _, r := range f.Routes {
		longer := r.Dst.Bits() - best.Dst.Bits() // -1 without a best one
		if r.Dst.Contains(a) && (longer > 0 || longer == 0 && r.Metric < best.Metric) {
			best = r
		}
	}
	return best.Device
}
