package dhcp

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"gatehouse/firewall"
)

const (
	macA = firewall.MAC("02:00:00:00:00:0a")
	macB = firewall.MAC("02:00:00:00:00:0b")
	macC = firewall.MAC("02:00:00:00:00:0c")
	macS = firewall.MAC("02:00:00:00:00:01") // has a static lease, .10
)

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// ip is an address of the test network, by its last byte.
func ip(n byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 25, n}) }

// testScope is 192.168.25.0/24 with a pool of n addresses from .100 on.
func testScope(n byte, lease time.Duration) Scope {
	return Scope{
		In: "LAN", Device: "lan0", Server: ip(1), Net: netip.PrefixFrom(ip(0), 24), From: ip(100), To: ip(99 + n),
		Lease: lease, Gateway: ip(1), Domain: "home.arpa",
		Statics: map[firewall.MAC]firewall.StaticLease{macS: {ID: "S", MAC: macS, Addr: ip(10), Host: "nas"}},
	}
}

func discover(mac firewall.MAC) Message {
	return Message{Type: dhcpv4.MessageTypeDiscover, MAC: mac, Client: clientKey(nil, mac), Src: netip.IPv4Unspecified()}
}

func selecting(mac firewall.MAC, a netip.Addr) Message {
	m := discover(mac)
	m.Type, m.Requested, m.Server = dhcpv4.MessageTypeRequest, a, ip(1)
	return m
}

func reboot(mac firewall.MAC, a netip.Addr) Message {
	m := discover(mac)
	m.Type, m.Requested = dhcpv4.MessageTypeRequest, a
	return m
}

func renewing(mac firewall.MAC, a netip.Addr) Message {
	m := discover(mac)
	m.Type, m.CIAddr, m.Src, m.Unicast = dhcpv4.MessageTypeRequest, a, a, true
	return m
}

func rebinding(mac firewall.MAC, a netip.Addr) Message {
	m := renewing(mac, a)
	m.Unicast = false
	return m
}

func declining(mac firewall.MAC, a netip.Addr) Message {
	m := selecting(mac, a)
	m.Type = dhcpv4.MessageTypeDecline
	return m
}

func releasing(mac firewall.MAC, a netip.Addr) Message {
	m := renewing(mac, a)
	m.Type, m.Server = dhcpv4.MessageTypeRelease, ip(1)
	return m
}

func informing(mac firewall.MAC, a netip.Addr) Message {
	m := rebinding(mac, a)
	m.Type = dhcpv4.MessageTypeInform
	return m
}

// bound gives the client an address as two messages do, and stores it.
func bound(t *testing.T, p *Pool, mac firewall.MAC, now time.Time) netip.Addr {
	t.Helper()
	o := p.Decide(discover(mac), now)
	if o.Answer != Offer {
		t.Fatalf("no offer for %s: %s", mac, o.Why)
	}
	v := p.Decide(selecting(mac, o.Addr), now)
	if v.Answer != Ack || v.Addr != o.Addr {
		t.Fatalf("offered %s to %s, then %s %s: %s", o.Addr, mac, v.Answer, v.Addr, v.Why)
	}
	for _, l := range v.Write {
		p.Stored(l)
	}
	return v.Addr
}

