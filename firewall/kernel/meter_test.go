package kernel_test

import (
	"fmt"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// C15: more sources than the meter holds. The limit of those in it goes on, and
// the others have one limit together.
func TestC15FullMeterPassesNeitherAllNorNone(t *testing.T) {
	for name, c := range map[string]struct {
		limit firewall.Limit
		what  string
	}{
		"new":  {firewall.Limit{New: 1, Window: 3600, Over: firewall.DropExcess}, firewall.OverNew},
		"open": {firewall.Limit{Open: 1, Over: firewall.DropExcess}, firewall.OverOpen},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(c.limit)
			cfg.Sources.Meter = 4
			limitedBy(t, cfg, func(s *street) {
				for range 3 {
					for i := range 8 {
						s.call(fmt.Sprintf("198.51.100.%d", 60+i), 1)
					}
				}
				s.decided(3 * 8)
				if n := s.got(); n < 5 || n > 8 {
					t.Errorf("%d of 24 connections passed, want 5: one for each source that fits, one for the others", n)
				}
				for i := range 4 {
					if n := s.got(fmt.Sprintf("198.51.100.%d/32", 60+i)); n != 1 {
						t.Errorf("the source number %d has %d connections", i, n)
					}
				}
				m := s.meter(c.what, false)
				if members, err := s.k.Members(t.Context(), m.Name); err != nil || len(members) != 4 || m.Size != 4 {
					t.Errorf("the meter %+v holds %d, %v", m, len(members), err)
				}
				await(t, "a line", nil, func() bool { return s.told(firewall.MeterFull) > 0 })
				s.shutOut()
			})
		})
	}
}

// Forged SYNs that fill the meter take no honest client's place: it is let in
// when its handshake is complete.
func TestForgedSourcesInTheMeterShutNobodyOut(t *testing.T) {
	cfg := config(firewall.Limit{Open: 3, Over: firewall.LockOut, LockFor: 60})
	cfg.Sources.Meter = 4
	limitedBy(t, cfg, func(s *street) {
		s.inet.do(t, func() error { return ipAll("route add blackhole 198.51.101.0/24") })
		f := s.forger()
		for i := range 100 {
			f.send(segment{victim(fmt.Sprintf("198.51.101.%d", i), i), web4, ruleset.SYN, 1000, 0}, "")
		}
		if members, err := s.k.Members(t.Context(), s.meter(firewall.OverOpen, false).Name); err != nil || len(members) != 4 {
			t.Fatalf("the meter holds %d, %v", len(members), err)
		}
		s.call(beside4, 1)
		s.passed(1)
		s.call(attacker4, 9) // beyond what is left of the share: 3 at once, 3 in ten seconds
		await(t, "the excess", nil, func() bool { return s.over() > 0 })
		s.decided(10)
		if n := s.got(); n < 2 || n > 9 {
			t.Errorf("%d of 10 connections passed", n)
		}
		s.shutOut()
	})
}
