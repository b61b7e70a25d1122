package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"gatehouse/firewall"
)

// The ports of RFC 2131 section 4.1, and the size of a message that every
// client takes (IP header included).
const (
	serverPort = 67
	clientPort = 68
	minSize    = 576
	ipUDPLen   = 28
)

// reply encodes the answer to m. It never grows over what the client (option
// 57, at least 576) and the port (mtu) take: busybox drops larger ones unread.
// What does not fit is left out, what the client asked for last first; cut says
// that something was.
func reply(s Scope, dns []netip.Addr, m Message, v Verdict, mtu int) (pkt []byte, cut bool) {
	out := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: m.packet.HWType, ClientHWAddr: m.packet.ClientHWAddr,
		TransactionID: m.packet.TransactionID, Flags: m.packet.Flags,
		ClientIPAddr: net.IPv4zero, YourIPAddr: net.IPv4zero, ServerIPAddr: net.IPv4zero, GatewayIPAddr: net.IPv4zero,
		Options: dhcpv4.Options{},
	}
	kind := map[Answer]dhcpv4.MessageType{Offer: dhcpv4.MessageTypeOffer, Ack: dhcpv4.MessageTypeAck,
		Nak: dhcpv4.MessageTypeNak, Inform: dhcpv4.MessageTypeAck}[v.Answer]
	room := min(max(m.MaxSize, minSize), max(mtu, minSize)) - ipUDPLen - headerLen - 1
	add := func(code byte, val []byte) {
		if len(val) == 0 {
			return
		}
		need := len(val) + 2*((len(val)+254)/255)
		if need > room {
			cut = true
			return
		}
		room -= need
		out.Options[code] = val
	}
	add(53, []byte{byte(kind)})
	add(54, s.Server.AsSlice())
	if id := m.packet.Options[61]; len(id) <= 255 {
		add(61, id) // RFC 6842
	}
	if v.Answer == Nak {
		add(56, []byte(v.Why))
		return out.ToBytes(), cut
	}
	if m.CIAddr.IsValid() && v.Answer != Offer {
		out.ClientIPAddr = m.CIAddr.AsSlice()
	}
	if v.Answer != Inform {
		out.YourIPAddr = v.Addr.AsSlice()
		add(51, seconds(v.Lease))
		add(58, seconds(v.Lease/2))
		add(59, seconds(v.Lease*7/8))
	}
	for _, code := range order(m.Asked) {
		add(code, s.option(code, dns, m.MAC))
	}
	return out.ToBytes(), cut
}

// order is in which order options are put in: those that the client asked for
// as it asked, then those that every client needs.
func order(asked []byte) []byte {
	var out []byte
	for _, c := range append(slices.Clone(asked), 1, 3, 6, 15) {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// option is the value of a configured option; empty: none.
func (s Scope) option(code byte, dns []netip.Addr, mac firewall.MAC) []byte {
	switch code {
	case 1:
		return net.CIDRMask(s.Net.Bits(), 32)
	case 3:
		return s.Gateway.AsSlice()
	case 6:
		if len(s.DNS) > 0 {
			dns = s.DNS
		}
		var out []byte
		for _, a := range dns {
			if a.Is4() && len(out) < 252 {
				out = append(out, a.AsSlice()...)
			}
		}
		return out
	case 12:
		return []byte(s.Statics[mac].Host)
	case 15:
		return []byte(s.Domain)
	case 28:
		return s.broadcast().AsSlice()
	}
	return nil
}

func seconds(d time.Duration) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(d/time.Second))
}

// path is where a reply goes: as a datagram through the kernel, or as a raw
// frame to a client that the kernel cannot reach, because it has no address yet
// or answers no ARP.
type path struct {
	raw bool
	to  netip.Addr
	mac [6]byte // raw only
}

// pathOf is the table of RFC 2131 section 4.1, by the way the message came.
func pathOf(m Message, v Verdict) path {
	everybody := path{raw: true, to: netip.AddrFrom4([4]byte{255, 255, 255, 255}), mac: [6]byte{255, 255, 255, 255, 255, 255}}
	chaddr := [6]byte(m.packet.ClientHWAddr)
	switch {
	case v.Answer == Nak:
		return everybody
	case m.Unicast && m.CIAddr.IsValid() && m.CIAddr == m.Src:
		return path{to: m.CIAddr}
	case m.CIAddr.IsValid():
		return path{raw: true, to: m.CIAddr, mac: chaddr}
	case v.Answer == Inform:
		return path{raw: true, to: m.Src, mac: chaddr}
	case m.Broadcast:
		return everybody
	}
	return path{raw: true, to: v.Addr, mac: chaddr}
}
