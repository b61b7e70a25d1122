package commit

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
)

// How long a revision waits for its confirm.
const (
	shortWait = 60 * time.Second
	longWait  = 180 * time.Second // when the address that the person uses changes
)

// Plan is what an Apply would do.
type Plan struct {
	Words    []Word            // object by object
	Sentence string            // of the revision
	Diff     string            // the compiled ruleset, unified
	Added    int               // lines of it
	Removed  int               // lines of it
	Warnings firewall.Problems // valid, yet perhaps not meant
	Refused  error             // what the kernel says to it; nil = it would take it
	Risk     Risk
	Reaches  bool   // whether the pages would still answer this person
	Why      string // not
	Reviewed string // hand to Apply, so that exactly this is applied
}

// Risk says how an Apply must be confirmed.
type Risk struct {
	Human bool          // by a click; else any new connection of the account will do
	Wait  time.Duration // until it is taken back
	Why   []string      // what makes a click necessary
}

// candidate is a draft that is ready to be applied.
type candidate struct {
	account  string
	entries  []Entry
	head     Revision
	old, new firewall.Config
	rules    ruleset.Ruleset
	reviewed string
}

// prepare replays the account's draft on what runs. Errors: ErrNothing,
// *StaleError, firewall.Problems.
func (w *Writer) prepare(account string) (candidate, error) {
	d, old, head, r := w.look(account)
	if len(d.Changes) == 0 {
		return candidate{}, ErrNothing
	}
	if len(r.misfits) > 0 {
		return candidate{}, w.stale(d.Changes, old, r.misfits[0])
	}
	if err := r.problems.Or(); err != nil {
		return candidate{}, err
	}
	rules := compile.Compile(r.config)
	return candidate{account, d.Changes, head, old, r.config, rules, old.Stamp()[:16] + r.config.Stamp()[:16]}, nil
}

// stale tells of the first change that does not fit, with the object as the
// person has it and as it runs.
func (w *Writer) stale(entries []Entry, head firewall.Config, m misfit) error {
	ref := entries[m.at].Change.Ref()
	return &StaleError{Ref: ref, Yours: forced(head, entries[:m.at+1]), Theirs: head, Why: m.why}
}

// forced puts changes on head whoever else has changed their objects meanwhile.
func forced(head firewall.Config, entries []Entry) firewall.Config {
	for _, e := range entries {
		if next, err := e.Change.Apply(head); err == nil {
			head = next
		}
	}
	return head
}

// sides is an object as it runs and as changes would have it, in words.
func sides(head firewall.Config, entries []Entry, ref firewall.Ref) (theirs, yours string) {
	return index(objects(head))[ref], index(objects(forced(head, entries)))[ref]
}

// Plan says what Apply would do, after asking the kernel. Errors: ErrNothing,
// *StaleError, firewall.Problems, *SafeModeError, *TestingError.
func (w *Writer) Plan(ctx context.Context, who Who) (Plan, error) {
	if err := w.refuseSafe(); err != nil {
		return Plan{}, err
	}
	if err := w.refuseTrial(who.Account); err != nil {
		return Plan{}, err
	}
	c, err := w.prepare(who.Account)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Words: words(c.old, c.new), Sentence: sentence(c.entries), Warnings: c.new.Warnings(), Risk: risk(c.old, c.new, who), Reviewed: c.reviewed}
	p.Diff, p.Added, p.Removed = textDiff(compile.Compile(c.old).String(), c.rules.String())
	p.Reaches, p.Why = w.deps.Reaches(c.new, who)
	if err := w.turn.take(ctx); err != nil {
		return Plan{}, err
	}
	defer w.turn.release()
	p.Refused = refused(w.deps.Kernel.DryRun(ctx, c.rules))
	return p, nil
}

// refused names the object when the kernel's error knows it.
func refused(err error) error {
	if err == nil {
		return nil
	}
	var named interface{ Origin() ruleset.Origin }
	r := &RefusedError{Err: err}
	if errors.As(err, &named) {
		r.Origin = string(named.Origin())
	}
	return r
}

// sentence sums up the changes: the first, and how many more.
func sentence(entries []Entry) string {
	var all []string
	for _, e := range entries {
		if s := e.Change.String(); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	switch len(all) {
	case 0:
		return ""
	case 1:
		return all[0]
	case 2:
		return all[0] + "; " + all[1]
	}
	return all[0] + "; " + all[1] + " and " + number(len(all)-2) + " more"
}

// risk compares what the pages are reached by. A change of it needs a click
// from a person who has seen the pages there (ui.md 1.4).
func risk(old, new firewall.Config, who Who) Risk {
	r := Risk{Wait: shortWait}
	if old.Admin.HTTPS != new.Admin.HTTPS {
		r.Human, r.Wait = true, longWait
		r.Why = append(r.Why, "The web page's port changes.")
	}
	for _, name := range names(old, new) {
		a, _ := old.Interface(name)
		b, _ := new.Interface(name)
		if a.Role != firewall.LAN && b.Role != firewall.LAN {
			continue
		}
		if moved(a, b) {
			r.Human = true
			r.Why = append(r.Why, "The local interface "+string(name)+" changes.")
			if inUse(a, who.Addr) {
				r.Wait = longWait
			}
		}
		sa, hadA := old.Scope(name)
		sb, hasB := new.Scope(name)
		sa.Statics, sb.Statics = nil, nil // one client's mapping moves nobody else
		if hadA != hasB || !reflect.DeepEqual(sa, sb) {
			r.Human = true
			r.Why = append(r.Why, "DHCP on "+string(name)+" changes.")
			if inUse(a, who.Addr) {
				r.Wait = longWait
			}
		}
	}
	return r
}

// moved reports whether somebody on the interface could lose the pages. A
// switch for private or bogon sources counts, since it drops packets.
func moved(a, b firewall.Interface) bool { return !reflect.DeepEqual(a, b) }

// inUse reports whether the person comes in by this interface. Who cannot be
// placed (behind a router, on the console) is taken to use all of them.
func inUse(i firewall.Interface, from netip.Addr) bool {
	if !from.IsValid() || !i.V4.Addr.IsValid() && !i.V6.Addr.IsValid() {
		return true
	}
	from = from.Unmap()
	return i.V4.Addr.IsValid() && i.V4.Addr.Masked().Contains(from) || i.V6.Addr.IsValid() && i.V6.Addr.Masked().Contains(from)
}

func names(a, b firewall.Config) []firewall.Name {
	var list []firewall.Name
	for _, c := range []firewall.Config{a, b} {
		for _, i := range c.Interfaces {
			if !slices.Contains(list, i.Name) {
				list = append(list, i.Name)
			}
		}
	}
	return list
}
