package quarantine

import (
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"gatehouse/firewall"
)

// between lets something happen while the kernel does what, once.
func (b *box) between(what string, do func()) {
	var once sync.Once
	b.kernel.mu.Lock()
	defer b.kernel.mu.Unlock()
	b.kernel.after = func(did string) {
		if did == what {
			once.Do(do)
		}
	}
}

func TestLockOutDuringAPollIsJudgedByTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.after(5 * time.Second)
		b.between("members "+blocked4, func() { // a hand lets it go, and it offends again
			if err := b.kernel.Remove(t.Context(), memberOf(prefix("203.0.113.7"), 64)); err != nil {
				t.Error(err)
			}
			b.over("203.0.113.7", harsh)
			b.over("203.0.113.8", fast)
		})
		if _, err := b.poll(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.after(2 * time.Second)
		if e := b.want("203.0.113.7", Quarantine); e.Rule != harsh || e.Times != 2 {
			t.Errorf("the entry is %+v", e)
		}
		b.want("203.0.113.8", LockOut)
		if a := b.Acts(9); len(a) != 4 {
			t.Errorf("acts %+v", a)
		}
	})
}

func TestLineDuringAReleaseChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.lock("203.0.113.7", 5*time.Minute) // not listed yet
		b.over("203.0.113.8", fast)
		at := time.Now()
		b.after(time.Millisecond)
		b.between("remove", func() {
			b.Offence(Line{Time: at, What: firewall.OverNew, Rule: fast, Src: netip.MustParseAddr("203.0.113.7")})
			b.Offence(Line{Time: at, What: firewall.OverNew, Rule: harsh, Src: netip.MustParseAddr("203.0.113.8")})
		})
		if r := b.release(Options{}, "203.0.113.7", "203.0.113.8"); len(r.Released) != 1 {
			t.Errorf("receipt %+v", r)
		}
		b.want("203.0.113.8", "")
		b.after(31 * time.Second)
		b.want("203.0.113.7", "")
		b.want("203.0.113.8", "")
		if a := b.Acts(1)[0]; a.What == Vanished {
			t.Errorf("the audit says %+v", a)
		}
	})
}

func TestPollLeavesALineTheTimeToCome(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		at := time.Now()
		b.kernel.lock("203.0.113.7", 5*time.Minute)
		if again, err := b.poll(t.Context()); err != nil || !again {
			t.Errorf("a poll that saw a fresh lock-out: again %v, %v", again, err)
		}
		b.Offence(Line{Time: at, What: firewall.OverNew, Rule: wide, Src: netip.MustParseAddr("203.0.113.7")})
		b.after(2 * time.Second)
		if a := b.Acts(9); len(a) != 1 {
			t.Errorf("acts %+v", a)
		}
	})
}

func TestPollDoesNotPunishWhoIsBeingSpared(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		if err := b.turn.take(t.Context()); err != nil { // the job waits
			t.Fatal(err)
		}
		b.over("9.9.9.9", fast)
		b.after(3 * time.Second)
		members, err := b.kernel.Members(t.Context(), blocked4)
		if err != nil || len(members) != 1 {
			t.Fatalf("members %v: %v", members, err)
		}
		p := pass{s: b.Service, set: blocked4, now: time.Now()}
		if err := p.compare(t.Context(), members); err != nil {
			t.Fatal(err)
		}
		b.turn.release()
		b.after(2 * time.Second)
		b.want("9.9.9.9", "")
		if len(b.Acts(9)) != 0 || len(b.disk.strikes.rows) != 0 {
			t.Errorf("acts %+v", b.Acts(9))
		}
	})
}

func TestWhoIsDueCanBeReleasedOrKept(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		busy := func(err error) {
			b.kernel.mu.Lock()
			defer b.kernel.mu.Unlock()
			b.kernel.broken = err
		}
		for _, src := range []string{"203.0.113.7", "203.0.113.8"} {
			b.kernel.lock(src, 2*time.Minute)
		}
		busy(errors.New("busy"))
		for _, src := range []string{"203.0.113.7", "203.0.113.8"} {
			b.Offence(Line{Time: time.Now(), What: firewall.OverNew, Rule: harsh, Src: netip.MustParseAddr(src)})
		}
		b.after(3*time.Minute + time.Millisecond) // its element has ended before it could be promoted
		busy(nil)
		if r := b.release(Options{}, "203.0.113.7"); len(r.Released) != 1 {
			t.Errorf("receipt %+v", r)
		}
		if err := b.Keep(t.Context(), anna, prefix("203.0.113.8"), time.Hour); err != nil {
			t.Fatal(err)
		}
		b.after(3 * time.Second)
		b.want("203.0.113.7", "")
		b.want("203.0.113.8", LockOut)
		b.left("203.0.113.8", time.Hour-3*time.Second)
	})
}

func TestUndoneReleaseSurvivesAForeignFlush(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.after(time.Second)
		r := b.release(Options{}, "203.0.113.7")
		if err := b.Undo(t.Context(), anna, r.Token); err != nil {
			t.Fatal(err)
		}
		b.kernel.fresh(nil)
		b.after(31 * time.Second)
		b.want("203.0.113.7", LockOut)
	})
}

func TestClockThatWasSetWhileTheBoxWasDownIsNoOffence(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.after(3 * time.Second)
		b.stop()
		rows, err := b.disk.entries.All()
		if err != nil {
			t.Fatal(err)
		}
		e := rows["203.0.113.7/32"]
		e.Since, e.Until = e.Since.Add(-time.Minute), e.Until.Add(-time.Minute) // written by a clock that was behind
		if err := b.disk.entries.PutAll(map[string]Entry{"203.0.113.7/32": e}); err != nil {
			t.Fatal(err)
		}
		b.start()
		if e := b.want("203.0.113.7", LockOut); e.Rule != fast || e.Times != 1 {
			t.Errorf("the entry is %+v", e)
		}
		b.left("203.0.113.7", 5*time.Minute-3*time.Second) // the kernel knows
		if len(b.Acts(9)) != 1 {
			t.Errorf("acts %+v", b.Acts(9))
		}
	})
}

func TestWhatHasEndedIsNotListedWhileNobodySweeps(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.after(time.Second)
		b.stop() // nothing runs any more
		b.after(5 * time.Minute)
		if l := b.List(Query{Set: InLockOuts}); l.Total != 0 {
			t.Errorf("listed: %+v", l.Entries)
		}
		if _, ok := b.Get(prefix("203.0.113.7")); ok || len(b.Holding(netip.MustParseAddr("203.0.113.7"))) != 0 || len(b.Blocked()) != 0 || len(b.Members()[blocked4]) != 0 {
			t.Error("it still counts")
		}
	})
}
