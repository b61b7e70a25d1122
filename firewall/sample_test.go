package firewall

import (
	"net/netip"
	"reflect"
	"testing"
)

// sample is a valid configuration in which every field of every kind is set somewhere.
func sample() Config {
	ends := func(s string) Ends { e, _ := ParseEnds(s); return e }
	ports := func(s string) Ports { p, _ := ParsePorts(s); return p }
	lines := func(s string) (out []PortEntry) {
		for _, p := range ports(s) {
			out = append(out, PortEntry{End: p})
		}
		return out
	}
	a, p := netip.MustParseAddr, netip.MustParsePrefix
	end := func(s string) End { e, _ := ParseEnd(s); return e }
	c := Config{Schema: Schema,
		System: System{Host: "fw1", Domain: "home.arpa", Zone: "Europe/Vienna"},
		Admin:  Admin{HTTPS: 443, HTTP: 80, SSH: true, Hosts: []string{"fw.example.org"}},
		Interfaces: []Interface{
			{Name: "WAN", Device: "eth0", Role: WAN, On: true, MTU: 1492, BlockPrivate: true, BlockBogons: true,
				V4: V4{Mode: Static, Addr: p("203.0.113.2/24"), Gateway: a("203.0.113.1"), DNS: []netip.Addr{a("9.9.9.9")}},
				V6: V6{Mode: Static, Addr: p("2001:db8::2/64"), Gateway: a("fe80::1")}},
			{Name: "LAN", Device: "eth1", Role: LAN, On: true, V4: V4{Mode: Static, Addr: p("192.168.1.1/24")}, V6: V6{Mode: None}},
			{Name: "GUEST", Device: "eth2", Role: Other, On: true, V4: V4{Mode: Static, Addr: p("192.168.2.1/24")}, V6: V6{Mode: None}}},
		Aliases: []Alias{
			{Name: "WEB", Kind: Addresses, Descr: "web servers", Addrs: []Entry{{End: end("192.168.1.10"), Note: "the old one"}, {End: end("192.168.1.16/28")}, {End: end("10.0.0.5-10.0.1.9")}, {End: end("MORE")}}},
			{Name: "MORE", Kind: Addresses, Addrs: []Entry{{End: end("2001:db8::/48")}}},
			{Name: "SPARE", Kind: Addresses, Addrs: []Entry{{End: end("2001:db8:1::/48")}}},
			{Name: "PORTS", Kind: PortList, Ports: append(lines("80, 8000-8010, OTHERS"), PortEntry{End: PortEnd{Range: PortRange{3000, 3000}}, Note: "grafana"})},
			{Name: "OTHERS", Kind: PortList, Ports: lines("443")}},
		Rules: []Rule{
			{ID: "01A", On: true, Action: Block, Family: Both, Proto: AnyProto, Src: Ends{Not: true, Of: []End{end("WEB")}}, Dst: ends("198.51.100.5-198.51.100.9, 2001:db8::9"), Log: true, Descr: "no bad hosts", Section: "Everyone"},
			{ID: "01B", On: true, Action: Pass, In: "LAN", Family: IPv4, Proto: TCPUDP, Src: ends("LAN net"), SrcPorts: ports("1024-65535"), Dst: ends("WAN address, WEB"), DstPorts: ports("PORTS, 22"), Limit: Limit{Open: 20, New: 10, Window: 5, Over: DropExcess, Never: "WEB", DryRun: true}},
			{ID: "01C", On: true, Action: Reject, In: "GUEST", Family: Both, Proto: ICMP, ICMP: []string{"echo-request", "redirect"}, Src: Anyone(), Dst: ends("this box")},
			{ID: "01D", Action: Pass, In: "GUEST", Family: IPv4, Proto: "200", Src: ends("GUEST address"), Dst: Ends{Not: true, Of: []End{end("LAN net")}}}},
		Sources: Sources{Prefix6: 56, Meter: 1000},
		Scopes: []Scope{{In: "LAN", On: true, From: a("192.168.1.100"), To: a("192.168.1.199"), Lease: 7200, Gateway: a("192.168.1.1"), DNS: []netip.Addr{a("192.168.1.1")}, Domain: "lan.home.arpa",
			Statics: []StaticLease{{ID: "01S", MAC: "02:00:00:00:00:01", Addr: a("192.168.1.20"), Host: "printer", Descr: "upstairs"}}}}}
	c.Forwards = []Forward{{ID: "01G", In: "WAN", Proto: UDP, From: Ends{Not: true, Of: []End{end("10.0.0.0/8")}}, Dst: end("203.0.113.9"),
		Ports: PortRange{53, 53}, To: a("192.168.1.11"), ToPort: 53}}
	c, err := AddForward{Forward: Forward{ID: "01F", On: true, Descr: "web", In: "WAN", Proto: TCP, From: ends("WEB"), Dst: end("WAN address"),
		Ports: PortRange{8000, 8010}, To: a("192.168.1.10"), ToPort: 9000, Rule: "01R", Reflect: true}}.Apply(c)
	if err != nil {
		panic(err)
	}
	if c, err = (SetLimit{Rule: "01R", Limit: Limit{New: 100, Window: 10, Over: LockOut, LockFor: 300, Strikes: 3, StrikeWindow: 3600}}).Apply(c); err != nil {
		panic(err)
	}
	return clone(c)
}

// clone is a copy that shares nothing, so that a test may write into it.
func clone(c Config) Config {
	b, err := Encode(c)
	if err != nil {
		panic(err)
	}
	if c, err = Decode(b); err != nil {
		panic(err)
	}
	return c
}

func TestSampleIsValidAndSetsEveryField(t *testing.T) {
	if ps := sample().Validate(); ps != nil {
		t.Fatal(ps)
	}
	set := map[string]bool{}
	walk(reflect.ValueOf(sample()), "", func(path string, v reflect.Value) { set[path] = set[path] || !v.IsZero() })
	for path, ok := range set {
		if !ok {
			t.Errorf("%s is set nowhere", path)
		}
	}
}

// walk visits every leaf of a value with the names of the fields that lead to it.
func walk(v reflect.Value, path string, visit func(string, reflect.Value)) {
	_, text := v.Interface().(interface{ MarshalText() ([]byte, error) })
	switch {
	case text:
		visit(path, v)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), path, visit)
		}
	default:
		visit(path, v)
	}
}
