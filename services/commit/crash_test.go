package commit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
)

// killed is what a step panics with: the process is gone at that very point.
type killed struct{ step string }

// until runs a story and reports where it was killed, "" when it came to its end.
func until(story func()) (step string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case killed:
			step = r.step
		default:
			panic(r)
		}
	}()
	story()
	return ""
}

// F01, F02, F34: whatever the moment of a kill -9 or a reset, afterwards store,
// kernel and services have the one confirmed revision, and the person's change
// is in it or in the draft, never in both and never in neither.
func TestKilledAtAnyStepExactlyOneRevisionRuns(t *testing.T) {
	ctx := context.Background()
	confirm := func(b *box, a Applied) {
		b.w.Confirm(ctx, alice, "", a.Deadline)
	}
	for name, story := range map[string]func(b *box){
		"apply and confirm": func(b *box) {
			if a, err := b.w.Apply(ctx, alice, Options{}); err == nil {
				confirm(b, a)
			}
		},
		"apply and undo": func(b *box) {
			if _, err := b.w.Apply(ctx, alice, Options{}); err == nil {
				b.w.Undo(ctx, alice, "")
			}
		},
		"auto-confirm and undo": func(b *box) {
			if a, err := b.w.Apply(ctx, alice, Options{}); err == nil {
				b.w.Seen(ctx, alice, "", a.Deadline)
				b.w.Undo(ctx, alice, "")
			}
		},
		"stacked": func(b *box) {
			b.w.Apply(ctx, alice, Options{})
			r := rule("r3", "second")
			b.w.Save(ctx, alice, AnyHash, firewall.UpdateRule{Rule: r})
			if a, err := b.w.Apply(ctx, alice, Options{}); err == nil {
				confirm(b, a)
			}
		},
	} {
		for _, fresh := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " fresh=", fresh), func(t *testing.T) {
				points := 0
				for at := 0; ; at++ {
					b := settledBox(t)
					old := b.running()
					b.edit(alice, "r1", "the change")
					n := 0
					b.fault = func(step string) error {
						if n++; n > at {
							panic(killed{step})
						}
						return nil
					}
					step := until(func() { story(b) })
					b.start(fresh)
					checkOne(t, b, old, step)
					b.off()
					if step == "" {
						break
					}
					points++
				}
				if points < 10 {
					t.Fatalf("only %d kill points", points)
				}
			})
		}
	}
}

func TestKilledWhileBootingExactlyOneRevisionRuns(t *testing.T) {
	points := 0
	for at := 0; ; at++ {
		b := settledBox(t)
		old := b.running()
		b.edit(alice, "r1", "the change")
		b.apply(alice) // and the power goes
		n := 0
		b.bootFault = func(step string) error {
			if n++; n > at {
				panic(killed{step})
			}
			return nil
		}
		step := until(func() { b.start(true) })
		b.start(at%2 == 0)
		checkOne(t, b, old, step)
		if b.running().Stamp() != old.Stamp() {
			t.Fatalf("killed at %q: what nobody confirmed runs", step)
		}
		b.off()
		if step == "" {
			break
		}
		points++
	}
	if points < 8 {
		t.Fatalf("only %d kill points", points)
	}
}

func checkOne(t *testing.T, b *box, old firewall.Config, step string) {
	t.Helper()
	b.inKernel()
	if s := b.w.Status(); s.SafeMode != "" {
		t.Fatalf("killed at %q: SAFE MODE: %s", step, s.SafeMode)
	}
	if b.service.Stamp() != b.running().Stamp() {
		t.Fatalf("killed at %q: the services have another configuration", step)
	}
	_, rev := b.w.Running()
	if rev.State != Confirmed {
		t.Fatalf("killed at %q: revision %d runs and is %s", step, rev.Number, rev.State)
	}
	for _, r := range b.w.Revisions() {
		if r.State == Pending {
			t.Fatalf("killed at %q: revision %d is still pending", step, r.Number)
		}
	}
	v := b.w.View("alice")
	in, drafted := descr(b.running(), "r1") == "the change", 0
	for _, item := range v.Items {
		if item.Ref == refRule("r1") {
			drafted++
		}
	}
	switch {
	case !v.Fits:
		// The change is confirmed and was not yet taken out of the draft.
		t.Fatalf("killed at %q: the draft does not fit: %+v", step, v.Items)
	case in && drafted != 0, !in && drafted != 1:
		t.Fatalf("killed at %q: in the running revision %v, %d times in the draft", step, in, drafted)
	case !in && b.running().Stamp() != old.Stamp() && descr(b.running(), "r3") == "":
		t.Fatalf("killed at %q: something else runs", step)
	}
}

