package simulate_test

import (
	"net/netip"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/simulate"
)

// home is a box with a WAN, a LAN and a guest network, as the wizard leaves it.
func home() firewall.Config {
	c := firewall.Factory()
	static := func(s string) firewall.V4 { return firewall.V4{Mode: firewall.Static, Addr: prefix(s)} }
	none := firewall.V6{Mode: firewall.None}
	c.Interfaces = []firewall.Interface{
		{Name: "WAN", Device: "eth0", Role: firewall.WAN, On: true, V4: firewall.V4{Mode: firewall.DHCP}, V6: none},
		{Name: "LAN", Device: "eth1", Role: firewall.LAN, On: true, V4: static("192.168.1.1/24"), V6: none},
		{Name: "GUEST", Device: "eth2", Role: firewall.Other, On: true, V4: static("192.168.2.1/24"), V6: none}}
	c.Rules = []firewall.Rule{rule("01LAN", "LAN", firewall.Pass, "any", "any")}
	return c
}

func homeFacts() firewall.Facts {
	return firewall.Facts{Addrs: map[string][]netip.Prefix{
		"eth0": {prefix("203.0.113.2/24")}, "eth1": {prefix("192.168.1.1/24"), prefix("fe80::1/64")}, "eth2": {prefix("192.168.2.1/24")}},
		Routes: []firewall.Route{{Dst: prefix("0.0.0.0/0"), Via: addr("203.0.113.1"), Device: "eth0"}, {Dst: prefix("192.168.1.0/24"), Device: "eth1"}}}
}

func rule(id firewall.ID, in firewall.Name, a firewall.Action, src, dst string) firewall.Rule {
	r := firewall.Rule{ID: id, On: true, In: in, Action: a, Family: firewall.Both, Proto: firewall.AnyProto}
	r.Src, _ = firewall.ParseEnds(src)
	r.Dst, _ = firewall.ParseEnds(dst)
	return r
}

func forward(c firewall.Config, f firewall.Forward) firewall.Config {
	if f.From.Of == nil {
		f.From = firewall.Anyone()
	}
	f.On, f.In, f.Dst = true, "WAN", firewall.End{Kind: firewall.EndIfAddr, Name: "WAN"}
	c, _ = firewall.AddForward{Forward: f}.Apply(c)
	return c
}

func tcp(in, src, dst string, port uint16) firewall.Packet {
	return firewall.Packet{In: in, Src: addr(src), Dst: addr(dst), Proto: 6, SrcPort: 40000, DstPort: port}
}

func valid(t *testing.T, c firewall.Config) firewall.Config {
	t.Helper()
	if ps := c.Validate(); ps != nil {
		t.Fatal(ps)
	}
	return c
}

// C26: the list that a person sees is the order that runs: floating rules, then the list of the interface.
func TestDecideC26KeepsTheListedOrder(t *testing.T) {
	c := home()
	c.Rules = []firewall.Rule{
		rule("01A", "", firewall.Pass, "any", "8.8.8.8"),
		rule("01B", "", firewall.Block, "GUEST net", "any"),
		rule("01C", "LAN", firewall.Block, "any", "8.8.8.8"),
		rule("01D", "GUEST", firewall.Pass, "any", "any")}
	e := simulate.New(valid(t, c), homeFacts())
	for _, want := range []struct{ in, src, dst, rule string }{
		{"eth1", "192.168.1.5", "8.8.8.8", "rule/01A"}, {"eth2", "192.168.2.5", "8.8.8.8", "rule/01A"},
		{"eth2", "192.168.2.5", "9.9.9.9", "rule/01B"}, {"eth1", "192.168.1.5", "9.9.9.9", simulate.Default}} {
		if d := e.Decide(tcp(want.in, want.src, want.dst, 80)); d.Rule != want.rule {
			t.Errorf("%v decided by %s", want, d.Rule)
		}
	}
	c, err := firewall.MoveRule{ID: "01B", Place: firewall.Place{Before: "01A"}}.Apply(c)
	if err != nil {
		t.Fatal(err)
	}
	if d := simulate.Decide(c, homeFacts(), tcp("eth2", "192.168.2.5", "8.8.8.8", 80)); d.Rule != "rule/01B" {
		t.Errorf("after the move decided by %s", d.Rule)
	}
}

