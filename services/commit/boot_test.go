package commit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
	"gatehouse/store"
)

func compiledLockdown() string { return compile.Lockdown().Stamp }

func TestBootOfAnEmptyBoxRunsTheFactoryConfiguration(t *testing.T) {
	b := newBox(t)
	w := b.start(true)
	b.inKernel()
	if c, rev := w.Running(); rev.Number != 0 || rev.State != Confirmed || c.Stamp() != firewall.Factory().Stamp() || w.Status().SafeMode != "" {
		t.Fatalf("%+v %+v", rev, w.Status())
	}
	if !slices.Equal(states(w.Revisions()), []string{"0 confirmed"}) {
		t.Fatal(states(w.Revisions()))
	}
}

func TestBootKeepsWhatRunsAlreadyAndElseClosesFirst(t *testing.T) {
	b := settledBox(t)
	b.steps = nil
	b.start(false)
	if slices.Contains(b.steps, "kernel") || slices.Contains(b.steps, "forwarding false") {
		t.Fatalf("traffic was stopped for nothing: %v", b.steps)
	}
	for name, disturb := range map[string]func(){
		"another stamp":   func() { b.kernel.Stamp = "something" },
		"torn":            func() { b.torn = true },
		"after a reboot":  func() { b.kernel.Stamp = "" },
		"pending in it":   func() { b.edit(alice, "r1", "x"); b.apply(alice) },
		"lockdown stands": func() { b.kernel = compile.Lockdown() },
	} {
		disturb()
		b.steps = nil
		b.start(false)
		b.inKernel()
		if i, j := slices.Index(b.steps, "forwarding false"), slices.Index(b.steps, "kernel"); i < 0 || j < i {
			t.Fatalf("%s: %v: must be closed before rules change", name, b.steps)
		}
	}
	if v := b.w.View("alice"); v.Objects != 1 || !strings.Contains(v.Reason, "restarted before it was confirmed") {
		t.Fatalf("what nobody confirmed must be the draft: %+v", v)
	}
}

