package wan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Kind is a DHCP message type (RFC 2132 §9.6).
type Kind uint8

// The message types that a client sends or hears.
const (
	Discover Kind = 1
	Offer    Kind = 2
	Request  Kind = 3
	Decline  Kind = 4
	Ack      Kind = 5
	Nak      Kind = 6
	Release  Kind = 7
)

// Message is what the client sends.
type Message struct {
	Kind      Kind
	XID       uint32
	Secs      uint16     // since the exchange began
	Broadcast bool       // ask for a broadcast answer
	CIAddr    netip.Addr // our address, when we have and use it
	Want      netip.Addr // option 50
	Server    netip.Addr // option 54
	To        netip.Addr // unicast to this server by the routing table; zero = broadcast on the link
}

// Reply is what a server sent, cleaned: every field is usable or zero.
type Reply struct {
	Kind  Kind
	XID   uint32
	MAC   string // chaddr, as bytes
	Lease Lease  // without times; Granted is the length
	T1    time.Duration
	T2    time.Duration
}

// maxRoutes bounds option 121: more is no access network but an attack.
const maxRoutes = 64

// asked is the parameter request list; option 121 stands before 3 (RFC 3442).
var asked = []byte{1, 121, 3, 6, 12, 15, 26, 51, 54, 58, 59}

// Marshal is the message as UDP payload. host may be empty (option 12 is left out).
func (m Message) Marshal(mac net.HardwareAddr, host string) ([]byte, error) {
	p, err := dhcpv4.New(dhcpv4.WithHwAddr(mac), dhcpv4.WithBroadcast(m.Broadcast),
		dhcpv4.WithMessageType(dhcpv4.MessageType(m.Kind)))
	if err != nil {
		return nil, fmt.Errorf("make DHCP message: %w", err)
	}
	binary.BigEndian.PutUint32(p.TransactionID[:], m.XID)
	p.NumSeconds = m.Secs
	set := func(code uint8, v []byte) { p.Options[code] = v }
	if m.CIAddr.IsValid() {
		p.ClientIPAddr = m.CIAddr.AsSlice()
	}
	if m.Want.IsValid() {
		set(50, m.Want.AsSlice())
	}
	if m.Server.IsValid() {
		set(54, m.Server.AsSlice())
	}
	set(61, append([]byte{1}, mac...))
	if m.Kind != Release && m.Kind != Decline { // RFC 2131 table 5: they must not ask
		set(55, asked)
		set(57, []byte{0x05, 0xdc}) // 1500
		set(60, []byte("gatehouse"))
		if host != "" {
			set(12, []byte(host))
		}
	}
	return p.ToBytes(), nil
}

// errNotForUs is every packet that is no well-formed answer of a server.
var errNotForUs = errors.New("not an answer of a DHCP server")

// Parse reads the UDP payload of a server's answer. It never panics, whatever
// the bytes are, and leaves out what no access network can mean.
func Parse(b []byte) (r Reply, err error) {
	// The library has had panics that anyone on the link could cause
	// (insomniacslk/dhcp#583): one bad packet must not end the service.
	defer func() {
		if v := recover(); v != nil {
			r, err = Reply{}, errNotForUs
		}
	}()
	p, err := dhcpv4.FromBytes(b)
	if err != nil {
		// Some servers forget the end option.
		if p, err = dhcpv4.FromBytes(append(b[:len(b):len(b)], 255)); err != nil {
			return Reply{}, errNotForUs
		}
	}
	if p.OpCode != dhcpv4.OpcodeBootReply || len(p.ClientHWAddr) != 6 {
		return Reply{}, errNotForUs
	}
	o := overloaded(p.Options, b)
	r = Reply{Kind: Kind(number(o[53], 1)), XID: binary.BigEndian.Uint32(p.TransactionID[:]), MAC: string(p.ClientHWAddr)}
	r.T1, r.T2 = seconds(o[58]), seconds(o[59])
	l := &r.Lease
	l.Granted = seconds(o[51])
	l.Server = unicast(o[54])
	switch r.Kind {
	case Nak:
		return r, nil
	case Offer, Ack:
	default:
		return Reply{}, errNotForUs
	}
	addr := unicast(p.YourIPAddr.To4())
	if !addr.IsValid() || addr.IsLinkLocalUnicast() {
		return Reply{}, errNotForUs
	}
	l.Addr = netip.PrefixFrom(addr, maskBits(o[1], addr))
	if l.Router = unicast(o[3]); l.Router == addr {
		l.Router = netip.Addr{}
	}
	l.DNS = addrs(o[6])
	l.Domain = hostName(o[15])
	if mtu := number(o[26], 2); mtu >= 576 && mtu <= 9216 {
		l.MTU = mtu
	}
	l.Routes = routes(o[121], addr)
	return r, nil
}

