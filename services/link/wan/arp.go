package wan

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// arpOnly passes ARP.
var arpOnly = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 12, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_ARP, SkipTrue: 1},
	bpf.RetConstant{Val: 65535},
	bpf.RetConstant{Val: 0},
}

// Taken sends two ARP probes for a (RFC 5227 §2.1.1) and listens for 0.8 s.
// RFC 5227 waits ten times as long: people wait for their internet here, and
// what answers a probe at all does so within milliseconds.
func (Sockets) Taken(ctx context.Context, device string, a netip.Addr) (bool, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return false, fmt.Errorf("find port: %w", err)
	}
	c, err := listen(ifi, unix.ETH_P_ARP, arpOnly)
	if err != nil {
		return false, err
	}
	frames := make(chan []byte)
	h := attend(&arpConn{c: c, mac: ifi.HardwareAddr, a: a, buf: make([]byte, 256)}, frames)
	defer h.close()
	for range 2 {
		if err := h.conn.Send(nil); err != nil {
			return false, fmt.Errorf("send ARP probe: %w", err)
		}
		select {
		case <-frames:
			return true, nil
		case <-ctx.Done():
			return false, nil
		case <-time.After(400 * time.Millisecond):
		}
	}
	return false, nil
}

// arpConn sends probes for a and receives what says that somebody else has it.
type arpConn struct {
	c   *packet.Conn
	mac net.HardwareAddr
	a   netip.Addr
	buf []byte // Receive's own
}

func (p *arpConn) Send([]byte) error {
	b := append(append(append([]byte{}, everyone...), p.mac...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	b = append(append(b, p.mac...), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, p.a.AsSlice()...)
	_, err := p.c.WriteTo(b, &packet.Addr{HardwareAddr: everyone})
	return err
}

func (p *arpConn) Receive() ([]byte, error) {
	for {
		n, _, err := p.c.ReadFrom(p.buf)
		if err != nil {
			return nil, err
		}
		if objects(p.buf[:n], p.mac, p.a) {
			return []byte{}, nil
		}
	}
}

func (p *arpConn) Close() error { return p.c.Close() }

// objects reports whether the ARP frame says that another than mac has a, or
// is about to take it (RFC 5227 §2.1.1).
func objects(b []byte, mac net.HardwareAddr, a netip.Addr) bool {
	if len(b) < 42 || b[18] != 6 || b[19] != 4 || string(b[22:28]) == string(mac) {
		return false
	}
	sender, target := string(b[28:32]), string(b[38:42])
	me := string(a.AsSlice())
	probe := sender == "\x00\x00\x00\x00"
	return sender == me || probe && b[21] == 1 && target == me
}
