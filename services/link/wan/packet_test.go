package wan

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

var mac = net.HardwareAddr{2, 0, 0, 0, 0, 1}

// answer is a server's packet with the options given as bytes.
func answer(t testing.TB, kind byte, options map[uint8][]byte) []byte {
	t.Helper()
	p, err := dhcpv4.New(dhcpv4.WithHwAddr(mac), dhcpv4.WithYourIP(net.IP{10, 0, 0, 77}))
	if err != nil {
		t.Fatal(err)
	}
	p.OpCode = dhcpv4.OpcodeBootReply
	p.Options[53] = []byte{kind}
	p.Options[54] = []byte{10, 0, 0, 1}
	p.Options[51] = []byte{0, 0, 14, 16}
	for code, v := range options {
		p.Options[code] = v
	}
	return p.ToBytes()
}

func TestParseReadsWhatAPortNeeds(t *testing.T) {
	r, err := Parse(answer(t, 5, map[uint8][]byte{
		1: {255, 255, 255, 0}, 3: {10, 0, 0, 1}, 6: {9, 9, 9, 9, 0, 0, 0, 0, 1, 1, 1, 1}, 15: []byte("isp.example"),
		26: {5, 200}, 58: {0, 0, 0, 100}, 59: {0, 0, 0, 200},
		121: {0, 10, 0, 0, 1, 24, 172, 16, 9, 0, 0, 0, 0, 32, 8, 8, 8, 8, 10, 0, 0, 9},
	}))
	if err != nil {
		t.Fatal(err)
	}
	l := r.Lease
	if r.Kind != Ack || r.MAC != string(mac) || l.Granted != time.Hour || r.T1 != 100*time.Second || r.T2 != 200*time.Second {
		t.Errorf("read %+v", r)
	}
	if l.Addr != mine || l.Server != server || l.Router != server || l.Domain != "isp.example" || l.MTU != 1480 {
		t.Errorf("read %+v", l)
	}
	if want := []netip.Addr{netip.MustParseAddr("9.9.9.9"), netip.MustParseAddr("1.1.1.1")}; !slices.Equal(l.DNS, want) {
		t.Errorf("resolvers %v", l.DNS)
	}
	want := []Route{{netip.MustParsePrefix("0.0.0.0/0"), server}, {netip.MustParsePrefix("172.16.9.0/24"), netip.Addr{}},
		{netip.MustParsePrefix("8.8.8.8/32"), netip.MustParseAddr("10.0.0.9")}}
	if !slices.Equal(l.Ways(), want) {
		t.Errorf("routes %v, want those of option 121", l.Ways())
	}
}

func TestParseLeavesOutWhatNobodyCanMean(t *testing.T) {
	for name, c := range map[string]struct {
		options map[uint8][]byte
		good    func(Lease) bool
	}{
		"mask with a hole":          {map[uint8][]byte{1: {255, 0, 255, 0}}, func(l Lease) bool { return l.Addr.Bits() == 8 }},
		"mask of all":               {map[uint8][]byte{1: {0, 0, 0, 0}}, func(l Lease) bool { return l.Addr.Bits() == 8 }},
		"mask /32":                  {map[uint8][]byte{1: {255, 255, 255, 255}}, func(l Lease) bool { return l.Addr.Bits() == 32 }},
		"tiny MTU":                  {map[uint8][]byte{26: {0, 68}}, func(l Lease) bool { return l.MTU == 0 }},
		"MTU of three bytes":        {map[uint8][]byte{26: {0, 5, 220}}, func(l Lease) bool { return l.MTU == 0 }},
		"router is ourselves":       {map[uint8][]byte{3: {10, 0, 0, 77}}, func(l Lease) bool { return !l.Router.IsValid() }},
		"router is multicast":       {map[uint8][]byte{3: {224, 0, 0, 1}}, func(l Lease) bool { return !l.Router.IsValid() }},
		"router of one byte":        {map[uint8][]byte{3: {10}}, func(l Lease) bool { return !l.Router.IsValid() }},
		"domain with markup":        {map[uint8][]byte{15: []byte("<b>isp</b>")}, func(l Lease) bool { return l.Domain == "" }},
		"domain with a newline":     {map[uint8][]byte{15: []byte("isp\nnameserver 6.6.6.6")}, func(l Lease) bool { return l.Domain == "" }},
		"loopback resolver":         {map[uint8][]byte{6: {127, 0, 0, 1}}, func(l Lease) bool { return len(l.DNS) == 0 }},
		"route of 33 bits":          {map[uint8][]byte{121: {33, 1, 2, 3, 4, 5, 10, 0, 0, 1}}, func(l Lease) bool { return len(l.Routes) == 0 }},
		"route cut short":           {map[uint8][]byte{121: {24, 1, 2, 3, 10}}, func(l Lease) bool { return len(l.Routes) == 0 }},
		"IPv6 junk as route":        {map[uint8][]byte{121: bytes.Repeat([]byte{0x20, 0x01}, 8)}, func(l Lease) bool { return len(l.Routes) == 0 }},
		"route to loopback":         {map[uint8][]byte{121: {8, 127, 10, 0, 0, 1}}, func(l Lease) bool { return len(l.Routes) == 0 }},
		"route twice":               {map[uint8][]byte{121: {8, 44, 10, 0, 0, 1, 8, 44, 10, 0, 0, 2}}, func(l Lease) bool { return len(l.Routes) == 1 }},
		"hundreds of routes":        {map[uint8][]byte{121: hundreds()}, func(l Lease) bool { return len(l.Routes) == 0 }},
		"options in file and sname": {map[uint8][]byte{52: {3}}, func(l Lease) bool { return l.Addr.IsValid() }},
	} {
		r, err := Parse(answer(t, 5, c.options))
		if err != nil || !c.good(r.Lease) {
			t.Errorf("%s: %+v, %v", name, r.Lease, err)
		}
	}
}

