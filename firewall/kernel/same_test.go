package kernel_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall/ruleset"
)

// everything is a ruleset in which each statement, field and kind of set occurs.
func everything() ruleset.Ruleset {
	goTo := func(kind ruleset.VerdictKind, chain string) ruleset.Verdict {
		return ruleset.Verdict{Kind: kind, Chain: chain}
	}
	icmp, icmp6 := is(ruleset.L4Proto, num(1)), is(ruleset.L4Proto, num(58))
	noted := rule(tcp, is(ruleset.TCPDport, port(22)), ruleset.Count{Name: "r_1"}, accept)
	noted.Comment = "01J0000000000000000000000"
	return ruleset.Ruleset{
		Stamp:    "7 of today",
		Counters: []ruleset.Counter{{Name: "r_1"}, {Name: "r_2"}},
		Sets:     everySet(),
		Chains: []ruleset.Chain{
			{Name: "in_a", Hook: &ruleset.Hook{Type: "filter", Name: "ingress", Priority: -500, Device: "lo"},
				Rules: []ruleset.Rule{rule(v4, in(ruleset.IPSaddr, "quarantine4"), drop)}},
			{Name: "raw_pre", Hook: &ruleset.Hook{Type: "filter", Name: "prerouting", Priority: -300}, Rules: []ruleset.Rule{
				rule(ruleset.NoRouteBack{}, drop),
				rule(is(ruleset.FibDaddrType, bits(ruleset.AddrLocal)), accept),
				rule(not(ruleset.FibDaddrIIFType, bits(ruleset.AddrLocal)), drop),
				rule(is(ruleset.FibDaddrType, bits(ruleset.AddrBroadcast), bits(ruleset.AddrMulticast)), drop),
			}},
			{Name: "pre", Hook: &ruleset.Hook{Type: "nat", Name: "prerouting", Priority: -100}, Rules: []ruleset.Rule{
				rule(v4, tcp, is(ruleset.TCPDport, port(80)), ruleset.DNAT{To: ip("10.0.0.1"), Port: 8080}),
				rule(v4, tcp, is(ruleset.TCPDport, port(81)), ruleset.DNAT{To: ip("10.0.0.1")}),
				rule(v6, tcp, is(ruleset.TCPDport, port(80)), ruleset.DNAT{To: ip("fd00::1"), Port: 8080}),
				rule(v4, tcp, ruleset.DNAT{Map: "fwd_tcp4"}),
				rule(v6, udp, ruleset.DNAT{Map: "fwd_udp6", ByUDP: true, IPv6: true}),
			}},
			{Name: "forward", Hook: &ruleset.Hook{Type: "filter", Name: "forward", Drop: true}, Rules: []ruleset.Rule{
				rule(ruleset.VMap{Field: ruleset.CTStateField, Arms: []ruleset.Arm{
					{Key: ruleset.U32(ruleset.StateEstablished), Verdict: accept}, {Key: ruleset.U32(ruleset.StateRelated), Verdict: accept},
					{Key: ruleset.U32(ruleset.StateInvalid), Verdict: drop}}}),
				rule(ruleset.VMap{Field: ruleset.IIFName, Arms: []ruleset.Arm{
					{Key: ruleset.Iface("wan0"), Verdict: goTo(ruleset.Goto, "z_wan")}, {Key: ruleset.Iface("lan0"), Verdict: goTo(ruleset.Jump, "z_lan")}}}),
				rule(tcp, flags(ruleset.SYN|ruleset.RST, ruleset.SYN), ruleset.ClampMSS{}),
			}},
			{Name: "input", Hook: &ruleset.Hook{Type: "filter", Name: "input", Drop: true}},
			{Name: "output", Hook: &ruleset.Hook{Type: "filter", Name: "output"}},
			{Name: "post", Hook: &ruleset.Hook{Type: "nat", Name: "postrouting", Priority: 100}, Rules: []ruleset.Rule{
				rule(v4, is(ruleset.OIFName, dev("wan0")), ruleset.Masquerade{}),
			}},
			{Name: "z_wan", Rules: []ruleset.Rule{
				noted,
				rule(is(ruleset.CTStateField, bits(ruleset.StateEstablished|ruleset.StateRelated)), accept),
				rule(not(ruleset.CTStateField, bits(ruleset.StateNew)), drop),
				rule(is(ruleset.CTStatusField, bits(ruleset.StatusDNAT)), accept),
				rule(is(ruleset.CTStateField, bits(ruleset.StateNew), bits(ruleset.StateRelated)), back),
				rule(v4, icmp, is(ruleset.ICMPTypeField, num(8)), ruleset.Limit{Rate: 5, Burst: 10}, accept),
				rule(v4, icmp, is(ruleset.ICMPTypeField, num(3), num(11)), ruleset.Limit{Rate: 5}, accept),
				rule(v6, icmp6, is(ruleset.ICMPv6TypeField, num(135)), is(ruleset.IP6HopLimit, num(255)), accept),
				rule(ruleset.Log{Group: 5, Prefix: "deny z_wan"}, ruleset.Log{Group: 1}),
				rule(tcp, ruleset.RejectWith{Reset: true}),
				rule(ruleset.RejectWith{}),
			}},
			{Name: "z_lan", Rules: matchRules()},
			{Name: "metered", Rules: limitRules()},
		},
	}
}

