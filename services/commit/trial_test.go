package commit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/firewall"
)

// lanMove is a change that needs a click: the local address moves.
func lanMove(c firewall.Config, addr string) firewall.Change {
	in, _ := c.Interface("LAN")
	in.V4.Addr = netip.MustParsePrefix(addr)
	return firewall.UpdateInterface{Name: "LAN", Interface: in}
}

func TestTrialTimesOutAndTheChangesAreTheDraftAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := settledBox(t)
		before := b.running()
		b.edit(alice, "r1", "locks me out")
		a := b.apply(alice)
		b.edit(alice, "r2", "saved while waiting")
		if left := time.Until(a.Deadline); left != 60*time.Second || a.Human {
			t.Fatalf("%v left, human %v", left, a.Human)
		}
		time.Sleep(59 * time.Second)
		if b.running().Stamp() == before.Stamp() {
			t.Fatal("taken back too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if b.running().Stamp() != before.Stamp() || b.service.Stamp() != before.Stamp() {
			t.Fatal("not everything came back")
		}
		b.inKernel()
		v := b.w.View("alice")
		if !v.Fits || v.Objects != 2 || descr(v.Config, "r1") != "locks me out" || !strings.Contains(v.Reason, "nobody confirmed") || v.Trial != nil {
			t.Fatalf("%+v", v)
		}
		if got := states(b.w.Revisions()); !slices.Equal(got, []string{"0 confirmed", "1 confirmed", "2 reverted"}) {
			t.Fatal(got)
		}
		b.keep(alice) // and the draft can be applied after all
	})
}

func TestConfirmCountsOnlyOnALaterConnectionOfTheAccountOrWithTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := settledBox(t)
		b.save(alice, AnyHash, lanMove(b.running(), "192.168.2.1/24"))
		a := b.apply(alice)
		if !a.Human || time.Until(a.Deadline) != 180*time.Second {
			t.Fatalf("human %v, %v: the address that alice uses changes", a.Human, time.Until(a.Deadline))
		}
		at := time.Now()
		time.Sleep(5 * time.Second)
		ctx := t.Context()
		if err := b.w.Confirm(ctx, alice, "", at.Add(1999*time.Millisecond)); !errors.Is(err, ErrConnection) {
			t.Fatalf("an old connection: %v", err)
		}
		if did, _ := b.w.Seen(ctx, alice, a.Token, time.Now()); did {
			t.Fatal("a revision that needs a click was confirmed without one")
		}
		var testing *TestingError
		if err := b.w.Confirm(ctx, bob, "guess", time.Now()); !errors.As(err, &testing) || testing.Account != "alice" {
			t.Fatalf("another account: %v", err)
		}
		if err := b.w.Confirm(ctx, Who{}, "", time.Now()); !errors.As(err, &testing) {
			t.Fatalf("nobody without a token: %v", err)
		}
		if err := b.w.Confirm(ctx, Who{}, a.Token, at.Add(2*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := b.w.Confirm(ctx, Who{}, a.Token, time.Now()); !errors.Is(err, ErrNoTrial) {
			t.Fatalf("the token counts once: %v", err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if _, rev := b.w.Running(); rev.State != Confirmed || rev.Auto {
			t.Fatalf("%+v", rev)
		}
		if v := b.w.View("alice"); v.Undo != nil {
			t.Fatal("a click leaves no undo")
		}
	})
}

func TestSeenConfirmsAndUndoStaysForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := settledBox(t)
		before := b.running()
		for _, wait := range []time.Duration{9 * time.Minute, 11 * time.Minute} {
			b.edit(alice, "r1", "x")
			b.apply(alice)
			if did, err := b.w.Seen(t.Context(), alice, "", time.Now().Add(time.Second)); did || err != nil {
				t.Fatal("an old connection confirmed", err)
			}
			time.Sleep(3 * time.Second)
			if did, err := b.w.Seen(t.Context(), bob, "", time.Now()); did || err == nil {
				t.Fatal("bob's connection confirmed alice's revision")
			}
			if did, err := b.w.Seen(t.Context(), alice, "", time.Now()); !did || err != nil {
				t.Fatal(did, err)
			}
			time.Sleep(wait)
			var want error
			if wait > undoTime {
				want = ErrNoUndo
			} else if b.w.View("alice").Undo == nil || b.w.View("bob").Undo != nil {
				t.Fatal("undo is offered to the wrong person")
			}
			if err := b.w.Undo(t.Context(), bob, ""); !errors.Is(err, ErrNoUndo) {
				t.Fatalf("bob undoes: %v", err)
			}
			if err := b.w.Undo(t.Context(), alice, ""); !errors.Is(err, want) {
				t.Fatalf("undo after %v: %v", wait, err)
			}
			b.inKernel()
			if undone := b.running().Stamp() == before.Stamp(); undone != (want == nil) {
				t.Fatalf("after %v: undone %v", wait, undone)
			}
			if want == nil {
				b.start(true) // the box boots what came back, too
				if b.running().Stamp() != before.Stamp() {
					t.Fatal("an undone revision was booted")
				}
				if err := b.w.Discard(t.Context(), alice); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestTrialIsItsAccountsAloneAndStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := settledBox(t)
		before := b.running()
		b.save(alice, AnyHash, lanMove(before, "192.168.2.1/24"))
		b.apply(alice)
		time.Sleep(133 * time.Second)
		b.edit(bob, "r2", "bob's")
		_, err := b.w.Apply(t.Context(), bob, Options{})
		if err == nil || err.Error() != "alice is testing revision 2, 0:47 left" {
			t.Fatalf("Apply = %v", err)
		}
		b.edit(alice, "r1", "harmless by itself")
		a := b.apply(alice)
		if !a.Human || time.Until(a.Deadline) != 180*time.Second {
			t.Fatalf("stacked: human %v, %v left; must be as hard as what it stands on", a.Human, time.Until(a.Deadline))
		}
		time.Sleep(179 * time.Second)
		if b.running().Stamp() == before.Stamp() {
			t.Fatal("the first deadline still counted")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		b.inKernel()
		v := b.w.View("alice")
		if b.running().Stamp() != before.Stamp() || !v.Fits || v.Objects != 2 {
			t.Fatalf("must go back to the last confirmed revision with both changes in the draft: %+v", v.Items)
		}
		// Both at once, and this time kept: both revisions are then confirmed.
		if err := b.w.Discard(t.Context(), alice, firewall.Ref{Kind: "interface", Key: "LAN"}); err != nil {
			t.Fatal(err)
		}
		b.apply(alice)
		b.edit(alice, "r3", "second")
		b.keep(alice)
		got := states(b.w.Revisions())
		if !slices.Equal(got[2:], []string{"2 reverted", "3 reverted", "4 confirmed", "5 confirmed"}) {
			t.Fatal(got)
		}
	})
}

func TestExtendGivesAMinuteThreeTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := settledBox(t)
		before := b.running()
		b.edit(alice, "r1", "x")
		b.apply(alice)
		for range 3 {
			if _, err := b.w.Extend(t.Context(), alice, ""); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.w.Extend(t.Context(), alice, ""); !errors.Is(err, ErrExtended) {
			t.Fatalf("Extend = %v", err)
		}
		time.Sleep(239 * time.Second)
		if b.running().Stamp() == before.Stamp() {
			t.Fatal("taken back before the extended deadline")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if b.running().Stamp() != before.Stamp() {
			t.Fatal("not taken back")
		}
	})
}

