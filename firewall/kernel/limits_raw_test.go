package kernel_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// forger sends IPv4 TCP segments from the internet in any name, and sees what
// comes to the names for which nobody else answers (198.51.101.0/24).
type forger struct {
	s     *street
	raw   int // IPPROTO_RAW
	sniff int // what comes in by eth0
}

func (s *street) forger() *forger {
	s.t.Helper()
	f := &forger{s: s}
	s.inet.do(s.t, func() (err error) {
		if f.raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return err
		}
		proto := int(binary.NativeEndian.Uint16([]byte{0x08, 0x00})) // ETH_P_IP in network order
		f.sniff, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
		return err
	})
	s.t.Cleanup(func() { _ = unix.Close(f.raw); _ = unix.Close(f.sniff) })
	return f
}

// segment is the part of a TCP header that matters here.
type segment struct {
	from, to netip.AddrPort
	flags    byte
	seq, ack uint32
}

// send sends a segment with text in it.
func (f *forger) send(s segment, text string) {
	f.s.t.Helper()
	src, dst := s.from.Addr().As4(), s.to.Addr().As4()
	b := make([]byte, 40, 40+len(text))
	b = append(b, text...)
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	copy(b[12:], src[:])
	copy(b[16:], dst[:])
	tcp := b[20:]
	binary.BigEndian.PutUint16(tcp, s.from.Port())
	binary.BigEndian.PutUint16(tcp[2:], s.to.Port())
	binary.BigEndian.PutUint32(tcp[4:], s.seq)
	binary.BigEndian.PutUint32(tcp[8:], s.ack)
	tcp[12], tcp[13] = 5<<4, s.flags
	binary.BigEndian.PutUint16(tcp[14:], 65535)
	sum := uint32(unix.IPPROTO_TCP + len(tcp))
	for _, part := range [][]byte{src[:], dst[:], tcp} {
		for i, c := range part {
			sum += uint32(c) << (8 * (1 - i%2))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
	if err := unix.Sendto(f.raw, b, 0, &unix.SockaddrInet4{Addr: dst}); err != nil {
		f.s.t.Fatal(err)
	}
}

// next is the next segment that comes to the address; tick may ask for it again.
func (f *forger) next(to netip.AddrPort, what string, tick func()) (found segment) {
	f.s.t.Helper()
	b := make([]byte, 2000)
	await(f.s.t, what, tick, func() bool {
		for {
			n, from, err := unix.Recvfrom(f.sniff, b, 0)
			if err != nil {
				return false
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype == unix.PACKET_OUTGOING || n < 40 || b[9] != unix.IPPROTO_TCP {
				continue
			}
			at := func(b []byte, port []byte) netip.AddrPort {
				return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), binary.BigEndian.Uint16(port))
			}
			found = segment{from: at(b[12:16], b[20:]), to: at(b[16:20], b[22:]), flags: b[33],
				seq: binary.BigEndian.Uint32(b[24:]), ack: binary.BigEndian.Uint32(b[28:])}
			if found.to == to {
				return true
			}
		}
	})
	return found
}

// victim is an address of which each forged connection has a port of its own.
func victim(address string, n int) netip.AddrPort {
	return netip.AddrPortFrom(ip(address), uint16(10000+n))
}

var web4 = netip.AddrPortFrom(ip(server4), 80)

// begin sends a SYN until it is answered.
func (f *forger) begin(from netip.AddrPort) segment {
	f.s.t.Helper()
	for {
		a := f.next(from, "an answer to the SYN", func() { f.send(segment{from, web4, ruleset.SYN, 1000, 0}, "") })
		if a.flags == ruleset.SYN|ruleset.ACK {
			return a
		}
	}
}

// Forged SYNs, and forged answers to what the server says to them, count for nobody (T07).
func TestForgedHandshakesShutNobodyOut(t *testing.T) {
	const alive, silent = "198.51.100.9", "198.51.101.9"
	l := firewall.Limit{Open: 3, New: 2, Window: 3600, Over: firewall.Quarantine, LockFor: 600}
	limited(t, l, func(s *street) {
		settings(t, map[string]string{"netfilter/nf_conntrack_tcp_timeout_syn_recv": "1", "netfilter/nf_conntrack_tcp_timeout_syn_sent": "1"})
		f := s.forger()
		s.inet.do(t, func() error { return ipAll("route add blackhole 198.51.101.0/24") }) // nobody says that nobody is there
		for _, v := range []string{alive, silent} {
			before := s.over()
			for i := range 20 {
				f.send(segment{victim(v, i), web4, ruleset.SYN, 1000, 0}, "")
				for _, guess := range []uint32{1, 1 << 30, 1 << 31, 3 << 30} {
					f.send(segment{victim(v, i), web4, ruleset.ACK, 1001, guess}, "GET /")
				}
			}
			if v == silent { // who answers with RST ends each at once
				await(t, "the excess", nil, func() bool { return s.over()-before >= 17 })
			}
		}
		s.shutOut()
		if n := s.got(); n != 0 {
			t.Errorf("%d forged connections came to the server", n)
		}
		s.connects(alive)
		s.inet.do(t, func() error {
			return ipAll("route del blackhole 198.51.101.0/24\nroute add local 198.51.101.0/24 dev lo")
		})
		s.connects(silent)
		s.shutOut()
	})
}

// A guessed acknowledgement that conntrack lets through, of 65,000 or of the
// lower half, never shuts out the source in whose name it came.
func TestGuessedAcknowledgementsShutNobodyOut(t *testing.T) {
	l := firewall.Limit{New: 2, Window: 3600, Over: firewall.Quarantine, LockFor: 600}
	limited(t, l, func(s *street) {
		f := s.forger()
		for i, less := range []uint32{1, 60_000, 1 << 20, 1 << 30, 1, 2, 3, 4, 5, 6} {
			from := victim("198.51.101.9", i)
			a := f.begin(from)
			f.send(segment{from, web4, ruleset.ACK, 1001, a.seq + 1 - less}, "GET /")
		}
		await(t, "ten guesses", nil, func() bool { return s.strays()+s.over() >= 2+6 })
		s.shutOut()
		spared, err := s.k.Members(t.Context(), compile.ForgedSet(false))
		if err != nil || len(spared) != 1 || spared[0].Key[0] != one("198.51.101.9") || spared[0].Timeout.Hours() != 1 {
			t.Errorf("spared: %v, %v", spared, err)
		}
		if s.got() != 0 {
			t.Errorf("%d connections came to the server", s.got())
		}
	})
}

// A handshake is complete when the server takes it for complete, whatever else
// its last segment holds. One that ends the connection at once does not pass: conntrack
// does not say whether it acknowledges what the server said.
func TestEveryWayToCompleteAHandshakeCounts(t *testing.T) {
	for name, flags := range map[string]byte{"ACK": ruleset.ACK, "data": ruleset.ACK | 8, "urgent": ruleset.ACK | 0x20, "FIN": ruleset.ACK | ruleset.FIN} {
		t.Run(name, func(t *testing.T) {
			limited(t, firewall.Limit{New: 2, Window: 3600, Over: firewall.DropExcess}, func(s *street) {
				f, want := s.forger(), 2
				if name == "FIN" {
					want = 0
				}
				for i := range 6 {
					from := victim("198.51.101.66", i)
					a := f.begin(from)
					f.send(segment{from, web4, flags, 1001, a.seq + 1}, "hello")
				}
				await(t, "six decisions", nil, func() bool { return s.got()+s.over()+s.strays() >= 6 })
				await(t, "the first ones", nil, func() bool { return s.got() >= want })
				if s.got() != want {
					t.Errorf("%d connections came to the server, want %d", s.got(), want)
				}
			})
		})
	}
}

func (s *street) strays() int { s.t.Helper(); return s.count(compile.AutoCounter("stray")) }

// No segment that is not the first SYN of its connection begins one that is not
// counted: neither a middle, nor a SYN on a connection that the server has reset.
func TestNoConnectionBeginsTwice(t *testing.T) {
	for name, l := range map[string]firewall.Limit{
		"open": {Open: 2, Over: firewall.DropExcess}, "new": {New: 2, Window: 3600, Over: firewall.DropExcess},
	} {
		t.Run(name, func(t *testing.T) {
			limited(t, l, func(s *street) {
				settings(t, map[string]string{"netfilter/nf_conntrack_tcp_loose": "1"}) // as in a container where it cannot be set
				f := s.forger()
				strays := func(n int) {
					t.Helper()
					await(t, fmt.Sprintf("%d strays", n), nil, func() bool { return s.strays() >= n })
				}
				f.send(segment{victim("198.51.101.66", 9), web4, ruleset.ACK, 1001, 77}, "GET /")
				strays(1)
				for i := range 4 { // the server resets what begins, by a SYN within its window
					from := victim("198.51.101.66", i)
					a := f.begin(from)
					f.send(segment{from, web4, ruleset.SYN, 1001, a.seq + 1}, "")
					for a.flags&ruleset.RST == 0 {
						a = f.next(from, "a reset", nil)
					}
					f.send(segment{from, web4, ruleset.SYN, 1000, 0}, "")
					strays(2 + i)
				}
				if s.got() != 0 {
					t.Errorf("%d connections came to the server", s.got())
				}
			})
		})
	}
}

// Ports may be used again as soon as both ends, or the client alone, have ended
// the connection: that is a new one, and counts.
func TestEndedConnectionMayBeginAgain(t *testing.T) {
	for _, end := range []string{"FIN", "RST"} {
		t.Run(end, func(t *testing.T) {
			limited(t, firewall.Limit{Open: 9, New: 3, Window: 3600, Over: firewall.DropExcess}, func(s *street) {
				f, from := s.forger(), victim("198.51.101.66", 1)
				for i := range 5 {
					a := f.begin(from)
					f.send(segment{from, web4, ruleset.ACK, 1001, a.seq + 1}, "")
					await(t, "a decision", nil, func() bool { return s.got()+s.over() == i+1 })
					if end == "RST" || s.over() > 0 { // what is refused has no other end
						f.send(segment{from, web4, ruleset.RST, 1001, 0}, "")
						continue
					}
					f.send(segment{from, web4, ruleset.FIN | ruleset.ACK, 1001, a.seq + 1}, "")
					for a.flags&ruleset.FIN == 0 {
						a = f.next(from, "the other end", nil)
					}
					f.send(segment{from, web4, ruleset.ACK, 1002, a.seq + 1}, "")
				}
				if s.got() != 3 || s.over() != 2 || s.strays() != 0 {
					t.Errorf("%d passed, %d refused, %d strays; want 3, 2, 0", s.got(), s.over(), s.strays())
				}
			})
		})
	}
}
