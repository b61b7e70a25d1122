package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
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
