package commit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

func TestSaveRefusesWhatThePersonHasNotSeen(t *testing.T) {
	b := settledBox(t)
	old := b.running().Hash(refRule("r1"))
	b.edit(alice, "r1", "first tab")
	r := rule("r1", "second tab")
	err := b.w.Save(t.Context(), alice, old, firewall.UpdateRule{Rule: r})
	var stale *StaleError
	if !errors.As(err, &stale) || stale.Ref != refRule("r1") || descr(stale.Theirs, "r1") != "first tab" || descr(stale.Yours, "r1") != "second tab" {
		t.Fatalf("Save = %v", err)
	}
	if got := descr(b.w.View("alice").Config, "r1"); got != "first tab" {
		t.Fatalf("after the refusal the draft has %q", got)
	}
	if got := descr(b.w.View("bob").Config, "r1"); got != "r1=0" {
		t.Fatalf("bob sees alice's draft: %q", got)
	}
}

// A form that shows two objects is as stale as either of them.
func TestSaveRefusesWhatStoodAlongAndWasNotSeen(t *testing.T) {
	b := settledBox(t)
	hash := b.running().Hash(refRule("r1")) + Along(refRule("r2"), b.running().Hash(refRule("r2")))
	b.edit(alice, "r2", "first tab")
	err := b.w.Save(t.Context(), alice, hash, firewall.UpdateRule{Rule: rule("r1", "second tab")}, firewall.SetLimit{Rule: "r2", Limit: firewall.Limit{Open: 7, Over: firewall.DropExcess}})
	var stale *StaleError
	if !errors.As(err, &stale) || stale.Ref != refRule("r1") || descr(stale.Yours, "r1") != "second tab" {
		t.Fatalf("Save = %v", err)
	}
	if yours, _ := stale.Yours.Rule("r2"); yours.Limit.Open != 7 {
		t.Errorf("yours lacks the second change: %s", yours)
	}
	c := b.w.View("alice").Config
	hash = c.Hash(refRule("r1")) + Along(refRule("r2"), c.Hash(refRule("r2")))
	b.save(alice, hash, firewall.UpdateRule{Rule: rule("r1", "second tab")})
	for _, hash := range []string{c.Hash(refRule("r1")) + " ", hash + " x", AnyHash + " rule/r2=", AnyHash + Along(refRule("r77"), "*")} {
		if err := b.w.Save(t.Context(), alice, hash, firewall.UpdateRule{Rule: rule("r1", "third")}); !errors.As(err, &stale) {
			t.Errorf("%q: %v", hash, err)
		}
	}
}

func TestSaveTellsAllProblemsAndKeepsNothing(t *testing.T) {
	b := settledBox(t)
	r := rule("r9", "bad")
	r.In, r.Proto, r.DstPorts = "NOWHERE", firewall.ICMP, firewall.Ports{{Range: firewall.PortRange{From: 80, To: 80}}}
	err := b.w.Save(t.Context(), alice, "", firewall.AddRule{Rule: r})
	var ps firewall.Problems
	if !errors.As(err, &ps) {
		t.Fatalf("Save = %v", err)
	}
	if own, rest := ps.Of(refRule("r9")); len(own) < 2 || len(rest) != 0 {
		t.Fatalf("problems: %v, elsewhere %v", own, rest)
	}
	if v := b.w.View("alice"); v.Objects != 0 || len(v.Items) != 0 {
		t.Fatalf("the draft has %v", v.Items)
	}
	// What the list does not allow is beside the object too.
	err = b.w.Save(t.Context(), alice, AnyHash, firewall.DeleteRule{ID: "r77"})
	if !errors.As(err, &ps) || !strings.Contains(err.Error(), "not there any more") {
		t.Fatalf("Save = %v", err)
	}
}

func TestDraftCountsObjectsAndForgetsWhatCancelsOut(t *testing.T) {
	b := settledBox(t)
	for i := range 3 {
		b.edit(alice, "r1", fmt.Sprint("try ", i))
	}
	b.edit(alice, "r2", "x")
	if v := b.w.View("alice"); v.Objects != 2 || len(v.Items) != 2 || descr(v.Config, "r1") != "try 2" {
		t.Fatalf("%d objects, %v", v.Objects, v.Items)
	}
	b.edit(alice, "r1", "r1=0")
	b.edit(alice, "r2", "r2=0")
	b.save(alice, "", firewall.AddRule{Rule: rule("r9", "new")})
	b.save(alice, AnyHash, firewall.DeleteRule{ID: "r9"})
	if v := b.w.View("alice"); v.Objects != 0 {
		t.Fatalf("a draft that changes nothing lists %v", v.Items)
	}
	if _, err := b.w.Apply(t.Context(), alice, Options{}); !errors.Is(err, ErrNothing) {
		t.Fatalf("Apply = %v", err)
	}
}

