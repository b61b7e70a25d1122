package commit

import (
	"context"
	"crypto/subtle"
	"fmt"
	"slices"
	"time"

	"gatehouse/firewall"
)

const (
	settling   = 2 * time.Second // a connection younger than this after the apply may have shaken hands before it
	extension  = 60 * time.Second
	extensions = 3
	undoTime   = 10 * time.Minute // after an auto-confirm
)

// Trial is a revision that waits for its confirm.
type Trial struct {
	Revision uint64
	Account  string
	Mine     bool // the viewer's
	Human    bool // a click is needed
	Deadline time.Time
	Extends  int      // how often it can still be extended
	Problems []string // services that could not follow
}

// Undo is a revision that was confirmed without a click and can be taken back.
type Undo struct {
	Revision uint64
	Until    time.Time
}

// runs is a configuration and its revision.
type runs struct {
	rev    Revision
	config firewall.Config
}

type trial struct {
	Trial
	target   uint64
	before   runs // what target is: it comes back
	wait     time.Duration
	applied  time.Time
	extended int
	token    string
	records  []Record // this revision, after those it is stacked on
	timer    *time.Timer
}

type undo struct {
	Undo
	account string
	before  runs
	records []Record
}

func (t *trial) shown(account string) *Trial {
	if t == nil {
		return nil
	}
	s := t.Trial
	s.Mine = t.Account == account
	s.Extends = extensions - t.extended
	return &s
}

func (u *undo) shown(account string, head uint64) *Undo {
	if u == nil || u.account != account || u.Revision != head || !time.Now().Before(u.Until) {
		return nil
	}
	s := u.Undo
	return &s
}

// refuseTrial is the error for everyone but the one who is testing.
func (w *Writer) refuseTrial(account string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.trial; t != nil && t.Account != account {
		return &TestingError{t.Account, t.Revision, max(0, time.Until(t.Deadline))}
	}
	return nil
}

// claim finds the trial that this person may decide about: by account, or by token.
func (w *Writer) claim(account, token string) (*trial, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.trial
	if t == nil {
		return nil, ErrNoTrial
	}
	if account != t.Account && subtle.ConstantTimeCompare([]byte(token), []byte(t.token)) != 1 {
		return nil, &TestingError{t.Account, t.Revision, max(0, time.Until(t.Deadline))}
	}
	return t, nil
}

// Confirm keeps the revision that is being tested: the click. It counts for the
// account that applied it or with the token of the apply, on a connection that
// was accepted 2 s after the apply or later, before the deadline. Errors:
// ErrNoTrial, ErrConnection, ErrTooLate, *TestingError.
func (w *Writer) Confirm(ctx context.Context, who Who, token string, accepted time.Time) error {
	return w.confirm(ctx, who, token, accepted, false)
}

// Seen tells that the account has come by a connection accepted then: this
// confirms a revision that needs no click. It reports whether it did. Pages
// call it while they poll, other network doors with every request. A connection
// on the local socket proves nothing about the network: it needs Confirm.
func (w *Writer) Seen(ctx context.Context, who Who, token string, accepted time.Time) (bool, error) {
	w.mu.Lock()
	t := w.trial
	ripe := t != nil && !t.Human && !accepted.Before(t.applied.Add(settling))
	w.mu.Unlock()
	if !ripe {
		return false, nil
	}
	err := w.confirm(ctx, who, token, accepted, true)
	return err == nil, err
}

func (w *Writer) confirm(ctx context.Context, who Who, token string, accepted time.Time, auto bool) error {
	if err := w.turn.take(ctx); err != nil {
		return err
	}
	defer w.turn.release()
	t, err := w.claim(who.Account, token)
	if err != nil {
		return err
	}
	w.mu.Lock()
	early, late, human := accepted.Before(t.applied.Add(settling)), !time.Now().Before(t.Deadline), t.Human
	w.mu.Unlock()
	switch {
	case late:
		return ErrTooLate
	case early, auto && human:
		return ErrConnection
	}
	rec := t.records[len(t.records)-1]
	rec.State, rec.Auto = Confirmed, auto
	if err := w.write(rec); err != nil {
		return err
	}
	w.keep(t, rec)
	return nil
}

// keep shows a revision as confirmed, after the disk has it so.
func (w *Writer) keep(t *trial, rec Record) {
	w.mu.Lock()
	t.timer.Stop()
	w.trial = nil
	if rec.Auto {
		w.undo = &undo{Undo{rec.Number, time.Now().Add(undoTime)}, t.Account, t.before, slices.Clone(t.records)}
		w.undo.records[len(t.records)-1] = rec
	}
	w.mu.Unlock()
	w.show(rec.Revision)
	for _, under := range t.records[:len(t.records)-1] { // part of what is confirmed
		under.State, under.Auto = Confirmed, rec.Auto
		w.mark(under)
	}
	w.Snapshot()
	w.trim()
	w.publish("revision", "revision/"+fmt.Sprint(rec.Number), t.Account, "Revision "+fmt.Sprint(rec.Number)+" is kept.")
}