// C02, C03: entries that overlap or lie across borders match as their union.
func TestDecideC02AliasMatchesTheUnion(t *testing.T) {
	c := home()
	ends, err := firewall.ParseEnds("198.51.100.0/24\n198.51.100.7\n198.51.100.200-198.51.101.10\n192.0.2.10 - 192.0.2.12\n198.18.220.0-198.18.222.200")
	if err != nil {
		t.Fatal(err)
	}
	a := firewall.Alias{Name: "A", Kind: firewall.Addresses}
	for _, e := range ends.Of {
		a.Addrs = append(a.Addrs, firewall.Entry{End: e})
	}
	c.Aliases, c.Rules = []firewall.Alias{a}, []firewall.Rule{rule("01A", "WAN", firewall.Pass, "A", "192.168.1.10")}
	check := func(why string, want map[string]bool) {
		e := simulate.New(valid(t, c), homeFacts())
		for src, pass := range want {
			if d := e.Decide(tcp("eth0", src, "192.168.1.10", 22)); (d.Verdict == simulate.Pass) != pass {
				t.Errorf("%s: %s got %+v", why, src, d)
			}
		}
	}
	check("all", map[string]bool{"198.51.100.1": true, "198.51.100.7": true, "198.51.100.250": true, "198.51.101.10": true, "198.51.101.11": false,
		"192.0.2.9": false, "192.0.2.10": true, "192.0.2.12": true, "198.18.221.77": true, "198.18.222.200": true, "198.18.222.201": false, "198.18.219.255": false})
	c.Aliases[0].Addrs = c.Aliases[0].Addrs[1:]
	check("without the /24", map[string]bool{"198.51.100.1": false, "198.51.100.7": true, "198.51.100.250": true, "198.51.101.10": true})
}

// C05: a restriction to an empty alias matches nobody; to one address, that address.
func TestDecideC05ForwardOnlyForItsSources(t *testing.T) {
	c := home()
	c.Aliases = []firewall.Alias{{Name: "NOBODY", Kind: firewall.Addresses}}
	f := firewall.Forward{ID: "01F", Rule: "01R", Proto: firewall.TCP, Ports: firewall.PortRange{From: 2222, To: 2222}, To: addr("192.168.1.10"), ToPort: 22}
	for _, want := range []struct {
		from         string
		seven, eight simulate.Verdict
	}{{"NOBODY", simulate.Block, simulate.Block}, {"203.0.113.7", simulate.Pass, simulate.Block}, {"any", simulate.Pass, simulate.Pass}} {
		f.From, _ = firewall.ParseEnds(want.from)
		e := simulate.New(valid(t, forward(c, f)), homeFacts())
		seven, eight := e.Decide(tcp("eth0", "203.0.113.7", "203.0.113.2", 2222)), e.Decide(tcp("eth0", "203.0.113.8", "203.0.113.2", 2222))
		if seven.Verdict != want.seven || eight.Verdict != want.eight {
			t.Errorf("from %s: .7 %+v, .8 %+v", want.from, seven, eight)
		}
		if seven.Verdict == simulate.Pass && (seven.To != addr("192.168.1.10") || seven.ToPort != 22 || seven.Rule != "rule/01R" || seven.Forward != "01F" || seven.Out != "eth1") {
			t.Errorf("from %s: %+v", want.from, seven)
		}
	}
}