// matchRules is the kinds of comparison, where nft has a way of its own for each.
func matchRules() []ruleset.Rule {
	rules := []ruleset.Rule{
		rule(v4, is(ruleset.IPSaddr, one("10.0.0.1")), is(ruleset.IPDaddr, one("10.0.0.2")), accept),
		rule(v4, not(ruleset.IPSaddr, one("10.0.0.1")), not(ruleset.IPDaddr, nets("10.0.0.0/9")), accept),
		rule(v4, is(ruleset.IPSaddr, nets("10.0.0.0/8")), is(ruleset.IPDaddr, nets("10.1.0.0/24")), accept),
		rule(v4, is(ruleset.IPSaddr, nets("10.0.0.0/9")), is(ruleset.IPDaddr, span("10.1.0.3", "10.1.0.9")), accept),
		rule(v4, not(ruleset.IPDaddr, span("10.1.0.3", "10.1.0.9")), accept),
		rule(v4, is(ruleset.IPSaddr, one("10.0.0.1"), one("10.0.0.2")), not(ruleset.IPDaddr, nets("10.0.0.0/8"), one("192.168.0.1")), accept),
		rule(v4, in(ruleset.IPSaddr, "nets4"), ruleset.Match{Field: ruleset.IPDaddr, Not: true, Set: "hosts4"}, accept),
		rule(v6, is(ruleset.IP6Saddr, nets("fd00::/64")), is(ruleset.IP6Daddr, nets("fe80::/10")), accept),
		rule(v6, is(ruleset.IP6Saddr, one("fd00::1"), nets("fd01::/16")), in(ruleset.IP6Daddr, "nets6"), accept),
		rule(v6, not(ruleset.IP6HopLimit, num(255)), drop),
		rule(v4, is(ruleset.L4Proto, num(6), num(17)), is(ruleset.IPSaddr, one("10.0.0.1")), is(ruleset.THDport, port(53)), accept),
		rule(v4, tcp, is(ruleset.IPSaddr, one("10.0.0.1")), is(ruleset.TCPDport, ports(1000, 2000)), accept),
		rule(udp, is(ruleset.UDPSport, port(67)), is(ruleset.UDPDport, port(68)), accept),
		rule(udp, is(ruleset.UDPDport, port(68)), is(ruleset.IIFName, dev("wan0")), is(ruleset.UDPSport, port(67)), accept),
		rule(is(ruleset.L4Proto, num(6), num(17)), is(ruleset.THSport, port(53)), is(ruleset.THDport, port(53)), accept),
		rule(udp, is(ruleset.UDPSport, port(67)), not(ruleset.UDPDport, ports(1, 68)), accept),
		rule(sctp, is(ruleset.SCTPSport, ports(1, 1023)), is(ruleset.SCTPDport, port(80), ports(90, 99)), accept),
		rule(tcp, not(ruleset.TCPSport, port(80)), in(ruleset.TCPDport, "ports"), accept),
		rule(is(ruleset.IIFName, dev("a"), dev("b")), not(ruleset.OIFName, dev("fifteen-letters")), accept),
		rule(is(ruleset.L4Proto, num(1)), is(ruleset.ICMPTypeField, num(8)), accept),
		rule(v4, is(ruleset.IIFName, dev("a")), is(ruleset.L4Proto, num(1)), is(ruleset.ICMPTypeField, num(8)), accept),
		rule(v4, tcp, is(ruleset.IPSaddr, one("10.0.0.1")), is(ruleset.IPDaddr, one("10.0.0.2")), is(ruleset.TCPSport, port(1)), is(ruleset.TCPDport, port(2)), accept),
		rule(not(ruleset.L4Proto, num(47)), drop),
		rule(v6, udp, is(ruleset.UDPDport, port(546)), accept),
		rule(tcp, ruleset.VMap{Field: ruleset.TCPDport, Arms: []ruleset.Arm{{Key: ruleset.Port(22), Verdict: accept}, {Key: ruleset.Port(23), Verdict: drop}}}),
	}
	return rules
}

