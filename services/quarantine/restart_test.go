package quarantine

import (
	"encoding/json"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/firewall"
)

func TestC17RestartKeepsTheTimeLeftAndDeletingLetsGo(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		if err := errors.Join(b.Add(t.Context(), anna, prefix("198.51.100.10"), "noise", 10*time.Minute),
			b.Add(t.Context(), anna, prefix("198.51.100.11"), "worse", 0)); err != nil {
			t.Fatal(err)
		}
		b.after(6 * time.Minute)
		both := func(left time.Duration) {
			t.Helper()
			b.want("198.51.100.10", LockOut)
			b.left("198.51.100.10", left)
			b.want("198.51.100.11", Quarantine)
		}
		both(4 * time.Minute)
		if err := b.Reload(t.Context(), b.cfg); err != nil { // an unrelated change is applied
			t.Fatal(err)
		}
		both(4 * time.Minute)
		b.restart()
		both(4 * time.Minute)
		b.stop() // a reboot of one minute
		b.after(time.Minute)
		b.kernel.gone()
		b.start()
		b.kernel.fresh(b.Members())
		both(3 * time.Minute)
		b.after(31 * time.Second) // the poll finds it so
		both(3*time.Minute - 31*time.Second)
		b.release(Options{}, "198.51.100.11")
		b.want("198.51.100.11", "")
		b.want("198.51.100.10", LockOut)
		b.restart()
		b.want("198.51.100.11", "")
		b.want("198.51.100.10", LockOut)
		b.after(3 * time.Minute)
		b.want("198.51.100.10", "")
		if e := b.disk.entries.rows; len(e) != 0 {
			b.after(2 * time.Second)
			if e := b.disk.entries.rows; len(e) != 0 {
				t.Errorf("what is over is still on disk: %s", e)
			}
		}
	})
}

func TestEntriesStrikesAndActsSurviveARestart(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for range 2 {
			b.over("203.0.113.7", fast)
			b.after(6 * time.Minute)
		}
		b.release(Options{Exempt: time.Hour}, "203.0.113.8")
		before := b.Acts(10)
		b.restart()
		if after := b.Acts(10); len(before) != 3 || len(after) != 3 || after[0].What != Released && after[0].What != LockedOut || !after[2].Time.Equal(before[2].Time) {
			t.Errorf("acts %+v, before %+v", after, before)
		}
		if _, ok := b.Exempt(netip.MustParseAddr("203.0.113.8")); !ok {
			t.Error("the exemption is lost")
		}
		b.over("203.0.113.7", fast)
		b.after(2 * time.Second)
		if e := b.want("203.0.113.7", Quarantine); e.Times != 3 || e.Limit.Strikes != 3 {
			t.Errorf("the entry is %+v", e)
		}
		b.restart()
		if e := b.want("203.0.113.7", Quarantine); e.Times != 3 || e.Rule != fast || e.Limit.Strikes != 3 || e.What != firewall.OverNew {
			t.Errorf("the entry is %+v after a restart", e)
		}
	})
}

func TestLockOutsOfTheTimeBetweenAreFoundAtTheStart(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.stop()
		b.kernel.lock("203.0.113.7", 5*time.Minute)
		b.after(10 * time.Second)
		b.start()
		if e := b.want("203.0.113.7", LockOut); e.Rule != fast || e.Times != 1 {
			t.Errorf("the entry is %+v", e)
		}
	})
}

func TestAtMostFiveSecondsAreLostOnAPowerCut(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.after(4 * time.Second)
		var e Entry
		if err := json.Unmarshal(b.disk.entries.rows["203.0.113.7/32"], &e); err != nil || e.Rule != fast {
			t.Errorf("on disk after 4 s: %v %v", e, err)
		}
		if len(b.disk.strikes.rows) != 1 || len(b.disk.acts.rows) != 1 {
			t.Errorf("%d strikes and %d acts are on disk", len(b.disk.strikes.rows), len(b.disk.acts.rows))
		}
	})
}

func TestWritesAreGrouped(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for i := range 2000 {
			b.over(netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i % 250)}).String(), fast)
			b.after(time.Millisecond)
		}
		b.after(5 * time.Second)
		if n := b.disk.entries.writes; n < 2 || n > 6 {
			t.Errorf("%d writes for 2000 entries in 2 s", n)
		}
		if n := len(b.disk.entries.rows); n != 2000 {
			t.Errorf("%d entries are on disk", n)
		}
	})
}

func TestFullDiskStopsNothingAndIsMadeUpFor(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.6", harsh)
		b.after(3 * time.Second)
		full := errors.New("no space left")
		b.disk.entries.setBroken(full)
		b.disk.strikes.setBroken(full)
		b.disk.acts.setBroken(full)
		b.disk.exemptions.setBroken(full)
		b.over("203.0.113.7", harsh)
		b.after(20 * time.Second)
		b.want("203.0.113.7", Quarantine)
		b.release(Options{Exempt: time.Hour}, "203.0.113.6")
		b.want("203.0.113.6", "")
		b.disk.entries.setBroken(nil)
		b.disk.strikes.setBroken(nil)
		b.disk.acts.setBroken(nil)
		b.disk.exemptions.setBroken(nil)
		b.after(10 * time.Second)
		b.restart()
		b.want("203.0.113.6", "")
		b.want("203.0.113.7", Quarantine)
		if a := b.Acts(10); len(a) != 5 {
			t.Errorf("acts %+v", a)
		}
	})
}