// TestDecideFollowsTheTable has a row for every row of the decision table: what
// happened before (a lease of an hour, pool .100-.102), the message, the answer.
func TestDecideFollowsTheTable(t *testing.T) {
	nothing := func(*testing.T, *Pool) {}
	aHas100 := func(t *testing.T, p *Pool) { bound(t, p, macA, start) }
	aOffered := func(_ *testing.T, p *Pool) { p.Decide(discover(macA), start) }
	sick100 := func(t *testing.T, p *Pool) {
		aHas100(t, p)
		p.Decide(declining(macA, ip(100)), start)
	}
	full := func(t *testing.T, p *Pool) {
		for _, m := range []firewall.MAC{macA, macB, macC} {
			bound(t, p, m, start)
		}
	}
	taken10 := func(_ *testing.T, p *Pool) {
		p.put(Lease{Addr: ip(10), Client: "hw:" + string(macB), MAC: macB, State: Active, Last: start, Until: start.Add(time.Hour)})
	}
	had := func(mac firewall.MAC, n byte) func(*testing.T, *Pool) {
		return func(_ *testing.T, p *Pool) {
			p.put(Lease{Addr: ip(n), Client: clientKey(nil, mac), MAC: mac, State: Active, Last: start, Until: start.Add(time.Hour)})
		}
	}
	at := func(m Message, f func(*Message)) Message { f(&m); return m }
	foreign := func(m *Message) { m.Server = ip(250) }

	for _, c := range []struct {
		name   string
		before func(*testing.T, *Pool)
		m      Message
		after  time.Duration // since before
		answer Answer
		addr   netip.Addr
		stored string // "address state" of each row to store, in order
		why    string
	}{
		{"discover, pool exhausted", full, discover("02:00:00:00:00:0d"), 0, Silent, netip.Addr{}, "", "exhausted"},
		{"discover, static lease outside the pool", nothing, discover(macS), 0, Offer, ip(10), "", "static"},
		{"discover, static address held by another", taken10, discover(macS), 0, Silent, ip(10), "", otherHas},
		{"discover, own active binding", aHas100, discover(macA), 0, Offer, ip(100), "", "own"},
		{"discover, own expired binding", aHas100, discover(macA), 2 * time.Hour, Offer, ip(100), "", "own"},
		{"discover, wished address free", nothing, at(discover(macA), func(m *Message) { m.Requested = ip(102) }), 0, Offer, ip(102), "", "asked"},
		{"discover, wished address outside the pool", nothing, at(discover(macA), func(m *Message) { m.Requested = ip(50) }), 0, Offer, ip(100), "", "next"},
		{"discover, wished address taken", aHas100, at(discover(macB), func(m *Message) { m.Requested = ip(100) }), 0, Offer, ip(101), "", "next"},
		{"discover, wished address reserved", nothing, at(discover(macA), func(m *Message) { m.Requested = ip(10) }), 0, Offer, ip(100), "", "next"},
		{"discover, wished address is the box", nothing, at(discover(macA), func(m *Message) { m.Requested = ip(1) }), 0, Offer, ip(100), "", "next"},
		{"discover, next never used", aHas100, discover(macB), 2 * time.Hour, Offer, ip(101), "", "next"},
		{"discover, offered to another", aOffered, discover(macB), 0, Offer, ip(101), "", "next"},
		{"discover, same offer again", aOffered, discover(macA), time.Second, Offer, ip(100), "", "before"},

		{"selecting, another server", aOffered, at(selecting(macA, ip(100)), foreign), 0, Silent, netip.Addr{}, "", "another server"},
		{"selecting, the offer", aOffered, selecting(macA, ip(100)), 0, Ack, ip(100), "192.168.25.100 active", "takes"},
		{"selecting, the offer lapsed but free", aOffered, selecting(macA, ip(100)), time.Minute, Ack, ip(100), "192.168.25.100 active", "takes"},
		{"selecting, taken meanwhile", aHas100, selecting(macB, ip(100)), 0, Nak, netip.Addr{}, "", otherHas},
		{"selecting, offered to another", aOffered, selecting(macB, ip(100)), 0, Nak, netip.Addr{}, "", promised},
		{"selecting, outside the pool", nothing, selecting(macA, ip(50)), 0, Nak, netip.Addr{}, "", notPool},
		{"selecting, no address", nothing, at(selecting(macA, ip(100)), func(m *Message) { m.Requested = netip.Addr{} }), 0, Silent, netip.Addr{}, "", "no address"},

		{"reboot, wrong network", nothing, reboot(macA, netip.MustParseAddr("10.9.9.9")), 0, Nak, netip.Addr{}, "", notHere},
		{"reboot, own binding", aHas100, reboot(macA, ip(100)), time.Hour / 2, Ack, ip(100), "192.168.25.100 active", "extended"},
		{"reboot, own young binding needs no write", aHas100, reboot(macA, ip(100)), time.Minute, Ack, ip(100), "", "young"},
		{"reboot, binding differs", aHas100, reboot(macA, ip(101)), 0, Nak, netip.Addr{}, "", "another address"},
		{"reboot, static says another", had(macS, 100), reboot(macS, ip(100)), 0, Nak, netip.Addr{}, "", moved},
		{"reboot, held by another", aHas100, reboot(macB, ip(100)), 0, Nak, netip.Addr{}, "", otherHas},
		{"reboot, no record and free", nothing, reboot(macA, ip(101)), 0, Ack, ip(101), "192.168.25.101 active", "adopted"},
		{"reboot, no record and not allowed", nothing, reboot(macA, ip(50)), 0, Nak, netip.Addr{}, "", notPool},
		{"reboot, in quarantine", sick100, reboot(macB, ip(100)), 0, Nak, netip.Addr{}, "", sick},
		{"reboot, quarantine over", sick100, reboot(macB, ip(100)), 2 * time.Hour, Ack, ip(100), "192.168.25.100 active", "adopted"},

		{"renewing, own binding", aHas100, renewing(macA, ip(100)), time.Hour / 2, Ack, ip(100), "192.168.25.100 active", "extended"},
		{"renewing, own expired binding", aHas100, renewing(macA, ip(100)), 2 * time.Hour, Ack, ip(100), "192.168.25.100 active", "extended"},
		{"renewing, no record and free", nothing, renewing(macA, ip(102)), 0, Ack, ip(102), "192.168.25.102 active", "adopted"},
		{"renewing, static lease", nothing, renewing(macS, ip(10)), 0, Ack, ip(10), "192.168.25.10 active", "adopted"},
		{"renewing, static says another now", had(macS, 101), renewing(macS, ip(101)), 0, Nak, netip.Addr{}, "", moved},
		{"renewing, pool moved", had(macA, 75), renewing(macA, ip(75)), 0, Nak, netip.Addr{}, "", notPool},
		{"renewing, other owner", aHas100, renewing(macB, ip(100)), 0, Nak, netip.Addr{}, "", otherHas},
		{"renewing, network changed", nothing, renewing(macA, netip.MustParseAddr("192.168.30.7")), 0, Nak, netip.Addr{}, "", notHere},
		{"renewing, names the server too", aHas100, at(renewing(macA, ip(100)), func(m *Message) { m.Server = ip(1) }), time.Hour / 2, Ack, ip(100), "192.168.25.100 active", "extended"},

		{"rebinding, own binding", aHas100, rebinding(macA, ip(100)), 50 * time.Minute, Ack, ip(100), "192.168.25.100 active", "extended"},
		{"rebinding, unknown and free", nothing, rebinding(macA, ip(100)), 0, Ack, ip(100), "192.168.25.100 active", "adopted"},
		{"rebinding, other owner", aHas100, rebinding(macB, ip(100)), 0, Nak, netip.Addr{}, "", otherHas},

		{"decline, bound", aHas100, declining(macA, ip(100)), 0, Silent, ip(100), "192.168.25.100 declined", "declined"},
		{"decline, offered", aOffered, declining(macA, ip(100)), 0, Silent, ip(100), "192.168.25.100 declined", "declined"},
		{"decline, of another's", aHas100, declining(macB, ip(100)), 0, Silent, netip.Addr{}, "", "does not have"},
		{"decline, another server", aHas100, at(declining(macA, ip(100)), foreign), 0, Silent, netip.Addr{}, "", "another server"},

		{"release", aHas100, releasing(macA, ip(100)), 0, Silent, ip(100), "192.168.25.100 released", "released"},
		{"release, of another's", aHas100, releasing(macB, ip(100)), 0, Silent, netip.Addr{}, "", "does not have"},
		{"release, another server", aHas100, at(releasing(macA, ip(100)), foreign), 0, Silent, netip.Addr{}, "", "another server"},
		{"release, from elsewhere", aHas100, at(releasing(macA, ip(100)), func(m *Message) { m.Src = ip(77) }), 0, Silent, netip.Addr{}, "", "another address"},

		{"inform", nothing, informing(macA, ip(200)), 0, Inform, netip.Addr{}, "", "options"},
		{"inform, source only", nothing, at(informing(macA, ip(200)), func(m *Message) { m.CIAddr = netip.Addr{} }), 0, Inform, netip.Addr{}, "", "options"},
		{"inform, other network", nothing, informing(macA, netip.MustParseAddr("10.0.0.9")), 0, Silent, netip.Addr{}, "", notHere},

		{"a server's message", nothing, at(discover(macA), func(m *Message) { m.Type = dhcpv4.MessageTypeOffer }), 0, Silent, netip.Addr{}, "", "not a message"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := NewPool(testScope(3, time.Hour), nil)
			c.before(t, p)
			v := p.Decide(c.m, start.Add(c.after))
			var rows []string
			for _, l := range v.Write {
				rows = append(rows, l.Addr.String()+" "+string(l.State))
			}
			if v.Answer != c.answer || v.Addr != c.addr || strings.Join(rows, ", ") != c.stored || !strings.Contains(v.Why, c.why) {
				t.Errorf("got %s %s, rows %q, because %q\nwant %s %s, rows %q, because %q",
					v.Answer, v.Addr, rows, v.Why, c.answer, c.addr, c.stored, c.why)
			}
		})
	}
}