// limitRules is what limits of sources are made of.
func limitRules() []ruleset.Rule {
	const prefix64, prefix56 = "ffff:ffff:ffff:ffff::", "ffff:ffff:ffff:ff00::"
	reply := is(ruleset.CTDirection, num(ruleset.DirReply))
	week := 7 * 24 * time.Hour
	return []ruleset.Rule{
		rule(marked(1<<31|1<<29, 0, true), ruleset.Verdict{Kind: ruleset.Jump, Chain: "z_lan"}),
		rule(marked(0x1fff0000, 0x50000, false), back),
		rule(reply, tcp, flags(ruleset.RST, ruleset.RST), ruleset.SetMark{Keep: 0x7fffffff}, back),
		rule(is(ruleset.CTDirection, num(ruleset.DirOriginal)), back),
		rule(tcp, ruleset.Match{Field: ruleset.TCPFlagsField, Mask: ruleset.Byte(ruleset.SYN | ruleset.RST), Not: true, In: []ruleset.Range{num(0)}}, back),
		rule(tcp, flags(ruleset.FIN|ruleset.SYN|ruleset.RST|ruleset.ACK, ruleset.SYN), is(ruleset.CTStateField, bits(ruleset.StateEstablished)),
			ruleset.VMap{Field: ruleset.CTMark, Mask: ruleset.U32(0x9fff0000), Arms: []ruleset.Arm{
				{Key: ruleset.U32(0x50000), Verdict: drop}, {Key: ruleset.U32(0x60000), Verdict: ruleset.Verdict{Kind: ruleset.Goto, Chain: "z_lan"}}}}),
		rule(tcp, ruleset.Match{Field: ruleset.TCPFlagsField, Mask: ruleset.Byte(0x17), Not: true, In: []ruleset.Range{num(ruleset.SYN)}}, drop),
		rule(ruleset.SetMark{Keep: 0xffff, Set: 0x80050000}),
		rule(ruleset.SetMark{Keep: 0xdfffffff, Set: 1 << 29}, drop),
		rule(v4, ruleset.Meter{Set: "open4", Key: ruleset.IPSaddr, Open: 20}, drop),
		rule(v6, ruleset.Meter{Set: "open6", Key: ruleset.IP6Saddr, Mask: addr(prefix64), Open: 20}, drop),
		rule(v4, ruleset.Meter{Set: "new4", Key: ruleset.IPSaddr, Update: true, Timeout: 10 * time.Second, Limit: ruleset.Limit{Rate: 10, Burst: 100}}, drop),
		rule(v6, ruleset.Meter{Set: "new6", Key: ruleset.IP6Saddr, Mask: addr(prefix56), Update: true, Timeout: 24 * time.Hour,
			Limit: ruleset.Limit{Rate: 259200, Unit: week, Burst: 3}}, drop),
		rule(ruleset.Meter{Set: "share", Key: ruleset.L4Proto, Limit: ruleset.Limit{Rate: 20, Unit: time.Minute, Burst: 20}}, drop),
		rule(v6, ruleset.Meter{Set: "blocked6", Key: ruleset.IP6Saddr, Mask: addr(prefix64), Timeout: 5 * time.Minute}),
		rule(v4, ruleset.Match{Field: ruleset.IPSaddr, Set: "open4", Not: true}, drop),
		rule(v6, ruleset.Match{Field: ruleset.IP6Saddr, Mask: addr(prefix64), Set: "open6", Not: true}, drop),
		rule(v6, ruleset.Match{Field: ruleset.IP6Saddr, Mask: addr(prefix56), Set: "blocked6"}, ruleset.Verdict{Kind: ruleset.Goto, Chain: "z_lan"}),
		rule(v6, ruleset.Match{Field: ruleset.IP6Saddr, Mask: addr(prefix64), In: []ruleset.Range{one("fd00::"), one("fd01::")}}, drop),
		rule(tcp, marked(1<<30, 0, true), ruleset.Limit{Rate: 1, Burst: 1}, ruleset.Log{Group: 101, Prefix: "full rule/01J"}),
		rule(ruleset.Limit{Rate: 3, Unit: time.Hour, Over: true}, drop),
	}
}

