package link

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/link/wan"
)

const mine, defaultRoute = "10.77.0.50/24", "10.77.0.1 wan0 100"

// bound starts a box whose WAN has a lease of the scripted server.
func bound(t *testing.T, lease time.Duration) (*box, *far, *scripted) {
	t.Helper()
	f := cable(t, "wan0")
	s := f.serve(lease)
	b := newBox(t, nil).run()
	b.reload(config(dynamicWAN("wan0")))
	await(t, "a lease", func() bool { return b.port("wan0").State == wan.Bound && b.way("0.0.0.0/0") == defaultRoute })
	return b, f, s
}

func TestWANGetsALeaseFromDnsmasqAndKeepsItOverARestart(t *testing.T) {
	f := cable(t, "wan0")
	f.dnsmasq("--dhcp-host=gatehouse,10.66.0.123")
	b := newBox(t, nil).run()
	c := config(dynamicWAN("wan0"))
	c.System.Host = "gatehouse"
	b.reload(c)
	await(t, "a lease", func() bool { return b.port("wan0").State == wan.Bound })
	p := b.port("wan0")
	if !b.has("wan0", "10.66.0.123/24") || p.Lease.Server.String() != "10.66.0.1" || p.Lease.Until.Sub(p.Lease.Since) != time.Hour || !p.DHCP {
		t.Errorf("port %+v", p)
	}
	if b.way("0.0.0.0/0") != "10.66.0.1 wan0 100" || b.set("addr_WAN4") != "10.66.0.123" || b.set("net_WAN4") != "10.66.0.0/24" {
		t.Errorf("route %q, sets %q %q", b.way("0.0.0.0/0"), b.set("addr_WAN4"), b.set("net_WAN4"))
	}
	if r := b.Resolvers(); len(r) != 1 || r[0].String() != "10.66.0.53" {
		t.Errorf("resolvers %v", r)
	}
	if !b.told(AddrNew, "10.66.0.123/24") || !b.told(LeaseHeld, "10.66.0.123/24") {
		t.Errorf("told %v", b.events)
	}
	b.stop()
	if !b.has("wan0", "10.66.0.123/24") {
		t.Error("the address went with the program")
	}
	again := newBox(t, b.stored)
	again.reload(c) // before Run, as at boot
	if !again.has("wan0", "10.66.0.123/24") || again.way("0.0.0.0/0") == "" || again.told(AddrGone, "") {
		t.Errorf("the restart took the address away: %+v", again.port("wan0"))
	}
	again.run()
	await(t, "the lease again", func() bool { return again.port("wan0").State == wan.Bound })
	if !again.has("wan0", "10.66.0.123/24") {
		t.Errorf("after the restart %+v", again.port("wan0"))
	}
}

func TestWANRenewsByUnicastThenRebindsThenGivesTheAddressUp(t *testing.T) {
	b, _, s := bound(t, 6*time.Second)
	await(t, "a renewal by unicast", func() bool { return s.saw(0, "REQUEST unicast from 10.77.0.50") })
	await(t, "its answer", func() bool { return b.port("wan0").State == wan.Bound })
	s.set(func() { s.silent = true })
	from := s.count()
	await(t, "rebinding by broadcast", func() bool { return s.saw(from, "REQUEST from 10.77.0.50") })
	if !b.has("wan0", mine) || b.way("0.0.0.0/0") != defaultRoute {
		t.Error("the address went before its lease was over")
	}
	await(t, "the end of the lease", func() bool { return b.told(LeaseLost, mine) })
	if b.has("wan0", mine) || b.way("0.0.0.0/0") != "" || b.set("addr_WAN4") != "" || len(b.Resolvers()) != 0 || !b.told(AddrGone, mine) {
		t.Errorf("after the end: %v, %q", b.port("wan0").Addrs, b.way("0.0.0.0/0"))
	}
	if _, ok, _ := b.Get("wan0"); ok {
		t.Error("the lease that is over is still remembered")
	}
	s.set(func() { s.silent = false })
	await(t, "the address again", func() bool { return b.has("wan0", mine) && b.way("0.0.0.0/0") == defaultRoute })
}

func TestWANRebindingIsAnswered(t *testing.T) {
	b, _, s := bound(t, 8*time.Second)
	s.set(func() { s.direct, s.lease = true, time.Hour })
	await(t, "an hour more", func() bool { return b.port("wan0").State == wan.Bound && b.port("wan0").Lease.Granted == time.Hour })
	if b.told(LeaseLost, "") || b.told(AddrGone, "") || !s.saw(0, "REQUEST from 10.77.0.50") {
		t.Errorf("told %v: the address must have stayed", b.events)
	}
}