func TestServiceThatCannotFollowAsksForAClick(t *testing.T) {
	b := settledBox(t)
	b.edit(alice, "r1", "x")
	b.fault = func(step string) error {
		if step == "reload" {
			return errors.New("port 67 is in use")
		}
		return nil
	}
	a := b.apply(alice)
	if !a.Human || !slices.Equal(a.Problems, []string{"dhcp: port 67 is in use"}) || !slices.Equal(b.w.Status().Problems, a.Problems) {
		t.Fatalf("%+v", a)
	}
	if did, _ := b.w.Seen(t.Context(), alice, "", time.Now().Add(time.Minute)); did {
		t.Fatal("confirmed without a click")
	}
	if err := b.w.Confirm(t.Context(), alice, "", time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// F35: the confirm and the deadline meet; exactly one wins and both sides agree.
func TestConfirmRacesTheDeadlineAndExactlyOneWins(t *testing.T) {
	confirmed, reverted := 0, 0
	b := settledBox(t)
	for i := range 500 {
		synctest.Test(t, func(t *testing.T) {
			b.t = t
			b.boot(nil)
			before := b.running()
			b.edit(alice, "r1", fmt.Sprint("run ", i))
			a := b.apply(alice)
			after := b.running()
			var wg sync.WaitGroup
			errs := make([]error, 3)
			for k := range errs {
				wg.Go(func() {
					time.Sleep(time.Until(a.Deadline) + time.Duration(k-i%3)*time.Nanosecond)
					errs[k] = b.w.Confirm(context.Background(), alice, "", time.Now())
				})
			}
			wg.Wait()
			synctest.Wait()
			wins := 0
			for k, err := range errs {
				if err == nil && k-i%3 >= 0 {
					t.Fatal("a confirm at or after the deadline counted")
				}
				if err == nil {
					wins++
				} else if !errors.Is(err, ErrTooLate) && !errors.Is(err, ErrNoTrial) {
					t.Fatal(err)
				}
			}
			want := before
			if wins == 1 {
				want = after
				confirmed++
			} else {
				reverted++
			}
			_, rev := b.w.Running()
			if wins > 1 || b.running().Stamp() != want.Stamp() || rev.State != Confirmed {
				t.Fatalf("%d confirms won, revision %d is %s", wins, rev.Number, rev.State)
			}
			b.inKernel()
			b.boot(nil) // and the disk agrees
			if b.running().Stamp() != want.Stamp() {
				t.Fatal("after a reboot another revision runs")
			}
		})
	}
	if confirmed == 0 || reverted == 0 {
		t.Fatalf("confirmed %d, reverted %d: there was no race", confirmed, reverted)
	}
	t.Logf("confirmed %d, reverted %d", confirmed, reverted)
}

func TestConfirmThatIsBeingWrittenAtTheDeadlineStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := settledBox(t)
		b.edit(alice, "r1", "x")
		b.apply(alice)
		after := b.running()
		time.Sleep(59 * time.Second)
		b.fault = func(step string) error {
			if step == "update" {
				time.Sleep(3 * time.Second) // a slow disk, over the deadline
			}
			return nil
		}
		if err := b.w.Confirm(t.Context(), alice, "", time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if b.running().Stamp() != after.Stamp() {
			t.Fatal("confirmed and taken back")
		}
		b.inKernel()
	})
}

