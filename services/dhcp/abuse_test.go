package dhcp

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"gatehouse/firewall"
)

func TestServerKeepsHostileNamesApart(t *testing.T) {
	t.Parallel()
	l := newLab(t) // C25
	names := []struct{ raw, clean string }{
		{"<img src=x onerror=alert(1)>", "img-src-x-onerror-alert-1"},
		{strings.Repeat("a", 255), strings.Repeat("a", 63)},
		{"a\n# forged 02:00 192.168.1.1", "a-forged-02-00-192"},
		{"$(touch /tmp/p)`id`", "touch-tmp-p-id"},
		{"\xff\xfe", ""},
		{"..", ""},
	}
	s := l.serve(0, l.config(3600))
	for i, n := range names {
		mac := firewall.MAC(fmt.Sprintf("02:00:00:00:03:%02x", i))
		space := fmt.Sprintf("c%d", i)
		l.join(space, mac)
		got := l.udhcpc(space, "-x", "0x0c:"+hex.EncodeToString([]byte(n.raw))).await("bound")
		if row := s.lease(got.addr); row.Host != n.clean || string(row.RawHost) != n.raw || row.MAC != mac {
			t.Errorf("%q is kept as %q and %q", n.raw, row.Host, row.RawHost)
		}
	}
	if n := len(s.do(command{}).Leases); n != len(names) {
		t.Errorf("%d rows, want %d", n, len(names))
	}
	l.join("isc", macA)
	got := l.dhclient("isc", `send host-name "<script>alert(1)</script>";`).await("BOUND")
	if row := s.lease(got.addr); row.Host != "script-alert-1-script" {
		t.Errorf("dhclient's name became %q", row.Host)
	}
}

func TestServerLosesNoLeaseWhenKilled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := l.serve(0, l.config(3600))
	holds := map[netip.Addr]firewall.MAC{}
	var clients []*client
	for i := range 4 {
		mac := firewall.MAC(fmt.Sprintf("02:00:00:00:04:%02x", i))
		space := fmt.Sprintf("c%d", i)
		l.join(space, mac)
		c := l.udhcpc(space)
		got := c.await("bound")
		clients = append(clients, c)
		holds[got.addr] = mac
		s.kill() // at once after the client knows
		s = l.serve(0, l.config(3600))
		for a, m := range holds {
			if row := s.lease(a); row.State != Active || row.MAC != m {
				t.Fatalf("after kill %d: %s is %+v, want active by %s", i, a, row, m)
			}
		}
	}
	if len(holds) != 4 {
		t.Errorf("4 clients hold %d addresses", len(holds))
	}
	clients[0].signal(syscall.SIGUSR1)
	clients[0].await("renew", "bound")
}

func TestServerSendsNoAckThatIsNotStored(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("c1", macA)
	s := l.serve(0, l.config(3600))
	full, free := true, false
	s.do(command{Fail: &full})
	c := l.udhcpc("c1")
	l.await("a lease that is not stored", func() bool { return s.do(command{}).Stats.Unstored > 1 })
	if out := l.in("c1", "ip -4 addr show dev eth0"); strings.Contains(out, "inet") {
		t.Errorf("the client got an address without a stored lease:\n%s", out)
	}
	if e := s.do(command{}).Events; !slices.ContainsFunc(e, func(e Event) bool { return e.Kind == NotStored }) {
		t.Errorf("nobody was told: %v", e)
	}
	s.do(command{Fail: &free})
	c.await("bound")
}

func TestServerIsSilentWhereItMustBe(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.wire("inet", "wan0", "203.0.113.1/24", macB)
	l.join("c1", macA)
	cfg := addScope(l.config(3600), "WAN", "wan0", firewall.WAN, "203.0.113.1/24", "203.0.113.10", "203.0.113.20")
	s := l.serve(0, cfg)
	if r := s.do(command{Config: &cfg}); !strings.Contains(r.Err, "WAN") || slices.Contains(r.Devices, "wan0") {
		t.Errorf("a scope on the WAN: error %q, serving %v", r.Err, r.Devices)
	}
	asks := func(mac firewall.MAC) []byte {
		pkt := raw(t, mac, map[byte][]byte{53: {1}})
		pkt[10] |= 0x80 // answers to everybody: this client has no packet socket
		return pkt
	}
	// Each silent thing is sent before one that is answered: an answer to it
	// would come first.
	sendW, gotW := l.rawClient("inet")
	sendW(asks(macB))
	sendW(asks(macS))

	send, got := l.rawClient("c1")
	relayed := asks(macA)
	copy(relayed[24:], []byte{10, 20, 0, 1})
	sheet := map[string][]byte{"a relay nobody knows": relayed, "nothing": {}, "rubbish": make([]byte, 400)}
	onLink := asks(macA)
	copy(onLink[24:], []byte{192, 168, 25, 77})
	sheet["a relay on the LAN nobody allowed"] = onLink
	for _, pkt := range sheet {
		send(pkt)
	}
	last := asks(macA)
	send(last)
	select {
	case pkt := <-got:
		p, err := dhcpv4.FromBytes(pkt)
		if err != nil || p.MessageType() != dhcpv4.MessageTypeOffer || string(p.TransactionID[:]) != string(last[4:8]) {
			t.Errorf("first answer: %v, %v; want the offer for the last message", p, err)
		}
	case <-time.After(patience):
		t.Fatal("no answer to the last message")
	}
	if r := s.do(command{}); r.Stats.Relayed != 2 || r.Stats.Malformed != 2 {
		t.Errorf("counted %+v, want 2 relayed and 2 malformed", r.Stats)
	}
	if len(gotW) != 0 {
		t.Error("somebody answered on the WAN")
	}
}

