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
