package quarantine

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

func TestLockOutWhoseLineWasLostIsFound(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.connect("203.0.113.7", b.number(fast), 3)
		for _, id := range []firewall.ID{"01JX", "01JY"} {
			b.cfg.Rules = append(b.cfg.Rules, firewall.Rule{ID: id, Limit: firewall.Limit{New: 1, Window: 1, Over: firewall.LockOut, LockFor: 90}})
		}
		b.Know(b.cfg)
		b.kernel.lock("203.0.113.7", 5*time.Minute) // only one limit locks out for so long
		b.kernel.lock("203.0.113.8", 7*time.Minute) // none does
		b.kernel.lock("203.0.113.9", 90*time.Second)
		b.kernel.lock("2001:db8:bad::/64", 2*time.Minute)
		b.after(31 * time.Second)
		if e := b.want("203.0.113.7", LockOut); e.Rule != fast || e.What != firewall.OverNew || e.Times != 1 || e.Reason != "" {
			t.Errorf("the entry is %+v", e)
		}
		b.left("203.0.113.7", 5*time.Minute-31*time.Second)
		if n := b.kernel.flowsOf("203.0.113.7"); n != 0 {
			t.Errorf("%d connections go on", n)
		}
		if e := b.want("203.0.113.8", LockOut); e.Rule != "" || e.Reason != handReason || e.Times != 0 {
			t.Errorf("the entry is %+v", e)
		}
		if e := b.want("203.0.113.9", LockOut); e.Rule != "" || e.Reason != lostReason || e.Times != 1 {
			t.Errorf("the entry is %+v", e)
		}
		b.want("2001:db8:bad::/64", Quarantine) // its limit says so
	})
}

func TestLateLineExplainsAnEntry(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		at := time.Now()
		b.kernel.lock("203.0.113.8", 7*time.Minute)
		b.after(31 * time.Second)
		b.Offence(Line{Time: at, What: firewall.OverNew, Rule: fast, Src: netip.MustParseAddr("203.0.113.8")})
		if e := b.want("203.0.113.8", LockOut); e.Rule != fast || e.Reason != "" {
			t.Errorf("the entry is %+v", e)
		}
		b.left("203.0.113.8", 7*time.Minute-31*time.Second) // as the kernel has it
	})
}

func TestCountersAreTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.after(40 * time.Second)
		if e := b.want("203.0.113.7", LockOut); e.Packets != 0 || !e.Last.IsZero() {
			t.Errorf("nothing came, and the entry says %+v", e)
		}
		b.kernel.mu.Lock()
		for _, e := range b.kernel.sets[blocked4] {
			e.Packets, e.Bytes = 12, 720
		}
		b.kernel.mu.Unlock()
		b.after(31 * time.Second)
		e := b.want("203.0.113.7", LockOut)
		if e.Packets != 12 || e.Bytes != 720 || time.Since(e.Last) > 31*time.Second {
			t.Errorf("the entry says %+v", e)
		}
		// Promotion goes on counting where the lock-out was.
		if err := b.Keep(t.Context(), anna, prefix("203.0.113.7"), 0); err != nil {
			t.Fatal(err)
		}
		b.after(time.Minute)
		if e := b.want("203.0.113.7", Quarantine); e.Packets != 12 {
			t.Errorf("the entry says %+v", e)
		}
	})
}

func TestWhatWasRemovedByHandIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.over("203.0.113.8", harsh)
		b.over("203.0.113.9", fast)
		b.after(2 * time.Second)
		b.kernel.mu.Lock()
		for _, src := range []string{"203.0.113.7", "203.0.113.8"} {
			delete(b.kernel.sets[blocked4], name(memberOf(prefix(src), 64).Element))
		}
		b.kernel.mu.Unlock()
		b.after(31 * time.Second)
		b.want("203.0.113.7", "")
		b.want("203.0.113.8", "")
		b.want("203.0.113.9", LockOut)
		if a := b.Acts(1); a[0].What != Vanished {
			t.Errorf("the audit ends with %+v", a)
		}
		b.restart() // it is not on disk either
		b.want("203.0.113.8", "")
	})
}