func hundreds() (v []byte) {
	for i := range 65 {
		v = append(v, 24, 44, 0, byte(i), 10, 0, 0, 1)
	}
	return v
}

func TestParseReadsOptionsInTheFileField(t *testing.T) {
	b := answer(t, 2, map[uint8][]byte{52: {1}})
	copy(b[108:], []byte{3, 4, 10, 0, 0, 1, 255})
	if r, err := Parse(b); err != nil || r.Lease.Router != server {
		t.Errorf("router %v, %v", r.Lease.Router, err)
	}
}

func TestParseBearsAMissingEnd(t *testing.T) {
	b := bytes.TrimRight(answer(t, 2, nil), "\x00")
	if b[len(b)-1] != 255 {
		t.Fatal("the test packet does not end with the end option")
	}
	if r, err := Parse(b[:len(b)-1]); err != nil || r.Kind != Offer {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestParseRefusesWhatIsNoAnswer(t *testing.T) {
	request := answer(t, 5, nil)
	request[0] = 1
	bad := answer(t, 5, nil)
	copy(bad[16:], []byte{127, 0, 0, 1})
	for name, b := range map[string][]byte{"nothing": nil, "short": make([]byte, 200), "a request": request,
		"loopback as address": bad, "another kind": answer(t, 8, nil)} {
		if r, err := Parse(b); err == nil {
			t.Errorf("%s: read %+v", name, r)
		}
	}
}

func TestMessageNamesTheClient(t *testing.T) {
	b, err := Message{Kind: Request, XID: 7, Want: mine.Addr(), Server: server}.Marshal(mac, "gate")
	if err != nil {
		t.Fatal(err)
	}
	p, err := dhcpv4.FromBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[uint8]string{12: "gate", 50: "\x0a\x00\x00\x4d", 54: "\x0a\x00\x00\x01", 61: "\x01" + string(mac), 60: "gatehouse"} {
		if got := string(p.Options[code]); got != want {
			t.Errorf("option %d is %q, want %q", code, got, want)
		}
	}
	if prl := string(p.Options[55]); strings.Index(prl, "\x79") > strings.Index(prl, "\x03") {
		t.Error("option 121 must be asked for before 3 (RFC 3442)")
	}
}

func TestLeaseBesideOurNetworks(t *testing.T) {
	lan := []netip.Prefix{netip.MustParsePrefix("192.168.1.1/24")}
	route := func(s string) Route { return Route{netip.MustParsePrefix(s), server} }
	l, problems := Lease{Addr: netip.MustParsePrefix("192.168.1.50/24"),
		Routes: []Route{route("0.0.0.0/0"), route("128.0.0.0/1"), route("192.168.1.128/25"), route("192.168.0.0/16"), route("44.0.0.0/8")}}.Beside(lan)
	if l.Addr != netip.MustParsePrefix("192.168.1.50/32") {
		t.Errorf("address %s would take part of the LAN", l.Addr)
	}
	if want := []Route{route("0.0.0.0/0"), route("128.0.0.0/1"), route("44.0.0.0/8")}; !slices.Equal(l.Routes, want) {
		t.Errorf("routes %v", l.Routes)
	}
	if len(problems) != 3 {
		t.Errorf("told %q", problems)
	}
}

func TestBroadcastFrameIsReadBack(t *testing.T) {
	f := broadcast(mac, []byte("hello"))
	if b, ok := udpPayload(f); !ok || string(b) != "hello" {
		t.Errorf("payload %q, %v", b, ok)
	}
	if sum(0, f[14:34]) != 0xffff {
		t.Error("wrong IP checksum")
	}
	for n := range len(f) {
		if _, ok := udpPayload(f[:n]); ok {
			t.Errorf("%d bytes of %d were read", n, len(f))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(answer(f, 5, map[uint8][]byte{1: {255, 255, 255, 0}, 121: {24, 1, 2, 3, 10, 0, 0, 1}, 52: {3}}))
	f.Add(answer(f, 2, map[uint8][]byte{15: []byte("a.b"), 26: {5, 220}, 6: {1, 2, 3}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err != nil || r.Kind == Nak {
			return
		}
		if l := r.Lease; !l.Addr.IsValid() || !l.Addr.Addr().Is4() || l.MTU != 0 && l.MTU < 576 || len(l.Routes) > maxRoutes {
			t.Errorf("let through %+v", l)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(broadcast(mac, []byte("hello")))
	f.Fuzz(func(t *testing.T, b []byte) { udpPayload(b) })
}