func TestNewStoreGetsEverything(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.release(Options{Exempt: time.Hour}, "203.0.113.8")
		b.after(2 * time.Second)
		synctest.Wait()
		d := b.disk
		for _, wipe := range []func(){func() { clear(d.entries.rows) }, func() { clear(d.strikes.rows) }, func() { clear(d.acts.rows) }, func() { clear(d.exemptions.rows) }} {
			wipe()
		}
		b.Renewed()
		b.after(2 * time.Second)
		synctest.Wait()
		if len(d.entries.rows) != 1 || len(d.strikes.rows) != 1 || len(d.acts.rows) != 2 || len(d.exemptions.rows) != 1 {
			t.Errorf("on disk are %d entries, %d strikes, %d acts, %d exemptions", len(d.entries.rows), len(d.strikes.rows), len(d.acts.rows), len(d.exemptions.rows))
		}
	})
}

func TestTimeLeftNeverGrowsWithTheClock(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	since := now.Add(-6 * time.Minute)
	for _, c := range []struct {
		clock time.Duration // by how much it is wrong at the start
		left  time.Duration
	}{{0, 4 * time.Minute}, {time.Minute, 3 * time.Minute}, {time.Hour, -56 * time.Minute}, {-time.Minute, 5 * time.Minute},
		{-time.Hour, 10 * time.Minute}, {-56 * 365 * 24 * time.Hour, 10 * time.Minute}} {
		at := now.Add(c.clock)
		if left := restored(at, since.Add(10*time.Minute), since, 0).Sub(at); left != c.left {
			t.Errorf("with a clock that is %s off, %s are left, want %s", c.clock, left, c.left)
		}
	}
}

func TestDamagedRecordsAreLeftOut(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", harsh)
		b.after(3 * time.Second)
		b.stop()
		b.disk.entries.rows["x"] = []byte(`{}`)
		b.disk.strikes.rows["x"] = []byte(`["2026-01-01T00:00:00Z"]`)
		b.disk.exemptions.rows = map[string][]byte{"x": []byte(`{}`)}
		b.start()
		synctest.Wait()
		b.want("203.0.113.7", Quarantine)
		if c := b.Counts(); c != (Counts{Quarantine: 1}) {
			t.Errorf("counts %+v", c)
		}
	})
}

func TestNewLengthOfPrefixesKeepsTheSameHostsOut(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("2001:db8:bad:1::", fast)
		b.over("2001:db8:bad:2::", harsh)
		b.after(time.Minute)
		bad := memberOf(prefix("2001:db8:bad:1::/64"), 64)
		b.cfg.Sources.Prefix6 = 56
		if err := b.Reload(t.Context(), b.cfg); err != nil {
			t.Fatal(err)
		}
		is := func(set string, want int) {
			t.Helper()
			if n := len(b.kernel.sets[set]); n != want {
				t.Errorf("%s holds %d, want %d", set, n, want)
			}
		}
		is(blocked6, 0)
		is(blockedNets6, 2)
		if h := b.Holding(netip.MustParseAddr("2001:db8:bad:1::5")); len(h) != 1 || h[0].Source != prefix("2001:db8:bad:1::/64") {
			t.Errorf("holding %+v", h)
		}
		b.after(31 * time.Second)
		if c := b.Counts(); c != (Counts{Quarantine: 1, LockOuts: 1}) {
			t.Errorf("counts %+v", c)
		}
		// The source is a /56 now, and overlaps what was one before.
		bad.Timeout, bad.Left = 0, 0
		p := memberOf(prefix("2001:db8:bad::/56"), 56)
		p.Timeout = 5 * time.Minute
		if err := b.kernel.Add(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		b.Offence(Line{Time: time.Now(), What: firewall.OverNew, Rule: fast, Src: netip.MustParseAddr("2001:db8:bad:9::1")})
		b.cfg.Sources.Prefix6 = 48
		if err := b.Reload(t.Context(), b.cfg); err != nil {
			t.Fatal(err)
		}
		is(blocked6, 0)
		is(blockedNets6, 2) // the permanent one, and the /64 that does not overlap it
		if _, ok := b.Get(prefix("2001:db8:bad:2::/64")); !ok {
			t.Error("the one in quarantine is lost")
		}
		b.cfg.Sources.Prefix6 = 64
		if err := b.Reload(t.Context(), b.cfg); err != nil {
			t.Fatal(err)
		}
		is(blocked6, 2)
		is(blockedNets6, 0)
		b.want("2001:db8:bad:2::/64", Quarantine)
	})
}

func TestWhatAFullDiskHoldsBackIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.disk.acts.setBroken(errors.New("no space left"))
		for i := range 3 * actsOfLimits {
			b.over(netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(i % 250)}).String(), fast)
			b.after(time.Millisecond)
		}
		b.after(10 * time.Second)
		b.disk.acts.setBroken(nil)
		b.Service.mu.Lock()
		defer b.Service.mu.Unlock()
		if n := len(b.save.acts); n > actsOfLimits {
			t.Errorf("%d acts wait for the disk", n)
		}
	})
}
