package commit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
)

// Options of an Apply.
type Options struct {
	Reviewed string // Plan.Reviewed: apply exactly that or ErrReviewed; "" = whatever the draft is
}

// Applied says what an Apply has done.
type Applied struct {
	Revision uint64
	Token    string    // confirms once, without a login, from any address
	Deadline time.Time // then it is taken back
	Human    bool      // a click is needed; else any new connection of the account will do
	Problems []string  // services that could not follow yet; they go on trying
}

func number(n int) string { return strconv.Itoa(n) }

// Apply makes the account's draft the next revision: dry run, on disk as
// pending, into the kernel whole, read back, services told, timer started
// (design 4, steps 4 to 12). Nothing has changed when an error is returned,
// but for a *RefusedError after the dry run, which says what runs. Errors:
// ErrNothing, ErrReviewed, *StaleError, firewall.Problems, *RefusedError,
// *TestingError, *SafeModeError.
func (w *Writer) Apply(ctx context.Context, who Who, o Options) (Applied, error) {
	if err := w.turn.take(ctx); err != nil {
		return Applied{}, err
	}
	defer w.turn.release()
	if err := w.refuseSafe(); err != nil {
		return Applied{}, err
	}
	if err := w.refuseTrial(who.Account); err != nil {
		return Applied{}, err
	}
	c, err := w.prepare(who.Account)
	if err != nil {
		return Applied{}, err
	}
	if o.Reviewed != "" && o.Reviewed != c.reviewed {
		return Applied{}, ErrReviewed
	}
	if err := refused(w.deps.Kernel.DryRun(ctx, c.rules)); err != nil {
		return Applied{}, err
	}
	// From here on a browser that goes away must not stop it half way.
	ctx = context.WithoutCancel(ctx)
	rec, r, err := w.appendPending(who, c)
	if err != nil {
		return Applied{}, err
	}
	if err := w.install(ctx, c.rules); err != nil {
		return Applied{}, w.fallBack(ctx, rec, c.old, err)
	}
	t := w.begin(rec, c, r)
	problems := w.converge(ctx, c.new)
	w.settle(t, problems)
	w.publish("revision", "revision/"+strconv.FormatUint(t.Revision, 10), who.Account, rec.Sentence)
	return Applied{t.Revision, t.token, t.Deadline, t.Human, problems}, nil
}

// appendPending writes the revision to disk, pending: a crash from now on boots
// the last confirmed one. After an error the record may be there all the same;
// Boot then gives its changes back to the draft, where they still are.
func (w *Writer) appendPending(who Who, c candidate) (Record, Risk, error) {
	doc, err := pack(c.new)
	if err != nil {
		return Record{}, Risk{}, err
	}
	r := risk(c.old, c.new, who)
	w.mu.Lock()
	target, stack := c.head.Number, []uint64(nil)
	if w.trial != nil { // stacked: back to the last confirmed one, and no easier than before
		target = w.trial.target
		for _, under := range w.trial.records {
			stack = append(stack, under.Number)
		}
		r.Human, r.Wait = r.Human || w.trial.Human, max(r.Wait, w.trial.wait)
	}
	w.mu.Unlock()
	rec := Record{Changes: c.entries, Doc: doc, Revision: Revision{Time: time.Now(), Who: who, Sentence: sentence(c.entries),
		State: Pending, Deadline: time.Now().Add(r.Wait), Target: target, Stack: stack}}
	_, rec.Added, rec.Removed = textDiff(compile.Compile(c.old).String(), c.rules.String())
	n, err := w.revisions().Append(rec)
	if err != nil {
		return Record{}, Risk{}, fmt.Errorf("append revision: %w", err)
	}
	rec.Number = n
	return rec, r, nil
}

// install puts rules into the kernel and reads them back. Only what Verify
// says counts: an error of Apply may be wrong (kernel fact 2).
func (w *Writer) install(ctx context.Context, rules ruleset.Ruleset) error {
	applied := w.deps.Kernel.Apply(ctx, rules)
	verified := w.deps.Kernel.Verify(ctx, rules)
	if verified == nil && applied != nil {
		w.log.Warn("kernel reported an error for rules that are in place", "err", applied)
	}
	if verified == nil {
		return nil
	}
	return errors.Join(applied, verified)
}

// fallBack brings back what ran before a revision that the kernel did not take.
func (w *Writer) fallBack(ctx context.Context, rec Record, old firewall.Config, cause error) error {
	rec.State, rec.Reason = Reverted, "the kernel did not take it"
	w.log.Error("revision was not taken by the kernel", "revision", rec.Number, "err", cause)
	if err := w.install(ctx, compile.Compile(old)); err != nil {
		w.lockdown(ctx, fmt.Sprintf("neither revision %d nor the one before it could be verified in the kernel: %v", rec.Number, err))
	}
	w.mark(rec)
	w.publish("revision", "revision/"+strconv.FormatUint(rec.Number, 10), rec.Who.Account, rec.Reason)
	return refused(cause)
}