// C06: a range of ports is shifted one to one.
func TestDecideC06ShiftsARangeOneToOne(t *testing.T) {
	e := simulate.New(valid(t, forward(home(), firewall.Forward{ID: "01F", Rule: "01R", Proto: firewall.TCPUDP, Ports: firewall.PortRange{From: 8000, To: 8010}, To: addr("192.168.1.5"), ToPort: 9000})), homeFacts())
	for i := range uint16(11) {
		for _, proto := range []uint8{6, 17} {
			p := tcp("eth0", "8.8.8.8", "203.0.113.2", 8000+i)
			p.Proto = proto
			if d := e.Decide(p); d.Verdict != simulate.Pass || d.ToPort != 9000+i {
				t.Errorf("%d of protocol %d: %+v", p.DstPort, proto, d)
			}
		}
	}
	for _, port := range []uint16{7999, 8011} {
		if d := e.Decide(tcp("eth0", "8.8.8.8", "203.0.113.2", port)); d.Verdict != simulate.Block || !d.Local {
			t.Errorf("%d: %+v", port, d)
		}
	}
}

// C07: reflection adds no permission, and without it the outside address leads
// neither to the server nor to the web pages.
func TestDecideC07ReflectionAddsNoPermission(t *testing.T) {
	c := home()
	f := firewall.Forward{ID: "01F", Rule: "01R", Proto: firewall.TCP, Ports: firewall.PortRange{From: 443, To: 443}, To: addr("192.168.1.10"), ToPort: 8443, Reflect: true}
	e := simulate.New(valid(t, forward(c, f)), homeFacts())
	if d := e.Decide(tcp("eth1", "192.168.1.20", "203.0.113.2", 443)); d.Rule != "rule/01LAN" || d.To != addr("192.168.1.10") || d.ToPort != 8443 {
		t.Errorf("LAN: %+v", d)
	}
	if d := e.Decide(tcp("eth2", "192.168.2.20", "203.0.113.2", 443)); d.Rule != simulate.Default || d.Forward != "01F" {
		t.Errorf("guest without a rule: %+v", d)
	}
	f.Reflect = false
	if d := simulate.Decide(forward(c, f), homeFacts(), tcp("eth1", "192.168.1.20", "203.0.113.2", 443)); d.Verdict != simulate.Block || d.Rule != simulate.WrongSide {
		t.Errorf("without reflection: %+v", d)
	}
}

// C14: one ICMP rule for both families lets echo of both in, and nothing else.
func TestDecideC14ICMPOfBothFamilies(t *testing.T) {
	c, facts := home(), homeFacts()
	r := rule("01P", "GUEST", firewall.Pass, "any", "this box")
	r.Proto, r.ICMP = firewall.ICMP, []string{"echo-request"}
	c.Rules = append(c.Rules, r)
	facts.Addrs["eth2"] = append(facts.Addrs["eth2"], prefix("fd00:2::1/64"))
	e := simulate.New(valid(t, c), facts)
	for _, want := range []struct {
		in, src, dst string
		proto, icmp  uint8
		rule         string
	}{
		{"eth2", "192.168.2.5", "192.168.2.1", 1, 8, "rule/01P"}, {"eth2", "fd00:2::5", "fd00:2::1", 58, 128, "rule/01P"},
		{"eth2", "192.168.2.5", "192.168.2.1", 1, 13, simulate.Default}, {"eth2", "fd00:2::5", "fd00:2::1", 58, 134, simulate.Default},
		{"eth2", "192.168.2.5", "203.0.113.2", 1, 8, "rule/01P"}, {"eth2", "192.168.2.5", "8.8.8.8", 1, 8, simulate.Default},
		{"eth0", "fe80::9", "ff02::1", 58, 135, simulate.Neighbours}, {"eth0", "fe80::9", "ff02::1", 58, 134, simulate.Default},
		{"eth0", "8.8.8.8", "203.0.113.2", 1, 5, simulate.Invalid}, {"eth0", "8.8.8.8", "203.0.113.2", 1, 8, simulate.Default},
	} {
		if d := e.Decide(firewall.Packet{In: want.in, Src: addr(want.src), Dst: addr(want.dst), Proto: want.proto, ICMP: want.icmp}); d.Rule != want.rule {
			t.Errorf("%v: %+v", want, d)
		}
	}
}

