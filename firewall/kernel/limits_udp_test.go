package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
)

// datagrams counts what comes to UDP port 80 of the server, which never answers.
func (s *street) datagrams() *atomic.Int64 {
	s.t.Helper()
	var l net.PacketConn
	s.host.do(s.t, func() (err error) {
		l, err = net.ListenPacket("udp", ":80")
		return err
	})
	s.t.Cleanup(func() { _ = l.Close() })
	n := new(atomic.Int64)
	go func() {
		for b := make([]byte, 100); ; n.Add(1) {
			if _, _, err := l.ReadFrom(b); err != nil {
				return
			}
		}
	}()
	return n
}

// flows opens n UDP flows from an address of the internet to port 80 of the server.
func (s *street) flows(from string, n int) (out []net.Conn) {
	s.t.Helper()
	to := server4
	if ip(from).Is6() {
		to = server6
	}
	s.inet.do(s.t, func() error {
		for range n {
			c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip(from), 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip(to), 80)))
			if err != nil {
				return err
			}
			out = append(out, c)
		}
		return nil
	})
	for _, c := range out {
		s.t.Cleanup(func() { _ = c.Close() })
	}
	return out
}

// Without handshakes the first packet of a flow counts; further ones of the same
// flow do not, though nobody answers.
func TestUDPLimitCountsFlowsAndOnlyDrops(t *testing.T) {
	for name, l := range map[string]firewall.Limit{
		"new": {New: 3, Window: 3600, Over: firewall.DropExcess}, "open": {Open: 3, Over: firewall.DropExcess},
		"both": {Open: 3, New: 3, Window: 3600, Over: firewall.DropExcess},
	} {
		for _, proto := range []firewall.Proto{firewall.UDP, firewall.TCPUDP, firewall.AnyProto} {
			for from, beside := range map[string]string{"10.1.0.2": beside4, "2001:db8:1::2": beside6} {
				if proto != firewall.UDP && from[0] == '2' {
					continue
				}
				t.Run(fmt.Sprint(name, " ", proto, " ", from), func(t *testing.T) {
					c := config(l)
					if c.Rules[0].Proto = proto; proto == firewall.AnyProto {
						c.Rules[0].DstPorts = nil
					}
					limitedBy(t, c, func(s *street) {
						got := s.datagrams()
						flows := s.flows(from, 8)
						for round := range 3 {
							for _, f := range flows {
								send(t, f, "x")
							}
							await(t, "every packet", nil, func() bool { return int(got.Load())+s.over() == 8*(round+1) })
						}
						if got.Load() != 3*3 {
							t.Errorf("%d packets passed, want 3 of each of 3 flows", got.Load())
						}
						send(t, s.flows(beside, 1)[0], "x")
						await(t, "another source", nil, func() bool { return got.Load() == 10 })
						s.shutOut()
					})
				})
			}
		}
	}
}

// C15 without handshakes: sources that do not fit share a meter, whichever is full.
func TestC15FullMeterOfUDP(t *testing.T) {
	for name, l := range map[string]firewall.Limit{
		"new": {New: 2, Window: 3600, Over: firewall.DropExcess}, "open": {Open: 2, Over: firewall.DropExcess},
		"both": {Open: 2, New: 2, Window: 3600, Over: firewall.DropExcess},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(l)
			c.Rules[0].Proto, c.Sources.Meter = firewall.UDP, 4
			limitedBy(t, c, func(s *street) {
				got := s.datagrams()
				for i := range 8 {
					for _, f := range s.flows(fmt.Sprintf("198.51.100.%d", 60+i), 3) {
						send(t, f, "x")
					}
				}
				await(t, "every packet", nil, func() bool { return int(got.Load())+s.over() == 24 })
				if n := got.Load(); n < 10 || n > 12 {
					t.Errorf("%d of 24 flows passed, want 2 for each of 4 sources and 2 for the others", n)
				}
			})
		})
	}
}

// Echo requests are limited by their first packet, too, at the box itself.
func TestPingLimit(t *testing.T) {
	for _, to := range []string{"10.1.0.1", "2001:db8:1::1"} {
		t.Run(to, func(t *testing.T) {
			c := config(firewall.Limit{New: 3, Window: 3600, Over: firewall.DropExcess})
			c.Rules[0].Proto, c.Rules[0].DstPorts, c.Rules[0].ICMP = firewall.ICMP, nil, []string{"echo-request"}
			c.Rules[0].Dst, _ = firewall.ParseEnds("this box")
			limitedBy(t, c, func(s *street) {
				answers := 0
				for range 6 {
					s.inet.do(t, func() error {
						answers += ping(to)
						return nil
					})
				}
				if answers != 3 || s.over() != 3 || s.count(compile.RuleCounter(theRule)) != 3 {
					t.Errorf("%d answers, %d over, %d passed", answers, s.over(), s.count(compile.RuleCounter(theRule)))
				}
			})
		})
	}
}

// boxServes accepts connections to port 80 of the box itself, and greets each.
func (s *street) boxServes() *atomic.Int64 {
	s.t.Helper()
	l, err := net.Listen("tcp", "10.1.0.1:80") // on the thread of the box
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = l.Close() })
	accepted := new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			_, _ = c.Write([]byte("x"))
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
		}
	}()
	return accepted
}

// ofTheBox is a limit of what the box itself serves.
func ofTheBox(l firewall.Limit) firewall.Config {
	c := config(l)
	c.Rules[0].Dst, _ = firewall.ParseEnds("this box")
	return c
}

var box80 = netip.MustParseAddrPort("10.1.0.1:80")

// What the box itself serves can be limited: the handshake is counted in the
// input chain, and what the box says is heard in the output chain.
func TestLimitOfTheBoxItself(t *testing.T) {
	limitedBy(t, ofTheBox(firewall.Limit{New: 2, Window: 3600, Over: firewall.LockOut, LockFor: 60}), func(s *street) {
		accepted := s.boxServes()
		calls := s.callTo(attacker4, box80, 2)
		calls[0].hears(t)
		calls[1].hears(t)
		await(t, "settled connections", nil, func() bool {
			unsettled := fmt.Sprintf("%d/%[1]d", firewall.MarkShared)
			return !strings.Contains(run(t, "conntrack", "-L", "-m", unsettled), "dport=80")
		})
		s.shutOut()
		s.callTo(attacker4, box80, 1)
		await(t, "the excess", nil, func() bool { return s.over() == 1 })
		s.shutOut(attacker4)
		await(t, "the box's own answers to end", nil, func() bool { return s.count(compile.AutoCounter("refused")) > 0 })
		if n := accepted.Load(); n != 2 {
			t.Errorf("%d connections were accepted", n)
		}
	})
}

// A guess at what the box said is told by its own reset.
func TestGuessAtTheBoxItself(t *testing.T) {
	limitedBy(t, ofTheBox(firewall.Limit{New: 2, Window: 3600, Over: firewall.LockOut, LockFor: 60}), func(s *street) {
		s.boxServes()
		f, from := s.forger(), victim("198.51.101.9", 1)
		a := f.next(from, "an answer", func() { f.send(segment{from, box80, ruleset.SYN, 1000, 0}, "") })
		f.send(segment{from, box80, ruleset.ACK, 1001, a.seq}, "x")
		await(t, "the guess to be known", nil, func() bool {
			members, err := s.k.Members(t.Context(), compile.ForgedSet(false))
			return err == nil && len(members) == 1 && members[0].Key[0] == one("198.51.101.9")
		})
		s.shutOut()
	})
}