func TestFailureAtAnyStepLeavesOneRevision(t *testing.T) {
	points := 0
	for at := 0; ; at++ {
		b := settledBox(t)
		b.edit(alice, "r1", "the change")
		n, failed := 0, ""
		b.fault = func(step string) error {
			if n++; n == at+1 {
				failed = step
				return errors.New("injected failure")
			}
			return nil
		}
		var confirmed error
		a, err := b.w.Apply(t.Context(), alice, Options{})
		if err == nil {
			confirmed = b.w.Confirm(t.Context(), alice, "", time.Now().Add(time.Minute))
		}
		if failed == "" {
			break
		}
		points++
		b.fault = func(string) error { return nil }
		b.inKernel()
		c, rev := b.w.Running()
		if in := descr(c, "r1") == "the change"; in != (err == nil) {
			t.Fatalf("failure at %q: applied %v (%v), but it runs: %v", failed, a, err, in)
		}
		if err == nil && confirmed != nil && rev.State == Confirmed {
			t.Fatalf("failure at %q: the confirm failed and yet counts: %v", failed, confirmed)
		}
		if confirmed != nil { // it can be tried again
			if err := b.w.Confirm(t.Context(), alice, "", time.Now().Add(time.Minute)); err != nil {
				t.Fatalf("failure at %q: %v", failed, err)
			}
		}
		c, _ = b.w.Running()
		b.start(true)
		if b.running().Stamp() != c.Stamp() {
			t.Fatalf("failure at %q: a reboot runs something else", failed)
		}
		if v := b.w.View("alice"); err != nil && (v.Objects != 1 || !v.Fits) {
			t.Fatalf("failure at %q: the draft is lost: %+v", failed, v.Items)
		}
		b.off()
	}
	if points < 8 {
		t.Fatalf("only %d points", points)
	}
}

// F04: the kernel says yes and holds something else.
func TestMismatchBringsTheOldRevisionBackAndASecondOneLocksDown(t *testing.T) {
	b := settledBox(t)
	before := b.running()
	b.edit(alice, "r1", "x")
	verifies := 0
	b.fault = func(step string) error {
		if step == "verify" {
			if verifies++; verifies == 1 {
				return errors.New("chain in_LAN has 4 rules, not 5")
			}
		}
		return nil
	}
	var refused *RefusedError
	if _, err := b.w.Apply(t.Context(), alice, Options{}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "4 rules") {
		t.Fatalf("Apply = %v", err)
	}
	b.inKernel()
	if b.running().Stamp() != before.Stamp() || b.w.Status().SafeMode != "" || b.w.View("alice").Objects != 1 {
		t.Fatal("the old revision must run and the draft be kept")
	}
	if got := states(b.w.Revisions()); !slices.Equal(got, []string{"0 confirmed", "1 confirmed", "2 reverted"}) {
		t.Fatal(got)
	}
	b.fault = func(step string) error {
		if step == "verify" {
			return errors.New("nothing is as it should be")
		}
		return nil
	}
	if _, err := b.w.Apply(t.Context(), alice, Options{}); err == nil {
		t.Fatal("applied")
	}
	s := b.w.Status()
	if stamp, on := b.runs(); stamp != compiledLockdown() || on || !s.Lockdown || s.SafeMode == "" {
		t.Fatalf("after a second mismatch: %+v, forwarding %v", s, on)
	}
	var safe *SafeModeError
	if err := b.w.Save(t.Context(), alice, AnyHash, firewall.DeleteRule{ID: "r1"}); !errors.As(err, &safe) {
		t.Fatalf("Save = %v", err)
	}
	b.start(true) // the next boot tries again, with the confirmed revision
	b.inKernel()
}

func TestDryRunRefusalChangesNothing(t *testing.T) {
	b := settledBox(t)
	b.edit(alice, "r1", "x")
	b.fault = func(step string) error {
		if step == "dry run" {
			return errors.New("no buffer space")
		}
		return nil
	}
	var refused *RefusedError
	if _, err := b.w.Apply(t.Context(), alice, Options{}); !errors.As(err, &refused) {
		t.Fatalf("Apply = %v", err)
	}
	b.inKernel()
	if got := states(b.w.Revisions()); !slices.Equal(got, []string{"0 confirmed", "1 confirmed"}) || b.w.View("alice").Objects != 1 {
		t.Fatal(got)
	}
}

func TestCheckHealsWhatNobodyHeardOf(t *testing.T) {
	b := settledBox(t)
	b.steps = nil
	if err := b.w.Check(t.Context()); err != nil || b.w.Status().Healed != 0 || slices.Contains(b.steps, "forwarding false") {
		t.Fatalf("nothing was wrong: %v %v", b.steps, err)
	}
	b.kernel.Stamp = "" // nft flush ruleset
	if err := b.w.Check(t.Context()); err != nil || b.w.Status().Healed != 1 {
		t.Fatalf("%v %v", b.steps, err)
	}
	b.inKernel()
}

func TestForeignChangeClosesFirstAndHeals(t *testing.T) {
	b := settledBox(t)
	b.kernel.Stamp = "" // nft flush ruleset
	b.steps = nil
	if err := b.w.Foreign(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.inKernel()
	if b.steps[0] != "forwarding false" || b.steps[len(b.steps)-1] != "forwarding true" || b.steps[len(b.steps)-2] != "cut" || b.w.Status().Healed != 1 {
		t.Fatalf("%v, healed %d", b.steps, b.w.Status().Healed)
	}
}
