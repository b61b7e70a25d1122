package simulate_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/simulate"
)

func blocking(nets ...string) firewall.Facts {
	f := homeFacts()
	f.Addrs["eth2"] = append(f.Addrs["eth2"], prefix("2a00:2::1/64"))
	for _, n := range nets {
		f.Blocked = append(f.Blocked, prefix(n))
	}
	return f
}

// C16: an offender is shut out on every interface and for every address of its
// prefix; who stands just beside it is not.
func TestDecideC16BlockedSourceIsDroppedEverywhere(t *testing.T) {
	c := home()
	c.Rules = append([]firewall.Rule{rule("01ANY", "", firewall.Pass, "any", "any")}, c.Rules...)
	// They overlap, touch and come in no order.
	e := simulate.New(valid(t, c), blocking("198.51.100.0/24", "192.168.1.50/32", "2001:db8:bad::/64", "8.8.8.8/32", "198.51.100.7/32", "198.51.0.0/16", "198.52.0.0/32", "192.168.2.50/32"))
	for _, want := range []struct {
		in, src, dst string
		shut         bool
	}{
		{"eth0", "8.8.8.8", "203.0.113.2", true}, {"eth0", "8.8.8.7", "203.0.113.2", false}, {"eth0", "8.8.8.9", "203.0.113.2", false},
		{"eth0", "198.50.255.255", "192.168.1.10", false}, {"eth0", "198.51.0.0", "192.168.1.10", true}, {"eth0", "198.51.100.8", "192.168.1.10", true},
		{"eth0", "198.51.255.255", "192.168.1.10", true}, {"eth0", "198.52.0.0", "192.168.1.10", true}, {"eth0", "198.52.0.1", "192.168.1.10", false},
		{"eth1", "192.168.1.50", "192.168.1.1", true}, {"eth1", "192.168.1.50", "8.8.8.8", true}, {"eth1", "192.168.1.51", "192.168.1.1", false},
		{"eth2", "192.168.2.50", "8.8.8.8", true}, {"eth9", "8.8.8.8", "203.0.113.2", true},
		{"eth2", "2001:db8:bad::", "2a00:2::1", true}, {"eth2", "2001:db8:bad::ffff:ffff:ffff:ffff", "2a00:2::1", true},
		{"eth2", "2001:db8:bad:1::", "2a00:2::1", false}, {"eth2", "2001:db8:bac:ffff:ffff:ffff:ffff:ffff", "2a00:2::1", false},
		{"eth1", "192.168.1.20", "8.8.8.8", false}, // what the box forwards to a blocked address is not its
	} {
		d := e.Decide(tcp(want.in, want.src, want.dst, 443))
		if (d.Rule == simulate.Blocked) != want.shut || want.shut && d.Verdict != simulate.Block {
			t.Errorf("%v: %+v", want, d)
		}
	}
}

