package wan

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Heard is who else gives out addresses on a link.
type Heard struct {
	Offer  Lease      // what a DHCP server offered; zero Addr: nobody did
	Router netip.Addr // link-local address of an IPv6 router that advertises itself; zero: none
}

// probes is how many times Probe asks, and pause what lies between: about four
// seconds, as long as a busy access network takes to answer.
const (
	probes = 3
	pause  = 1300 * time.Millisecond
)

// routerAdvert passes ICMPv6 router advertisements (RFC 4861 §4.2) from the link itself.
var routerAdvert = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 12, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: 6},
	bpf.LoadAbsolute{Off: 20, Size: 2}, // next header, hop limit
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6<<8 | 255, SkipTrue: 4},
	bpf.LoadAbsolute{Off: 54, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 134, SkipTrue: 2},
	bpf.RetConstant{Val: 65535},
	bpf.RetConstant{Val: 0},
	bpf.RetConstant{Val: 0},
}

// Probe asks on device for a DHCP server and an IPv6 router without taking
// anything: a server that offers keeps nothing, since nobody requests. It
// returns at the first offer, else after about four seconds. The device must be up.
func Probe(ctx context.Context, device string) (Heard, error) {
	var heard Heard
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return heard, fmt.Errorf("find port: %w", err)
	}
	dhcp, err := Sockets{}.Packet(device)
	if err != nil {
		return heard, err
	}
	replies := make(chan []byte)
	d := attend(dhcp, replies)
	defer d.close()
	raw, err := listen(ifi, unix.ETH_P_IPV6, routerAdvert)
	if err != nil {
		return heard, err
	}
	// Without IPv6 on the port nobody has joined the group. A port that cannot
	// filter groups hears them all and may refuse.
	_ = raw.JoinGroup(allNodes)
	routers := make(chan []byte)
	r := attend(&advertConn{packetConn{c: raw, mac: ifi.HardwareAddr, buf: make([]byte, 9300)}}, routers)
	defer r.close()

	xid := rand.Uint32()
	b, err := Message{Kind: Discover, XID: xid}.Marshal(ifi.HardwareAddr, "")
	if err != nil {
		return heard, err
	}
	ask := time.NewTicker(pause)
	defer ask.Stop()
	for left := probes; ; {
		if left > 0 {
			if err := dhcp.Send(b); err != nil {
				return heard, fmt.Errorf("send DHCPDISCOVER: %w", err)
			}
			// A link without IPv6 may refuse this; the question above counts.
			_ = r.conn.Send(nil)
			left--
		}
		if done := listenFor(ctx, ask.C, replies, routers, xid, ifi.HardwareAddr, &heard); done || left == 0 {
			return heard, nil
		}
	}
}

// listenFor takes answers until the next question is due; true ends the probe.
func listenFor(ctx context.Context, due <-chan time.Time, replies, routers <-chan []byte, xid uint32, mac net.HardwareAddr, heard *Heard) bool {
	for {
		select {
		case <-ctx.Done():
			return true
		case <-due:
			return false
		case b := <-replies:
			if m, err := Parse(b); err == nil && m.Kind == Offer && m.XID == xid && m.MAC == string(mac) {
				heard.Offer = m.Lease
				return true
			}
		case b := <-routers:
			heard.Router, _ = netip.AddrFromSlice(b)
		}
	}
}

// advertConn asks for routers and receives the source address of each that answers.
type advertConn struct{ packetConn }

func (a *advertConn) Send([]byte) error {
	_, err := a.c.WriteTo(solicit(a.mac), &packet.Addr{HardwareAddr: allRouters})
	return err
}

func (a *advertConn) Receive() ([]byte, error) {
	for {
		n, _, err := a.c.ReadFrom(a.buf)
		if err != nil {
			return nil, err
		}
		if n >= 54 {
			return append([]byte(nil), a.buf[22:38]...), nil
		}
	}
}

// The Ethernet groups of ff02::1 and ff02::2 (RFC 2464 §7).
var (
	allNodes   = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	allRouters = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 2}
)

// solicit is the frame of a router solicitation from :: to ff02::2 (RFC 4861 §4.1).
func solicit(mac net.HardwareAddr) []byte {
	b := make([]byte, 62)
	copy(b, allRouters)
	copy(b[6:], mac)
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IPV6)
	ip := b[14:54]
	ip[0], ip[5], ip[6], ip[7] = 0x60, 8, unix.IPPROTO_ICMPV6, 255
	copy(ip[24:], []byte{0xff, 2, 15: 2})
	icmp := b[54:]
	icmp[0] = 133
	pseudo := sum(sum(0, ip[8:40]), []byte{0, 8, 0, unix.IPPROTO_ICMPV6})
	binary.BigEndian.PutUint16(icmp[2:], ^sum(pseudo, icmp))
	return b
}