func TestWANTakesANewAddressAfterANak(t *testing.T) {
	b, _, s := bound(t, time.Hour)
	s.set(func() { s.nak, s.addr = true, netip.MustParseAddr("10.77.0.99") })
	if !b.Renew("wan0") {
		t.Fatal("no client on wan0")
	}
	await(t, "the new address, also in its set", func() bool {
		return b.has("wan0", "10.77.0.99/24") && b.way("0.0.0.0/0") == defaultRoute && b.set("addr_WAN4") == "10.77.0.99" && b.told(AddrGone, mine)
	})
	if b.has("wan0", mine) {
		t.Errorf("addresses %v, set %q", b.port("wan0").Addrs, b.set("addr_WAN4"))
	}
}

func TestWANAsksAgainWhenTheCableComesBack(t *testing.T) {
	b, f, s := bound(t, time.Hour)
	f.ip("link set dev far0 down")
	await(t, "no link", func() bool { return b.port("wan0").State == wan.Down })
	if !b.has("wan0", mine) {
		t.Error("the address went with the cable")
	}
	from := s.count()
	f.ip("link set dev far0 up")
	await(t, "INIT-REBOOT", func() bool { return s.saw(from, "REQUEST for 10.77.0.50") && b.port("wan0").State == wan.Bound })
	if b.told(AddrGone, "") || s.saw(from, "DISCOVER") {
		t.Errorf("told %v; a flap must not cost the address", b.events)
	}
	f.ip("link set dev far0 down")
	await(t, "no link", func() bool { return b.port("wan0").State == wan.Down })
	s.set(func() { s.addr = netip.MustParseAddr("10.77.0.99") })
	f.ip("link set dev far0 up")
	await(t, "the other network's address", func() bool { return b.has("wan0", "10.77.0.99/24") && !b.has("wan0", mine) })
}

func TestWANFlapsLeaveNothingBehind(t *testing.T) {
	b, f, _ := bound(t, time.Hour)
	before := runtime.NumGoroutine()
	sockets := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	open := sockets()
	for range 100 {
		f.ip("link set dev far0 down")
		f.ip("link set dev far0 up")
	}
	await(t, "the lease again", func() bool { return b.port("wan0").State == wan.Bound })
	await(t, "no more goroutines or files than before", func() bool { return runtime.NumGoroutine() <= before && sockets() <= open })
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fills > 40 {
		t.Errorf("%d fills for a hundred flaps that changed no address", b.fills)
	}
}

func TestWANHostileOptionsCostNothingOfOurs(t *testing.T) {
	f := cable(t, "wan0")
	cable(t, "lan0")
	s := f.serve(time.Hour)
	hostile := map[uint8][]byte{26: {0, 100}, 15: []byte("<script>"),
		121: {24, 192, 168, 1, 10, 77, 0, 1, 0, 10, 77, 0, 1, 24, 44, 5, 5, 10, 77, 0, 1, 8, 127, 10, 77, 0, 1}}
	s.set(func() { s.more = hostile })
	b := newBox(t, nil).run()
	lan := static("LAN", "lan0", firewall.LAN, "192.168.1.1/24", "")
	b.reload(config(dynamicWAN("wan0"), lan))
	await(t, "a lease", func() bool { return b.way("0.0.0.0/0") == defaultRoute && b.port("wan0").State == wan.Bound })
	if b.way("44.5.5.0/24") != defaultRoute || b.way("127.0.0.0/8") != "" || !strings.Contains(b.way("192.168.1.0/24"), "lan0") {
		t.Errorf("routes %+v", b.Facts().Routes)
	}
	p := b.port("wan0")
	if p.MTU != 1500 || p.Lease.Domain != "" || !slices.ContainsFunc(p.Problems, func(s string) bool { return strings.Contains(s, "192.168.1.0/24") }) {
		t.Errorf("port %+v", p)
	}
	// The provider's network becomes one that is ours.
	lan.V4.Addr = netip.MustParsePrefix("10.77.0.9/24")
	if err := b.Reload(context.Background(), config(dynamicWAN("wan0"), lan)); err == nil || !strings.Contains(err.Error(), "overlaps") {
		t.Errorf("Reload says %v", err)
	}
	if !b.has("wan0", "10.77.0.50/32") || b.has("wan0", mine) || b.way("0.0.0.0/0") != defaultRoute || !strings.Contains(b.way("10.77.0.0/24"), "lan0") {
		t.Errorf("WAN has %v, routes %+v", b.port("wan0").Addrs, b.Facts().Routes)
	}
}

func TestWANDeclinesAnAddressThatSomebodyUses(t *testing.T) {
	f := cable(t, "wan0")
	f.ip("addr add 10.77.0.50/24 dev far0")
	s := f.serve(time.Hour)
	b := newBox(t, nil).run()
	b.reload(config(dynamicWAN("wan0")))
	await(t, "a DECLINE", func() bool { return s.saw(0, "DECLINE for 10.77.0.50") })
	if b.has("wan0", mine) {
		t.Error("the address of another host was set")
	}
	s.set(func() { s.addr = netip.MustParseAddr("10.77.0.60") })
	await(t, "another address", func() bool { return b.has("wan0", "10.77.0.60/24") && !b.has("wan0", mine) })
}