func marked(mask, value uint32, not bool) ruleset.Match {
	return ruleset.Match{Field: ruleset.CTMark, Mask: ruleset.U32(mask), Not: not, In: []ruleset.Range{bits(value)}}
}

func flags(mask, value uint8) ruleset.Match {
	return ruleset.Match{Field: ruleset.TCPFlagsField, Mask: ruleset.Byte(mask), In: []ruleset.Range{num(value)}}
}

func everySet() []ruleset.Set {
	el := func(key ...ruleset.Range) ruleset.Element { return ruleset.Element{Key: key} }
	to := func(p uint16, a string, q uint16) ruleset.Element {
		return ruleset.Element{Key: []ruleset.Range{port(p)}, Data: []ruleset.Value{addr(a), ruleset.Port(q)}}
	}
	t := func(types ...ruleset.Type) []ruleset.Type { return types }
	return []ruleset.Set{
		{Name: "quarantine4", Key: t(ruleset.IPv4Addr), Runtime: true, Size: 1 << 16, Elements: []ruleset.Element{el(one("10.9.9.9"))}},
		{Name: "lockout4", Key: t(ruleset.IPv4Addr), Runtime: true, Timeout: true, Dynamic: true, Size: 65535},
		{Name: "lockout6", Key: t(ruleset.IPv6Addr), Runtime: true, Timeout: true, Size: 65535,
			Elements: []ruleset.Element{{Key: []ruleset.Range{one("fd00::9")}, Timeout: time.Hour}}},
		{Name: "blocked4", Key: t(ruleset.IPv4Addr), Runtime: true, Timeout: true, Dynamic: true, Counter: true, Size: 65536, Elements: []ruleset.Element{
			el(one("10.9.9.9")), {Key: []ruleset.Range{one("10.9.9.8")}, Timeout: time.Hour, Packets: 7, Bytes: 420}}},
		{Name: "blocked6", Key: t(ruleset.IPv6Addr), Runtime: true, Timeout: true, Dynamic: true, Counter: true, Size: 65536, Elements: []ruleset.Element{
			{Key: []ruleset.Range{one("fd00::")}, Timeout: time.Hour}}},
		{Name: "open4", Key: t(ruleset.IPv4Addr), Runtime: true, Meter: true, Dynamic: true, Size: 65536},
		{Name: "open6", Key: t(ruleset.IPv6Addr), Runtime: true, Meter: true, Dynamic: true, Size: 65536},
		{Name: "new4", Key: t(ruleset.IPv4Addr), Runtime: true, Meter: true, Dynamic: true, Timeout: true, Size: 4},
		{Name: "new6", Key: t(ruleset.IPv6Addr), Runtime: true, Meter: true, Dynamic: true, Timeout: true, Size: 4},
		{Name: "share", Key: t(ruleset.InetProto), Runtime: true, Meter: true, Dynamic: true, Size: 256},
		{Name: "blocked_nets4", Key: t(ruleset.IPv4Addr), Interval: true, Runtime: true, Timeout: true, Counter: true, Elements: []ruleset.Element{
			el(nets("10.8.0.0/16")), {Key: []ruleset.Range{nets("10.10.0.0/15")}, Timeout: time.Hour, Packets: 7, Bytes: 420}}},
		{Name: "nets4", Key: t(ruleset.IPv4Addr), Interval: true, Elements: []ruleset.Element{
			el(nets("10.0.0.0/8")), el(span("192.168.0.1", "192.168.0.7")), el(one("192.168.0.8")), el(nets("224.0.0.0/3"))}},
		{Name: "zero4", Key: t(ruleset.IPv4Addr), Interval: true, Elements: []ruleset.Element{el(nets("0.0.0.0/8")), el(one("1.0.0.0"))}},
		{Name: "nets6", Key: t(ruleset.IPv6Addr), Interval: true, Elements: []ruleset.Element{el(nets("fd00::/64")), el(one("fe80::1"))}},
		{Name: "hosts4", Key: t(ruleset.IPv4Addr), Elements: []ruleset.Element{el(one("10.0.0.1")), el(one("10.0.0.2"))}},
		{Name: "ports", Key: t(ruleset.InetService), Interval: true, Elements: []ruleset.Element{el(port(22)), el(ports(8000, 8010))}},
		{Name: "pairs", Key: t(ruleset.IPv4Addr, ruleset.InetProto, ruleset.InetService), Elements: []ruleset.Element{el(one("10.0.0.1"), num(6), port(22))}},
		{Name: "boxes", Key: t(ruleset.IPv4Addr, ruleset.InetProto, ruleset.InetService), Interval: true, Elements: []ruleset.Element{
			el(nets("10.0.0.0/24"), num(6), ports(80, 90)), el(one("10.0.1.1"), num(17), port(53))}},
		{Name: "devs", Key: t(ruleset.IfName), Elements: []ruleset.Element{el(dev("wan0"))}},
		{Name: "places", Key: t(ruleset.IfName, ruleset.IPv6Addr), Elements: []ruleset.Element{el(dev("wan0"), one("fd00::1"))}},
		{Name: "kinds", Key: t(ruleset.ICMPType), Elements: []ruleset.Element{el(num(8))}},
		{Name: "kinds6", Key: t(ruleset.ICMPv6Type), Elements: []ruleset.Element{el(num(128))}},
		{Name: "protos", Key: t(ruleset.InetProto), Elements: []ruleset.Element{el(num(6))}},
		{Name: "marks", Key: t(ruleset.Mark), Elements: []ruleset.Element{el(bits(7))}},
		{Name: "empty", Key: t(ruleset.IPv4Addr), Interval: true, Runtime: true},
		{Name: "fwd_tcp4", Key: t(ruleset.InetService), Data: t(ruleset.IPv4Addr, ruleset.InetService),
			Elements: []ruleset.Element{to(8000, "10.0.0.1", 9000), to(8001, "10.0.0.1", 9001)}},
		{Name: "fwd_udp6", Key: t(ruleset.InetService), Data: t(ruleset.IPv6Addr, ruleset.InetService),
			Elements: []ruleset.Element{to(8000, "fd00::1", 9000)}},
	}
}

