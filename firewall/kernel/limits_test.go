package kernel_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

const (
	attacker4 = "198.51.100.66"
	attacker6 = "2001:db8:bad:1::66"
	source6   = "2001:db8:bad:1::" // what attacker6 is one of
	beside4   = "198.51.100.7"
	beside6   = "2001:db8:bad:2::7"
)

// G7: of many connections at once exactly N pass.
func TestOpenLimitPassesExactlyN(t *testing.T) {
	for from, beside := range map[string]string{attacker4: beside4, attacker6: beside6} {
		t.Run(from, func(t *testing.T) {
			limited(t, firewall.Limit{Open: 100, Over: firewall.DropExcess}, func(s *street) {
				calls := s.call(from, 150)
				s.decided(150)
				s.passed(100)
				s.shutOut()
				s.connects(beside) // another source has its own
				for _, c := range calls[:5] {
					c.works(t)
					c.hangUp()
				}
				s.connects(from) // what is closed counts no more
			})
		})
	}
}

// passed waits until the server was given n connections, and fails if it was given more.
func (s *street) passed(n int) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("%d connections", n), nil, func() bool { return s.got() >= n })
	if got := s.got(); got != n {
		s.t.Errorf("%d connections passed, want %d", got, n)
	}
}

func TestNewLimitPassesExactlyNAtOnce(t *testing.T) {
	for from, beside := range map[string]string{attacker4: beside4, attacker6: beside6} {
		t.Run(from, func(t *testing.T) {
			limited(t, firewall.Limit{New: 20, Window: 3600, Over: firewall.DropExcess}, func(s *street) {
				s.call(from, 70)
				s.decided(70)
				s.passed(20)
				s.shutOut()
				s.connects(beside)
			})
		})
	}
}

// In no window do more than twice N pass, and N come back in each.
func TestNewLimitPassesAtMostTwiceNInAnyWindow(t *testing.T) {
	const n, window = 10, 2 * time.Second
	limited(t, firewall.Limit{New: n, Window: int(window.Seconds()), Over: firewall.DropExcess}, func(s *street) {
		type try struct {
			begin, end time.Time
			passed     int // so far, this one included
		}
		tries := []try{{passed: 0}}
		for began := time.Now(); time.Since(began) < 3*window; {
			one := try{begin: time.Now()}
			s.call(attacker4, 1)
			s.decided(len(tries))
			one.end, one.passed = time.Now(), s.got()
			tries = append(tries, one)
		}
		for i := 1; i < len(tries); i++ {
			for j := i; j < len(tries) && tries[j].end.Sub(tries[i].begin) <= window; j++ {
				if got := tries[j].passed - tries[i-1].passed; got > 2*n {
					t.Fatalf("%d connections passed within %v", got, tries[j].end.Sub(tries[i].begin))
				}
			}
		}
		if first := tries[n].passed; first != n {
			t.Errorf("%d of the first %d passed", first, n)
		}
		if all := tries[len(tries)-1].passed; all < 2*n {
			t.Errorf("only %d passed in three windows", all)
		}
	})
}

// Beyond the limit nothing of the connection passes, either way, and the source
// is shut out by the same packet; what it had is dropped, too.
func TestLockOutIsImmediateAndWhole(t *testing.T) {
	for from, beside := range map[string]string{attacker4: beside4, attacker6: beside6} {
		t.Run(from, func(t *testing.T) {
			limited(t, firewall.Limit{New: 5, Window: 3600, Over: firewall.LockOut, LockFor: 300}, func(s *street) {
				calls := s.call(from, 5)
				s.passed(5)
				calls[0].works(t)
				s.shutOut()
				s.call(from, 1)
				await(t, "the excess", nil, func() bool { return s.over() == 1 })
				blocked := s.blocked()
				want := from
				if strings.Contains(from, ":") {
					want = source6
				}
				s.shutOut(want)
				if e := blocked[0]; e.Timeout != 5*time.Minute || e.Left <= 4*time.Minute || e.Packets < 1 {
					t.Errorf("shut out: %+v", e)
				}
				await(t, "the server's answers to end at the box", nil, func() bool { return s.count(compile.AutoCounter("refused")) > 0 })
				before := s.blocked()[0].Packets
				if _, err := unix.Write(calls[1].fd, []byte("x")); err != nil {
					t.Fatal(err)
				}
				await(t, "dropped data", nil, func() bool { return s.blocked()[0].Packets > before && s.count(compile.AutoCounter("blocked")) > 0 })
				s.connects(beside)
				s.passed(6)
				await(t, "a line", nil, func() bool { return s.told(firewall.OverNew) == 1 })
			})
		})
	}
}