func TestWANOffLinkGatewayAndSmallMTU(t *testing.T) {
	f := cable(t, "wan0")
	s := f.serve(time.Hour)
	s.set(func() { s.more = map[uint8][]byte{1: {255, 255, 255, 255}, 26: {5, 0x78}} })
	b := newBox(t, nil).run()
	b.reload(config(dynamicWAN("wan0")))
	await(t, "a default route to a gateway outside /32", func() bool { return b.way("0.0.0.0/0") == defaultRoute && b.has("wan0", "10.77.0.50/32") })
	if p := b.port("wan0"); p.MTU != 1400 {
		t.Errorf("MTU %d, want the provider's 1400", p.MTU)
	}
}

func TestWANReleaseAndSwitchToStatic(t *testing.T) {
	b, _, s := bound(t, time.Hour)
	b.Release("wan0")
	await(t, "a release", func() bool { return s.saw(0, "RELEASE unicast from 10.77.0.50") && b.told(LeaseLost, mine) })
	if b.has("wan0", mine) {
		t.Error("the released address is still there")
	}
	b.Renew("wan0")
	await(t, "the lease again", func() bool { return b.has("wan0", mine) })
	b.reload(config(static("WAN", "wan0", firewall.WAN, "203.0.113.2/24", "203.0.113.1")))
	await(t, "no client", func() bool { return !b.Renew("wan0") })
	if b.has("wan0", mine) || b.way("0.0.0.0/0") != "203.0.113.1 wan0 100" || b.port("wan0").DHCP {
		t.Errorf("static: %+v, %q", b.port("wan0"), b.way("0.0.0.0/0"))
	}
	from := s.count()
	b.reload(config(dynamicWAN("wan0"))) // an undo
	await(t, "the old lease", func() bool { return b.has("wan0", mine) })
	if s.saw(from, "DISCOVER") {
		t.Error("an undo must ask for the remembered lease")
	}
}

func TestProbeSeesAnOfferWithoutTakingIt(t *testing.T) {
	f := cable(t, "wan0")
	leases := f.dnsmasq()
	ip(t, "link set dev wan0 up")
	o, err := Probe(context.Background(), "wan0")
	if err != nil || !o.Made() || o.Addr.Masked().String() != "10.66.0.0/24" || o.Server.String() != "10.66.0.1" || o.Router.String() != "10.66.0.1" {
		t.Errorf("heard %+v, %v", o, err)
	}
	if b, err := os.ReadFile(leases); err == nil && len(b) > 0 {
		t.Errorf("the server remembers %s", b)
	}
}

func TestChooseNeverOverlaps(t *testing.T) {
	list := []Candidate{
		{Device: "a", Link: true, Offer: Offer{Addr: netip.MustParsePrefix("192.168.0.9/22"), Server: netip.MustParseAddr("192.168.4.1")}},
		{Device: "b", Link: true}, {Device: "c", Link: true, Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.6.1/24")}},
		{Device: "d", Link: true, Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.7.1/24")}}, {Device: "e", InUse: true, Link: true},
	}
	Choose(list, []netip.Prefix{netip.MustParsePrefix("192.168.7.0/25")})
	var got []string
	for _, c := range list {
		text := "-"
		if len(c.Addrs) > 0 {
			text = c.Addrs[0].String()
		}
		if c.Serve {
			text += " serve"
		}
		got = append(got, text)
	}
	want := []string{"-", "192.168.5.1/24 serve", "192.168.6.1/24 serve", "192.168.8.1/24 serve", "-"}
	if !slices.Equal(got, want) {
		t.Errorf("chose %q, want %q", got, want)
	}
	many := make([]Candidate, 300)
	Choose(many, nil)
	if len(many[253].Addrs) != 1 || len(many[254].Addrs) != 0 {
		t.Error("there are 254 networks to give, and then none")
	}
}

func TestWANWorksBehindABlockingFirewall(t *testing.T) {
	// The packet socket hears before nftables; a renewal comes back as established.
	rules := `table inet x { chain in { type filter hook input priority 0; policy drop; ct state established accept; }; }`
	c := exec.Command("nft", "-f", "-")
	c.Stdin = strings.NewReader(rules)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v %s", err, out)
	}
	defer exec.Command("nft", "delete", "table", "inet", "x").Run()
	b, _, s := bound(t, 6*time.Second)
	await(t, "a renewal by unicast that was answered", func() bool {
		return s.saw(0, "REQUEST unicast from 10.77.0.50") && b.port("wan0").State == wan.Bound
	})
	if s.saw(0, "REQUEST from 10.77.0.50") || b.told(LeaseLost, "") {
		t.Error("the answer to the renewal was not heard")
	}
}