// overloaded adds the options that option 52 says are in file and sname
// (RFC 2131 §4.1), which the library does not read.
func overloaded(o dhcpv4.Options, b []byte) dhcpv4.Options {
	where := number(o[52], 1)
	for i, field := range [][]byte{b[108:236], b[44:108]} {
		if where&(1<<i) == 0 {
			continue
		}
		more := dhcpv4.Options{}
		if more.FromBytes(field) != nil {
			continue
		}
		for code, v := range more {
			if _, have := o[code]; !have {
				o[code] = v
			}
		}
	}
	return o
}

// number reads an option of exactly size bytes, else 0.
func number(v []byte, size int) int {
	if len(v) != size {
		return 0
	}
	n := 0
	for _, c := range v {
		n = n<<8 | int(c)
	}
	return n
}

func seconds(v []byte) time.Duration { return time.Duration(number(v, 4)) * time.Second }

// unicast reads the first address of v; the zero Addr when it is no address that a host can have.
func unicast(v []byte) netip.Addr {
	if len(v) < 4 {
		return netip.Addr{}
	}
	a := netip.AddrFrom4([4]byte(v[:4]))
	if first := v[0]; first == 0 || first == 127 || first >= 224 {
		return netip.Addr{}
	}
	return a
}

// addrs reads a list of at most eight addresses.
func addrs(v []byte) (list []netip.Addr) {
	for ; len(v) >= 4 && len(list) < 8; v = v[4:] {
		if a := unicast(v); a.IsValid() {
			list = append(list, a)
		}
	}
	return list
}

// maskBits is the length of option 1; without a usable one the class of the
// address decides, as it did before there were masks.
func maskBits(v []byte, a netip.Addr) int {
	if len(v) == 4 {
		if ones, size := net.IPMask(v).Size(); size == 32 && ones >= 2 {
			return ones
		}
	}
	ones, _ := net.IP(a.AsSlice()).DefaultMask().Size()
	return ones
}

// hostName is v when it is a plain domain name, else empty: it ends up on pages and in logs.
func hostName(v []byte) string {
	s := strings.TrimRight(string(v), "\x00.")
	if len(s) > 253 {
		return ""
	}
	for _, label := range strings.Split(s, ".") {
		if len(label) == 0 || len(label) > 63 || strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return ""
		}
	}
	return s
}

// routes reads option 121 (RFC 3442). A malformed option counts as none at all,
// so that option 3 is used.
func routes(v []byte, self netip.Addr) (list []Route) {
	for len(v) > 0 {
		bits := int(v[0])
		n := (bits + 7) / 8
		if bits > 32 || len(v) < 1+n+4 || len(list) == maxRoutes {
			return nil
		}
		var dst [4]byte
		copy(dst[:], v[1:1+n])
		via, given := unicast(v[1+n:]), [4]byte(v[1+n:1+n+4]) != [4]byte{}
		v = v[1+n+4:]
		p := netip.PrefixFrom(netip.AddrFrom4(dst), bits).Masked()
		known := slices.ContainsFunc(list, func(r Route) bool { return r.Dst == p })
		if known || given && (!via.IsValid() || via == self) || !routable(p) {
			continue
		}
		list = append(list, Route{Dst: p, Via: via})
	}
	return list
}

// routable reports whether p is a network that a provider can route: not this
// host's own, not link-local, not multicast.
func routable(p netip.Prefix) bool {
	if p.Bits() <= 1 {
		return true
	}
	for _, no := range []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"} {
		if netip.MustParsePrefix(no).Overlaps(p) {
			return false
		}
	}
	return true
}
