package simulate_test

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"

	"gatehouse/firewall"
)

// mark stands in front of the number that every probe carries in its payload.
const mark = "gate"

// hopLimit is what an honest sender of the message would write.
func hopLimit(p firewall.Packet) uint8 {
	switch {
	case p.Proto == 58 && p.ICMP >= 133 && p.ICMP <= 137:
		return 255
	case p.Proto == 58 && (p.ICMP >= 130 && p.ICMP <= 132 || p.ICMP == 143):
		return 1
	}
	return 64
}

// frame is the packet on the wire, carrying id.
func frame(p firewall.Packet, to, from [6]byte, id uint32) []byte {
	body := transport(p, id)
	eth := slices.Concat(to[:], from[:])
	if p.Src.Is4() {
		ip := make([]byte, 20)
		ip[0], ip[8], ip[9] = 0x45, hopLimit(p), p.Proto
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(body)))
		binary.BigEndian.PutUint16(ip[4:], uint16(id))
		copy(ip[12:], p.Src.AsSlice())
		copy(ip[16:], p.Dst.AsSlice())
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		return slices.Concat(eth, []byte{0x08, 0x00}, ip, body)
	}
	ip := make([]byte, 40)
	ip[0], ip[6], ip[7] = 0x60, p.Proto, hopLimit(p)
	binary.BigEndian.PutUint16(ip[4:], uint16(len(body)))
	copy(ip[8:], p.Src.AsSlice())
	copy(ip[24:], p.Dst.AsSlice())
	return slices.Concat(eth, []byte{0x86, 0xdd}, ip, body)
}

func transport(p firewall.Packet, id uint32) []byte {
	payload := binary.BigEndian.AppendUint32([]byte(mark), id)
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, p.SrcPort), p.DstPort)
	pseudo := slices.Concat(p.Src.AsSlice(), p.Dst.AsSlice())
	switch p.Proto {
	case 6:
		b := slices.Concat(ports, []byte{0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, 2 /* SYN */, 16, 0, 0, 0, 0, 0}, payload)
		binary.BigEndian.PutUint16(b[16:], checksum(pseudo, []byte{0, 6}, length(b), b))
		return b
	case 17:
		b := slices.Concat(ports, []byte{0, 0, 0, 0}, payload)
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
		binary.BigEndian.PutUint16(b[6:], checksum(pseudo, []byte{0, 17}, length(b), b))
		return b
	case 1, 58:
		b := slices.Concat([]byte{p.ICMP, 0, 0, 0}, binary.BigEndian.AppendUint16(nil, uint16(id)), []byte{0, 1}, payload)
		if p.Proto == 1 {
			binary.BigEndian.PutUint16(b[2:], checksum(b))
		} else {
			binary.BigEndian.PutUint16(b[2:], checksum(pseudo, []byte{0, 58}, length(b), b))
		}
		return b
	case 132: // SCTP: an INIT chunk alone, its parameter the payload (RFC 9260)
		b := slices.Concat(ports, make([]byte, 8), []byte{1, 0, 0, 28, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}, payload)
		binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		return b
	}
	return slices.Concat(make([]byte, 8), payload)
}

func length(b []byte) []byte { return binary.BigEndian.AppendUint16(nil, uint16(len(b))) }

func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for b := slices.Concat(parts...); len(b) > 0; b = b[min(2, len(b)):] {
		sum += uint32(b[0]) << 8
		if len(b) > 1 {
			sum += uint32(b[1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// arrival is a probe that came out of the box.
type arrival struct {
	Device string
	Dst    netip.Addr
	Port   uint16 // of TCP, UDP and SCTP
}

func (a arrival) String() string { return fmt.Sprintf("%s to %v:%d", a.Device, a.Dst, a.Port) }

// parse finds the number of a probe in a frame; false for answers and all else.
func parse(b []byte) (id uint32, a arrival, ok bool) {
	if len(b) < 34 {
		return 0, a, false
	}
	head, proto := 34, b[14+9]
	if b[12] == 0x86 {
		if len(b) < 54 {
			return 0, a, false
		}
		head, proto = 54, b[14+6]
		a.Dst, _ = netip.AddrFromSlice(b[38:54])
	} else {
		a.Dst, _ = netip.AddrFromSlice(b[30:34])
	}
	at, ported := map[uint8]int{6: 20, 17: 8, 1: 8, 58: 8, 132: 32}[proto], proto == 6 || proto == 17 || proto == 132
	if at == 0 {
		at = 8
	}
	b = b[head:]
	if len(b) < at+8 || string(b[at:at+4]) != mark || proto == 1 && b[0] == 0 || proto == 58 && b[0] == 129 {
		return 0, a, false
	}
	if ported {
		a.Port = binary.BigEndian.Uint16(b[2:])
	}
	return binary.BigEndian.Uint32(b[at+4:]), a, true
}