func TestWhatWasAddedByHandIsListed(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.lock("203.0.113.7", 0)
		b.kernel.lock("10.0.0.0/8", time.Hour)
		b.after(31 * time.Second)
		if e := b.want("203.0.113.7", Quarantine); e.Reason == "" || e.Times != 0 {
			t.Errorf("the entry is %+v", e)
		}
		if h := b.Holding(netip.MustParseAddr("10.1.2.3")); len(h) != 1 || h[0].Source != prefix("10.0.0.0/8") {
			t.Errorf("the network is not found: %+v", h)
		}
	})
}

func TestForeignTimeIsTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.over("203.0.113.8", fast)
		synctest.Wait()
		again := func(src string, lasts time.Duration) {
			m := memberOf(prefix(src), 64)
			m.Timeout = lasts
			if err := b.kernel.Add(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		again("203.0.113.7", time.Hour)
		again("203.0.113.8", 0)
		b.after(31 * time.Second)
		b.left("203.0.113.7", time.Hour-31*time.Second)
		b.want("203.0.113.8", Quarantine)
	})
}

func TestLockOutAfterAHandWasInTheKernelIsANewOne(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		if err := b.Add(t.Context(), anna, prefix("203.0.113.7"), "noise", 0); err != nil {
			t.Fatal(err)
		}
		b.after(10 * time.Second)
		if err := b.kernel.Remove(t.Context(), memberOf(prefix("203.0.113.7"), 64)); err != nil {
			t.Fatal(err)
		}
		b.kernel.lock("203.0.113.7", 5*time.Minute) // and its line was lost
		b.after(31 * time.Second)
		if e := b.want("203.0.113.7", LockOut); e.Rule != fast || e.Times != 1 || e.By != "" {
			t.Errorf("the entry is %+v", e)
		}
		b.left("203.0.113.7", 5*time.Minute-31*time.Second)
	})
}

// A flush by somebody else is put right with the members of that moment; what is
// missing although the set is a new one was not removed by hand.
func TestForeignFlushTakesNobodyOut(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		if err := b.Add(t.Context(), anna, prefix("10.0.0.0/8"), "noise", time.Hour); err != nil {
			t.Fatal(err)
		}
		b.over("203.0.113.7", fast)
		b.over("203.0.113.8", harsh)
		b.over("2001:db8:bad::", fast)
		b.after(2 * time.Second)
		all := func() {
			t.Helper()
			b.want("203.0.113.7", LockOut)
			b.want("203.0.113.8", Quarantine)
			b.want("2001:db8:bad::/64", LockOut)
			b.want("10.0.0.0/8", LockOut)
		}
		all()
		b.kernel.gone() // for so long nothing is concluded
		b.after(40 * time.Second)
		if c := b.Counts(); c != (Counts{Quarantine: 1, LockOuts: 3}) {
			t.Errorf("without a table %+v are listed", c)
		}
		b.kernel.fresh(b.Members())
		all()
		b.left("203.0.113.7", 5*time.Minute-42*time.Second)
		b.left("10.0.0.0/8", time.Hour-42*time.Second)
		b.after(31 * time.Second)
		all()
		b.kernel.fresh(nil) // a table of the same name by somebody else
		b.after(31 * time.Second)
		all()
		b.left("203.0.113.7", 5*time.Minute-104*time.Second)
		if a := b.Acts(1); a[0].What == Vanished {
			t.Errorf("the audit says %+v", a[0])
		}
	})
}