// A drop-only limit refuses both directions of what is beyond it, for good.
func TestRefusedConnectionStaysRefused(t *testing.T) {
	limited(t, firewall.Limit{New: 1, Window: 1, Over: firewall.DropExcess}, func(s *street) {
		calls := s.call(attacker4, 2)
		s.decided(2)
		calls[0].works(t)
		s.connects(attacker4) // there is room again, for new ones
		refused := s.count(compile.AutoCounter("refused"))
		if _, err := unix.Write(calls[1].fd, []byte("x")); err != nil {
			t.Fatal(err)
		}
		await(t, "dropped data", nil, func() bool { return s.count(compile.AutoCounter("refused")) > refused })
		if n, err := unix.Read(calls[1].fd, make([]byte, 1)); n > 0 || err != unix.EAGAIN {
			t.Errorf("read %d, %v", n, err)
		}
		s.passed(2)
	})
}

func TestDryRunDropsNothing(t *testing.T) {
	l := firewall.Limit{Open: 2, New: 3, Window: 3600, Over: firewall.Quarantine, LockFor: 60, DryRun: true}
	for _, from := range []string{attacker4, attacker6} {
		t.Run(from, func(t *testing.T) {
			limited(t, l, func(s *street) {
				calls := s.call(from, 10)
				s.passed(10)
				for _, c := range calls {
					c.works(t)
				}
				await(t, "the lines", nil, func() bool { return s.told(firewall.OverNew) == 7 && s.told(firewall.OverOpen) == 8 })
				if s.over() != 15 {
					t.Errorf("counted %d, want 8 beyond the open and 7 beyond the new ones", s.over())
				}
				s.shutOut()
			})
		})
	}
}

// C16: an offender that changes its address within its prefix is one source.
func TestC16AddressesOfOnePrefixAreOneSource(t *testing.T) {
	limited(t, firewall.Limit{New: 10, Window: 3600, Over: firewall.Quarantine, LockFor: 600}, func(s *street) {
		for i := range 200 {
			s.call(fmt.Sprintf("2001:db8:bad:1::%x", i+1), 2)
		}
		await(t, "the excess", nil, func() bool { return s.over() > 0 })
		s.passed(10)
		s.shutOut(source6)
		for range 5 {
			s.connects(beside6)
		}
		s.passed(15)
		if err := s.k.Remove(t.Context(), ruleset.Member{Set: compile.BlockedSet(true), Element: s.blocked()[0]},
			ruleset.Member{Set: s.meter(firewall.OverNew, true).Name, Element: s.blocked()[0]}); err != nil {
			t.Fatal(err)
		}
		s.connects("2001:db8:bad:1::ffff") // and is let go as one
	})
}

// meter is a set in which the limit remembers sources.
func (s *street) meter(what string, v6 bool) compile.MeterSet {
	s.t.Helper()
	all := compile.MeterSets(s.cfg)
	i := slices.IndexFunc(all, func(m compile.MeterSet) bool { return m.Rule == theRule && m.What == what && m.V6 == v6 })
	if i < 0 {
		s.t.Fatalf("no meter for %s in %v", what, all)
	}
	return all[i]
}

// Sources that are exempt, or in the alias, are limited and not shut out.
func TestNeverListIsLimitedOnly(t *testing.T) {
	for from, exempt := range map[string]string{attacker4: attacker4, attacker6: source6} {
		for _, by := range []string{"alias", "exempt"} {
			t.Run(by+" "+from, func(t *testing.T) {
				c := config(firewall.Limit{New: 3, Window: 3600, Over: firewall.Quarantine, LockFor: 600, Never: "FRIENDS"})
				c.Aliases = []firewall.Alias{{Name: "FRIENDS", Kind: firewall.Addresses, Addrs: []firewall.Entry{entry("2001:db8:f::1"), entry("192.0.2.9")}}}
				if by == "alias" { // another host of the same prefix is enough
					c.Aliases[0].Addrs = append(c.Aliases[0].Addrs, entry(strings.Replace(from, "1::66", "1::9", 1)))
				}
				limitedBy(t, c, func(s *street) {
					if by == "exempt" {
						if err := s.k.Fill(t.Context(), compile.ExemptSet(strings.Contains(from, ":")), []ruleset.Element{{Key: []ruleset.Range{one(exempt)}}}); err != nil {
							t.Fatal(err)
						}
					}
					s.call(from, 20)
					s.decided(20)
					s.passed(3)
					s.shutOut()
					if n := s.told(firewall.OverNew); n != 0 {
						t.Errorf("%d lines about a source that is never shut out", n)
					}
				})
			})
		}
	}
}

