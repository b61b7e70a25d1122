package commit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
)

// stored is what the store says at the start.
type stored struct {
	base    runs // the last confirmed revision that can be read
	found   bool // there is one
	revs    []Revision
	pending []Record             // newer than base and waiting: oldest first
	late    []Record             // older than base and still marked as waiting
	applied map[firewall.ID]bool // changes of confirmed revisions: a crash may have left them in a draft
	broken  error                // why base may not be the last confirmed one
}

// load decides what is to run; nothing is touched yet. It is called by New, and
// by Restore after the store was made anew.
func (w *Writer) load() {
	w.drafts = map[string]Draft{}
	s := stored{broken: w.deps.Broken}
	if w.usable() {
		drafts, err := w.draftStore().All()
		if err != nil {
			w.log.Error("read drafts", "err", err) // the readable ones are there
		}
		s = w.readRevisions()
		for account, d := range drafts {
			d.Changes = slices.DeleteFunc(d.Changes, func(e Entry) bool { return s.applied[e.ID] })
			w.drafts[account] = d
		}
	}
	// Only the newest that can be read: a store made anew counts from 1 again, so
	// a larger number further back may be older.
	snap, config, saved := w.snapshot(func(Revision) bool { return true })
	saved = saved && (!s.found || snap.Revision.Number > s.base.rev.Number)
	switch {
	case s.broken == nil && !s.found && saved && snap.Revision.Number > 0:
		s.broken = errors.New("the revisions are gone")
	case s.broken == nil && !s.found:
		s.base, s.found = factory(), true
	}
	if s.broken != nil {
		w.status.SafeMode = s.broken.Error()
		if saved {
			s.base, s.found = runs{snap.Revision, config}, true
		}
	}
	w.revs, w.head, w.config = s.revs, s.base.rev, s.base.config
	if !s.found {
		w.status.Lockdown = true
		w.config = firewall.Config{Schema: firewall.Schema}
	}
	w.loose, w.late = s.pending, s.late
}

func (w *Writer) usable() bool { return w.revisions() != nil && w.draftStore() != nil }

func (w *Writer) revisions() Revisions {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deps.Revisions
}

func (w *Writer) draftStore() Drafts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deps.Drafts
}

// readRevisions goes back from the newest revision to the last confirmed one
// that can be read. A record that cannot be read may have been that one: what
// is older is then run, and told to be old. Damage behind it is only shown.
func (w *Writer) readRevisions() stored {
	s := stored{applied: map[firewall.ID]bool{}}
	err := w.revisions().Range(func(n uint64, rec Record, err error) bool {
		rec.Number = n
		if err == nil && rec.State == Confirmed && !s.found {
			var c firewall.Config
			if c, err = unpack(rec.Doc); err == nil {
				s.base, s.found = runs{rec.Revision, c}, true
			}
		}
		if err != nil {
			rec.Damaged = err.Error()
			w.log.Error("revision is damaged", "revision", n, "err", err)
			if !s.found && s.broken == nil {
				s.broken = fmt.Errorf("revision %d cannot be read: %w", n, err)
			}
		}
		switch {
		case err != nil || rec.State != Pending:
		case !s.found:
			s.pending = append([]Record{rec}, s.pending...)
		default: // the crash came between two marks
			rec.State = Reverted
			if slices.Contains(s.base.rev.Stack, n) {
				rec.State = Confirmed
			}
			s.late = append(s.late, rec)
		}
		if err == nil && rec.State == Confirmed {
			for _, e := range rec.Changes {
				s.applied[e.ID] = true
			}
		}
		s.revs = append(s.revs, rec.Revision)
		return true
	})
	if err != nil && s.broken == nil {
		s.broken = fmt.Errorf("read revisions: %w", err)
	}
	return s
}

// Unconfirmed is what may have run when the program ended without a confirm,
// oldest first: Boot takes it back. Empty after Boot.
func (w *Writer) Unconfirmed() (list []firewall.Config) {
	for _, rec := range w.loose {
		if c, err := unpack(rec.Doc); err == nil {
			list = append(list, c)
		}
	}
	return list
}

// Boot brings what should run into the kernel: the last confirmed revision, or
// in SAFE MODE the newest that verifies, or nothing at all. When the kernel has
// exactly that already, nothing is reloaded and traffic never stops; else
// nothing passes until it is verified. A revision that nobody had confirmed
// becomes the draft of its account. An error says that not even the lockdown
// could be loaded; forwarding is off then.
func (w *Writer) Boot(ctx context.Context) error {
	if err := w.turn.take(ctx); err != nil {
		return err
	}
	defer w.turn.release()
	if err := w.bootKernel(ctx); err != nil {
		return err
	}
	for _, rec := range w.loose {
		reason := fmt.Sprintf("Revision %d was taken back: the box restarted before it was confirmed.", rec.Number)
		w.giveBack(rec.Who.Account, []Record{rec}, reason)
		rec.State, rec.Reason = Reverted, reason
		w.mark(rec)
	}
	for _, rec := range w.late {
		w.mark(rec)
	}
	w.loose, w.late = nil, nil
	if w.Status().Lockdown {
		return nil
	}
	config, _ := w.Running()
	problems := w.converge(ctx, config)
	w.mu.Lock()
	w.status.Problems = problems
	w.mu.Unlock()
	return nil
}

