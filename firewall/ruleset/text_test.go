package ruleset_test

import (
	"net/netip"
	"testing"
	"time"

	. "gatehouse/firewall/ruleset"
)

func is(f Field, v ...Value) Match {
	m := Match{Field: f}
	for _, v := range v {
		m.In = append(m.In, One(v))
	}
	return m
}

func TestRuleTextLeavesOutWhatNftImplies(t *testing.T) {
	v4, v6, tcp := is(NFProtoField, Byte(2)), is(NFProtoField, Byte(10)), is(L4Proto, Byte(6))
	host := is(IPSaddr, Addr(netip.MustParseAddr("10.0.0.1")))
	accept := Verdict{Kind: Accept}
	for _, c := range []struct {
		want  string
		stmts []Stmt
	}{
		{`ip saddr 10.0.0.1 tcp dport 22 accept`, []Stmt{v4, host, tcp, is(TCPDport, Port(22)), accept}},
		{`meta nfproto ipv4 meta l4proto tcp ip saddr 10.0.0.1 tcp dport 22 accept`, []Stmt{v4, tcp, host, is(TCPDport, Port(22)), accept}},
		{`meta nfproto ipv6 tcp dport { 22, 80 } accept`, []Stmt{v6, tcp, is(TCPDport, Port(22), Port(80)), accept}},
		{`icmp type echo-request accept`, []Stmt{v4, is(L4Proto, Byte(1)), is(ICMPTypeField, Byte(8)), accept}},
		{`meta nfproto ipv4 meta l4proto icmp ct state new accept`,
			[]Stmt{v4, is(L4Proto, Byte(1)), is(CTStateField, U32(StateNew)), accept}},
		{`meta l4proto icmp icmp type echo-request accept`, []Stmt{is(L4Proto, Byte(1)), is(ICMPTypeField, Byte(8)), accept}},
		{`meta l4proto { tcp, udp } th dport 53 accept`, []Stmt{is(L4Proto, Byte(6), Byte(17)), is(THDport, Port(53)), accept}},
		{`tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu`, []Stmt{tcp, Match{Field: TCPFlagsField, Mask: Byte(SYN | RST), In: []Range{One(Byte(SYN))}}, ClampMSS{}}},
		{`ct state ! established,related drop`, []Stmt{Match{Field: CTStateField, Not: true, In: []Range{One(U32(StateEstablished | StateRelated))}}, Verdict{Kind: Drop}}},
		{`counter name "r_1" goto a_1`, []Stmt{Label{Rule: 1, Revision: 2}, Count{"r_1"}, Verdict{Goto, "a_1"}}},
		{`ip saddr != @home accept`, []Stmt{v4, Match{Field: IPSaddr, Not: true, Set: "home"}, accept}},
		{`meta nfproto ipv6 meta l4proto udp dnat ip6 to udp dport map @f`, []Stmt{v6, is(L4Proto, Byte(17)), DNAT{Map: "f", ByUDP: true, IPv6: true}}},
		{`ct mark & 0xa0000000 != 0x00000000 jump m`, []Stmt{Match{Field: CTMark, Mask: U32(5 << 29), Not: true, In: []Range{One(U32(0))}}, Verdict{Jump, "m"}}},
		{`ct mark & 0x1fff0000 vmap { 0x00010000 : accept }`, []Stmt{VMap{Field: CTMark, Mask: U32(0x1fff0000), Arms: []Arm{{U32(1 << 16), accept}}}}},
		{`ct mark set ct mark & 0x0000ffff | 0x80010000`, []Stmt{SetMark{Keep: 0xffff, Set: 0x80010000}}},
		{`ct mark set ct mark | 0x00000001`, []Stmt{SetMark{Keep: 0xfffffffe, Set: 1}}},
		{`ct direction reply ct status ! assured tcp flags & (rst | ack) == rst`, []Stmt{is(CTDirection, Byte(DirReply)),
			Match{Field: CTStatusField, Not: true, In: []Range{One(U32(StatusAssured))}}, tcp, Match{Field: TCPFlagsField, Mask: Byte(RST | ACK), In: []Range{One(Byte(RST))}}}},
		{`ip6 saddr & ffff:ffff:ffff:ffff:: != @s accept`, []Stmt{v6, Match{Field: IP6Saddr, Mask: Addr(netip.MustParseAddr("ffff:ffff:ffff:ffff::")), Not: true, Set: "s"}, accept}},
		{`add @s { ip saddr ct count over 20 } accept`, []Stmt{v4, Meter{Set: "s", Key: IPSaddr, Open: 20}, accept}},
		{`update @s { ip saddr timeout 1500ms limit rate over 3/week burst 7 packets }`,
			[]Stmt{v4, Meter{Set: "s", Key: IPSaddr, Update: true, Timeout: 1500 * time.Millisecond, Limit: Limit{Rate: 3, Unit: 7 * 24 * time.Hour, Burst: 7}}}},
		{`limit rate over 2/minute drop`, []Stmt{Limit{Rate: 2, Unit: time.Minute, Over: true}, Verdict{Kind: Drop}}},
		{`dnat ip6 to [fd00::1]:80`, []Stmt{DNAT{To: netip.MustParseAddr("fd00::1"), Port: 80}}},
	} {
		if got := (Rule{Stmts: c.stmts}).String(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
