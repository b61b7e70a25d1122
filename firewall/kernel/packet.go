package kernel

import (
	"encoding/binary"
	"net/netip"

	"gatehouse/firewall"

	"golang.org/x/sys/unix"
)

// parsePacket reads the head of an IPv4 (RFC 791) or IPv6 (RFC 8200) packet:
// what it is and its whole length in bytes. The bytes come from strangers and
// may be cut anywhere: what is not there stays zero, and ok is false when not
// even the addresses are there.
func parsePacket(b []byte) (p firewall.Packet, length int, ok bool) {
	if len(b) == 0 {
		return p, 0, false
	}
	switch b[0] >> 4 {
	case 4:
		return parseIPv4(b)
	case 6:
		return parseIPv6(b)
	}
	return p, len(b), false
}

func parseIPv4(b []byte) (p firewall.Packet, length int, ok bool) {
	if len(b) < 20 {
		return p, len(b), false
	}
	p.Src, p.Dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	p.Proto = b[9]
	const offset = 0x1fff // of a fragment; only the first has ports
	head := int(b[0]&0x0f) * 4
	if head >= 20 && head <= len(b) && binary.BigEndian.Uint16(b[6:])&offset == 0 {
		parseTransport(&p, b[head:])
	}
	return p, int(binary.BigEndian.Uint16(b[2:])), true
}

func parseIPv6(b []byte) (p firewall.Packet, length int, ok bool) {
	if len(b) < 40 {
		return p, len(b), false
	}
	p.Src, p.Dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
	p.Proto = b[6]
	length = 40 + int(binary.BigEndian.Uint16(b[4:]))
	b = b[40:]
	for {
		size := 0
		switch p.Proto {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS, unix.IPPROTO_MH:
			if len(b) >= 8 {
				size = (int(b[1]) + 1) * 8
			}
		case unix.IPPROTO_AH:
			if len(b) >= 8 {
				size = (int(b[1]) + 2) * 4
			}
		case unix.IPPROTO_FRAGMENT:
			if len(b) >= 8 {
				size = 8
			}
		default:
			parseTransport(&p, b)
			return p, length, true
		}
		if size == 0 || size > len(b) {
			return p, length, true
		}
		later := p.Proto == unix.IPPROTO_FRAGMENT && binary.BigEndian.Uint16(b[2:])>>3 != 0
		p.Proto, b = b[0], b[size:]
		if later {
			return p, length, true
		}
	}
}

// parseTransport reads ports or the ICMP type.
func parseTransport(p *firewall.Packet, b []byte) {
	switch p.Proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_UDPLITE, unix.IPPROTO_DCCP:
		if len(b) >= 4 {
			p.SrcPort, p.DstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		}
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		if len(b) >= 1 {
			p.ICMP = b[0]
		}
	}
}
