package quarantine

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/firewall"
)

func TestLockOutIsListedAndItsConnectionsCut(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.connect("203.0.113.7", b.number(fast), 3)
		b.kernel.connect("203.0.113.8", b.number(fast), 3)
		b.over("203.0.113.7", fast)
		e := b.want("203.0.113.7", LockOut)
		if e.Rule != fast || e.What != firewall.OverNew || e.Limit.New != 100 || e.Times != 1 {
			t.Errorf("the entry does not say why: %+v", e)
		}
		b.left("203.0.113.7", 5*time.Minute)
		if n := b.kernel.flowsOf("203.0.113.7"); n != 0 {
			t.Errorf("%d of its connections go on", n)
		}
		if n := b.kernel.flowsOf("203.0.113.8"); n != 3 {
			t.Errorf("somebody else has %d connections left of 3", n)
		}
		b.want("203.0.113.8", "")
		if a := b.Acts(10); len(a) != 1 || a[0].What != LockedOut || a[0].Source != prefix("203.0.113.7") {
			t.Errorf("the audit says %+v", a)
		}
	})
}

func TestManyLinesOfOneLockOutAreOneStrike(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for range 5 {
			b.over("203.0.113.7", fast)
			b.after(time.Millisecond)
		}
		if e := b.want("203.0.113.7", LockOut); e.Times != 1 {
			t.Errorf("it counts as %d lock-outs", e.Times)
		}
	})
}

func TestThirdLockOutWithinTheWindowIsQuarantine(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for i := range 3 {
			b.over("203.0.113.7", fast)
			if i < 2 {
				if e := b.want("203.0.113.7", LockOut); e.Times != i+1 {
					t.Errorf("lock-out %d counts as %d", i+1, e.Times)
				}
				b.after(5*time.Minute + time.Second)
				b.want("203.0.113.7", "")
			}
		}
		b.after(2 * time.Second) // promotion takes 2 s at most
		if e := b.want("203.0.113.7", Quarantine); e.Times != 3 || !e.Until.IsZero() {
			t.Errorf("the entry is %+v", e)
		}
		b.after(24 * time.Hour)
		b.want("203.0.113.7", Quarantine)
		if a := b.Acts(1); a[0].What != Quarantined {
			t.Errorf("the audit ends with %+v", a)
		}
	})
}

func TestLockOutsFurtherApartThanTheWindowStayLockOuts(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for range 6 {
			b.over("203.0.113.7", fast)
			b.want("203.0.113.7", LockOut)
			b.after(35 * time.Minute) // of three, the first is 70 minutes ago
		}
	})
}

func TestQuarantineLimitNeedsOneOffence(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("2001:db8:bad::", harsh)
		b.after(2 * time.Second)
		if e := b.want("2001:db8:bad::/64", Quarantine); e.Source != prefix("2001:db8:bad::/64") {
			t.Errorf("listed as %s", e.Source)
		}
	})
}

func TestPromotionIsTriedAgainUntilTheKernelTakesIt(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.lock("203.0.113.7", 2*time.Minute)
		b.kernel.mu.Lock()
		b.kernel.broken = fmt.Errorf("busy")
		b.kernel.mu.Unlock()
		b.Offence(Line{Time: time.Now(), What: firewall.OverNew, Rule: harsh, Src: netip.MustParseAddr("203.0.113.7")})
		b.want("203.0.113.7", LockOut) // as it is, not as it should be
		b.after(10 * time.Second)
		b.kernel.mu.Lock()
		b.kernel.broken = nil
		b.kernel.mu.Unlock()
		b.after(2 * time.Second)
		b.want("203.0.113.7", Quarantine)
	})
}

func TestLineOfARuleThatIsNotKnownYetWaitsForIt(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.lock("203.0.113.7", time.Minute)
		b.Offence(Line{Time: time.Now(), What: firewall.OverNew, Rule: "01JNEW", Src: netip.MustParseAddr("203.0.113.7")})
		next := config()
		next.Rules = append(next.Rules, firewall.Rule{ID: "01JNEW", Limit: firewall.Limit{New: 1, Window: 1, Over: firewall.LockOut, LockFor: 60}})
		if err := b.Reload(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		if e := b.want("203.0.113.7", LockOut); e.Rule != "01JNEW" {
			t.Errorf("the entry is %+v", e)
		}
	})
}

