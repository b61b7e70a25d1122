package quarantine

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// metered gives the box meters of one limit, and puts sources into them.
func (b *box) metered(srcs ...string) {
	b.Service.mu.Lock()
	b.meters = []meter{{rule: fast, what: firewall.OverNew, set: "new_fast_4", size: 10}, {rule: fast, what: firewall.OverNew, set: "new_fast_6", size: 10, six: true},
		{rule: wide, what: firewall.OverOpen, set: "open_wide_4", size: 10}}
	b.Service.mu.Unlock()
	b.kernel.mu.Lock()
	b.kernel.sets["new_fast_4"], b.kernel.sets["new_fast_6"], b.kernel.sets["open_wide_4"] = map[string]*element{}, map[string]*element{}, map[string]*element{}
	b.kernel.mu.Unlock()
	for _, src := range srcs {
		for _, set := range []string{"new_fast_4", "open_wide_4", "new_fast_6"} {
			if m := memberOf(prefix(src), 64); m.Set == blocked6 == (set == "new_fast_6") {
				m.Set = set
				if err := b.kernel.Add(b.t.Context(), m); err != nil {
					b.t.Fatal(err)
				}
			}
		}
	}
}

func (b *box) holds(set string, want int) {
	b.t.Helper()
	b.kernel.mu.Lock()
	defer b.kernel.mu.Unlock()
	if n := len(b.kernel.sets[set]); n != want {
		b.t.Errorf("%s holds %d, want %d", set, n, want)
	}
}

func TestReleaseStartsFromScratch(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.metered("203.0.113.7", "203.0.113.8", "2001:db8:bad::/64")
		for range 2 {
			b.over("203.0.113.7", fast)
			b.after(6 * time.Minute)
		}
		b.over("203.0.113.7", fast)
		b.over("203.0.113.8", fast)
		b.after(2 * time.Second)
		b.want("203.0.113.7", Quarantine)
		r := b.release(Options{}, "203.0.113.7")
		if len(r.Released) != 1 || r.Released[0].Kind != Quarantine || r.Token == "" {
			t.Errorf("receipt %+v", r)
		}
		b.want("203.0.113.7", "")
		b.want("203.0.113.8", LockOut)
		b.holds("new_fast_4", 1)
		b.holds("open_wide_4", 1)
		b.holds("new_fast_6", 1)
		if a := b.Acts(1)[0]; a.Who != anna || a.What != Released || a.Source != prefix("203.0.113.7") {
			t.Errorf("the audit says %+v", a)
		}
		b.after(time.Second)
		b.over("203.0.113.7", fast) // the strikes are gone too
		b.after(2 * time.Second)
		if e := b.want("203.0.113.7", LockOut); e.Times != 1 {
			t.Errorf("after the release it has %d strikes", e.Times)
		}
		if b.release(Options{}, "2001:db8:bad::77"); len(b.kernel.sets["new_fast_6"]) != 0 {
			t.Error("an IPv6 host is not released by its prefix")
		}
	})
}

func TestReleaseCanKeepStrikesOrExempt(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for _, src := range []string{"203.0.113.7", "203.0.113.8"} {
			for range 2 {
				b.over(src, fast)
				b.after(6 * time.Minute)
			}
		}
		b.over("203.0.113.8", harsh)
		b.release(Options{KeepStrikes: true}, "203.0.113.7")
		b.release(Options{Exempt: 24 * time.Hour}, "203.0.113.8")
		b.after(time.Second)
		b.over("203.0.113.7", fast)
		b.after(2 * time.Second)
		b.want("203.0.113.7", Quarantine)
		b.holds(exempt4, 5) // the box twice, its gateway, its resolver, and this one
		b.over("203.0.113.8", harsh)
		b.after(2 * time.Second)
		b.want("203.0.113.8", "")
		b.restart()
		b.holds(exempt4, 5)
		b.after(24*time.Hour + time.Minute)
		b.holds(exempt4, 4)
		b.over("203.0.113.8", harsh)
		b.after(2 * time.Second)
		b.want("203.0.113.8", Quarantine)
		if _, err := b.Release(t.Context(), anna, nil, Options{Exempt: 31 * 24 * time.Hour}); err == nil {
			t.Error("an exemption of 31 days is taken")
		}
	})
}