func TestPlanSaysWhatApplyDoesAndApplyDoesOnlyThat(t *testing.T) {
	b := settledBox(t)
	b.edit(alice, "r1", "new words")
	b.save(alice, AnyHash, firewall.DeleteRule{ID: "r2", Descr: "r2=0"})
	b.save(alice, AnyHash, firewall.MoveRule{ID: "r4", Place: firewall.Place{Before: "r0"}})
	p, err := b.w.Plan(t.Context(), alice)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range p.Words {
		got = append(got, w.Op+" "+w.Ref.String())
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"changed rule/r1", "moved rule/r4", "removed rule/r2"}) {
		t.Fatal(got)
	}
	if !strings.Contains(p.Diff, "r2") || !strings.Contains(p.Diff, "\n-") || p.Risk.Human || p.Refused != nil || !p.Reaches || p.Removed == 0 {
		t.Fatalf("%+v", p)
	}
	b.edit(alice, "r3", "added after the review")
	if _, err := b.w.Apply(t.Context(), alice, Options{Reviewed: p.Reviewed}); !errors.Is(err, ErrReviewed) {
		t.Fatalf("Apply = %v", err)
	}
	if p, err = b.w.Plan(t.Context(), alice); err != nil {
		t.Fatal(err)
	}
	if _, err := b.w.Apply(t.Context(), alice, Options{Reviewed: p.Reviewed}); err != nil {
		t.Fatal(err)
	}
}

func TestRiskAsksForAClickWhenThePagesMove(t *testing.T) {
	b := settledBox(t)
	c := b.running()
	in, _ := c.Interface("LAN")
	in.Device = "eth2"
	admin := c.Admin
	admin.HTTPS = 8443
	scope := firewall.Scope{In: "LAN", On: true, From: netip.MustParseAddr("192.168.1.50"), To: netip.MustParseAddr("192.168.1.90"), Lease: 7200}
	wan, _ := c.Interface("WAN")
	wan.BlockBogons = true
	elsewhere := Who{"alice", "web", netip.MustParseAddr("10.9.9.9")}
	for _, x := range []struct {
		name   string
		change firewall.Change
		who    Who
		human  bool
		wait   time.Duration
	}{
		{"a rule", firewall.UpdateRule{Rule: rule("r1", "x")}, alice, false, shortWait},
		{"the WAN", firewall.UpdateInterface{Name: "WAN", Interface: wan}, alice, false, shortWait},
		{"the local port, from it", firewall.UpdateInterface{Name: "LAN", Interface: in}, alice, true, longWait},
		{"the local port, from elsewhere", firewall.UpdateInterface{Name: "LAN", Interface: in}, elsewhere, true, shortWait},
		{"the web page's port", firewall.SetAdmin{Admin: admin}, alice, true, longWait},
		{"DHCP", firewall.PutScope{Scope: scope}, alice, true, longWait},
	} {
		next, err := x.change.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		if r := risk(c, next, x.who); r.Human != x.human || r.Wait != x.wait || r.Human != (len(r.Why) > 0) {
			t.Errorf("%s: %+v", x.name, r)
		}
	}
}