func TestTableMadeDuringAReleaseDoesNotBringItBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.over("203.0.113.8", harsh)
		b.after(2 * time.Second)
		before := b.Members()
		b.release(Options{}, "203.0.113.7", "203.0.113.8")
		b.kernel.fresh(before)
		b.after(31 * time.Second)
		b.want("203.0.113.7", "")
		b.want("203.0.113.8", "")
	})
}

func TestPollsAreSeldomUnlessAPageLooks(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		count := func(d time.Duration) int {
			synctest.Wait()
			before := b.kernel.polled()
			b.after(d)
			return b.kernel.polled() - before
		}
		if n := b.kernel.polled(); n != 1 {
			t.Errorf("%d polls at the start", n)
		}
		if n := count(5*time.Minute + time.Second); n != 10 {
			t.Errorf("%d polls in 5 minutes that nobody looks", n)
		}
		n := 0
		for range 10 { // a page that looks every 5 s
			b.List(Query{})
			n += count(5 * time.Second)
		}
		if n < 10 || n > 11 {
			t.Errorf("%d polls in 50 s that a page looks", n)
		}
		if l := b.List(Query{}); time.Since(l.Updated) > 6*time.Second {
			t.Errorf("the list is of %s ago", time.Since(l.Updated))
		}
	})
}

func TestWhatEndsVanishesAtItsMoment(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.over("203.0.113.8", harsh)
		b.after(5*time.Minute - 10*time.Millisecond)
		synctest.Wait()
		if c := b.Counts(); c.LockOuts != 1 {
			t.Errorf("shortly before its end: %+v", c)
		}
		told := b.told()
		b.after(300 * time.Millisecond)
		synctest.Wait()
		if c := b.Counts(); c != (Counts{Quarantine: 1}) || b.told() == told {
			t.Errorf("shortly after its end: %+v, %d events", c, b.told()-told)
		}
		b.want("203.0.113.7", "")
		b.want("203.0.113.8", Quarantine)
	})
}

func TestEventsAreFourASecondAtMost(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		before := b.told()
		for i := range 2000 {
			b.over(fmt.Sprintf("10.0.%d.%d", i/250, i%250), fast)
			b.after(time.Millisecond)
		}
		b.after(time.Second)
		if n := b.told() - before; n < 6 || n > 10 {
			t.Errorf("%d events in 2 s", n)
		}
	})
}

func TestMembersAlwaysFit(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		// What a damaged disk, or an older program, may hold.
		put := func(src string, k Kind, until time.Duration) {
			r := record{src: prefix(src), kind: k, why: &cause{}, since: time.Now()}
			if k == LockOut {
				r.until = time.Now().Add(until)
			}
			b.Service.mu.Lock()
			b.book.put(&r)
			b.Service.mu.Unlock()
		}
		a := netip.MustParseAddr("10.0.0.0")
		for range maxBlocked {
			a = a.Next()
			put(a.String(), LockOut, time.Minute)
		}
		put("203.0.113.7", Quarantine, 0)
		put("198.18.0.0/15", LockOut, time.Minute)
		put("198.19.0.0/16", LockOut, time.Hour)
		put("198.19.3.0/24", LockOut, 30*time.Minute)
		put("198.20.0.0/16", LockOut, 30*time.Minute)
		all := b.Members()
		if n := len(all[blocked4]); n != maxBlocked {
			t.Errorf("%d sources, want %d", n, maxBlocked)
		}
		if first := all[blocked4][0]; first.Key[0].Lo != ruleset.Addr(netip.MustParseAddr("203.0.113.7")) || first.Timeout != 0 {
			t.Errorf("the one in quarantine is not the first: %+v", first)
		}
		var nets []string
		for _, e := range all[blockedNets4] {
			p, _ := ruleset.PrefixOf(e.Key[0])
			nets = append(nets, p.String())
		}
		if got := strings.Join(nets, " "); got != "198.19.0.0/16 198.20.0.0/16" {
			t.Errorf("networks %s", got)
		}
		b.kernel.fresh(all) // panics when something does not fit
	})
}
