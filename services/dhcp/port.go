package dhcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"gatehouse/firewall"
)

// port is the sockets of one served interface. It belongs to one kernel
// interface: when that goes away, and another one of the same name comes, a new
// port must be opened.
type port struct {
	name  string
	index int
	mtu   int
	hw    [6]byte
	udp   *net.UDPConn
	arp   *packet.Conn // nil on a port without ARP

	mu      sync.Mutex // guards waiting
	waiting map[netip.Addr]probe
}

// probe waits for somebody to answer for an address.
type probe struct {
	not   [6]byte // the client itself: its answer is no conflict
	found chan [6]byte
}

// openPort opens the sockets of the named device. Nothing is shared: a second
// server on the device is an error here (EADDRINUSE), not a silent thief of
// half the messages.
func openPort(device string) (*port, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", device, err)
	}
	p := &port{name: device, index: ifi.Index, mtu: ifi.MTU, waiting: map[netip.Addr]probe{}}
	copy(p.hw[:], ifi.HardwareAddr)
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = setOptions(int(fd), device) }); e != nil {
			return e
		}
		return err
	}}
	pc, err := lc.ListenPacket(context.Background(), "udp4", fmt.Sprintf("0.0.0.0:%d", serverPort))
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", device, err)
	}
	p.udp = pc.(*net.UDPConn)
	if len(ifi.HardwareAddr) != 6 {
		return p, nil
	}
	p.arp, err = packet.Listen(ifi, packet.Datagram, unix.ETH_P_ARP, &packet.Config{Filter: arpReplies()})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for ARP on %s: %w", device, err), p.udp.Close())
	}
	return p, nil
}

func setOptions(fd int, device string) error {
	if err := unix.BindToDevice(fd, device); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		return err
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
}

// arpReplies lets only replies through (operation 2): requests of a busy
// network stay in the kernel.
func arpReplies() []bpf.RawInstruction {
	// Assemble fails only for instructions that do not exist.
	raw, _ := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 2, SkipFalse: 1},
		bpf.RetConstant{Val: 64},
		bpf.RetConstant{Val: 0},
	})
	return raw
}

// gone reports whether the device went away, or is another or a changed one by
// now.
func (p *port) gone() bool {
	ifi, err := net.InterfaceByName(p.name)
	var hw [6]byte
	if err == nil {
		copy(hw[:], ifi.HardwareAddr)
	}
	return err != nil || ifi.Index != p.index || ifi.MTU != p.mtu || hw != p.hw
}

func (p *port) close() error {
	err := p.udp.Close()
	if p.arp != nil {
		err = errors.Join(err, p.arp.Close())
	}
	return err
}

// read waits for the next datagram. n is len(buf) for one that did not fit.
func (p *port) read(buf, oob []byte) (n int, src, dst netip.Addr, err error) {
	n, on, _, from, err := p.udp.ReadMsgUDPAddrPort(buf, oob)
	if err != nil {
		return 0, src, dst, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil {
		return 0, src, dst, fmt.Errorf("control message: %w", err)
	}
	for _, c := range msgs {
		if c.Header.Level == unix.IPPROTO_IP && c.Header.Type == unix.IP_PKTINFO && len(c.Data) >= 12 {
			dst = netip.AddrFrom4([4]byte(c.Data[8:12])) // ipi_addr: the header's destination
		}
	}
	return n, from.Addr().Unmap(), dst, nil
}

// send sends a reply through the kernel, from the given address.
func (p *port) send(from, to netip.Addr, pkt []byte) error {
	oob := unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(p.index), Spec_dst: from.As4()})
	_, _, err := p.udp.WriteMsgUDPAddrPort(pkt, oob, netip.AddrPortFrom(to, clientPort))
	return err
}

// listenARP hands replies to those who wait for them, until the port is closed.
func (p *port) listenARP() {
	buf := make([]byte, 64)
	for {
		n, _, err := p.arp.ReadFrom(buf)
		if errors.Is(err, unix.ENETDOWN) {
			continue // told once when the port goes down; the socket stays good
		}
		if err != nil {
			return
		}
		hw, a, ok := arpSender(buf[:n])
		if !ok {
			continue
		}
		p.mu.Lock()
		if w, asked := p.waiting[a]; asked && hw != w.not {
			select {
			case w.found <- hw:
			default: // told already
			}
		}
		p.mu.Unlock()
	}
}

// maxProbes is how many addresses are asked for at once on a port. Above it
// offers go out unasked, and the check of the clients themselves must do.
const maxProbes = 64

// ask finds out who uses the address, other than the client with the MAC not.
// who is empty when nobody answered, or nobody could be asked. twice says that
// the question is on its way already: whoever asked first will know.
func (p *port) ask(ctx context.Context, w wire, a netip.Addr, not [6]byte, wait time.Duration) (who firewall.MAC, twice bool) {
	found := make(chan [6]byte, 1)
	p.mu.Lock()
	_, twice = p.waiting[a]
	if twice || p.arp == nil || len(p.waiting) >= maxProbes {
		p.mu.Unlock()
		return "", twice
	}
	p.waiting[a] = probe{not, found}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, a)
	}()
	// Two questions: one frame may be lost.
	for range 2 {
		if err := w.send(p.index, unix.ETH_P_ARP, everyone, arpProbe(p.hw, a)); err != nil {
			return "", false
		}
		select {
		case hw := <-found:
			return macOf(hw), false
		case <-time.After(wait / 2):
		case <-ctx.Done():
			return "", false
		}
	}
	return "", false
}

var everyone = [6]byte{255, 255, 255, 255, 255, 255}

// wire sends raw frames on any interface. It is bound to no protocol, so that
// the kernel copies nothing into it.
type wire int

func openWire() (wire, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("open packet socket: %w", err)
	}
	return wire(fd), nil
}

func (w wire) close() error { return unix.Close(int(w)) }

func (w wire) send(ifindex int, proto uint16, to [6]byte, pkt []byte) error {
	var net [2]byte
	binary.BigEndian.PutUint16(net[:], proto)
	sa := &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16(net[:]), Ifindex: ifindex, Halen: 6}
	copy(sa.Addr[:], to[:])
	return unix.Sendto(int(w), pkt, 0, sa)
}
