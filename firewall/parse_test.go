package firewall_test

import (
	"strings"
	"testing"

	"gatehouse/firewall"
)

func TestParseEndReadsWhatPeopleWrite(t *testing.T) {
	for in, want := range map[string]string{
		"any": "any", " ANY ": "any", "This  Box": "this box", "10.0.0.1": "10.0.0.1", "10.0.0.5/24": "10.0.0.0/24", "2001:DB8::5/64": "2001:db8::/64",
		" 192.0.2.10 - 192.0.2.12 ": "192.0.2.10-192.0.2.12", "198.18.220.0-198.18.222.200": "198.18.220.0-198.18.222.200", "10.0.0.5-10.0.0.5": "10.0.0.5-10.0.0.5",
		"2001:db8::1-2001:db8::5": "2001:db8::1-2001:db8::5", "::/0": "::/0", "0.0.0.0/0": "0.0.0.0/0", "255.255.255.255": "255.255.255.255",
		"LAN net": "LAN net", "LAN   address": "LAN address", "WEB_1": "WEB_1", "dead:beef::": "dead:beef::", "fe80::1": "fe80::1", "deadbeef": "deadbeef",
	} {
		got, err := firewall.ParseEnd(in)
		if err != nil || got.String() != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
		if again, err := firewall.ParseEnd(got.String()); err != nil || again != got {
			t.Errorf("%q does not come back: %v, %v", in, again, err)
		}
	}
}

func TestParseEndSaysWhatIsWrong(t *testing.T) {
	for in, want := range map[string]string{
		"": "write an address", "  ": "write an address", "10.0.0.256": "`10.0.0.256` is not an IP address", "10.0.0": "is not an IP address", "010.0.0.1": "is not an IP address",
		"10.0.0.1/33": "is not a network; write for example", "10.0.0.0/": "is not a network", "::ffff:1.2.3.4": "is not an IP address", "::ffff:0:0/96": "is not a network",
		"fe80::1%eth0": "is not an IP address", "10.0.0.9-10.0.0.1": "the range ends (10.0.0.1) before it starts (10.0.0.9)",
		"10.0.0.1-2001:db8::1": "the range mixes IPv4 and IPv6", "10.0.0.1-": "is not an IP address", "10.0.0.1 10.0.0.2": "is not an IP address",
		"a-b": "is not an address, a network, a range or a name", "_x": "is not an address", "x net y": "is not an address", "1a net": "is not an address", "ünï": "is not an address",
		strings.Repeat("a", 32): "is not an address", `a"b`: "is not an address",
	} {
		if got, err := firewall.ParseEnd(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func TestParseEndsKeepsOrderAndAnyList(t *testing.T) {
	got, err := firewall.ParseEnds("10.0.0.1, WEB;\n\n LAN net ,")
	if err != nil || got.List() != "10.0.0.1, WEB, LAN net" {
		t.Errorf("%q, %v", got.List(), err)
	}
	if none, err := firewall.ParseEnds(" , \n"); err != nil || len(none.Of) != 0 || none.IsAny() {
		t.Errorf("nothing became %v, %v", none, err)
	}
}

// C01: a range typed backwards, and its neighbours, are refused with both ends named.
func TestParsePortsC01(t *testing.T) {
	const bad = "port must be 1–65535"
	for in, want := range map[string]string{
		"86-81": "the range ends (81) before it starts (86)", "7200:7100": "the range ends (7100) before it starts (7200)",
		"0": bad, "65536": bad, "80-": bad, "-80": bad, "1100a0-12000": bad, "99999999999999999999": bad, "80-90-100": bad, "80 81": bad, "8 0": bad,
		"0-5": bad, "80,0": "`0`: " + bad, "+80": bad, "٨٠": bad, ",": bad, " ; ": bad, "1e3": bad, "0x50": bad,
	} {
		if got, err := firewall.ParsePorts(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"": "any", "any": "any", " Any ": "any", "80": "80", "8000-8010": "8000-8010", "8000 : 8010": "8000-8010", "1-65535": "1-65535", "443-443": "443",
		"http, HTTPS": "80, 443", "WEB_PORTS\n22": "WEB_PORTS, 22", "http-alt": "8080", "080": "80",
	} {
		got, err := firewall.ParsePorts(in)
		if err != nil || got.String() != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestParseMAC(t *testing.T) {
	for _, in := range []string{"02:00:00:00:00:0a", "02-00-00-00-00-0A", "0200.0000.000a", "02000000000a", " 02:00:00:00:00:0A "} {
		if got, err := firewall.ParseMAC(in); err != nil || got != "02:00:00:00:00:0a" {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{"": "12 hex digits", "02:00:00:00:00": "12 hex digits", "02:00:00:00:00:0g": "12 hex digits",
		"02:00:00:00:00:0a:0b": "12 hex digits", "01:00:5e:00:00:01": "multicast", "ff:ff:ff:ff:ff:ff": "multicast"} {
		if got, err := firewall.ParseMAC(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func FuzzParseEnd(f *testing.F) {
	for _, s := range []string{"any", "this box", "10.0.0.5/24", "192.0.2.10 - 192.0.2.12", "LAN net", "LAN address", "WEB", "2001:db8::1-2001:db8::5", "fe80::1%0", "10.0.0.9-10.0.0.1", "net", " net"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := firewall.ParseEnd(s)
		if err != nil {
			return
		}
		if again, err := firewall.ParseEnd(e.String()); err != nil || again != e {
			t.Errorf("%q is %q, which comes back as %q, %v", s, e, again, err)
		}
		if r, ok := e.Range(); ok && (!r.Contains(r.From) || !r.Contains(r.To)) {
			t.Errorf("%q: the range %v lacks its own ends", s, r)
		}
	})
}

func FuzzParsePorts(f *testing.F) {
	for _, s := range []string{"80", "8000-8010", "7200:7100", "0", "65536", "80-", "1100a0-12000", "http,443", "WEB\n22", "any", ",", "80 81"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ps, err := firewall.ParsePorts(s)
		if err != nil {
			return
		}
		if len(ps) == 0 && strings.Trim(strings.ToLower(s), "any \t\r\n\v\f\u0085\u00a0") != "" && !strings.EqualFold(strings.TrimSpace(s), "any") {
			t.Errorf("%q became any", s)
		}
		for _, p := range ps {
			if p.Alias == "" && (p.Range.From == 0 || p.Range.To < p.Range.From) {
				t.Errorf("%q gave %v", s, p)
			}
		}
		if again, err := firewall.ParsePorts(ps.String()); err != nil || again.String() != ps.String() {
			t.Errorf("%q is %q, which comes back as %q, %v", s, ps, again, err)
		}
	})
}