func TestDraftSurvivesARestart(t *testing.T) {
	b := settledBox(t)
	b.edit(alice, "r1", "kept")
	b.save(alice, "", firewall.AddRule{Rule: rule("r9", "new"), Place: firewall.Place{Before: "r0"}})
	b.start(true)
	v := b.w.View("alice")
	if v.Objects != 2 || descr(v.Config, "r1") != "kept" || v.Config.Rules[0].ID != "r9" || v.Items[0].Door != "web" {
		t.Fatalf("%+v", v.Items)
	}
}

func TestDiscardNamesTheChangeThatNeedsIt(t *testing.T) {
	b := settledBox(t)
	port := firewall.Alias{Name: "WEB", Kind: firewall.PortList, Ports: []firewall.PortEntry{{End: firewall.PortEnd{Range: firewall.PortRange{From: 80, To: 80}}}}}
	b.save(alice, "", firewall.AddAlias{Alias: port})
	r := rule("r9", "uses the alias")
	r.DstPorts = firewall.Ports{{Alias: "WEB"}}
	b.save(alice, "", firewall.AddRule{Rule: r})
	b.edit(alice, "r0", "independent")

	alias := firewall.Ref{Kind: "alias", Key: "WEB"}
	var needed *NeededError
	if err := b.w.Discard(t.Context(), alice, alias); !errors.As(err, &needed) || !strings.Contains(needed.By, "uses the alias") {
		t.Fatalf("Discard = %v", err)
	}
	if err := b.w.Discard(t.Context(), alice, refRule("r9"), alias); err != nil {
		t.Fatal(err)
	}
	if v := b.w.View("alice"); v.Objects != 1 || descr(v.Config, "r0") != "independent" {
		t.Fatalf("left: %v", v.Items)
	}
	if err := b.w.Discard(t.Context(), alice); err != nil {
		t.Fatal(err)
	}
	if v := b.w.View("alice"); v.Objects != 0 || v.Config.Stamp() != b.running().Stamp() {
		t.Fatalf("left: %v", v.Items)
	}
}

// C09: a click acts on the rule that was shown, or is refused; never on a neighbour.
func TestChangeActsOnTheRuleShownNeverOnItsNeighbour(t *testing.T) {
	b := settledBox(t)
	page := b.w.View("bob").Config // bob's page stays open
	b.save(alice, page.Hash(refRule("r1")), firewall.DeleteRule{ID: "r1"})
	b.keep(alice)
	r3, _ := page.Rule("r3") // "row 4" of the old page
	r3.On = false
	b.save(bob, page.Hash(refRule("r3")), firewall.UpdateRule{Rule: r3})
	b.save(bob, page.Hash(refRule("r4")), firewall.MoveRule{ID: "r4", Place: firewall.Place{Before: "r3"}})
	// To move beside the deleted one cannot be meant any more.
	if err := b.w.Save(t.Context(), bob, page.Hash(refRule("r0")), firewall.MoveRule{ID: "r0", Place: firewall.Place{After: "r1"}}); err == nil {
		t.Fatal("a move beside a deleted rule was taken")
	}
	b.keep(bob)
	var order []string
	for _, r := range b.running().Rules {
		order = append(order, fmt.Sprint(r.ID, r.On))
	}
	if want := []string{"r0true", "r2true", "r4true", "r3false"}; !slices.Equal(order, want) {
		t.Fatalf("rules %v, want %v", order, want)
	}
}

func TestApplyRefusesAnObjectThatSomebodyElseChanged(t *testing.T) {
	b := settledBox(t)
	b.edit(bob, "r1", "bob's")
	b.edit(bob, "r2", "bob's too")
	b.edit(alice, "r1", "alice's")
	b.keep(alice)
	_, err := b.w.Apply(t.Context(), bob, Options{})
	var stale *StaleError
	if !errors.As(err, &stale) || descr(stale.Yours, "r1") != "bob's" || descr(stale.Theirs, "r1") != "alice's" {
		t.Fatalf("Apply = %v", err)
	}
	v := b.w.View("bob")
	if v.Fits || descr(v.Config, "r2") != "r2=0" || v.Items[0].Misfit == "" || v.Items[1].Misfit != "" {
		t.Fatalf("a draft that does not fit: pages must show what runs and the bar what does not fit: %+v", v.Items)
	}
	// Bob looks at what runs, decides anew, and all of it fits again.
	b.edit(bob, "r1", "alice's and bob's")
	b.keep(bob)
	if c := b.running(); descr(c, "r1") != "alice's and bob's" || descr(c, "r2") != "bob's too" {
		t.Fatalf("r1 %q r2 %q", descr(c, "r1"), descr(c, "r2"))
	}
}

