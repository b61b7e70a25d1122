package wan

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Conn carries DHCP payloads of one port, one way or the other.
type Conn interface {
	Send(payload []byte) error
	Receive() ([]byte, error) // blocks until Close
	Close() error
}

// Wire opens the two ways to a server, and asks the neighbours.
type Wire interface {
	// Packet sends to everyone on the link of device and hears whatever comes
	// to UDP port 68 there, before any firewall and without an address of ours.
	Packet(device string) (Conn, error)
	// UDP sends from our address to one server by the routing table, out of device.
	UDP(device string, from, server netip.Addr) (Conn, error)
	// Taken asks the link for about a second whether somebody else uses a.
	Taken(ctx context.Context, device string, a netip.Addr) (bool, error)
}

// Sockets is the Wire of the kernel.
type Sockets struct{}

var _ Wire = Sockets{}

// clientPort passes unfragmented UDP over IPv4 to port 68 and nothing else: an
// unfiltered packet socket would copy every packet of the internet port.
var clientPort = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 12, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 8},
	bpf.LoadAbsolute{Off: 23, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 6},
	bpf.LoadAbsolute{Off: 20, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 4},
	bpf.LoadMemShift{Off: 14},
	bpf.LoadIndirect{Off: 16, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 68, SkipTrue: 1},
	bpf.RetConstant{Val: 65535},
	bpf.RetConstant{Val: 0},
}

// Packet is the filtered packet socket of device.
func (Sockets) Packet(device string) (Conn, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("find port: %w", err)
	}
	c, err := listen(ifi, unix.ETH_P_IP, clientPort)
	if err != nil {
		return nil, err
	}
	return &packetConn{c: c, mac: ifi.HardwareAddr, buf: make([]byte, 9300)}, nil
}

func listen(ifi *net.Interface, proto int, filter []bpf.Instruction) (*packet.Conn, error) {
	raw, err := bpf.Assemble(filter)
	if err != nil {
		return nil, fmt.Errorf("assemble packet filter: %w", err)
	}
	c, err := packet.Listen(ifi, packet.Raw, proto, &packet.Config{Filter: raw})
	if err != nil {
		return nil, fmt.Errorf("open packet socket: %w", err)
	}
	return c, nil
}

type packetConn struct {
	c   *packet.Conn
	mac net.HardwareAddr
	buf []byte // Receive's own
}

var everyone = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (p *packetConn) Send(payload []byte) error {
	_, err := p.c.WriteTo(broadcast(p.mac, payload), &packet.Addr{HardwareAddr: everyone})
	return err
}

func (p *packetConn) Receive() ([]byte, error) {
	for {
		n, _, err := p.c.ReadFrom(p.buf)
		if err != nil {
			return nil, err
		}
		if b, ok := udpPayload(p.buf[:n]); ok {
			return append([]byte(nil), b...), nil
		}
	}
}

func (p *packetConn) Close() error { return p.c.Close() }

// broadcast is the frame that carries payload from 0.0.0.0:68 to 255.255.255.255:67.
func broadcast(mac net.HardwareAddr, payload []byte) []byte {
	b := make([]byte, 14, 42+len(payload))
	copy(b, everyone)
	copy(b[6:], mac)
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_IP)
	b = append(b, 0x45, 0x10, 0, 0, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255)
	ip := b[14:34]
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(payload)))
	binary.BigEndian.PutUint16(ip[10:], ^sum(0, ip))
	b = append(b, 0, 68, 0, 67, 0, 0, 0, 0)
	b = append(b, payload...)
	udp := b[34:]
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	pseudo := sum(sum(0, ip[12:20]), []byte{0, unix.IPPROTO_UDP, udp[4], udp[5]})
	c := ^sum(pseudo, udp)
	if c == 0 {
		c = 0xffff // 0 would mean "no checksum" (RFC 768)
	}
	binary.BigEndian.PutUint16(udp[6:], c)
	return b
}

// sum is the internet checksum's running sum (RFC 1071).
func sum(start uint16, b []byte) uint16 {
	s := uint32(start)
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	if len(b)%2 == 1 {
		s += uint32(b[len(b)-1]) << 8
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// udpPayload is the payload of an Ethernet frame that the filter passed. The
// checksum is not checked: with offload it is not there yet.
func udpPayload(b []byte) ([]byte, bool) {
	if len(b) < 42 {
		return nil, false
	}
	ip := b[14:]
	head, total := int(ip[0]&0x0f)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if ip[0]>>4 != 4 || head < 20 || total > len(ip) || total < head+8 {
		return nil, false
	}
	udp := ip[head:total]
	if n := int(binary.BigEndian.Uint16(udp[4:])); n >= 8 && n <= len(udp) {
		return udp[8:n], true
	}
	return nil, false
}

// UDP is a socket on from:68 bound to device.
func (Sockets) UDP(device string, from, server netip.Addr) (Conn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) error {
		var err error
		if ctl := rc.Control(func(fd uintptr) {
			if err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err == nil {
				err = unix.BindToDevice(int(fd), device)
			}
		}); ctl != nil {
			return ctl
		}
		return err
	}}
	c, err := lc.ListenPacket(context.Background(), "udp4", netip.AddrPortFrom(from, 68).String())
	if err != nil {
		return nil, fmt.Errorf("open renewal socket: %w", err)
	}
	return &udpConn{c: c.(*net.UDPConn), server: netip.AddrPortFrom(server, 67), buf: make([]byte, 9300)}, nil
}

type udpConn struct {
	c      *net.UDPConn
	server netip.AddrPort
	buf    []byte // Receive's own
}

func (u *udpConn) Send(payload []byte) error {
	_, err := u.c.WriteToUDPAddrPort(payload, u.server)
	return err
}

func (u *udpConn) Receive() ([]byte, error) {
	n, err := u.c.Read(u.buf)
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), u.buf[:n]...), nil
}

func (u *udpConn) Close() error { return u.c.Close() }