func entry(s string) firewall.Entry {
	e, err := firewall.ParseEnd(s)
	if err != nil {
		panic(err)
	}
	return firewall.Entry{End: e}
}

// Fifty applies in a row keep who is shut out, with the time left, and what was
// counted; another N begins anew.
func TestLimitsSurviveApplies(t *testing.T) {
	l := firewall.Limit{Open: 50, New: 5, Window: 3600, Over: firewall.LockOut, LockFor: 3600}
	limited(t, l, func(s *street) {
		s.call(attacker4, 6)
		s.call(beside4, 3)
		await(t, "the offence", nil, func() bool { return s.over() == 1 })
		s.passed(8)
		s.shutOut(attacker4)
		forever := ruleset.Member{Set: compile.BlockedSet(true), Element: ruleset.Element{Key: []ruleset.Range{one(source6)}, Packets: 12, Bytes: 720}}
		net := ruleset.Member{Set: compile.BlockedNets(false), Element: ruleset.Element{Key: []ruleset.Range{nets("192.0.2.0/24")}, Timeout: time.Hour, Left: time.Minute}}
		if err := s.k.Add(t.Context(), forever, net); err != nil {
			t.Fatal(err)
		}
		meters := func() string {
			return run(t, "nft", "list", "set", "inet", ruleset.Table, s.meter(firewall.OverNew, false).Name) +
				run(t, "nft", "list", "set", "inet", ruleset.Table, s.meter(firewall.OverOpen, false).Name)
		}
		kept := func(sets string) []string {
			return []string{fmt.Sprint(strings.Contains(sets, attacker4)), fmt.Sprint(strings.Contains(sets, beside4))}
		}
		before, left := kept(meters()), s.blocked()[0].Left
		for i := range 50 {
			s.cfg.Rules[1].Descr = fmt.Sprint("edit ", i)
			s.apply(s.cfg)
		}
		if after := kept(meters()); !slices.Equal(before, after) || before[1] != "true" {
			t.Errorf("meters hold %v, before %v", after, before)
		}
		all := s.blocked()
		if len(all) != 2 || all[0].Timeout != time.Hour || all[0].Left > left || all[0].Left < 50*time.Minute || all[0].Packets < 1 {
			t.Errorf("locked out: %+v", all)
		}
		if e := all[len(all)-1]; e.Timeout != 0 || e.Packets != 12 || e.Bytes != 720 {
			t.Errorf("in quarantine: %+v", e)
		}
		members, err := s.k.Members(t.Context(), compile.BlockedNets(false))
		if err != nil || len(members) != 1 || members[0].Left > time.Minute || members[0].Timeout != time.Hour {
			t.Errorf("nets: %+v, %v", members, err)
		}
		s.call(beside4, 2) // 5 in all
		s.passed(10)
		s.cfg.Rules[0].Limit.New = 7
		s.apply(s.cfg)
		if err := s.k.Remove(t.Context(), ruleset.Member{Set: compile.BlockedSet(false), Element: all[0]}); err != nil {
			t.Fatal(err)
		}
		s.call(beside4, 7)
		s.passed(17)
	})
}

// A connection whose handshake is under way when the rules change counts by the
// rules that it meets then.
func TestHandshakeAcrossAnApply(t *testing.T) {
	for name, c := range map[string]struct {
		then firewall.Limit
		want int
	}{
		"the limit stays":   {firewall.Limit{New: 2, Window: 3600, Over: firewall.DropExcess}, 2},
		"the limit changes": {firewall.Limit{New: 3, Window: 3600, Over: firewall.DropExcess}, 3},
		"the limit goes":    {firewall.Limit{}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			limited(t, firewall.Limit{New: 2, Window: 3600, Over: firewall.DropExcess}, func(s *street) {
				f := s.forger()
				var answers []segment
				for i := range 5 {
					answers = append(answers, f.begin(victim("198.51.101.66", i)))
				}
				s.cfg.Rules[0].Limit = c.then
				s.apply(s.cfg)
				for _, a := range answers {
					f.send(segment{a.to, web4, ruleset.ACK, 1001, a.seq + 1}, "hello")
				}
				if c.then.On() {
					s.decided(5)
				}
				s.passed(c.want)
				if !c.then.On() {
					return // and nobody looks at the mark any more
				}
				if left := bytes.Count([]byte(run(t, "conntrack", "-L", "-m", "0x80000000/0x80000000")), []byte("dport=80")); left != 0 {
					t.Errorf("%d connections are pending still", left)
				}
			})
		})
	}
}
