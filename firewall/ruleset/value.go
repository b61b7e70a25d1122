package ruleset

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Type is the kind of a value in a register, set key or map.
type Type uint8

// The types.
const (
	IfName      Type = iota + 1 // 16 bytes, NUL padded
	NFProto                     // 1 byte
	IPv4Addr                    // 4 bytes
	IPv6Addr                    // 16 bytes
	InetProto                   // 1 byte
	InetService                 // 2 bytes, network order
	ICMPType                    // 1 byte
	ICMPv6Type                  // 1 byte
	CTState                     // 4 bytes, host order, bits
	CTStatus                    // 4 bytes, host order, bits
	Mark                        // 4 bytes, host order
	AddrType                    // 4 bytes, host order (fib type)
	Integer8                    // 1 byte
	TCPFlag                     // 1 byte, bits
	CTDir                       // 1 byte
)

// Len is the size of a value in bytes.
func (t Type) Len() int {
	switch t {
	case IfName, IPv6Addr:
		return 16
	case IPv4Addr, CTState, CTStatus, Mark, AddrType:
		return 4
	case InetService:
		return 2
	}
	return 1
}

// String is nft's name of the type.
func (t Type) String() string {
	return [...]string{"", "ifname", "nf_proto", "ipv4_addr", "ipv6_addr", "inet_proto", "inet_service",
		"icmp_type", "icmpv6_type", "ct_state", "ct_status", "mark", "fib_addrtype", "integer", "tcp_flag", "ct_dir"}[t]
}

// Value is the bytes of one value, as the kernel keeps them in a register.
type Value string

// Range is a value, or all values from Lo to Hi, both included.
type Range struct{ Lo, Hi Value }

// One is the range that holds only v.
func One(v Value) Range { return Range{v, v} }

// Single reports whether the range is one value.
func (r Range) Single() bool { return r.Lo == r.Hi }

// Addr is an IPv4 or IPv6 address.
func Addr(a netip.Addr) Value { return Value(a.AsSlice()) }

// Net is all addresses of a network.
func Net(p netip.Prefix) Range {
	lo := p.Masked().Addr().AsSlice()
	hi := append([]byte(nil), lo...)
	for i := p.Bits(); i < len(hi)*8; i++ {
		hi[i/8] |= 1 << (7 - i%8)
	}
	return Range{Value(lo), Value(hi)}
}

// Port is a TCP, UDP or SCTP port.
func Port(n uint16) Value { return Value(binary.BigEndian.AppendUint16(nil, n)) }

// Byte is a value of one byte: a protocol, an ICMP type, a hop limit.
func Byte(n uint8) Value { return Value([]byte{n}) }

// Iface is a device name, NUL padded to 16 bytes.
func Iface(name string) Value {
	var b [16]byte
	copy(b[:15], name)
	return Value(b[:])
}

// U32 is a number in host order: a mark, a state, a status.
func U32(n uint32) Value { return Value(binary.NativeEndian.AppendUint32(nil, n)) }

// ct states and statuses, as in linux/netfilter/nf_conntrack_common.h.
const (
	StateInvalid     = 1
	StateEstablished = 2
	StateRelated     = 4
	StateNew         = 8
	StatusAssured    = 0x04 // TCP: an acknowledgement that fits came after the SYN and its answer
	StatusDNAT       = 0x20
)

// The flags of a TCP header (RFC 9293).
const (
	FIN = 0x01
	SYN = 0x02
	RST = 0x04
	ACK = 0x10
)

// The directions of a connection.
const (
	DirOriginal = 0
	DirReply    = 1
)

// fib address types, as in linux/rtnetlink.h.
const (
	AddrUnicast   = 1
	AddrLocal     = 2
	AddrBroadcast = 3
	AddrMulticast = 5
)

