package dhcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"gatehouse/firewall"
)

// Message is a client's message as the pool sees it: only what decides.
type Message struct {
	Type      dhcpv4.MessageType
	MAC       firewall.MAC
	Client    string        // key of the client, see Lease.Client
	Broadcast bool          // the client cannot take a unicast yet
	CIAddr    netip.Addr    // the address that the client uses; invalid: none
	Requested netip.Addr    // option 50; invalid: absent or malformed
	Server    netip.Addr    // option 54; invalid: absent
	Wish      time.Duration // option 51; 0: none
	Host      []byte        // option 12 or 81 as sent, at most 255 bytes
	MaxSize   int           // option 57 in bytes, the IP header included; 0: absent
	Asked     []byte        // option 55

	Src     netip.Addr // who sent it
	Dst     netip.Addr // the address it was sent to
	Unicast bool       // it was sent to an address of ours, not to everybody

	packet *dhcpv4.DHCPv4
}

// errors that say why a packet is none of ours.
var (
	errShort   = errors.New("too short")
	errRelayed = errors.New("from a relay that nobody allowed")
	errReply   = errors.New("not a request")
	errMAC     = errors.New("no Ethernet address of one host")
	errType    = errors.New("no message type of a client")
	errHops    = errors.New("too many hops")
)

// Where fields lie that are looked at before anything is parsed (RFC 2131
// figure 1).
const (
	headerLen = 240 // up to and with the magic cookie
	offHLen   = 2
	offCHAddr = 28
)

// peekMAC reads chaddr without parsing. It is empty when the packet is not from
// one Ethernet host: keys made of anything else could collide.
func peekMAC(pkt []byte) firewall.MAC {
	if len(pkt) < headerLen || pkt[1] != 1 || pkt[offHLen] != 6 {
		return ""
	}
	hw := [6]byte(pkt[offCHAddr : offCHAddr+6])
	if hw[0]&1 != 0 || hw == [6]byte{} {
		return ""
	}
	return macOf(hw)
}

func macOf(hw [6]byte) firewall.MAC {
	const digits = "0123456789abcdef"
	var b [17]byte
	for i, v := range hw {
		b[3*i], b[3*i+1] = digits[v>>4], digits[v&15]
		if i < 5 {
			b[3*i+2] = ':'
		}
	}
	return firewall.MAC(b[:])
}

// parse reads a client's packet. A missing END option is forgiven (old boot
// ROMs), a relay is not: nobody has a list of relays yet.
func parse(pkt []byte) (Message, error) {
	if len(pkt) < headerLen {
		return Message{}, errShort
	}
	if pkt[0] != 1 {
		return Message{}, errReply
	}
	mac := peekMAC(pkt)
	if mac == "" {
		return Message{}, errMAC
	}
	if pkt[3] > 16 {
		return Message{}, errHops
	}
	p, err := dhcpv4.FromBytes(pkt)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		p, err = dhcpv4.FromBytes(append(append(make([]byte, 0, len(pkt)+1), pkt...), 255))
	}
	if err != nil {
		return Message{}, fmt.Errorf("parse: %w", err)
	}
	if gi := addr4(p.GatewayIPAddr); gi.IsValid() {
		return Message{}, errRelayed
	}
	return fromPacket(p, mac)
}

func fromPacket(p *dhcpv4.DHCPv4, mac firewall.MAC) (Message, error) {
	kind := p.Options[53]
	if len(kind) != 1 {
		return Message{}, errType
	}
	m := Message{
		Type:      dhcpv4.MessageType(kind[0]),
		MAC:       mac,
		Client:    clientKey(p.Options[61], mac),
		Broadcast: p.IsBroadcast(),
		CIAddr:    addr4(p.ClientIPAddr),
		Requested: addr4(p.Options[50]),
		Server:    addr4(p.Options[54]),
		Host:      p.Options[12],
		Asked:     p.Options[55],
		packet:    p,
	}
	switch m.Type {
	case dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDecline,
		dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeInform:
	default:
		return Message{}, errType
	}
	if b := p.Options[51]; len(b) == 4 {
		m.Wish = time.Duration(binary.BigEndian.Uint32(b)) * time.Second
	}
	if b := p.Options[57]; len(b) == 2 {
		m.MaxSize = int(binary.BigEndian.Uint16(b))
	}
	if len(m.Host) == 0 {
		m.Host = fqdnName(p.Options[81])
	}
	m.Host = m.Host[:min(len(m.Host), 255):min(len(m.Host), 255)]
	return m, nil
}

// addr4 is an address of exactly four bytes; 0.0.0.0 and any other length mean
// absent.
func addr4(b []byte) netip.Addr {
	if len(b) != 4 || [4]byte(b) == [4]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(b))
}
