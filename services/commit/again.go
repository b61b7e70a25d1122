package commit

import (
	"context"

	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
)

// Again puts what runs into the kernel and the services once more: for the box
// as delivered, whose rules follow its ports. Errors: what the kernel said.
func (w *Writer) Again(ctx context.Context) error {
	if err := w.turn.take(ctx); err != nil {
		return err
	}
	defer w.turn.release()
	if w.Status().Lockdown {
		return nil
	}
	config, _ := w.Running()
	if err := w.install(ctx, compile.Compile(config)); err != nil {
		return err
	}
	problems := w.converge(ctx, config)
	w.mu.Lock()
	w.status.Problems = problems
	w.mu.Unlock()
	return nil
}

// InLockdown calls f when nothing passes because of a lockdown, and else does
// nothing. f has the turn: what it does to the kernel cannot meet an Apply or a
// Restore half way. The error is ctx's.
func (w *Writer) InLockdown(ctx context.Context, f func(context.Context)) error {
	if err := w.turn.take(ctx); err != nil {
		return err
	}
	defer w.turn.release()
	if w.Status().Lockdown {
		f(ctx)
	}
	return nil
}

// WithRules calls f with the rules that should be in the kernel, and does nothing
// in a lockdown. f has the turn: what it does to the kernel cannot meet an Apply
// or a Restore half way. The error is f's, or ctx's.
func (w *Writer) WithRules(ctx context.Context, f func(context.Context, ruleset.Ruleset) error) error {
	if err := w.turn.take(ctx); err != nil {
		return err
	}
	defer w.turn.release()
	if w.Status().Lockdown {
		return nil
	}
	config, _ := w.Running()
	return f(ctx, compile.Compile(config))
}

// Check reads the rules back and, where they are not those that should run,
// does what Foreign does: for changes that nobody was there to hear of.
func (w *Writer) Check(ctx context.Context) error {
	if err := w.turn.take(ctx); err != nil {
		return err
	}
	config, _ := w.Running()
	var wrong error
	if !w.Status().Lockdown {
		wrong = w.deps.Kernel.Verify(ctx, compile.Compile(config))
	}
	w.turn.release()
	if wrong == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	w.log.Warn("the rules in the kernel are not ours", "err", wrong)
	return w.Foreign(ctx)
}

// Undecided is the revision that waits for its confirm (trial), or was confirmed
// without a click and can still be taken back; "" and 0 when there is none. The
// console decides about it whoever's it is.
func (w *Writer) Undecided() (account string, revision uint64, trial bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.trial; t != nil {
		return t.Account, t.Revision, true
	}
	if u := w.undo; u != nil && u.shown(u.account, w.head.Number) != nil {
		return u.account, u.Revision, false
	}
	return "", 0, false
}
