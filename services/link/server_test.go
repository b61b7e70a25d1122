package link

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// scripted is a DHCP server at the far end that does what the test says: real
// servers grant two minutes at least.
type scripted struct {
	t    *testing.T
	conn *packet.Conn
	mac  net.HardwareAddr

	mu      sync.Mutex // guards the rest
	addr    netip.Addr // what it gives
	lease   time.Duration
	silent  bool
	direct  bool             // unicast messages get lost
	nak     bool             // refuse the next request, then forget this
	more    map[uint8][]byte // further options
	heard   []string         // "DISCOVER", "REQUEST unicast ciaddr=..." in order
	refused int
}

var serverAddr = netip.MustParseAddr("10.77.0.1")

// serve starts the server at 10.77.0.1/24.
func (f *far) serve(lease time.Duration) *scripted {
	f.Helper()
	f.ip("addr add 10.77.0.1/24 dev far0")
	s := &scripted{t: f.T, addr: netip.MustParseAddr("10.77.0.50"), lease: lease}
	f.within(func() {
		ifi, err := net.InterfaceByName("far0")
		if err != nil {
			f.Error(err)
			return
		}
		s.mac = ifi.HardwareAddr
		if s.conn, err = packet.Listen(ifi, packet.Raw, unix.ETH_P_IP, nil); err != nil {
			f.Error(err)
		}
	})
	if s.conn == nil {
		f.FailNow()
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 4096)
		for {
			n, _, err := s.conn.ReadFrom(buf)
			switch {
			case err == nil:
				s.frame(buf[:n])
			case !isDown(err):
				return
			}
		}
	}()
	f.Cleanup(func() { s.conn.Close(); <-ended })
	return s
}

// isDown is what a read says once when the port goes down.
func isDown(err error) bool {
	op, ok := err.(*net.OpError)
	return ok && fmt.Sprint(op.Err) == "recvmsg: network is down" || ok && fmt.Sprint(op.Err) == "recvfrom: network is down"
}

// set changes the script.
func (s *scripted) set(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }

// saw reports whether a message with that text was heard, after those before from.
func (s *scripted) saw(from int, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return from <= len(s.heard) && slices.Contains(s.heard[from:], text)
}

func (s *scripted) count() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.heard) }

func (s *scripted) frame(b []byte) {
	if len(b) < 42 || b[23] != 17 || binary.BigEndian.Uint16(b[36:]) != 67 {
		return
	}
	q, err := dhcpv4.FromBytes(b[42 : 34+binary.BigEndian.Uint16(b[38:])])
	if err != nil {
		s.t.Errorf("client sent junk: %v", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text := q.MessageType().String()
	if b[0] != 0xff {
		text += " unicast"
	}
	if !q.ClientIPAddr.IsUnspecified() {
		text += " from " + q.ClientIPAddr.String()
	}
	if want := q.RequestedIPAddress(); want != nil {
		text += " for " + want.String()
	}
	s.heard = append(s.heard, text)
	if s.silent || s.direct && b[0] != 0xff ||
		q.MessageType() == dhcpv4.MessageTypeRelease || q.MessageType() == dhcpv4.MessageTypeDecline {
		return
	}
	s.answer(q)
}

// answer sends an OFFER, ACK or NAK. s.mu is held.
func (s *scripted) answer(q *dhcpv4.DHCPv4) {
	a, err := dhcpv4.NewReplyFromRequest(q, dhcpv4.WithServerIP(serverAddr.AsSlice()))
	if err != nil {
		s.t.Error(err)
		return
	}
	a.Options[54] = serverAddr.AsSlice()
	a.Options[53] = []byte{2}
	if q.MessageType() == dhcpv4.MessageTypeRequest {
		a.Options[53] = []byte{5}
		if want := q.RequestedIPAddress(); s.nak || want != nil && !want.Equal(s.addr.AsSlice()) {
			a.Options[53], s.nak = []byte{6}, false
			s.refused++
		}
	}
	if a.Options[53][0] != 6 {
		a.YourIPAddr, a.ClientIPAddr = s.addr.AsSlice(), q.ClientIPAddr
		a.Options[1], a.Options[3], a.Options[6] = []byte{255, 255, 255, 0}, serverAddr.AsSlice(), []byte{10, 77, 0, 53}
		a.Options[51] = binary.BigEndian.AppendUint32(nil, uint32(s.lease/time.Second))
		for code, v := range s.more {
			a.Options[code] = v
		}
	}
	dst := s.addr
	if !q.ClientIPAddr.IsUnspecified() {
		dst, _ = netip.AddrFromSlice(q.ClientIPAddr.To4())
	}
	_, err = s.conn.WriteTo(datagram(s.mac, q.ClientHWAddr, dst, a.ToBytes()), &packet.Addr{HardwareAddr: q.ClientHWAddr})
	if err != nil {
		s.t.Logf("server cannot send: %v", err)
	}
}

// datagram is the frame of a UDP packet from serverAddr:67 to dst:68.
func datagram(from, to net.HardwareAddr, dst netip.Addr, payload []byte) []byte {
	b := append(append(append([]byte{}, to...), from...), 8, 0)
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(payload)))
	ip = append(append(ip, serverAddr.AsSlice()...), dst.AsSlice()...)
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	b = append(append(b, ip...), 0, 67, 0, 68, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(b[38:], uint16(8+len(payload)))
	return append(b, payload...)
}