var (
	moving   = regexp.MustCompile(` expires [0-9a-z]+|handle [0-9]+`)
	userData = regexp.MustCompile(`(?m)^(  userdata = .*)?\n`) // of rules; and empty lines
)

// listings is what nft says of the ruleset: as text, and as the kernel's own objects.
func listings(t *testing.T) (text, code string) {
	t.Helper()
	text = moving.ReplaceAllString(run(t, "nft", "list", "ruleset"), "")
	code = userData.ReplaceAllString(run(t, "nft", "--debug=netlink", "list", "ruleset"), "")
	lines := strings.Split(moving.ReplaceAllString(code, ""), "\n")
	for i := 0; i < len(lines); i++ { // hash sets are listed in any order
		j := i
		for j < len(lines) && strings.HasPrefix(lines[j], "\telement") {
			j++
		}
		slices.Sort(lines[i:j])
		i = max(i, j-1)
	}
	return text, strings.Join(lines, "\n")
}

func TestNetlinkAndTextMakeTheSameRuleset(t *testing.T) {
	var text, code, textByNft, codeByNft string
	rs := everything()
	inside(t, func(t *testing.T) {
		apply(t, open(t), rs)
		text, code = listings(t)
	})
	inside(t, func(t *testing.T) {
		nft(t, rs.String())
		textByNft, codeByNft = listings(t)
	})
	if d := firstDifference(text, textByNft); d != "" {
		t.Errorf("listed as text: %s", d)
	}
	if d := firstDifference(code, codeByNft); d != "" {
		t.Errorf("listed as code: %s", d)
	}
}

// noHandles leaves out the numbers of rules.
func noHandles(code string) string {
	return regexp.MustCompile(`(?m)^(inet gatehouse \S+) .*`).ReplaceAllString(code, "$1")
}

// firstDifference names the first line in which a and b differ, "" when none.
func firstDifference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(as), len(bs)) {
		var x, y string
		if i < len(as) {
			x = as[i]
		}
		if i < len(bs) {
			y = bs[i]
		}
		if x != y {
			return "by netlink\n" + strings.Join(as[max(0, i-8):min(len(as), i+4)], "\n") + "\nby nft -f\n" + strings.Join(bs[max(0, i-8):min(len(bs), i+4)], "\n")
		}
	}
	return ""
}