// A shut out source meets nothing else: no forward, no other automatic rule.
func TestDecideBlockedComesBeforeEverything(t *testing.T) {
	c := home()
	c.Interfaces[0].BlockPrivate = true
	c = forward(c, firewall.Forward{ID: "01F", Rule: "01R", Proto: firewall.TCP, Ports: firewall.PortRange{From: 80, To: 80}, To: addr("192.168.1.10"), ToPort: 80})
	e := simulate.New(valid(t, c), blocking("10.0.0.0/8", "8.8.8.8/32", "192.168.1.50/32", "192.168.2.0/24"))
	answer := firewall.Packet{In: "eth0", Src: addr("10.0.0.1"), Dst: addr("203.0.113.2"), Proto: 17, SrcPort: 67, DstPort: 68}
	for name, p := range map[string]firewall.Packet{
		"before a forward":       tcp("eth0", "8.8.8.8", "203.0.113.2", 80),
		"before anti-lockout":    tcp("eth1", "192.168.1.50", "192.168.1.1", 443),
		"before private sources": tcp("eth0", "10.0.0.7", "203.0.113.2", 80),
		"before spoofed sources": tcp("eth1", "192.168.2.7", "8.8.8.8", 80),
		"before DHCP replies":    answer,
	} {
		if d := e.Decide(p); d.Rule != simulate.Blocked || d.Verdict != simulate.Block || d.Forward != "" || d.Local || d.To != p.Dst || d.ToPort != p.DstPort {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for _, p := range []firewall.Packet{tcp("", "203.0.113.2", "8.8.8.8", 443), tcp("lo", "192.168.2.1", "192.168.2.1", 443)} {
		if d := e.Decide(p); d.Verdict != simulate.Pass {
			t.Errorf("of the box itself: %+v", d)
		}
	}
}

// A host inside that is shut out keeps its address and its neighbours, nothing more; outside nobody does.
func TestDecideBlockedHostInsideKeepsItsAddress(t *testing.T) {
	c := home()
	c.Scopes = []firewall.Scope{{In: "LAN", On: true, From: addr("192.168.1.100"), To: addr("192.168.1.150"), Lease: 7200}}
	e := simulate.New(valid(t, c), blocking("192.168.1.50/32", "8.8.8.8/32", "fe80::/64", "2a00:2::/64"))
	udp := func(in, src string, sport uint16, dst string, port uint16) firewall.Packet {
		return firewall.Packet{In: in, Src: addr(src), Dst: addr(dst), Proto: 17, SrcPort: sport, DstPort: port}
	}
	icmp := func(in, src string, what uint8, dst string) firewall.Packet {
		return firewall.Packet{In: in, Src: addr(src), Dst: addr(dst), Proto: 58, ICMP: what}
	}
	for _, want := range []struct {
		packet firewall.Packet
		rule   string
	}{
		{udp("eth1", "192.168.1.50", 68, "192.168.1.1", 67), simulate.DHCPServer},
		{udp("eth1", "192.168.1.50", 68, "255.255.255.255", 67), simulate.DHCPServer},
		{udp("eth1", "192.168.1.50", 67, "192.168.1.1", 68), simulate.Blocked},
		{udp("eth1", "192.168.1.50", 68, "192.168.1.1", 53), simulate.Blocked},
		{udp("eth1", "192.168.1.50", 50, "192.168.1.1", 67), simulate.Blocked},
		{udp("eth0", "8.8.8.8", 68, "203.0.113.2", 67), simulate.Blocked},
		{udp("eth2", "2a00:2::5", 68, "2a00:2::1", 67), simulate.Blocked}, // no DHCP of IPv6
		{icmp("eth2", "2a00:2::5", 135, "2a00:2::1"), simulate.Neighbours},
		{icmp("eth2", "2a00:2::5", 136, "2a00:2::1"), simulate.Neighbours},
		{icmp("eth2", "fe80::5", 133, "ff02::1"), simulate.Default}, // it goes on to the rules
		{icmp("eth2", "fe80::5", 134, "ff02::1"), simulate.Default},
		{icmp("eth2", "fe80::5", 132, "ff02::1"), simulate.Blocked},
		{icmp("eth2", "2a00:2::5", 137, "2a00:2::1"), simulate.Blocked},
		{icmp("eth2", "2a00:2::5", 128, "2a00:2::1"), simulate.Blocked},
		{icmp("eth0", "fe80::5", 135, "ff02::1"), simulate.Blocked}, // a WAN
		{icmp("eth9", "fe80::5", 135, "ff02::1"), simulate.Blocked}, // no interface of ours
	} {
		if d := e.Decide(want.packet); d.Rule != want.rule {
			t.Errorf("%+v: decided by %s, not %s", want.packet, d.Rule, want.rule)
		}
	}
	c.Interfaces[1].On = false
	if d := simulate.Decide(valid(t, c), blocking("192.168.1.50/32"), udp("eth1", "192.168.1.50", 68, "192.168.1.1", 67)); d.Rule != simulate.Blocked {
		t.Errorf("on an interface that is off: %+v", d)
	}
}

func TestDecideTellsTheLimitOfTheRuleThatPasses(t *testing.T) {
	limit := firewall.Limit{Open: 20, New: 10, Window: 5, Over: firewall.LockOut, LockFor: 300}
	c := home()
	c.Rules[0].Proto, c.Rules[0].Limit = firewall.TCP, limit
	c.Rules = append([]firewall.Rule{rule("01B", "LAN", firewall.Block, "any", "9.9.9.9")}, c.Rules...)
	c = forward(c, firewall.Forward{ID: "01F", Rule: "01R", Proto: firewall.TCP, Ports: firewall.PortRange{From: 80, To: 80}, To: addr("192.168.1.10"), ToPort: 80})
	shop := firewall.Limit{Open: 100, Over: firewall.DropExcess}
	c, err := firewall.SetLimit{Rule: "01R", Limit: shop}.Apply(c)
	if err != nil {
		t.Fatal(err)
	}
	e := simulate.New(valid(t, c), homeFacts())
	for _, want := range []struct {
		packet firewall.Packet
		rule   string
		limit  firewall.Limit
	}{
		{tcp("eth1", "192.168.1.5", "8.8.8.8", 443), "rule/01LAN", limit},
		{tcp("eth0", "8.8.8.8", "203.0.113.2", 80), "rule/01R", shop},
		{tcp("eth1", "192.168.1.5", "9.9.9.9", 443), "rule/01B", firewall.Limit{}},
		{tcp("eth1", "192.168.1.5", "192.168.1.1", 443), simulate.AntiLockout, firewall.Limit{}},
		{tcp("eth2", "192.168.2.5", "8.8.8.8", 443), simulate.Default, firewall.Limit{}},
	} {
		if d := e.Decide(want.packet); d.Rule != want.rule || d.Limit != want.limit {
			t.Errorf("%v: %+v", want.packet, d)
		}
	}
}

// C10: connections of a source that is shut out are cut wherever they came in,
// and so is what a limit refused. A limit that is now lower cuts nothing.
func TestSurvivesC10CutsBlockedSourcesAndWhatWasRefused(t *testing.T) {
	limited, now := home(), home()
	limited.Rules[0].Proto, now.Rules[0].Proto = firewall.TCP, firewall.TCP
	now.Rules[0].Limit = firewall.Limit{Open: 1, New: 1, Window: 60, Over: firewall.Quarantine, LockFor: 60}
	out := tcp("eth1", "192.168.1.50", "9.9.9.9", 443)
	known := out
	known.In = ""
	lost := tcp("", "203.0.113.77", "192.168.1.10", 80)
	down := blocking("203.0.113.77/32")
	delete(down.Addrs, "eth0")
	down.Routes = nil
	marked := func(m uint32) firewall.Flow {
		return firewall.Flow{Packet: out, Mark: m | 7<<firewall.MarkShift, Open: true}
	}
	own := tcp("", "203.0.113.2", "8.8.8.8", 443)
	for name, c := range map[string]struct {
		cfg   firewall.Config
		facts firewall.Facts
		flow  firewall.Flow
		want  bool
	}{
		"nothing blocked":                  {limited, blocking(), firewall.Flow{Packet: out}, true},
		"blocked":                          {limited, blocking("192.168.1.50/32"), firewall.Flow{Packet: out}, false},
		"blocked, entrance unknown":        {limited, blocking("192.168.1.50/32"), firewall.Flow{Packet: known}, false},
		"another source":                   {limited, blocking("192.168.1.51/32"), firewall.Flow{Packet: out}, true},
		"to a blocked address":             {limited, blocking("9.9.9.9/32"), firewall.Flow{Packet: out}, true},
		"blocked while the line is down":   {limited, down, firewall.Flow{Packet: lost}, false},
		"only down":                        {limited, func() firewall.Facts { f := down; f.Blocked = nil; return f }(), firewall.Flow{Packet: lost}, true},
		"of the box in a blocked network":  {limited, blocking("203.0.113.0/24"), firewall.Flow{Packet: own}, true},
		"a limit that it would be beyond":  {now, blocking(), marked(0), true},
		"its handshake is not yet counted": {now, blocking(), marked(firewall.MarkPending), true},
		"its source shares a meter":        {now, blocking(), marked(firewall.MarkShared), true},
		"refused":                          {now, blocking(), marked(firewall.MarkRefused), false},
		"refused, the limit is gone":       {limited, blocking(), marked(firewall.MarkRefused), false},
	} {
		if got := simulate.Survives(valid(t, c.cfg), c.facts, c.flow); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestReachesTellsABlockedAdministratorTheWayOut(t *testing.T) {
	for _, want := range []struct {
		from, blocked string
		reached       bool
	}{
		{"192.168.1.50", "192.168.1.50/32", false}, {"192.168.1.50", "192.168.0.0/16", false}, {"192.168.1.50", "192.168.1.51/32", true}, {"fe80::50", "fe80::/64", false},
	} {
		ok, why := simulate.Reaches(valid(t, home()), blocking(want.blocked), addr(want.from), "eth1")
		told := strings.Contains(why, want.from+" is locked out or in quarantine") && strings.Contains(why, "`gatehouse release "+want.from+"`")
		if ok != want.reached || told == want.reached {
			t.Errorf("%+v: %v %q", want, ok, why)
		}
	}
}

// full is every place that the kernel's sets of sources have, taken.
func full() (out []netip.Prefix) {
	for i := range 65536 {
		out = append(out, prefix(fmt.Sprintf("100.%d.%d.%d/32", 64+i%7, i/256, i%256)), prefix(fmt.Sprintf("2001:db8:%x:%x::/64", i*7%65536, i)))
	}
	return out
}

func BenchmarkBlocked131072(b *testing.B) {
	facts := homeFacts()
	facts.Blocked = full()
	b.Run("building", func(b *testing.B) {
		for b.Loop() {
			simulate.New(home(), facts)
		}
	})
	e := simulate.New(home(), facts)
	b.Run("built", func(b *testing.B) {
		for b.Loop() {
			e.Decide(tcp("eth1", "192.168.1.5", "8.8.8.8", 443))
		}
	})
}