// F07, F08, C13: never open, never silently the factory configuration.
func TestDamagedStoreRunsTheNewestSnapshotReadOnly(t *testing.T) {
	for name, damage := range map[string]func(b *box) error{
		"0 bytes":   func(b *box) error { return os.Truncate(b.path(), 0) },
		"truncated": func(b *box) error { return os.Truncate(b.path(), 9000) },
		"missing":   func(b *box) error { return os.Remove(b.path()) },
		"store and marker missing": func(b *box) error {
			return errors.Join(os.Remove(b.path()), os.Remove(b.path()+".mark"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := settledBox(t)
			b.edit(alice, "r1", "the last confirmed")
			b.keep(alice)
			want := b.running()
			b.edit(alice, "r2", "pending at the time")
			b.apply(alice)
			b.off()
			if err := damage(b); err != nil {
				t.Fatal(err)
			}
			w := b.start(true)
			s := w.Status()
			if s.SafeMode == "" || s.Lockdown || w.View("alice").SafeMode == "" {
				t.Fatalf("%+v", s)
			}
			if b.running().Stamp() != want.Stamp() {
				t.Fatal("not the last confirmed revision")
			}
			b.inKernel()
			checkReadOnly(t, b)

			if err := w.Restore(t.Context(), alice, 2); err != nil {
				t.Fatal(err)
			}
			b.inKernel()
			b.edit(alice, "r3", "works again")
			b.keep(alice)
			want = b.running()
			w = b.start(true)
			if w.Status().SafeMode != "" || b.running().Stamp() != want.Stamp() {
				t.Fatalf("after the way out: %+v", w.Status())
			}
		})
	}
}

func checkReadOnly(t *testing.T, b *box) {
	t.Helper()
	ctx := t.Context()
	_, applied := b.w.Apply(ctx, alice, Options{})
	_, planned := b.w.Plan(ctx, alice)
	for what, err := range map[string]error{
		"Save":    b.w.Save(ctx, alice, AnyHash, firewall.DeleteRule{ID: "r1"}),
		"Discard": b.w.Discard(ctx, alice), "Apply": applied, "Plan": planned,
		"RestoreAsDraft": b.w.RestoreAsDraft(ctx, alice, 0),
	} {
		var safe *SafeModeError
		if !errors.As(err, &safe) {
			t.Errorf("%s in SAFE MODE = %v", what, err)
		}
	}
}

func TestRulesAreThoseOfWhatRuns(t *testing.T) {
	b := newBox(t)
	w := b.start(true)
	bad := errors.New("bad")
	stamp := ""
	err := w.WithRules(t.Context(), func(_ context.Context, rs ruleset.Ruleset) error { stamp = rs.Stamp; return bad })
	if now, _ := b.runs(); stamp != now || stamp == "" || !errors.Is(err, bad) {
		t.Errorf("rules %q, %v; %q runs", stamp, err, now)
	}
}

func TestNothingThatVerifiesIsLockdown(t *testing.T) {
	b := settledBox(t)
	b.off()
	os.Truncate(b.path(), 0)
	files, _ := filepath.Glob(filepath.Join(b.dir, "snapshots", "*"))
	if len(files) == 0 {
		t.Fatal("no snapshots")
	}
	for _, f := range files {
		os.Truncate(f, 80)
	}
	w := b.start(true)
	if s := w.Status(); !s.Lockdown || s.SafeMode == "" {
		t.Fatalf("%+v", s)
	}
	if stamp, on := b.runs(); stamp != compiledLockdown() || on {
		t.Fatalf("runs %s, forwarding %v", stamp, on)
	}
	checkReadOnly(t, b)
	called := 0
	if err := w.InLockdown(t.Context(), func(context.Context) { called++ }); err != nil || called != 1 {
		t.Fatalf("called %d times in lockdown: %v", called, err)
	}
	if err := w.WithRules(t.Context(), func(context.Context, ruleset.Ruleset) error { called++; return nil }); err != nil || called != 1 {
		t.Errorf("rules in a lockdown: called %d times, %v", called, err)
	}
	// Starting over is possible, by a person's word.
	if err := w.Restore(t.Context(), Who{"console", "console", alice.Addr}, 0); err == nil {
		t.Fatal("accounts that no snapshot holds cannot be restored; this test's Reopen must have refused")
	}
}

func TestDamagedRevisionRunsTheLastGoodOne(t *testing.T) {
	b := settledBox(t)
	good := b.running()
	b.edit(alice, "r1", "second")
	b.keep(alice)
	second := b.running()
	spoil := func(n uint64, what func(*Record)) {
		t.Helper()
		log := store.NewLog[Record](b.db, "revisions")
		rec, ok, err := log.Get(n)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		what(&rec)
		if err := log.Update(n, rec); err != nil {
			t.Fatal(err)
		}
	}
	// The document breaks, and the snapshot of the same revision is whole: that runs.
	spoil(2, func(r *Record) { r.Doc[len(r.Doc)/2] ^= 0xff })
	w := b.start(true)
	if w.Status().SafeMode == "" || b.running().Stamp() != second.Stamp() {
		t.Fatalf("%+v", w.Status())
	}
	b.inKernel()
	if r := w.Revisions()[0]; r.Number != 2 || r.Damaged == "" {
		t.Fatalf("the damage is not told in the list: %+v", r)
	}
	// Without it the revision before runs.
	files, _ := filepath.Glob(filepath.Join(b.dir, "snapshots", "*"))
	os.Remove(files[len(files)-1])
	w = b.start(true)
	if s := w.Status(); s.SafeMode == "" || s.Lockdown || b.running().Stamp() != good.Stamp() {
		t.Fatalf("%+v", s)
	}
	b.inKernel()
	checkReadOnly(t, b)
	if err := w.Restore(t.Context(), alice, 1); err != nil {
		t.Fatal(err)
	}
	w = b.start(true)
	if s := w.Status(); s.SafeMode != "" || b.running().Stamp() != good.Stamp() {
		t.Fatalf("after the way out: %+v", s)
	}
	if _, _, err := w.Revision(2); err == nil {
		t.Fatal("a damaged revision was read")
	}
}

func TestRestoreAsDraftBringsAnOldRevisionBack(t *testing.T) {
	b := settledBox(t)
	first := b.running()
	b.edit(alice, "r1", "second")
	b.keep(alice)
	b.edit(alice, "r2", "unfinished")
	if err := b.w.RestoreAsDraft(t.Context(), alice, 1); err != nil {
		t.Fatal(err)
	}
	if v := b.w.View("alice"); v.Objects != 1 || v.Items[0].Sentence != "Restore revision 1" || v.Config.Stamp() != first.Stamp() {
		t.Fatalf("%+v", v.Items)
	}
	ws, text, err := b.w.Diff(1, 2)
	if err != nil || len(ws) != 1 || ws[0].Op != "changed" || ws[0].Ref != refRule("r1") {
		t.Fatal(ws, text, err)
	}
	b.keep(alice)
	b.inKernel()
	if b.running().Stamp() != first.Stamp() {
		t.Fatal("not restored")
	}
	if _, _, err := b.w.Revision(99); !errors.Is(err, ErrNoRevision) {
		t.Fatal(err)
	}
}

func TestRevisionsKeepFiftyAndWhatBoots(t *testing.T) {
	b := settledBox(t)
	for i := range 2 * (kept + slack) {
		b.edit(alice, "r1", fmt.Sprint("edit ", i))
		a := b.apply(alice)
		if i == 30 { // the last confirmed one, for long
			b.w.Confirm(t.Context(), alice, "", a.Deadline)
		} else if err := b.w.Undo(t.Context(), alice, ""); err != nil {
			t.Fatal(err)
		}
		b.w.Discard(t.Context(), alice)
	}
	want := b.running()
	b.edit(alice, "r2", "trims")
	b.keep(alice)
	last := b.running()
	n := len(b.w.Revisions())
	if n < kept || n > kept+slack+1 {
		t.Fatalf("%d revisions", n)
	}
	b.start(true)
	if len(b.w.Revisions()) != n || b.running().Stamp() != last.Stamp() || want.Stamp() == last.Stamp() {
		t.Fatalf("%d after a reboot, %d before", len(b.w.Revisions()), n)
	}
}