func TestDecideLeavesAnotherServersClientAlone(t *testing.T) {
	p := NewPool(testScope(1, time.Hour), nil)
	p.Decide(discover(macA), start)
	m := selecting(macA, ip(100))
	m.Server = ip(250)
	p.Decide(m, start)
	if v := p.Decide(discover(macB), start); v.Answer != Offer || v.Addr != ip(100) {
		t.Errorf("after A chose another server, B got %s %s (%s), want an offer of .100", v.Answer, v.Addr, v.Why)
	}
}

func TestDecideMovesAClientToItsStaticLease(t *testing.T) {
	// The client has a dynamic lease when somebody makes it static elsewhere.
	s := testScope(3, time.Hour)
	before := NewPool(s, nil)
	a := bound(t, before, macA, start)
	s.Statics = map[firewall.MAC]firewall.StaticLease{macA: {MAC: macA, Addr: ip(20), Host: "printer"}}
	p := NewPool(s, before.Rows())
	for _, l := range p.list(start) {
		if l.Addr == a && l.Moves != ip(20) {
			t.Errorf("the list says that %s moves to %s, want .20", a, l.Moves)
		}
	}
	for _, l := range p.list(start) {
		if l.Addr == ip(20) && (l.State != Static || !l.Pinned || l.Host != "printer") {
			t.Errorf("the static lease is listed as %+v", l)
		}
	}
	if v := p.Decide(renewing(macA, a), start.Add(time.Minute)); v.Answer != Nak {
		t.Fatalf("renewal of %s answered by %s", a, v.Answer)
	}
	if got := bound(t, p, macA, start.Add(time.Minute)); got != ip(20) {
		t.Errorf("got %s, want .20", got)
	}
	if got := bound(t, p, macB, start.Add(time.Minute)); got == ip(20) {
		t.Error("the static address went to another client")
	}
	if st := p.rows[a].At(start.Add(time.Minute)); st != Released {
		t.Errorf("the old address is %s, want released", st)
	}
}

