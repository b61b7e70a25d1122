package ruleset

import (
	"net/netip"
	"time"
)

// Field is what a match, key or map looks at.
type Field uint8

// The fields. The ones of a header imply its protocol: String leaves out the
// explicit match before them, as nft does; kernel needs it there.
const (
	IIFName Field = iota + 1
	OIFName
	NFProtoField // meta nfproto
	L4Proto      // meta l4proto
	IPSaddr      // needs nfproto ipv4 before it
	IPDaddr
	IP6Saddr // needs nfproto ipv6 before it
	IP6Daddr
	IP6HopLimit
	THSport // needs an l4proto match before it
	THDport
	TCPSport // needs l4proto tcp before it
	TCPDport
	UDPSport // needs l4proto udp before it
	UDPDport
	SCTPSport // needs l4proto sctp before it
	SCTPDport
	ICMPTypeField   // needs nfproto ipv4 and l4proto icmp before it
	ICMPv6TypeField // needs nfproto ipv6 and l4proto ipv6-icmp before it
	TCPFlagsField   // needs l4proto tcp before it
	CTStateField
	CTStatusField
	CTMark
	CTDirection
	FibDaddrType    // fib daddr type
	FibDaddrIIFType // fib daddr . iif type: local only if it is an address of the in-interface
)

// Type is the type of the field's value.
func (f Field) Type() Type {
	switch f {
	case IIFName, OIFName:
		return IfName
	case NFProtoField:
		return NFProto
	case L4Proto:
		return InetProto
	case IPSaddr, IPDaddr:
		return IPv4Addr
	case IP6Saddr, IP6Daddr:
		return IPv6Addr
	case IP6HopLimit:
		return Integer8
	case ICMPTypeField:
		return ICMPType
	case ICMPv6TypeField:
		return ICMPv6Type
	case CTStateField:
		return CTState
	case CTStatusField:
		return CTStatus
	case TCPFlagsField:
		return TCPFlag
	case CTMark:
		return Mark
	case CTDirection:
		return CTDir
	case FibDaddrType, FibDaddrIIFType:
		return AddrType
	}
	return InetService
}

// String is nft's name of the field.
func (f Field) String() string {
	return [...]string{"", "iifname", "oifname", "meta nfproto", "meta l4proto", "ip saddr", "ip daddr", "ip6 saddr", "ip6 daddr",
		"ip6 hoplimit", "th sport", "th dport", "tcp sport", "tcp dport", "udp sport", "udp dport", "sctp sport", "sctp dport",
		"icmp type", "icmpv6 type", "tcp flags", "ct state", "ct status", "ct mark", "ct direction", "fib daddr type", "fib daddr . iif type"}[f]
}

// Stmt is one statement of a rule.
type Stmt interface{ String() string }

// Match holds when the field is in In (or in the named Set), or not in it.
// In with more than one range is an anonymous set: sorted, merged, not
// overlapping. CTStateField and CTStatusField match when any bit of the one value is set.
// With a Mask the bits beside it count as 0, and In holds single values.
// A Set whose elements carry a limit (Meter) is only asked with Not: an element
// that is found runs its limit, as if it had been met once more.
type Match struct {
	Field Field
	Mask  Value // "" = every bit counts
	Not   bool
	In    []Range
	Set   string // instead of In
}

// NoRouteBack matches a packet whose source would not be reached through the
// interface it came in by (strict reverse path; RFC 3704): fib saddr . iif oif missing.
type NoRouteBack struct{}

// VMap goes where the field's value says: an anonymous verdict map.
type VMap struct {
	Field Field
	Mask  Value // as in Match
	Arms  []Arm
}

// Arm is one entry of a VMap.
type Arm struct {
	Key     Value
	Verdict Verdict
}

// Verdict ends the rule: accept, drop, return, or goto or jump to Chain.
type Verdict struct {
	Kind  VerdictKind
	Chain string
}

// VerdictKind is the kind of a Verdict.
type VerdictKind uint8

// The verdicts.
const (
	Accept VerdictKind = iota + 1
	Drop
	Return
	Goto
	Jump
)

// Count adds to the named counter.
type Count struct{ Name string }

// Log sends the packet's head to an NFLOG group with a prefix of at most 127 bytes.
type Log struct {
	Group  uint16
	Prefix string
}

// Limit holds while fewer than Rate packets in a Unit were seen, after a burst
// of Burst; or, with Over, from then on.
type Limit struct {
	Rate  uint64
	Unit  time.Duration // second, minute, hour, day or week; 0 = second
	Burst uint32        // 0 is the kernel's default of 5
	Over  bool
}

// Meter puts the key into a Dynamic set and holds when it is there, unless its
// element has a limit that it does not exceed. A set that is full takes no new
// keys: then it does not hold, whatever the limit.
type Meter struct {
	Set     string
	Key     Field
	Mask    Value // as in Match
	Update  bool  // the timeout of an element that is there begins anew
	Timeout time.Duration
	Open    uint32 // the limit: more connections than this are open (ct count over); 0 = none
	Limit   Limit  // the limit: its Rate is exceeded; 0 = none
}

// SetMark keeps the bits of the connection's mark that are in Keep, and sets those of Set.
type SetMark struct{ Keep, Set uint32 }

// RejectWith answers with a TCP reset (needs l4proto tcp before it) or ICMP admin-prohibited.
type RejectWith struct{ Reset bool }

// DNAT rewrites the destination. With Map, address and port come from that
// named map (key: the TCP or UDP destination port; data: address . port).
type DNAT struct {
	To    netip.Addr
	Port  uint16 // 0 = unchanged
	Map   string
	ByUDP bool // the key of Map is udp dport, else tcp dport
	IPv6  bool // family of Map's addresses
}

// Masquerade rewrites the source to the out-interface's address and follows it.
type Masquerade struct{}

// ClampMSS sets the TCP MSS to what the route's MTU allows; needs a match of SYN before it.
type ClampMSS struct{}

// Label writes the connection's ct label once: rule number, in-interface index
// (read from the packet), revision (design 7). nft text cannot say it: its
// String is empty and the text of a rule leaves it out.
type Label struct {
	Rule     uint32
	Revision uint32
}