// lockdown lets nothing pass, whatever else is broken.
func (w *Writer) lockdown(ctx context.Context, why string) {
	if err := w.deps.Forwarding(ctx, false); err != nil {
		w.log.Error("switch forwarding off", "err", err)
	}
	if err := w.install(ctx, compile.Lockdown()); err != nil {
		w.log.Error("load the lockdown rules", "err", err)
	}
	w.log.Error("lockdown", "why", why)
	w.mu.Lock()
	w.status.Lockdown = true
	if w.status.SafeMode == "" {
		w.status.SafeMode = why
	}
	if w.trial != nil {
		w.trial.timer.Stop()
		w.trial = nil // still pending on disk: the next Boot gives it back to the draft
	}
	w.mu.Unlock()
	w.publish("safemode", "", "", why)
}

// begin shows the new revision as what runs, waiting for its confirm, and takes
// its changes out of the draft.
func (w *Writer) begin(rec Record, c candidate, r Risk) *trial {
	t := &trial{Trial: Trial{Revision: rec.Number, Account: c.account, Human: r.Human, Deadline: rec.Deadline},
		target: rec.Target, wait: r.Wait, applied: time.Now(), token: rand.Text(), records: []Record{rec}}
	w.mu.Lock()
	if w.trial != nil {
		w.trial.timer.Stop()
		t.records = append(slices.Clone(w.trial.records), rec)
		t.before = w.trial.before
	} else {
		t.before = runs{w.head, w.config}
	}
	w.trial, w.undo = t, nil
	w.head, w.config = rec.Revision, c.new
	w.revs = append([]Revision{rec.Revision}, w.revs...)
	t.timer = time.AfterFunc(r.Wait, func() { w.expire(t) })
	w.mu.Unlock()
	w.take(c.account, c.entries)
	return t
}

// take removes applied changes from the draft; what was saved meanwhile stays.
// If the disk refuses, the draft keeps them and Boot tells them by their ids.
func (w *Writer) take(account string, entries []Entry) {
	gone := map[firewall.ID]bool{}
	for _, e := range entries {
		gone[e.ID] = true
	}
	w.edits.Lock()
	defer w.edits.Unlock()
	w.mu.Lock()
	left := slices.DeleteFunc(slices.Clone(w.drafts[account].Changes), func(e Entry) bool { return gone[e.ID] })
	w.mu.Unlock()
	if err := w.keepDraft(account, Draft{Changes: left}); err != nil {
		w.log.Error("take applied changes out of the draft", "account", account, "err", err)
		w.mu.Lock()
		w.drafts[account] = Draft{Changes: left}
		w.mu.Unlock()
	}
}

// converge cuts what the configuration denies and tells the services. They go
// on trying by themselves: a failure is shown and is not a lost revision.
func (w *Writer) converge(ctx context.Context, c firewall.Config) []string {
	var problems []string
	if err := w.deps.Cutter.Cut(ctx, c); err != nil {
		problems = append(problems, fmt.Sprintf("connections: %v", err))
	}
	for _, s := range w.deps.Services {
		if err := s.Reload(ctx, c); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", s.Name(), err))
		}
	}
	for _, p := range problems {
		w.log.Warn("service did not follow the configuration", "problem", p)
	}
	return problems
}

// settle starts the clock once the services have followed: a slow one must not
// eat the person's time.
func (w *Writer) settle(t *trial, problems []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Problems = problems
	t.Human = t.Human || len(problems) > 0
	t.Problems = problems
	t.applied = time.Now()
	t.Deadline = t.applied.Add(t.wait)
	t.timer.Reset(t.wait)
}

// mark writes the new state of a revision and shows it. An error is logged
// only: a revision that is still pending on disk is not what the box boots.
func (w *Writer) mark(rec Record) {
	if err := w.revisions().Update(rec.Number, rec); err != nil {
		w.log.Error("mark revision", "revision", rec.Number, "state", rec.State, "err", err)
	}
	w.show(rec.Revision)
}

// show puts a revision into the list, in place of what was shown for its number.
func (w *Writer) show(r Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	revs := slices.Clone(w.revs)
	if i := slices.IndexFunc(revs, func(o Revision) bool { return o.Number == r.Number }); i >= 0 {
		revs[i] = r
	} else {
		revs = append([]Revision{r}, revs...)
	}
	w.revs = revs
	if w.head.Number == r.Number {
		w.head = r
	}
}