func TestServerServesTheOthersWhenOnePortIsMissing(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("c1", macA)
	cfg := addScope(l.config(3600), "GUEST", "guest0", firewall.Other, "192.168.77.1/24", "192.168.77.100", "192.168.77.199")
	s := l.serve(0, cfg)
	r := s.do(command{Config: &cfg})
	if !strings.Contains(r.Err, "guest0") || !slices.Equal(r.Devices, []string{"lan0"}) || r.Failed["guest0"] == "" {
		t.Errorf("error %q, serving %v, failed %v", r.Err, r.Devices, r.Failed)
	}
	l.udhcpc("c1").await("bound")

	l.wire("g1", "guest0", "192.168.77.1/24", macB)
	serving := func(want ...string) func() bool {
		return func() bool { return slices.Equal(s.do(command{}).Devices, want) }
	}
	l.await("the guest port to be served", serving("guest0", "lan0"))
	c := l.udhcpc("g1")
	got := c.await("bound")
	if !netip.MustParsePrefix("192.168.77.0/24").Contains(got.addr) {
		t.Errorf("the guest got %s", got.addr)
	}

	// The port goes away and comes back as another one of the same name.
	c.kill()
	l.in("box", "ip link del guest0")
	l.await("the guest port to be gone", serving("lan0"))
	l.plug("g1", "guest0", "192.168.77.1/24", macB)
	l.await("the guest port to be served again", serving("guest0", "lan0"))
	if again := l.udhcpc("g1").await("bound"); again.addr != got.addr {
		t.Errorf("the guest got %s, want its %s", again.addr, got.addr)
	}

	// Down and up again needs nothing.
	l.in("box", "ip link set guest0 down && ip link set guest0 up")
	l.join("c2", macC)
	l.udhcpc("c2").await("bound")
}

func TestServerNamesATakenPort(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	cfg := l.config(3600)
	first := l.serve(0, cfg)
	second := newSecond(l, cfg)
	if !strings.Contains(second.Err, "address already in use") || !strings.Contains(second.Err, "lan0") {
		t.Errorf("the second server says %q", second.Err)
	}
	if r := first.do(command{}); !slices.Equal(r.Devices, []string{"lan0"}) {
		t.Errorf("the first one serves %v", r.Devices)
	}
}

func TestServerFitsBusyboxWithManyOptions(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("c1", macA)
	cfg := l.config(3600)
	for range 60 {
		cfg.Scopes[0].DNS = append(cfg.Scopes[0].DNS, netip.MustParseAddr("198.51.100.53"))
	}
	cfg.Scopes[0].Domain = strings.Repeat("long.", 49) + "example"
	l.serve(0, cfg)
	got := l.udhcpc("c1").await("bound")
	if !inPool(got.addr) || got.router != "192.168.25.1" {
		t.Errorf("bound to %+v", got)
	}
}

func TestServerKeepsKnownClientsThroughAFlood(t *testing.T) {
	t.Parallel()
	l := newLab(t) // F20, T10: a pool of 3
	l.join("c1", macA)
	l.join("evil", macC)
	cfg := l.config(60)
	cfg.Scopes[0].To = ip(102)
	s := l.serve(0, cfg)
	c := l.udhcpc("c1")
	got := c.await("bound")
	send, _ := l.rawClient("evil")
	for i := range 3000 {
		send(raw(t, firewall.MAC(fmt.Sprintf("02:66:00:00:%02x:%02x", i>>8, i&255)), map[byte][]byte{53: {1}}))
		if i%1000 == 999 {
			c.signal(syscall.SIGUSR1)
			if r := c.await("renew", "bound"); r.addr != got.addr {
				t.Fatalf("renewed %s, want %s", r.addr, got.addr)
			}
		}
	}
	r := s.do(command{})
	exhausted := 0
	for _, e := range r.Events {
		if e.Kind == Exhausted {
			exhausted++
		}
	}
	if exhausted != 1 {
		t.Errorf("told %d times that the pool is exhausted, want once a minute", exhausted)
	}
	if r.Stats.Panics != 0 {
		t.Errorf("counted %+v", r.Stats)
	}
}