func TestDeletingAnInterfaceNeverTakesARuleUnseen(t *testing.T) {
	b := settledBox(t)
	b.save(bob, AnyHash, firewall.DeleteInterface{Name: "LAN"})
	b.save(alice, "", firewall.AddRule{Rule: rule("r9", "added meanwhile")})
	b.keep(alice)
	_, err := b.w.Apply(t.Context(), bob, Options{})
	var stale *StaleError
	if !errors.As(err, &stale) || !strings.Contains(err.Error(), "rule/r9") {
		t.Fatalf("Apply = %v", err)
	}
	if descr(b.running(), "r9") == "" {
		t.Fatal("the rule is gone")
	}
}

// Two people edit, discard, apply and keep at random from pages of random age.
// Every version of a rule says which version its author saw: whoever replaced a
// version must have seen it, and every rule keeps its own name.
func TestTwoAdminsLoseNothing(t *testing.T) {
	const runs = 1000
	ctx := context.Background()
	refused := 0
	b := settledBox(t)
	for seed := range uint64(runs) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		saw := map[string]string{} // version -> the version its author saw
		before := b.running()
		pages := map[string]firewall.Config{"alice": before, "bob": before}
		n := 0
		for range 14 {
			who := []Who{alice, bob}[rnd.IntN(2)]
			id := fmt.Sprint("r", rnd.IntN(5))
			switch rnd.IntN(7) {
			case 0, 1, 2: // from a page of unknown age
				page := pages[who.Account]
				r, _ := page.Rule(firewall.ID(id))
				n++
				was := r.Descr
				r.Descr = fmt.Sprintf("%s=%s%d.%d", id, who.Account, seed, n)
				err := b.w.Save(ctx, who, page.Hash(refRule(id)), firewall.UpdateRule{Rule: r})
				var stale *StaleError
				if err == nil {
					saw[r.Descr] = was
				} else if errors.As(err, &stale) {
					refused++
				} else {
					t.Fatal(seed, err)
				}
			case 3: // reload the page
				pages[who.Account] = b.w.View(who.Account).Config
			case 4:
				_ = b.w.Discard(ctx, who, refRule(id))
			default:
				now := b.running()
				a, err := b.w.Apply(ctx, who, Options{})
				var stale *StaleError
				if errors.As(err, &stale) {
					refused++
				}
				if err != nil {
					continue
				}
				if rnd.IntN(4) == 0 {
					err = b.w.Undo(ctx, who, "")
				} else {
					err = b.w.Confirm(ctx, who, "", a.Deadline)
				}
				if err != nil {
					t.Fatal(seed, err)
				}
				checkChain(t, seed, now, b.running(), saw)
			}
		}
		for _, who := range []Who{alice, bob} {
			if err := b.w.Discard(ctx, who); err != nil {
				t.Fatal(err)
			}
		}
		b.inKernel()
	}
	if refused < runs/10 {
		t.Fatalf("only %d refusals: the pages were never stale and nothing was tested", refused)
	}
	t.Logf("%d stale edits refused in %d runs", refused, runs)
}

// checkChain follows each rule of after back through what its authors saw; it
// must lead to before.
func checkChain(t *testing.T, seed uint64, before, after firewall.Config, saw map[string]string) {
	t.Helper()
	for i := range 5 {
		id := fmt.Sprint("r", i)
		v := descr(after, id)
		if !strings.HasPrefix(v, id+"=") {
			t.Fatalf("seed %d: rule %s carries %q", seed, id, v)
		}
		for v != descr(before, id) {
			was, ok := saw[v]
			if !ok {
				t.Fatalf("seed %d: %s was lost: it was overwritten by somebody who had not seen it", seed, descr(before, id))
			}
			v = was
		}
	}
}

func TestViewWaitsForNobody(t *testing.T) {
	b := settledBox(t)
	b.edit(alice, "r1", "x")
	inKernel, goOn := make(chan bool), make(chan bool)
	b.w.deps.Kernel = stuckKernel{fakeKernel{b}, inKernel, goOn}
	done := make(chan error)
	go func() {
		_, err := b.w.Apply(context.Background(), alice, Options{})
		done <- err
	}()
	<-inKernel
	// The kernel is busy: pages, the bar, and other people's saves go on.
	b.w.View("alice")
	b.w.Revisions()
	b.w.Status()
	b.edit(bob, "r2", "bob goes on")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := b.w.Apply(ctx, bob, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Apply beside an Apply = %v", err)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

type stuckKernel struct {
	fakeKernel
	in, on chan bool
}

func (k stuckKernel) DryRun(ctx context.Context, r ruleset.Ruleset) error {
	k.in <- true
	<-k.on
	return k.fakeKernel.DryRun(ctx, r)
}
