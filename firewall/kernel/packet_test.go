package kernel

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"gatehouse/firewall"
)

func bytesOf(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	head4 = "4500 0054 0000 4000 40 11 0000 0a000001 0a000002"
	head6 = "60000000 0040 %% 40 fd000000000000000000000000000001 fd000000000000000000000000000002"
)

func TestPacketIsReadThroughItsHeaders(t *testing.T) {
	a4, b4 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	a6, b6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	v6 := func(next, rest string) string { return strings.Replace(head6, "%%", next, 1) + rest }
	for name, c := range map[string]struct {
		bytes  string
		want   firewall.Packet
		length int
		ok     bool
	}{
		"UDP":                      {head4 + "1234 0035 0000 0000", firewall.Packet{Src: a4, Dst: b4, Proto: 17, SrcPort: 0x1234, DstPort: 53}, 84, true},
		"UDP cut before its ports": {head4 + "1234 00", firewall.Packet{Src: a4, Dst: b4, Proto: 17}, 84, true},
		"IPv4 options": {"4600 0054 0000 4000 40 06 0000 0a000001 0a000002 01010101 0016 0050",
			firewall.Packet{Src: a4, Dst: b4, Proto: 6, SrcPort: 22, DstPort: 80}, 84, true},
		"header length that lies":   {strings.Replace(head4, "4500", "4200", 1) + "1234 0035", firewall.Packet{Src: a4, Dst: b4, Proto: 17}, 84, true},
		"later fragment":            {strings.Replace(head4, "4000 40", "0001 40", 1) + "1234 0035", firewall.Packet{Src: a4, Dst: b4, Proto: 17}, 84, true},
		"ICMP":                      {strings.Replace(head4, "40 11", "40 01", 1) + "08 00", firewall.Packet{Src: a4, Dst: b4, Proto: 1, ICMP: 8}, 84, true},
		"TCP over IPv6":             {v6("06", "0016 0050"), firewall.Packet{Src: a6, Dst: b6, Proto: 6, SrcPort: 22, DstPort: 80}, 104, true},
		"ICMPv6 behind hop-by-hop":  {v6("00", "3a00 050200000000 87"), firewall.Packet{Src: a6, Dst: b6, Proto: 58, ICMP: 135}, 104, true},
		"first fragment":            {v6("2c", "1100 0001 00000000 1234 0035"), firewall.Packet{Src: a6, Dst: b6, Proto: 17, SrcPort: 0x1234, DstPort: 53}, 104, true},
		"later fragment of IPv6":    {v6("2c", "1100 0009 00000000 1234 0035"), firewall.Packet{Src: a6, Dst: b6, Proto: 17}, 104, true},
		"authenticated":             {v6("33", "1101 0000 00000000 00000000 1234 0035"), firewall.Packet{Src: a6, Dst: b6, Proto: 17, SrcPort: 0x1234, DstPort: 53}, 104, true},
		"extension that lies":       {v6("00", "3aff 050200000000 87"), firewall.Packet{Src: a6, Dst: b6, Proto: 0}, 104, true},
		"IPv4 cut in its addresses": {"4500 0054 0000 4000 40 11 0000 0a000001", firewall.Packet{}, 16, false},
		"ARP":                       {"0001 0800", firewall.Packet{}, 4, false},
		"nothing":                   {"", firewall.Packet{}, 0, false},
	} {
		p, n, ok := parsePacket(bytesOf(t, c.bytes))
		if p != c.want || n != c.length || ok != c.ok {
			t.Errorf("%s: %+v, %d, %v; want %+v, %d, %v", name, p, n, ok, c.want, c.length, c.ok)
		}
	}
}

func FuzzPacket(f *testing.F) {
	f.Add(bytesOf(f, head4+"1234 0035"))
	f.Add(bytesOf(f, strings.Replace(head6, "%%", "00", 1)+"2c00 050200000000 1100 0001 00000000 1234 0035"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, length, ok := parsePacket(b)
		if ok != p.Src.IsValid() || ok != p.Dst.IsValid() || length < 0 {
			t.Errorf("%+v, %d, %v", p, length, ok)
		}
	})
}

// FuzzMessages feeds what a broken kernel might send to every reader of messages.
func FuzzMessages(f *testing.F) {
	flow := attrOf(ctaTupleOrig, attrOf(ctaTupleIP, attrOf(ctaIPv4Src, []byte{10, 0, 0, 1})))
	flow.raw(ctaTupleReply, nil)
	flow.raw(ctaLabels, make([]byte, 16))
	f.Add(appendMessage(nil, ctGet, 0, 1, 2, 0, flow))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = messages(b, func(m message) error {
			_ = ackError(m.body)
			_ = extack(m)
			_, _ = readFlow(2, m.body)
			_ = readElement(m.body)
			_ = readRule(m.body)
			d := readDefinition(m.body)
			_ = membersOf(d.shape(), []element{readElement(m.body)})
			if len(m.body) >= genmsg {
				_ = ours(m.typ, m.body)
			}
			return nil
		})
	})
}
