package dhcp

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"gatehouse/firewall"
)

// raw is a client's packet with the options given as code, value.
func raw(t *testing.T, mac firewall.MAC, opts map[byte][]byte) []byte {
	t.Helper()
	hw, err := net.ParseMAC(string(mac))
	if err != nil {
		t.Fatal(err)
	}
	p, err := dhcpv4.New(dhcpv4.WithHwAddr(hw))
	if err != nil {
		t.Fatal(err)
	}
	for c, v := range opts {
		p.Options[c] = v
	}
	return p.ToBytes()
}

func parsed(t *testing.T, pkt []byte) Message {
	t.Helper()
	m, err := parse(pkt)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestReplyStaysWithinWhatTheClientTakes(t *testing.T) {
	s := testScope(3, time.Hour)
	s.Domain = strings.Repeat("long.", 45) + "example"
	for range 40 {
		s.DNS = append(s.DNS, ip(1))
	}
	for _, c := range []struct {
		name      string
		opts      map[byte][]byte
		mtu, most int
		cut       bool
	}{
		{"no option 57", nil, 1500, 548, true},
		{"option 57 below the minimum", map[byte][]byte{57: {0, 100}}, 1500, 548, true},
		{"option 57 of 1500", map[byte][]byte{57: {5, 220}}, 1500, 1472, false},
		{"the port takes less", map[byte][]byte{57: {5, 220}}, 600, 572, true},
		{"and a long client id", map[byte][]byte{57: {5, 220}, 61: bytes.Repeat([]byte{7}, 255)}, 1500, 1472, false},
	} {
		opts := map[byte][]byte{53: {1}, 55: {15, 1, 3, 28}}
		for k, v := range c.opts {
			opts[k] = v
		}
		m := parsed(t, raw(t, macA, opts))
		pkt, cut := reply(s, nil, m, Verdict{Answer: Offer, Addr: ip(100), Lease: time.Hour}, c.mtu)
		if len(pkt) > c.most || cut != c.cut {
			t.Errorf("%s: %d bytes (most %d), cut %v", c.name, len(pkt), c.most, cut)
		}
		got, err := dhcpv4.FromBytes(pkt)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		// What is asked for first goes in, what every client needs too.
		if got.DomainName() != s.Domain || got.SubnetMask() == nil || len(got.Router()) != 1 {
			t.Errorf("%s: %s", c.name, got.Summary())
		}
	}
}

func TestReplyCarriesWhatTheMessageTypeMay(t *testing.T) {
	s := testScope(3, time.Hour)
	m := parsed(t, raw(t, macS, map[byte][]byte{53: {3}, 55: {1, 3, 6, 12, 15, 28}, 61: {0, 1, 2, 3}}))
	m.CIAddr = ip(10)
	open := func(v Verdict) *dhcpv4.DHCPv4 {
		pkt, _ := reply(s, []netip.Addr{ip(53), netip.MustParseAddr("2001:db8::53")}, m, v, 1500)
		p, err := dhcpv4.FromBytes(pkt)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	codes := func(p *dhcpv4.DHCPv4) string {
		var out []string
		for c := range 256 {
			if p.Options.Has(dhcpv4.GenericOptionCode(c)) {
				out = append(out, dhcpv4.GenericOptionCode(c).String())
			}
		}
		return strings.Join(out, ",")
	}
	ack := open(Verdict{Answer: Ack, Addr: ip(10), Lease: time.Hour})
	if !ack.ClientIPAddr.Equal(net.IP{192, 168, 25, 10}) || !ack.YourIPAddr.Equal(net.IP{192, 168, 25, 10}) ||
		ack.IPAddressLeaseTime(0) != time.Hour || ack.IPAddressRenewalTime(0) != 30*time.Minute ||
		ack.IPAddressRebindingTime(0) != 3150*time.Second || ack.HostName() != "nas" || ack.DomainName() != "home.arpa" ||
		len(ack.DNS()) != 1 || !ack.DNS()[0].Equal(net.IP{192, 168, 25, 53}) || !bytes.Equal(ack.Options[61], []byte{0, 1, 2, 3}) {
		t.Errorf("ACK: %s", ack.Summary())
	}
	no := open(Verdict{Answer: Nak, Why: otherHas})
	if n := len(no.Options); n != 4 || no.Message() != otherHas || len(no.ServerIdentifier()) == 0 || no.Options[61] == nil ||
		!no.YourIPAddr.IsUnspecified() || !no.ClientIPAddr.IsUnspecified() {
		t.Errorf("NAK has %s: %s", codes(no), no.Summary())
	}
	inform := open(Verdict{Answer: Inform})
	if inform.Options[51] != nil || inform.Options[58] != nil || inform.Options[59] != nil || !inform.YourIPAddr.IsUnspecified() || len(inform.Router()) != 1 {
		t.Errorf("INFORM is answered by %s", inform.Summary())
	}
}

func TestReplyGoesWhereTheClientListens(t *testing.T) {
	hw := [6]byte{2, 0, 0, 0, 0, 10}
	all := [6]byte{255, 255, 255, 255, 255, 255}
	base := parsed(t, raw(t, macA, map[byte][]byte{53: {3}}))
	base.Src = netip.IPv4Unspecified()
	with := func(f func(*Message)) Message { m := base; f(&m); return m }
	for name, c := range map[string]struct {
		m    Message
		v    Answer
		want path
	}{
		"nak":              {with(func(m *Message) { m.CIAddr, m.Src, m.Unicast = ip(100), ip(100), true }), Nak, path{true, netip.MustParseAddr("255.255.255.255"), all}},
		"renewing":         {with(func(m *Message) { m.CIAddr, m.Src, m.Unicast = ip(100), ip(100), true }), Ack, path{to: ip(100)}},
		"rebinding":        {with(func(m *Message) { m.CIAddr, m.Src = ip(100), ip(100) }), Ack, path{true, ip(100), hw}},
		"forged source":    {with(func(m *Message) { m.CIAddr, m.Src, m.Unicast = ip(100), ip(66), true }), Ack, path{true, ip(100), hw}},
		"broadcast flag":   {with(func(m *Message) { m.Broadcast = true }), Offer, path{true, netip.MustParseAddr("255.255.255.255"), all}},
		"no address yet":   {base, Offer, path{true, ip(100), hw}},
		"inform by source": {with(func(m *Message) { m.Src = ip(77) }), Inform, path{true, ip(77), hw}},
	} {
		if got := pathOf(c.m, Verdict{Answer: c.v, Addr: ip(100)}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestParseForgivesOldClientsAndRefusesStrangers(t *testing.T) {
	ok := raw(t, macA, map[byte][]byte{53: {1}})
	edit := func(f func([]byte)) []byte { b := bytes.Clone(ok); f(b); return b }
	noEnd := ok[:243] // up to and with option 53, END cut off
	for name, c := range map[string]struct {
		pkt  []byte
		want string // part of the error; empty: taken
	}{
		"whole":              {ok, ""},
		"no END":             {noEnd, ""},
		"bad length of 50":   {raw(t, macA, map[byte][]byte{53: {1}, 50: {1, 2, 3}}), ""},
		"hlen 0":             {edit(func(b []byte) { b[2] = 0 }), "Ethernet"},
		"hlen 16":            {edit(func(b []byte) { b[2] = 16 }), "Ethernet"},
		"multicast MAC":      {edit(func(b []byte) { b[28] = 1 }), "Ethernet"},
		"zero MAC":           {edit(func(b []byte) { clear(b[28:34]) }), "Ethernet"},
		"a reply":            {edit(func(b []byte) { b[0] = 2 }), "not a request"},
		"hops":               {edit(func(b []byte) { b[3] = 17 }), "hops"},
		"relayed":            {edit(func(b []byte) { b[24] = 10 }), "relay"},
		"bad cookie":         {edit(func(b []byte) { b[236] = 0 }), "cookie"},
		"no type (BOOTP)":    {raw(t, macA, nil), "no message type"},
		"lease query":        {raw(t, macA, map[byte][]byte{53: {10}}), "no message type"},
		"two types":          {raw(t, macA, map[byte][]byte{53: {1, 3}}), "no message type"},
		"option cut in half": {append(bytes.Clone(noEnd), 12, 200, 'a'), "parse"},
		"short":              {ok[:200], "short"},
	} {
		_, err := parse(c.pkt)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestClientKeyNeverCollides(t *testing.T) {
	id := []byte{1, 2, 0, 0, 0, 0, 10}
	if a, b := clientKey(id, macA), clientKey(nil, macA); a != b {
		t.Errorf("the MAC as option 61 is %q, without it %q", a, b)
	}
	if a, b := clientKey(id, macB), clientKey(nil, macA); a == b {
		t.Errorf("another machine took the key %q", a)
	}
	if a, b := clientKey([]byte{}, macA), clientKey(nil, macB); a == b {
		t.Errorf("two machines have the key %q", a)
	}
}

func TestCleanHostMakesALabelOfAnything(t *testing.T) {
	for in, want := range map[string]string{
		"a\n# forged 02:00 192.168.1.1":      "a-forged-02-00-192",
		"<img src=x onerror=alert(1)>":       "img-src-x-onerror-alert-1",
		"$(touch /p)":                        "touch-p",
		"`id`":                               "id",
		"a b":                                "a-b",
		"..":                                 "",
		"\xff\xfe":                           "",
		"Johns_iPad.local.":                  "johns-ipad",
		"nul\x00":                            "nul",
		"":                                   "",
		strings.Repeat("a", 255):             strings.Repeat("a", 63),
		strings.Repeat("a", 62) + "-b":       strings.Repeat("a", 62),
		"\xd0\x9f\xd1\x80\xd0\xb8-phone":     "phone",
		"-lead-and-trail-":                   "lead-and-trail",
		"evil\u202egnp.exe":                  "evil-gnp",
		"'; DROP TABLE leases; --":           "drop-table-leases",
		"../../etc/passwd":                   "",
		"xn--80ak6aa92e":                     "xn-80ak6aa92e",
		"a.b.c":                              "a",
		"trailing-dot.":                      "trailing-dot",
		"01234567890123456789012345678901-x": "01234567890123456789012345678901-x",
	} {
		if got := CleanHost([]byte(in)); got != want {
			t.Errorf("CleanHost(%q) = %q, want %q", in, got, want)
		}
	}
	if got := string(fqdnName([]byte{4, 0, 0, 3, 'p', 'c', '1', 0})); got != "pc1" {
		t.Errorf("option 81 in wire form: %q", got)
	}
	if got := string(fqdnName([]byte{1, 0, 0, 'p', 'c', '2', '.', 'x'})); got != "pc2.x" {
		t.Errorf("option 81 as text: %q", got)
	}
	if got := fqdnName([]byte{4, 0, 0, 60, 'p'}); got != nil {
		t.Errorf("option 81 cut in half: %q", got)
	}
}

func TestDatagramChecksumsAreRight(t *testing.T) {
	for _, payload := range [][]byte{[]byte("even"), []byte("odd"), bytes.Repeat([]byte{255}, 301)} {
		p := datagram(ip(1), ip(100), payload)
		if got := sum(p[:20], 0); got != 0xffff {
			t.Errorf("IP header sums up to %#x", got)
		}
		pseudo := uint32(sum(p[12:20], 0)) + 17 + uint32(len(p)-20)
		if got := sum(p[20:], pseudo); got != 0xffff {
			t.Errorf("UDP of %d bytes sums up to %#x", len(payload), got)
		}
		if int(binary.BigEndian.Uint16(p[2:])) != len(p) || !bytes.Equal(p[28:], payload) {
			t.Errorf("wrong lengths in % x", p[:28])
		}
	}
}

func TestGateShutsOutOnlyTheFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Limits{PerMAC: 10, PerPort: 100})
		passed := 0
		for i := range 20000 { // invented MACs, two seconds long
			if g.pass(firewall.MAC(netip.AddrFrom4([4]byte{1, 2, byte(i >> 8), byte(i)}).String()), false, time.Now()) {
				passed++
			}
			if i%100 == 0 && !g.pass(macA, true, time.Now()) && i < 2000 {
				t.Fatalf("a known client was shut out at %d", i)
			}
			time.Sleep(100 * time.Microsecond)
		}
		if passed < 300 || passed > 401 {
			t.Errorf("%d messages of the flood passed, want 200 at once and 100 a second", passed)
		}
		one := 0
		for range 1000 {
			if g.pass(macB, true, time.Now()) {
				one++
			}
		}
		if one != 20 {
			t.Errorf("one client had %d messages pass at once, want 20", one)
		}
	})
}

func TestScopesServesWhatIsRight(t *testing.T) {
	iface := func(n firewall.Name, dev string, role firewall.Role, addr string) firewall.Interface {
		return firewall.Interface{Name: n, Device: dev, Role: role, On: true, V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix(addr)}}
	}
	scope := func(n firewall.Name, from, to string) firewall.Scope {
		return firewall.Scope{In: n, On: true, From: netip.MustParseAddr(from), To: netip.MustParseAddr(to), Lease: 7200}
	}
	c := firewall.Config{
		System: firewall.System{Domain: "home.arpa"},
		Interfaces: []firewall.Interface{
			iface("WAN", "wan0", firewall.WAN, "203.0.113.2/24"), iface("LAN", "lan0", firewall.LAN, "192.168.30.1/24"),
			iface("GUEST", "guest0", firewall.Other, "192.168.77.1/24"), iface("OFF", "off0", firewall.LAN, "10.0.0.1/24"),
		},
		Scopes: []firewall.Scope{
			scope("WAN", "203.0.113.10", "203.0.113.20"), scope("LAN", "192.168.25.75", "192.168.25.85"), // C22: net moved, pool not
			scope("GUEST", "192.168.77.100", "192.168.77.199"), scope("OFF", "10.0.0.10", "10.0.0.20"), scope("NOWHERE", "10.0.0.10", "10.0.0.20"),
		},
	}
	c.Scopes[2].Statics = []firewall.StaticLease{ // C21 (a): imported
		{ID: "1", MAC: macA, Addr: netip.MustParseAddr("192.168.77.50")}, {ID: "2", MAC: macB, Addr: netip.MustParseAddr("192.168.77.50")},
	}
	c.Interfaces[3].On = false
	got, err := Scopes(c)
	if len(got) != 1 || got[0].In != "GUEST" || got[0].Gateway.String() != "192.168.77.1" || got[0].Domain != "home.arpa" || len(got[0].Statics) != 1 {
		t.Errorf("scopes %+v", got)
	}
	for _, want := range []string{"scope WAN: a WAN", "scope LAN: the pool", "scope OFF: the interface is off", "scope NOWHERE: there is no"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