func TestDecideWhatTheBoxSendsPasses(t *testing.T) {
	if d := simulate.Decide(firewall.Factory(), firewall.Facts{}, tcp("", "203.0.113.2", "8.8.8.8", 443)); d.Verdict != simulate.Pass || d.Rule != simulate.Output {
		t.Errorf("%+v", d)
	}
}

func TestReachesTellsWhatWouldShutAnAdministratorOut(t *testing.T) {
	with := func(f func(*firewall.Config)) firewall.Config {
		c := home()
		f(&c)
		return c
	}
	block := rule("01X", "GUEST", firewall.Block, "any", "any")
	block.Descr = "No guests"
	for name, c := range map[string]struct {
		cfg          firewall.Config
		from, device string
		why          string // "" = reachable
	}{
		"from the LAN":                     {home(), "192.168.1.50", "eth1", ""},
		"from the LAN, link-local":         {home(), "fe80::50", "eth1", ""},
		"without any rule":                 {with(func(c *firewall.Config) { c.Rules = nil }), "192.168.1.50", "eth1", ""},
		"from the guests":                  {home(), "192.168.2.50", "eth2", "Nothing on GUEST lets 192.168.2.50 reach"},
		"guests by a rule":                 {with(func(c *firewall.Config) { c.Rules[0].In = "GUEST" }), "192.168.2.50", "eth2", ""},
		"a rule against it":                {with(func(c *firewall.Config) { c.Rules = append(c.Rules, block) }), "192.168.2.50", "eth2", "“No guests”"},
		"the LAN becomes another role":     {with(func(c *firewall.Config) { c.Interfaces[1].Role, c.Rules = firewall.Other, nil }), "192.168.1.50", "eth1", "Nothing on LAN"},
		"the LAN is switched off":          {with(func(c *firewall.Config) { c.Interfaces[1].On = false }), "192.168.1.50", "eth1", "LAN is switched off"},
		"the LAN moves to another port":    {with(func(c *firewall.Config) { c.Interfaces[1].Device = "eth9" }), "192.168.1.50", "eth1", "No interface uses the port eth1"},
		"the LAN moves to another network": {with(func(c *firewall.Config) { c.Interfaces[1].V4.Addr = prefix("10.0.0.1/24") }), "192.168.1.50", "eth1", "does not lead through LAN"},
		"the LAN loses its address":        {with(func(c *firewall.Config) { c.Interfaces[1].V4 = firewall.V4{Mode: firewall.None} }), "192.168.1.50", "eth1", "no address"},
		"the LAN takes another address":    {with(func(c *firewall.Config) { c.Interfaces[1].V4.Addr = prefix("192.168.1.2/24") }), "192.168.1.50", "eth1", ""},
		"another port for the page":        {with(func(c *firewall.Config) { c.Admin.HTTPS = 8443 }), "192.168.1.50", "eth1", ""},
		"from the internet":                {home(), "8.8.8.8", "eth0", "Nothing on WAN"},
		"a forward in its place": {func() firewall.Config {
			c := home()
			c.Rules = append(c.Rules, rule("01W", "WAN", firewall.Pass, "any", "any"))
			return forward(c, firewall.Forward{ID: "01F", Descr: "Shop", Proto: firewall.TCP, Ports: firewall.PortRange{From: 443, To: 443}, To: addr("192.168.1.10"), ToPort: 443})
		}(), "8.8.8.8", "eth0", "The forward “Shop” takes port 443 of 203.0.113.2"},
	} {
		ok, why := simulate.Reaches(valid(t, c.cfg), homeFacts(), addr(c.from), c.device)
		if ok != (c.why == "") || !strings.Contains(why, c.why) || ok && why != "" {
			t.Errorf("%s: %v %q", name, ok, why)
		}
	}
}