func TestExemptAndNeverListedSourcesAreNotPunished(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for _, src := range []string{"203.0.113.1", "203.0.113.2", "9.9.9.9", "198.51.100.4"} {
			b.kernel.connect(src, b.number(wide), 50)
			b.syn(src, wide)
			b.over(src, fast) // before the kernel heard of the exemption
			b.after(time.Second)
			b.want(src, "")
		}
		b.kernel.connect("198.51.101.4", b.number(wide), 50)
		b.syn("198.51.101.4", wide)
		b.after(time.Second)
		b.want("198.51.101.4", LockOut)
	})
}

func TestDropOnlyLimitPunishesNobody(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.connect("203.0.113.7", b.number(drops), 50)
		b.syn("203.0.113.7", drops)
		b.Offence(Line{Time: time.Now(), What: firewall.OverNew, Rule: drops, Src: netip.MustParseAddr("203.0.113.7")})
		b.after(time.Second)
		b.want("203.0.113.7", "")
		if c := b.Counts(); c != (Counts{}) {
			t.Errorf("counts %+v", c)
		}
	})
}

func TestDryRunListsWhoWouldHaveBeenShutOut(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		src := netip.MustParseAddr("203.0.113.7")
		line := func() { b.Offence(Line{Time: time.Now(), What: firewall.OverNew, Rule: shy, Src: src}) }
		line()
		b.after(10 * time.Second)
		line() // it would have been out
		list := b.List(Query{Set: InWould})
		if len(list.Entries) != 1 || list.Entries[0].Kind != LockOut || list.Entries[0].Times != 1 || !list.Entries[0].Would {
			t.Fatalf("would-be list %+v", list.Entries)
		}
		b.after(time.Minute)
		line()
		if e := b.List(Query{Set: InWould}).Entries[0]; e.Kind != Quarantine || e.Times != 2 {
			t.Errorf("the second time it would have been quarantine: %+v", e)
		}
		b.kernel.connect("203.0.113.9", b.number(shy), 5)
		b.syn("203.0.113.9", shy)
		b.syn("203.0.113.10", shy) // forged
		b.after(time.Second)
		if e := b.List(Query{Set: InWould, Search: "203.0.113.9"}).Entries; len(e) != 1 || e[0].Open != 5 || e[0].What != firewall.OverOpen {
			t.Errorf("open connections in a dry run: %+v", e)
		}
		if c := b.Counts(); c != (Counts{Would: 2}) {
			t.Errorf("counts %+v", c)
		}
		b.want("203.0.113.9", "")
		if h := b.Holding(netip.MustParseAddr("203.0.113.9")); len(h) != 1 || !h[0].Would {
			t.Errorf("the search for the address finds %+v", h)
		}
		if len(b.disk.strikes.rows) != 0 || len(b.Acts(9)) != 0 {
			t.Error("a dry run left strikes or acts")
		}
		next := config()
		next.Rules[3].Limit.DryRun = false
		b.Know(next)
		if c := b.Counts(); c != (Counts{}) {
			t.Errorf("the rule is in earnest, and the would-be list still has %+v", c)
		}
	})
}

func TestWouldBeListIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		a := netip.MustParseAddr("10.0.0.0")
		for range 3 * maxWould {
			a = a.Next()
			b.Offence(Line{Time: time.Now(), What: firewall.OverNew, Rule: shy, Src: a})
		}
		l := b.List(Query{Set: InWould, Search: a.String()})
		if l.Total > maxWould || l.Matched != 1 {
			t.Errorf("%d entries, the newest is there %d times", l.Total, l.Matched)
		}
	})
}

func TestStrikesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		w := watched{id: fast, limit: config().Rules[0].Limit}
		a := netip.MustParseAddr("10.0.0.0")
		b.Service.mu.Lock()
		defer b.Service.mu.Unlock()
		for i := range maxStruck + 10 {
			a = a.Next()
			b.strike(b.sources.Of(a), time.Now().Add(time.Duration(i)), w.limit)
		}
		if n := len(b.strikes); n > maxStruck || n < maxStruck/2 {
			t.Errorf("%d sources with strikes", n)
		}
		if len(b.strikes[b.sources.Of(a)]) != 1 {
			t.Error("the newest strike was forgotten")
		}
		for range 2 * strikesKept {
			b.strike(b.sources.Of(a), time.Now(), w.limit)
		}
		if n := len(b.strikes[b.sources.Of(a)]); n != strikesKept {
			t.Errorf("one source has %d strikes", n)
		}
	})
}

func TestMeterThatDidNotHoldASourceIsAnAlarm(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.Service.mu.Lock()
		b.meters = []meter{{rule: fast, what: firewall.OverNew, set: "new_fast_4", size: 10}, {rule: wide, what: firewall.OverOpen, set: "open_wide_4", size: 10},
			{rule: fast, what: firewall.OverNew, set: "new_fast_6", size: 10, six: true}}
		b.Service.mu.Unlock()
		b.kernel.mu.Lock()
		b.kernel.sets["new_fast_4"], b.kernel.sets["new_fast_6"], b.kernel.sets["open_wide_4"] = map[string]*element{}, map[string]*element{}, map[string]*element{}
		b.kernel.mu.Unlock()
		fill := func(set string, n int) {
			for i := range n {
				m := memberOf(prefix(fmt.Sprintf("10.0.0.%d", i)), 64)
				m.Set = set
				if err := b.kernel.Add(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill("open_wide_4", 7)
		fill("new_fast_4", 3) // the others have gone since
		b.Offence(Line{Time: time.Now(), What: firewall.MeterFull, Rule: fast, Src: netip.MustParseAddr("10.0.0.77")})
		at := time.Now()
		b.after(3 * time.Second)
		if f := b.Full(); len(f) != 1 || f[0] != (Alarm{Rule: fast, What: firewall.OverNew, Used: 3, Size: 10, Time: f[0].Time}) || f[0].Time.Sub(at).Abs() > time.Second {
			t.Errorf("alarms %+v", f)
		}
		fill("open_wide_4", 8) // 80 %
		b.after(time.Minute)
		if f := b.Full(); len(f) != 2 || f[1].Rule != wide || !f[1].Time.IsZero() {
			t.Errorf("alarms %+v", f)
		}
		b.kernel.mu.Lock()
		clear(b.kernel.sets["new_fast_4"])
		clear(b.kernel.sets["open_wide_4"])
		b.kernel.mu.Unlock()
		b.after(fullStays + time.Minute)
		if f := b.Full(); len(f) != 0 {
			t.Errorf("alarms of what is over: %+v", f)
		}
	})
}

func TestHostileLinesDoNoHarm(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for _, l := range []Line{{}, {What: "new"}, {What: "open", Rule: fast}, {What: "new", Rule: fast, Src: netip.IPv4Unspecified()},
			{What: "new", Rule: fast, Src: netip.MustParseAddr("ff02::1")}, {What: "odd", Rule: wide, Src: netip.MustParseAddr("ff02::1")}} {
			b.Offence(l)
		}
		for i := range 10_000 {
			b.Offence(Line{What: "new", Rule: firewall.ID(fmt.Sprint("01J", i)), Src: netip.MustParseAddr("10.0.0.1")})
		}
		synctest.Wait()
		if len(b.late) > maxLate || b.Counts() != (Counts{}) {
			t.Errorf("%d lines wait, counts %+v", len(b.late), b.Counts())
		}
	})
}

func TestHarderOfTwoLimitsAtOnceCounts(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.over("203.0.113.7", harsh) // on another processor
		b.after(2 * time.Second)
		if e := b.want("203.0.113.7", Quarantine); e.Rule != harsh || e.Times != 1 {
			t.Errorf("the entry is %+v", e)
		}
	})
}