// Extend gives the test 60 s more, three times at most. Errors: ErrNoTrial,
// ErrExtended, *TestingError.
func (w *Writer) Extend(ctx context.Context, who Who, token string) (time.Time, error) {
	if err := w.turn.take(ctx); err != nil {
		return time.Time{}, err
	}
	defer w.turn.release()
	t, err := w.claim(who.Account, token)
	if err != nil {
		return time.Time{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !time.Now().Before(t.Deadline) {
		return time.Time{}, ErrTooLate
	}
	if t.extended == extensions {
		return time.Time{}, ErrExtended
	}
	t.extended++
	t.Deadline = t.Deadline.Add(extension)
	t.timer.Reset(time.Until(t.Deadline))
	return t.Deadline, nil
}

// expire takes back what nobody confirmed. Whoever has the turn first wins:
// a confirm leaves no trial, and after the deadline none is accepted.
func (w *Writer) expire(t *trial) {
	ctx := context.Background()
	if w.turn.take(ctx) != nil {
		return
	}
	defer w.turn.release()
	w.mu.Lock()
	mine := w.trial == t && !time.Now().Before(t.Deadline)
	w.mu.Unlock()
	if mine {
		w.revert(ctx, t.Account, t.before, t.records, fmt.Sprintf("Revision %d was taken back: nobody confirmed it in time.", t.Revision))
	}
}

// Undo takes back the revision that is being tested, or one that was confirmed
// without a click up to 10 minutes ago. Errors: ErrNoUndo, *TestingError, *SafeModeError.
func (w *Writer) Undo(ctx context.Context, who Who, token string) error {
	if err := w.turn.take(ctx); err != nil {
		return err
	}
	defer w.turn.release()
	if err := w.refuseSafe(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	w.mu.Lock()
	u, head, testing := w.undo, w.head.Number, w.trial != nil
	w.mu.Unlock()
	if testing {
		t, err := w.claim(who.Account, token)
		if err != nil {
			return err
		}
		w.revert(ctx, t.Account, t.before, t.records, fmt.Sprintf("Revision %d was taken back by %s.", t.Revision, who.Account))
		return nil
	}
	if u.shown(who.Account, head) == nil {
		return ErrNoUndo
	}
	reason := fmt.Sprintf("Revision %d was taken back by %s.", u.Revision, who.Account)
	// It is what the box boots: the disk must say otherwise before the kernel does,
	// and have the changes in the draft before that.
	w.giveBack(u.account, u.records, reason)
	// The newest first, so that a crash in between boots what ran just before.
	for _, rec := range slices.Backward(u.records) {
		rec.State, rec.Reason = Reverted, reason
		if err := w.write(rec); err != nil {
			for _, rec := range u.records {
				w.take(u.account, rec.Changes)
			}
			return err
		}
	}
	w.revert(ctx, u.account, u.before, u.records, reason)
	return nil
}

// revert brings everything of before back and makes the changes the account's
// draft again. The kernel comes first: it must happen even when the disk is full.
func (w *Writer) revert(ctx context.Context, account string, before runs, records []Record, reason string) {
	w.log.Warn("revision taken back", "revision", records[len(records)-1].Number, "to", before.rev.Number, "reason", reason)
	err := w.install(ctx, compiled(before.config))
	w.mu.Lock()
	if w.trial != nil {
		w.trial.timer.Stop()
	}
	w.trial, w.undo = nil, nil
	w.head, w.config = before.rev, before.config
	w.mu.Unlock()
	if err != nil {
		w.lockdown(ctx, fmt.Sprintf("revision %d could not be verified in the kernel: %v", before.rev.Number, err))
	}
	problems := w.converge(ctx, before.config)
	w.mu.Lock()
	w.status.Problems = problems
	w.mu.Unlock()
	w.giveBack(account, records, reason)
	for _, rec := range records {
		rec.State, rec.Reason = Reverted, reason
		w.mark(rec)
	}
	w.publish("revision", "revision/"+fmt.Sprint(before.rev.Number), account, reason)
}

// giveBack puts the changes of revisions before what is in the draft now. One
// that is there already (a crash before it was taken out) is not doubled.
func (w *Writer) giveBack(account string, records []Record, reason string) {
	w.edits.Lock()
	defer w.edits.Unlock()
	w.mu.Lock()
	now := w.drafts[account].Changes
	w.mu.Unlock()
	there := map[firewall.ID]bool{}
	for _, e := range now {
		there[e.ID] = true
	}
	var back []Entry
	for _, rec := range records {
		for _, e := range rec.Changes {
			if !there[e.ID] {
				back = append(back, e)
				there[e.ID] = true
			}
		}
	}
	d := Draft{append(back, now...), reason}
	if err := w.keepDraft(account, d); err != nil {
		w.log.Error("give changes back to the draft", "account", account, "err", err)
		w.mu.Lock()
		w.drafts[account] = d // shown; on disk the revision still has them
		w.mu.Unlock()
	}
}