func flow(p firewall.Packet, to string, port uint16) firewall.Flow {
	return firewall.Flow{Packet: p, To: addr(to), ToPort: port}
}

// C10: what the new policy denies is cut, also when the flow does not say where
// it came in; what it passes to the same target is left alone.
func TestSurvivesC10OnlyWhatThePolicyStillPasses(t *testing.T) {
	web := firewall.Forward{ID: "01F", Rule: "01R", Proto: firewall.TCP, Ports: firewall.PortRange{From: 80, To: 80}, To: addr("192.168.1.10"), ToPort: 8080}
	before := forward(home(), web)
	blocked := home()
	blocked.Rules = append([]firewall.Rule{rule("01B", "LAN", firewall.Block, "192.168.1.10", "any")}, blocked.Rules...)
	web.ToPort = 8081
	moved := forward(home(), web)
	out, other := tcp("eth1", "192.168.1.10", "203.0.113.9", 7000), tcp("eth1", "192.168.1.11", "203.0.113.9", 5201)
	unknown := out
	unknown.In = ""
	in := tcp("eth0", "8.8.8.8", "203.0.113.2", 80)
	off := home()
	off.Interfaces[1].On = false
	down := homeFacts()
	delete(down.Addrs, "eth0")
	down.Routes = nil
	for name, c := range map[string]struct {
		cfg   firewall.Config
		facts firewall.Facts
		flow  firewall.Flow
		want  bool
	}{
		"allowed":                          {before, homeFacts(), flow(out, "203.0.113.9", 7000), true},
		"allowed, target not told":         {before, homeFacts(), firewall.Flow{Packet: out}, true},
		"now blocked":                      {blocked, homeFacts(), flow(out, "203.0.113.9", 7000), false},
		"now blocked, entrance unknown":    {blocked, homeFacts(), flow(unknown, "203.0.113.9", 7000), false},
		"another host":                     {blocked, homeFacts(), flow(other, "203.0.113.9", 5201), true},
		"forwarded":                        {before, homeFacts(), flow(in, "192.168.1.10", 8080), true},
		"the forward leads elsewhere":      {moved, homeFacts(), flow(in, "192.168.1.10", 8080), false},
		"the forward is gone":              {home(), homeFacts(), flow(in, "192.168.1.10", 8080), false},
		"its interface is off":             {off, homeFacts(), flow(out, "203.0.113.9", 7000), false},
		"begun by the box":                 {blocked, homeFacts(), flow(tcp("", "203.0.113.2", "8.8.8.8", 443), "8.8.8.8", 443), true},
		"the line is down for a moment":    {before, down, flow(out, "203.0.113.9", 7000), true},
		"down, to a host that was blocked": {home(), down, flow(tcp("eth2", "192.168.2.9", "192.168.1.5", 80), "192.168.1.5", 80), false},
	} {
		if got := simulate.Survives(valid(t, c.cfg), c.facts, c.flow); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func BenchmarkDecide2100Rules(b *testing.B) {
	c := home()
	c.Aliases = []firewall.Alias{{Name: "A", Kind: firewall.Addresses, Addrs: []firewall.Entry{{End: firewall.End{Kind: firewall.EndNet, Net: prefix("10.0.0.0/8")}}}}}
	for i := range 2100 {
		r := rule(firewall.ID(strings.Repeat("A", 1+i%20)+string(rune('A'+i%26))), "LAN", firewall.Block, "A", "10.1.2.3")
		c.Rules = append([]firewall.Rule{r}, c.Rules...)
	}
	p := tcp("eth1", "192.168.1.5", "8.8.8.8", 443)
	b.Run("with building", func(b *testing.B) {
		for b.Loop() {
			simulate.Decide(c, homeFacts(), p)
		}
	})
	e := simulate.New(c, homeFacts())
	b.Run("built", func(b *testing.B) {
		for b.Loop() {
			e.Decide(p)
		}
	})
}