func TestReleaseOfWhatIsGoneSucceeds(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		synctest.Wait()
		for i := range 2 { // two administrators
			r := b.release(Options{}, "203.0.113.7", "203.0.113.7", "198.18.0.1", "10.0.0.0/8")
			if len(r.Released) != 1-i {
				t.Errorf("receipt %d: %+v", i, r)
			}
			b.want("203.0.113.7", "")
		}
		if r, err := b.Release(t.Context(), anna, []netip.Prefix{{}}, Options{}); err != nil || len(r.Released) != 0 {
			t.Errorf("of nothing: %+v %v", r, err)
		}
		if n := len(b.Acts(99)); n != 2 {
			t.Errorf("%d acts, want the lock-out and one release", n)
		}
	})
}

func TestReleaseTakesOutWhatIsNotListedYet(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.lock("203.0.113.7", 5*time.Minute) // its line is on the way
		at := time.Now()
		b.after(10 * time.Millisecond)
		b.release(Options{}, "203.0.113.7")
		b.Offence(Line{Time: at, What: firewall.OverNew, Rule: fast, Src: netip.MustParseAddr("203.0.113.7")})
		b.want("203.0.113.7", "")
		b.after(31 * time.Second)
		b.want("203.0.113.7", "")
		b.over("203.0.113.7", fast) // a new offence counts
		b.want("203.0.113.7", LockOut)
	})
}

func TestReleaseWorksWhereAMeterIsFullOrGone(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.metered("203.0.113.7", "203.0.113.8")
		b.kernel.size["new_fast_4"] = 2
		b.kernel.mu.Lock()
		delete(b.kernel.sets, "open_wide_4") // with its rule
		b.kernel.mu.Unlock()
		b.over("203.0.113.7", fast)
		b.over("203.0.113.9", fast) // it is in no meter
		synctest.Wait()
		b.release(Options{}, "203.0.113.7", "203.0.113.9")
		b.want("203.0.113.7", "")
		b.want("203.0.113.9", "")
		b.holds("new_fast_4", 1)
	})
}

func TestReleaseThatTheKernelRefusesReleasesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		synctest.Wait()
		b.kernel.broken = errors.New("no memory")
		if _, err := b.Release(t.Context(), anna, []netip.Prefix{prefix("203.0.113.7")}, Options{Exempt: time.Hour}); err == nil {
			t.Error("no error")
		}
		b.kernel.broken = nil
		b.want("203.0.113.7", LockOut)
		b.after(3 * time.Second)
		if _, exempt := b.Exempt(netip.MustParseAddr("203.0.113.7")); exempt {
			t.Error("it is exempt all the same")
		}
		b.kernel.gone() // without a table nobody is shut out
		if r := b.release(Options{}, "203.0.113.7"); len(r.Released) != 1 {
			t.Errorf("receipt %+v", r)
		}
		b.kernel.fresh(b.Members())
		b.want("203.0.113.7", "")
	})
}

func TestUndoPutsBackTheTimeLeftAndTheStrikes(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.after(6 * time.Minute)
		b.over("203.0.113.7", fast)
		b.over("203.0.113.8", harsh)
		if err := b.Add(t.Context(), anna, prefix("10.0.0.0/8"), "noise", time.Hour); err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		r := b.release(Options{Exempt: time.Hour}, "203.0.113.7", "203.0.113.8", "10.0.0.0/8")
		if r.Released[0].Source != prefix("203.0.113.7") {
			t.Fatalf("receipt %+v", r)
		}
		b.after(8 * time.Second)
		b.kernel.connect("203.0.113.7", b.number(drops), 1) // made in between
		for range 2 {                                       // a second click changes nothing
			if err := b.Undo(t.Context(), anna, r.Token); err != nil {
				t.Fatal(err)
			}
		}
		b.want("203.0.113.7", LockOut)
		b.left("203.0.113.7", 4*time.Minute)
		b.want("203.0.113.8", Quarantine)
		b.want("10.0.0.0/8", LockOut)
		b.left("10.0.0.0/8", 59*time.Minute)
		b.holds(exempt4, 4)
		if n := b.kernel.flowsOf("203.0.113.7"); n != 0 {
			t.Errorf("%d connections go on", n)
		}
		b.after(5 * time.Minute)
		b.over("203.0.113.7", fast)
		b.after(2 * time.Second)
		if e := b.want("203.0.113.7", Quarantine); e.Times != 3 {
			t.Errorf("the strikes are lost: %+v", e)
		}
		if a := b.Acts(5); a[3].What != Undone && a[4].What != Undone {
			t.Errorf("the audit says %+v", a)
		}
	})
}

func TestUndoIsForTenSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", harsh)
		b.after(2 * time.Second)
		r := b.release(Options{}, "203.0.113.7")
		b.after(undoWait + time.Second)
		if err := b.Undo(t.Context(), anna, r.Token); !errors.Is(err, ErrTooLate) {
			t.Errorf("after 11 s: %v", err)
		}
		if err := b.Undo(t.Context(), anna, "guess"); !errors.Is(err, ErrTooLate) {
			t.Errorf("with another token: %v", err)
		}
		b.want("203.0.113.7", "")
	})
}

func TestUndoDoesNotShortenWhatCameSince(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.after(4 * time.Minute)
		if err := b.Add(t.Context(), anna, prefix("10.1.0.0/16"), "", 0); err != nil {
			t.Fatal(err)
		}
		r := b.release(Options{}, "203.0.113.7", "10.1.0.0/16")
		b.after(time.Second)
		b.over("203.0.113.7", fast)
		if err := b.Add(t.Context(), anna, prefix("10.0.0.0/8"), "", 0); err != nil {
			t.Fatal(err)
		}
		if err := b.Undo(t.Context(), anna, r.Token); err != nil {
			t.Fatal(err)
		}
		b.want("203.0.113.7", LockOut)
		b.left("203.0.113.7", 5*time.Minute)
		b.want("10.0.0.0/8", Quarantine)
		b.holds(blockedNets4, 1)
	})
}

func TestAllAreReleasedAtOnceAndBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.metered()
		var srcs []netip.Prefix
		with := map[string][]ruleset.Element{}
		a := netip.MustParseAddr("10.0.0.0")
		for range maxBlocked {
			a = a.Next()
			m := memberOf(netip.PrefixFrom(a, 32), 64)
			m.Timeout = time.Hour
			with[blocked4] = append(with[blocked4], m.Element)
			srcs = append(srcs, netip.PrefixFrom(a, 32))
		}
		b.kernel.fresh(with)
		b.after(31 * time.Second)
		if c := b.Counts(); c.LockOuts != maxBlocked {
			t.Fatalf("counts %+v", c)
		}
		if f := b.Full(); len(f) != 1 || f[0] != (Alarm{Used: maxBlocked, Size: maxBlocked}) {
			t.Errorf("alarms %+v", f)
		}
		r, err := b.Release(t.Context(), anna, srcs, Options{})
		if err != nil || len(r.Released) != maxBlocked {
			t.Fatalf("%d released: %v", len(r.Released), err)
		}
		if c := b.Counts(); c != (Counts{}) {
			t.Errorf("counts %+v", c)
		}
		b.holds(blocked4, 0)
		if a := b.Acts(1)[0]; a.Count != maxBlocked || a.What != Released {
			t.Errorf("the audit says %+v", a)
		}
		if n := len(b.disk.entries.rows); n != 0 {
			t.Errorf("%d are on disk", n)
		}
		if err := b.Undo(t.Context(), anna, r.Token); err != nil {
			t.Fatal(err)
		}
		b.holds(blocked4, maxBlocked)
		if _, err := b.Release(t.Context(), anna, srcs, Options{Exempt: time.Hour}); err == nil {
			t.Error("65,536 exemptions were given")
		}
	})
}

func TestActsOfPeopleStayInAFlood(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.release(Options{}, "203.0.113.7")
		for i := range 2 * actsOfLimits {
			b.over(fmt.Sprintf("10.0.%d.%d", i/250, i%250), fast)
			b.after(time.Millisecond)
		}
		b.after(3 * time.Second)
		acts := b.Acts(1 << 20)
		if n := len(acts); n != actsOfLimits+1 || acts[n-1].What != Released {
			t.Errorf("%d acts, the oldest is %+v", n, acts[n-1])
		}
		if n := len(b.disk.acts.rows); n != len(acts) {
			t.Errorf("%d acts are on disk, %d in memory", n, len(acts))
		}
		b.restart()
		if n := len(b.Acts(1 << 20)); n != len(acts) {
			t.Errorf("%d acts after a restart, %d before", n, len(acts))
		}
	})
}
