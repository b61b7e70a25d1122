package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

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
						if from[0] == '1' {
							send(t, s.flows(beside4, 1)[0], "x")
						} else {
							send(t, s.flows(beside, 1)[0], "x")
						}
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

// The web pages of the box itself can be limited: the handshake is counted in
// the input chain, and what the box says in the output chain.
func TestLimitOfTheBoxItself(t *testing.T) {
	c := config(firewall.Limit{New: 2, Window: 3600, Over: firewall.LockOut, LockFor: 60})
	c.Rules[0].Dst, _ = firewall.ParseEnds("this box")
	limitedBy(t, c, func(s *street) {
		l, err := net.Listen("tcp", "10.1.0.1:80") // on the thread of the box
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		accepted := make(chan net.Conn, 100)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
		box := netip.AddrPortFrom(ip("10.1.0.1"), 80)
		var calls []*call
		dial := func(n int) {
			s.inet.do(t, func() error {
				for range n {
					c, err := dialNow(netip.AddrPortFrom(ip(attacker4), 0), box)
					if err != nil {
						return err
					}
					calls = append(calls, c)
				}
				return nil
			})
		}
		dial(2)
		for range 2 {
			c := <-accepted
			t.Cleanup(func() { _ = c.Close() })
			_, _ = c.Write([]byte("x"))
		}
		calls[0].hears(t)
		marks := func(mask uint32) string { return run(t, "conntrack", "-L", "-m", fmt.Sprintf("%d/%d", mask, mask)) }
		await(t, "settled connections", nil, func() bool {
			return marks(firewall.MarkShared) == "" || !contains(marks(firewall.MarkShared), "dport=80")
		})
		s.shutOut()
		dial(1)
		await(t, "the excess", nil, func() bool { return s.over() == 1 })
		s.shutOut(attacker4)
		await(t, "the box's own answers to end", nil, func() bool { return s.count(compile.AutoCounter("refused")) > 0 })
		select {
		case <-accepted:
			t.Error("a third connection was accepted")
		case <-time.After(0):
		}

		f := s.forger() // and a guess is told by the box's own reset
		from := victim("198.51.101.9", 1)
		f.send(segment{from, box, ruleset.SYN, 1000, 0}, "")
		a := f.next(from, "an answer", nil)
		f.send(segment{from, box, ruleset.ACK, 1001, a.seq}, "x")
		await(t, "the guess to be known", nil, func() bool {
			members, err := s.k.Members(t.Context(), compile.ForgedSet(false))
			return err == nil && len(members) == 1 && members[0].Key[0] == one("198.51.101.9")
		})
	})
}
