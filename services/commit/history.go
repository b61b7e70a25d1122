package commit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
)

// kept is how many revisions stay at least; slack more may, so that not every
// confirm has to look through all of them.
const (
	kept  = 50
	slack = 10
)

func compiled(c firewall.Config) ruleset.Ruleset { return compile.Compile(c) }

// factory is revision 0: generated, confirmed, never on disk.
func factory() runs {
	return runs{Revision{Sentence: "As delivered", State: Confirmed, Who: Who{Account: "gatehouse", Door: "start"}}, firewall.Factory()}
}

// Revisions lists what is kept, newest first; revision 0 is the last.
func (w *Writer) Revisions() []Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append(slices.Clone(w.revs), factory().rev)
}

// Revision reads one revision and its configuration. Errors: ErrNoRevision, or
// why it cannot be read.
func (w *Writer) Revision(n uint64) (Revision, firewall.Config, error) {
	if n == 0 {
		f := factory()
		return f.rev, f.config, nil
	}
	rec, ok, err := Record{}, false, error(nil)
	if w.usable() {
		rec, ok, err = w.revisions().Get(n)
	}
	if ok {
		c, err := unpack(rec.Doc)
		if err != nil {
			return Revision{}, c, fmt.Errorf("revision %d: %w", n, err)
		}
		rec.Number = n
		return rec.Revision, c, nil
	}
	// In SAFE MODE the snapshots are the history that is left.
	if w.Status().SafeMode != "" {
		if s, c, found := w.snapshot(func(r Revision) bool { return r.Number == n }); found {
			return s.Revision, c, nil
		}
	}
	if err != nil {
		return Revision{}, firewall.Config{}, fmt.Errorf("revision %d: %w", n, err)
	}
	return Revision{}, firewall.Config{}, ErrNoRevision
}

// Diff says what leads from revision a to b, in words and as a unified diff of
// the compiled rules.
func (w *Writer) Diff(a, b uint64) ([]Word, string, error) {
	_, old, err := w.Revision(a)
	if err != nil {
		return nil, "", err
	}
	_, new, err := w.Revision(b)
	if err != nil {
		return nil, "", err
	}
	text, _, _ := textDiff(compiled(old).String(), compiled(new).String())
	return words(old, new), text, nil
}

// RestoreAsDraft makes the account's draft one change: to be as revision n was.
func (w *Writer) RestoreAsDraft(ctx context.Context, who Who, n uint64) error {
	_, c, err := w.Revision(n)
	if err != nil {
		return err
	}
	return w.Save(ctx, who, AnyHash, firewall.ReplaceAll{Config: c, Why: fmt.Sprintf("Restore revision %d", n)})
}

// trim lets old revisions go, never one that the box boots or could go back to.
func (w *Writer) trim() {
	w.mu.Lock()
	if len(w.revs) <= kept+slack {
		w.mu.Unlock()
		return
	}
	keep := map[uint64]bool{w.head.Number: true}
	if w.trial != nil {
		keep[w.trial.target] = true
	}
	if w.undo != nil {
		keep[w.undo.before.rev.Number] = true
	}
	var left []Revision
	for i, r := range w.revs {
		if i < kept || keep[r.Number] {
			keep[r.Number] = true
			left = append(left, r)
		}
	}
	w.mu.Unlock()
	if err := w.revisions().Trim(func(n uint64, _ Record) bool { return keep[n] }); err != nil {
		w.log.Warn("let old revisions go", "err", err)
		return
	}
	w.mu.Lock()
	w.revs = left
	w.mu.Unlock()
}

// Snapshot writes the confirmed configuration and what Extra gives beside the
// store. It is called at every confirm; call it also when the accounts have
// changed. A failure is logged: the older snapshots are still there.
func (w *Writer) Snapshot() {
	w.mu.Lock()
	now := runs{w.head, w.config}
	if w.trial != nil {
		now = w.trial.before
	}
	safe := w.status.SafeMode != ""
	w.mu.Unlock()
	if safe {
		return // what runs may not be the newest that can be saved
	}
	if err := w.writeSnapshot(now); err != nil {
		w.log.Warn("write snapshot", "revision", now.rev.Number, "err", err)
	}
}

func (w *Writer) writeSnapshot(now runs) error {
	doc, err := pack(now.config)
	if err != nil {
		return err
	}
	extra, err := w.deps.Extra()
	if err != nil {
		return fmt.Errorf("collect accounts: %w", err)
	}
	b, err := json.Marshal(Snapshot{now.rev, doc, extra})
	if err != nil {
		return err
	}
	return w.deps.Snapshots.Snapshot(b)
}

// snapshot finds the newest snapshot that can be read and is wanted.
func (w *Writer) snapshot(want func(Revision) bool) (Snapshot, firewall.Config, bool) {
	all, err := w.deps.Snapshots.Snapshots()
	if err != nil {
		w.log.Warn("read snapshots", "err", err)
	}
	for _, b := range all {
		s, c, err := ReadSnapshot(b)
		if err != nil {
			w.log.Warn("read snapshot", "err", err)
			continue
		}
		if want(s.Revision) {
			return s, c, true
		}
	}
	return Snapshot{}, firewall.Config{}, false
}
