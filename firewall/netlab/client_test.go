package netlab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDHClientTakesRenewsAndReturnsALease(t *testing.T) {
	l := Start(t, Options{})
	ctx := within(t)
	must(t, l.Box.SetUp("eth0", true))
	server, err := l.ServeDHCP(ctx, DHCP{First: "203.0.113.120", Last: "203.0.113.120", Renew: 4 * time.Second, Rebind: 30 * time.Second})
	must(t, err)
	c, err := l.Box.DHClient(ctx, "eth0")
	must(t, err)
	e, err := c.Await(ctx, "BOUND")
	must(t, err)
	if e.Addr.String() != "203.0.113.120/24" || e.Router.String() != Gateway4 || e.Server.String() != Gateway4 || len(e.DNS) != 1 || e.Seconds != "120" {
		t.Errorf("lease: %+v", e)
	}
	if as, _ := l.Box.Addrs("eth0"); len(as) != 1 || as[0] != e.Addr {
		t.Errorf("eth0 has %v", as)
	}
	if gw, err := l.Box.Gateway(); gw.String() != Gateway4 {
		t.Errorf("gateway %v, %v", gw, err)
	}
	if b, _ := os.ReadFile(filepath.Join(l.Box.Dir, "resolv.conf")); string(b) != "nameserver 203.0.113.1\n" {
		t.Errorf("resolv.conf: %q", b)
	}
	_, err = c.Await(ctx, "RENEW")
	must(t, err)
	c.Stop(ctx)
	// A second client on the same memory asks for the same address without an offer.
	c, err = l.Box.DHClient(ctx, "eth0")
	must(t, err)
	_, err = c.Await(ctx, "REBOOT")
	must(t, err, c.Release(ctx))
	if _, err := server.Find(ctx, `DHCPRELEASE.* 203.0.113.120`); err != nil {
		t.Error(err)
	}
	if as, _ := l.Box.Addrs("eth0"); len(as) != 0 {
		t.Errorf("after the release eth0 has %v", as)
	}
}

func TestUdhcpcTakesRenewsAndReturnsALease(t *testing.T) {
	l := Start(t, Options{})
	ctx := within(t)
	must(t, l.Box.SetUp("eth0", true))
	server, err := l.ServeDHCP(ctx, DHCP{})
	must(t, err)
	c, err := l.Box.Udhcpc(ctx, "eth0")
	must(t, err)
	e, err := c.Await(ctx, "bound")
	must(t, err)
	if !strings.HasPrefix(e.Addr.String(), "203.0.113.1") || e.Router.String() != Gateway4 {
		t.Errorf("lease: %+v", e)
	}
	must(t, c.Renew())
	again, err := c.Await(ctx, "renew")
	must(t, err)
	if again.Addr != e.Addr {
		t.Errorf("renewed %v, had %v", again.Addr, e.Addr)
	}
	must(t, c.Release(ctx))
	if _, err := server.Find(ctx, `DHCPRELEASE`); err != nil {
		t.Error(err)
	}
}

func TestProviderServerInAPrivateNetAnswersAndIsReachedThroughTheGateway(t *testing.T) {
	l := Start(t, Options{})
	ctx := within(t)
	must(t, l.Box.SetUp("eth0", true))
	server, err := l.ServeDHCP(ctx, DHCP{Server: "10.64.0.1", Renew: 4 * time.Second, Rebind: 50 * time.Second})
	must(t, err)
	c, err := l.Box.DHClient(ctx, "eth0")
	must(t, err)
	e, err := c.Await(ctx, "BOUND")
	must(t, err)
	if e.Server.String() != "10.64.0.1" || e.Router.String() != Gateway4 {
		t.Errorf("lease: %+v", e)
	}
	if _, err := c.Await(ctx, "RENEW"); err != nil {
		t.Errorf("%v\nserver:\n%s", err, server.Output())
	}
	// The next client finds another provider with another pool and is told that its address is no more.
	c.Stop(ctx)
	server.Stop(ctx)
	_, err = l.ServeDHCP(ctx, DHCP{First: "203.0.113.200", Last: "203.0.113.201"})
	must(t, err)
	c, err = l.Box.DHClient(ctx, "eth0")
	must(t, err)
	e, err = c.Await(ctx, "BOUND")
	must(t, err)
	if !strings.HasPrefix(e.Addr.String(), "203.0.113.20") {
		t.Errorf("moved provider gave %v", e.Addr)
	}
}