func TestDecideKeepsAStaticLeaseOutsideThePoolOverTenRenewals(t *testing.T) {
	p := NewPool(testScope(100, time.Minute), nil) // C20
	now := start
	if a := bound(t, p, macS, now); a != ip(10) {
		t.Fatalf("got %s, want .10", a)
	}
	for range 10 {
		now = now.Add(30 * time.Second)
		v := p.Decide(renewing(macS, ip(10)), now)
		if v.Answer != Ack || v.Addr != ip(10) || v.Lease != time.Minute {
			t.Fatalf("renewal: %s %s for %s (%s)", v.Answer, v.Addr, v.Lease, v.Why)
		}
	}
}

func TestDecideMovesThePoolWithOneNakEach(t *testing.T) {
	s := testScope(11, time.Hour)
	s.From, s.To = ip(75), ip(85)
	old := NewPool(s, nil) // C22
	a := bound(t, old, macA, start)
	s.From, s.To = ip(100), ip(125)
	p := NewPool(s, old.Rows())
	for name, m := range map[string]Message{"renewing": renewing(macA, a), "reboot": reboot(macA, a)} {
		if v := p.Decide(m, start.Add(time.Second)); v.Answer != Nak {
			t.Errorf("%s: %s, want nak", name, v.Answer)
		}
	}
	m := discover(macA)
	m.Requested = a
	if v := p.Decide(m, start.Add(time.Second)); v.Answer != Offer || v.Addr.Less(ip(100)) {
		t.Errorf("after the NAK: %s %s", v.Answer, v.Addr)
	}
}

func TestDecideClampsTheWishedLease(t *testing.T) {
	for wish, want := range map[time.Duration]time.Duration{
		0: time.Hour, time.Second: time.Minute, 10 * time.Minute: 10 * time.Minute, 1e6 * time.Hour: time.Hour,
	} {
		m := discover(macA)
		m.Wish = wish
		if v := NewPool(testScope(3, time.Hour), nil).Decide(m, start); v.Lease != want {
			t.Errorf("asked for %s, offered %s, want %s", wish, v.Lease, want)
		}
	}
}

func TestDecideStopsADeclineStorm(t *testing.T) {
	p := NewPool(testScope(40, time.Hour), nil) // a tenth is 4
	now := start
	for range 30 {
		now = now.Add(time.Minute)
		o := p.Decide(discover(macA), now)
		if o.Answer != Offer {
			break
		}
		p.Decide(selecting(macA, o.Addr), now)
		p.Decide(declining(macA, o.Addr), now)
	}
	sickRows := 0
	for _, l := range p.Rows() {
		if l.At(now) == Declined {
			sickRows++
		}
	}
	if sickRows != 4 {
		t.Errorf("%d addresses in quarantine, want 4, a tenth of the pool", sickRows)
	}
	if v := p.Decide(discover(macA), now); v.Answer != Silent {
		t.Errorf("the storming client got %s", v.Answer)
	}
	if v := p.Decide(discover(macB), now); v.Answer != Offer {
		t.Errorf("another client got %s (%s)", v.Answer, v.Why)
	}
	if v := p.Decide(discover(macA), now.Add(declineSpan)); v.Answer != Offer {
		t.Errorf("an hour later the client got %s (%s)", v.Answer, v.Why)
	}
}
