package dhcp

import (
	"encoding/binary"
	"net/netip"
)

// datagram is an IPv4 packet (RFC 791) with one UDP datagram (RFC 768) from the
// server port to the client port, checksums and all.
func datagram(src, dst netip.Addr, payload []byte) []byte {
	const ipLen, udpLen = 20, 8
	p := make([]byte, ipLen+udpLen, ipLen+udpLen+len(payload))
	p = append(p, payload...)
	p[0] = 4<<4 | ipLen/4
	p[1] = 0xc0 // CS6, as other servers send it
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	p[6] = 0x40 // do not fragment: many boot ROMs cannot put fragments together
	p[8] = 64
	p[9] = 17
	s, d := src.As4(), dst.As4()
	copy(p[12:], s[:])
	copy(p[16:], d[:])
	binary.BigEndian.PutUint16(p[10:], ^sum(p[:ipLen], 0))

	u := p[ipLen:]
	binary.BigEndian.PutUint16(u[0:], serverPort)
	binary.BigEndian.PutUint16(u[2:], clientPort)
	binary.BigEndian.PutUint16(u[4:], uint16(len(u)))
	pseudo := uint32(sum(p[12:20], 0)) + 17 + uint32(len(u))
	c := ^sum(u, pseudo)
	if c == 0 {
		c = 0xffff // zero means no checksum
	}
	binary.BigEndian.PutUint16(u[6:], c)
	return p
}

// sum is the ones' complement sum of RFC 1071, on top of start.
func sum(b []byte, start uint32) uint16 {
	s := start
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// arpProbe asks who has the address without claiming one (RFC 5227 section 2.1.1).
func arpProbe(from [6]byte, a netip.Addr) []byte {
	p := make([]byte, 28)
	copy(p, []byte{0, 1, 8, 0, 6, 4, 0, 1})
	copy(p[8:], from[:])
	t := a.As4()
	copy(p[24:], t[:])
	return p
}

// arpSender reads who an ARP packet says has which address. ok is false for
// anything that is not ARP for IPv4 over Ethernet, and for probes.
func arpSender(p []byte) (hw [6]byte, a netip.Addr, ok bool) {
	if len(p) < 28 || [6]byte(p[:6]) != [6]byte{0, 1, 8, 0, 6, 4} {
		return hw, a, false
	}
	a = netip.AddrFrom4([4]byte(p[14:18]))
	return [6]byte(p[8:14]), a, !a.IsUnspecified()
}
