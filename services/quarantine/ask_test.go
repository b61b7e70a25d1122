package quarantine

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/firewall"
)

func TestTooManyOpenConnectionsAreLockedOutWithin100ms(t *testing.T) {
	for _, late := range []time.Duration{0, 8 * time.Millisecond, 25 * time.Millisecond, 55 * time.Millisecond} {
		t.Run(late.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, b *box) {
				b.kernel.connect("203.0.113.7", b.number(wide), 9)
				b.syn("203.0.113.7", wide)
				b.after(late) // the last handshake completes
				b.kernel.connect("203.0.113.7", b.number(wide), 1)
				b.after(100*time.Millisecond - late)
				e := b.want("203.0.113.7", LockOut)
				if e.What != firewall.OverOpen || e.Open != 10 || e.Rule != wide || e.Times != 1 {
					t.Errorf("the entry is %+v", e)
				}
				if n := b.kernel.flowsOf("203.0.113.7"); n != 0 {
					t.Errorf("%d connections go on", n)
				}
				b.after(10*time.Minute + time.Second)
				b.want("203.0.113.7", "")
			})
		})
	}
}

func TestSecondLockOutForOpenConnectionsIsQuarantineAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for i, k := range []Kind{LockOut, Quarantine} {
			b.kernel.connect("203.0.113.7", b.number(wide), 10)
			b.syn("203.0.113.7", wide)
			b.after(100 * time.Millisecond)
			if e := b.want("203.0.113.7", k); e.Times != i+1 {
				t.Errorf("lock-out %d counts as %d", i+1, e.Times)
			}
			b.after(11 * time.Minute)
		}
		b.want("203.0.113.7", Quarantine)
	})
}

func TestFewerOpenConnectionsThanTheLimitAreNeverPunished(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.connect("203.0.113.7", b.number(wide), 9)  // one less
		b.kernel.connect("203.0.113.7", b.number(fast), 99) // of another rule
		b.kernel.connect("203.0.113.8", b.number(wide), 99) // of somebody else
		b.kernel.flows = append(b.kernel.flows,
			firewall.Flow{Mark: b.number(wide) << firewall.MarkShift, Packet: firewall.Packet{Src: netip.MustParseAddr("203.0.113.7")}},                                  // half open
			firewall.Flow{Open: true, Mark: b.number(wide)<<firewall.MarkShift | firewall.MarkPending, Packet: firewall.Packet{Src: netip.MustParseAddr("203.0.113.7")}}, // a guess
			firewall.Flow{Open: true, Mark: b.number(wide)<<firewall.MarkShift | firewall.MarkRefused, Packet: firewall.Packet{Src: netip.MustParseAddr("203.0.113.7")}}) // refused
		for range 50 {
			b.syn("203.0.113.7", wide)
			b.after(20 * time.Millisecond)
		}
		b.want("203.0.113.7", "")
		b.want("203.0.113.8", "")
	})
}

func TestIPv6ConnectionsOfOnePrefixCountTogether(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for i := range 10 {
			b.kernel.connect(fmt.Sprintf("2001:db8:bad::%x", i+1), b.number(wide), 1)
		}
		b.syn("2001:db8:bad::77", wide)
		b.after(100 * time.Millisecond)
		b.want("2001:db8:bad::/64", LockOut)
		b.want("2001:db8:bad:1::/64", "")
		if n := len(b.kernel.flows); n != 0 {
			t.Errorf("%d connections go on", n)
		}
	})
}

func TestForgedSYNsPunishNobodyAndCostLittle(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.connect("198.18.0.1", b.number(wide), 9) // a victim that is in use
		b.kernel.slow = 50 * time.Millisecond
		const span = 10 * time.Second
		for i := range 5000 { // 500 a second pass the log's own limit
			b.syn(fmt.Sprintf("10.%d.%d.1", i/250, i%250), wide)
			b.syn("198.18.0.1", wide)
			b.after(span / 5000)
		}
		synctest.Wait()
		b.kernel.mu.Lock()
		asked := slices.Clone(b.kernel.asked)
		b.kernel.mu.Unlock()
		if busy := time.Duration(len(asked)) * b.kernel.slow; busy > span/2 || busy == 0 {
			t.Errorf("conntrack was read for %s of %s", busy, span)
		}
		if c := b.Counts(); c != (Counts{}) {
			t.Errorf("somebody was punished: %+v", c)
		}
		b.Service.mu.Lock()
		if len(b.suspects) > maxSuspects || len(b.cleared) > maxCleared {
			t.Errorf("%d suspects, %d cleared", len(b.suspects), len(b.cleared))
		}
		b.Service.mu.Unlock()
		// Among all of them a real offender is still found.
		b.kernel.connect("203.0.113.7", b.number(wide), 10)
		b.syn("203.0.113.7", wide)
		b.after(time.Second)
		b.want("203.0.113.7", LockOut)
	})
}

func TestClearedSuspectIsNotAskedAboutAgainForAMoment(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for range 90 {
			b.syn("203.0.113.7", wide)
			b.after(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := len(b.kernel.asked); n != len(looks) {
			t.Errorf("asked %d times, want %d", n, len(looks))
		}
		b.after(time.Second)
		b.kernel.connect("203.0.113.7", b.number(wide), 10)
		b.syn("203.0.113.7", wide)
		b.after(100 * time.Millisecond)
		b.want("203.0.113.7", LockOut)
	})
}

func TestAFullListSavesOnlyWhoDoesNotFit(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.size[blocked4] = 2
		b.Service.mu.Lock() // all three in one look
		for _, src := range []string{"203.0.113.7", "203.0.113.8", "203.0.113.9"} {
			b.kernel.connect(src, b.number(wide), 10)
			b.suspect(b.limits[wide], prefix(src), Line{Time: time.Now(), Rule: wide})
		}
		b.Service.mu.Unlock()
		b.after(100 * time.Millisecond)
		if c := b.Counts(); c.LockOuts != 2 || len(b.kernel.sets[blocked4]) != 2 {
			t.Errorf("%d are listed, %d in the kernel, want 2", c.LockOuts, len(b.kernel.sets[blocked4]))
		}
		if n := len(b.disk.strikes.rows); n > 2 {
			t.Errorf("%d have a strike", n)
		}
	})
}

func TestReleaseForgivesASuspicion(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.syn("203.0.113.7", wide)
		b.after(5 * time.Millisecond)
		b.release(Options{}, "203.0.113.7")
		b.kernel.connect("203.0.113.7", b.number(wide), 10)
		b.after(2 * time.Second)
		b.want("203.0.113.7", "")
		b.syn("203.0.113.7", wide)
		b.after(100 * time.Millisecond)
		b.want("203.0.113.7", LockOut)
	})
}