func (w *Writer) bootKernel(ctx context.Context) error {
	config, rev := w.Running()
	if w.Status().Lockdown {
		w.forwarding(ctx, false)
		return w.lockdownRules(ctx)
	}
	rules := compile.Compile(config)
	stamp, err := w.deps.Kernel.Stamp(ctx)
	if err == nil && stamp == rules.Stamp && w.deps.Kernel.Verify(ctx, rules) == nil {
		w.forwarding(ctx, true)
		return nil
	}
	w.forwarding(ctx, false)
	if err := w.lockdownRules(ctx); err != nil {
		return err
	}
	if err := w.install(ctx, rules); err != nil {
		w.lockdown(ctx, fmt.Sprintf("revision %d could not be verified in the kernel: %v", rev.Number, err))
		return nil
	}
	w.forwarding(ctx, true)
	return nil
}

func (w *Writer) lockdownRules(ctx context.Context) error {
	if err := w.install(ctx, compile.Lockdown()); err != nil {
		return fmt.Errorf("load the lockdown rules: %w", err)
	}
	return nil
}

// forwarding turns the box's switch. Where it is read-only that is told and not
// fatal: the rules decide all the same.
func (w *Writer) forwarding(ctx context.Context, on bool) {
	if err := w.deps.Forwarding(ctx, on); err != nil {
		w.log.Warn("switch forwarding", "on", on, "err", err)
	}
}

// Foreign is to be called when somebody else changed or removed our rules in
// the kernel: forwarding goes off before anything is waited for, the rules come
// back and are verified, forwarding goes on again.
func (w *Writer) Foreign(ctx context.Context) error {
	w.forwarding(ctx, false)
	if err := w.turn.take(ctx); err != nil {
		return err
	}
	defer w.turn.release()
	if w.Status().Lockdown {
		return w.lockdownRules(ctx)
	}
	config, rev := w.Running()
	rules := compile.Compile(config)
	err := w.install(ctx, rules)
	if err != nil {
		err = w.install(ctx, rules) // whoever disturbed it may have done so once more
	}
	if err != nil {
		w.lockdown(ctx, fmt.Sprintf("revision %d could not be put back after a foreign change: %v", rev.Number, err))
		return err
	}
	// What got in while the rules were gone must not stay as a known connection.
	if err := w.deps.Cutter.Cut(ctx, config); err != nil {
		w.log.Error("cut connections after a foreign change", "err", err)
	}
	w.forwarding(ctx, true)
	w.mu.Lock()
	w.status.Healed++
	w.status.HealedAt = time.Now()
	w.mu.Unlock()
	w.log.Warn("foreign change of the kernel's rules was put right", "revision", rev.Number)
	w.publish("healed", "", "", "Somebody else changed the firewall's rules in the kernel; they were put back.")
	return nil
}

// Restore is the way out of SAFE MODE: revision n, from the store or from a
// snapshot, becomes the newest revision, confirmed, and runs. A store that
// could not be read is set aside and made anew, with the accounts of the
// newest snapshot. Outside SAFE MODE use RestoreAsDraft. Errors: ErrNoRevision,
// *RefusedError.
func (w *Writer) Restore(ctx context.Context, who Who, n uint64) error {
	if err := w.turn.take(ctx); err != nil {
		return err
	}
	defer w.turn.release()
	ctx = context.WithoutCancel(ctx)
	if w.Status().SafeMode == "" {
		return errors.New("restore is for SAFE MODE; restore the revision as a draft instead")
	}
	_, config, err := w.Revision(n)
	if err != nil {
		return err
	}
	rules := compile.Compile(config)
	if err := refused(w.deps.Kernel.DryRun(ctx, rules)); err != nil {
		return err
	}
	if err := w.renew(ctx); err != nil {
		return err
	}
	rec := Record{Revision: Revision{Time: time.Now(), Who: who, Sentence: fmt.Sprintf("Restore revision %d", n), State: Pending}}
	if rec.Doc, err = pack(config); err != nil {
		return err
	}
	if rec.Number, err = w.revisions().Append(rec); err != nil {
		return fmt.Errorf("append revision: %w", err)
	}
	if err := w.install(ctx, rules); err != nil {
		w.lockdown(ctx, err.Error())
		return refused(err)
	}
	rec.State = Confirmed
	if err := w.write(rec); err != nil {
		return err
	}
	w.mu.Lock()
	w.head, w.config, w.status = rec.Revision, config, Status{Healed: w.status.Healed, HealedAt: w.status.HealedAt}
	w.mu.Unlock()
	w.show(rec.Revision)
	w.forwarding(ctx, true)
	problems := w.converge(ctx, config)
	w.mu.Lock()
	w.status.Problems = problems
	w.mu.Unlock()
	w.Snapshot()
	w.publish("safemode", "", who.Account, "")
	return nil
}

// renew opens a new store when there is none that can be used.
func (w *Writer) renew(ctx context.Context) error {
	if w.usable() {
		return nil
	}
	newest, _, _ := w.snapshot(func(Revision) bool { return true })
	revs, drafts, err := w.deps.Reopen(ctx, newest.Extra)
	if err != nil {
		return fmt.Errorf("make a new store: %w", err)
	}
	w.mu.Lock()
	w.deps.Revisions, w.deps.Drafts, w.deps.Broken = revs, drafts, nil
	w.mu.Unlock()
	return nil
}

// write puts a revision's new state on disk. After an error the disk decides:
// the write may have reached it.
func (w *Writer) write(rec Record) error {
	err := w.revisions().Update(rec.Number, rec)
	if err == nil {
		return nil
	}
	if now, ok, e := w.revisions().Get(rec.Number); e == nil && ok && now.State == rec.State {
		return nil
	}
	return fmt.Errorf("mark revision %d as %s: %w", rec.Number, rec.State, err)
}