// Text is the value as nft writes it.
func (t Type) Text(v Value) string {
	b := []byte(v)
	switch t {
	case IfName:
		return strconv.Quote(strings.TrimRight(string(b), "\x00"))
	case IPv4Addr, IPv6Addr:
		a, _ := netip.AddrFromSlice(b)
		return a.String()
	case InetService:
		return strconv.Itoa(int(binary.BigEndian.Uint16(b)))
	case NFProto:
		return map[byte]string{2: "ipv4", 10: "ipv6"}[b[0]]
	case InetProto:
		if s, ok := protoNames[b[0]]; ok {
			return s
		}
		return strconv.Itoa(int(b[0]))
	case ICMPType:
		return nameOr(icmpNames, b[0])
	case ICMPv6Type:
		return nameOr(icmp6Names, b[0])
	case CTState:
		return bitNames(stateNames, binary.NativeEndian.Uint32(b))
	case CTStatus:
		return bitNames(statusNames, binary.NativeEndian.Uint32(b))
	case AddrType:
		return nameOr(addrTypeNames, binary.NativeEndian.Uint32(b))
	case TCPFlag:
		return strings.ReplaceAll(bitNames(flagNames, uint32(b[0])), ",", " | ")
	case CTDir:
		return map[byte]string{DirOriginal: "original", DirReply: "reply"}[b[0]]
	case Mark:
		return fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(b))
	}
	return strconv.Itoa(int(b[0]))
}

// RangeText is the range as nft writes it: a value, a network or lo-hi.
func (t Type) RangeText(r Range) string {
	if r.Single() {
		return t.Text(r.Lo)
	}
	if t == IPv4Addr || t == IPv6Addr {
		if p, ok := PrefixOf(r); ok {
			return p.String()
		}
	}
	return t.Text(r.Lo) + "-" + t.Text(r.Hi)
}

// PrefixOf is the network that holds exactly the addresses of r, if there is one.
func PrefixOf(r Range) (netip.Prefix, bool) {
	lo, _ := netip.AddrFromSlice([]byte(r.Lo))
	for bits := 0; bits <= lo.BitLen(); bits++ {
		if p := netip.PrefixFrom(lo, bits); p.Masked().Addr() == lo && Net(p).Hi == r.Hi {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// bitNames is the names of the bits of n, lowest first.
func bitNames(names map[uint32]string, n uint32) string {
	var words []string
	for bit := uint32(1); bit != 0; bit <<= 1 {
		if n&bit != 0 {
			words = append(words, nameOr(names, bit))
		}
	}
	if words == nil {
		return "0"
	}
	return strings.Join(words, ",")
}

func nameOr[K ~uint8 | ~uint32](names map[K]string, k K) string {
	if s, ok := names[k]; ok {
		return s
	}
	return strconv.FormatUint(uint64(k), 10)
}

var protoNames = map[byte]string{1: "icmp", 2: "igmp", 6: "tcp", 17: "udp", 47: "gre", 50: "esp", 51: "ah", 58: "ipv6-icmp", 132: "sctp"}

var icmpNames = map[byte]string{0: "echo-reply", 3: "destination-unreachable", 4: "source-quench", 5: "redirect", 8: "echo-request",
	9: "router-advertisement", 10: "router-solicitation", 11: "time-exceeded", 12: "parameter-problem", 13: "timestamp-request",
	14: "timestamp-reply", 15: "info-request", 16: "info-reply", 17: "address-mask-request", 18: "address-mask-reply"}

var icmp6Names = map[byte]string{1: "destination-unreachable", 2: "packet-too-big", 3: "time-exceeded", 4: "parameter-problem",
	128: "echo-request", 129: "echo-reply", 130: "mld-listener-query", 131: "mld-listener-report", 132: "mld-listener-done",
	133: "nd-router-solicit", 134: "nd-router-advert", 135: "nd-neighbor-solicit", 136: "nd-neighbor-advert", 137: "nd-redirect",
	141: "ind-neighbor-solicit", 142: "ind-neighbor-advert", 143: "mld2-listener-report"}

var stateNames = map[uint32]string{1: "invalid", 2: "established", 4: "related", 8: "new", 64: "untracked"}

var statusNames = map[uint32]string{4: "assured", 0x10: "snat", 0x20: "dnat"}

var flagNames = map[uint32]string{FIN: "fin", SYN: "syn", RST: "rst", 8: "psh", ACK: "ack", 0x20: "urg", 0x40: "ecn", 0x80: "cwr"}

var addrTypeNames = map[uint32]string{1: "unicast", 2: "local", 3: "broadcast", 4: "anycast", 5: "multicast"}
