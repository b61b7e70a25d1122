package commit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gatehouse/firewall"
)

// maxCoalesced is up to how many objects of one Save are looked at for changes
// that cancel out.
const maxCoalesced = 8

// AnyHash in place of an object's hash says that the caller does not mind what it was.
const AnyHash = "*"

// Item is one saved change, as the bar lists it.
type Item struct {
	Ref      firewall.Ref
	Sentence string
	Time     time.Time
	Door     string
	Misfit   string // why it does not fit what runs now; "" = it fits
	Theirs   string // with Misfit: the object as it runs; "" = it is gone
	Yours    string // with Misfit: the object as the change would have it; "" = gone
}

// View is the configuration as one account sees it.
type View struct {
	Config   firewall.Config   // with the draft; what runs when the draft does not fit
	Head     firewall.Config   // what runs
	Revision Revision          // of what runs
	Items    []Item            // the draft, oldest first
	Objects  int               // how many objects it touches: the number in the bar
	Fits     bool              // false: Apply is off, Items say which do not fit
	Problems firewall.Problems // the draft with what runs now is not valid: Apply is off
	Reason   string            // why changes came back into the draft
	Trial    *Trial            // a revision that waits for its confirm, whoever's
	Undo     *Undo             // what this account can still take back
	SafeMode string
}

// cached is a replay and what it was made of.
type cached struct {
	head    uint64
	entries []Entry // the very slice of the draft: drafts are replaced, never edited
	replayed
}

type replayed struct {
	config   firewall.Config
	misfits  []misfit
	problems firewall.Problems
}

type misfit struct {
	at    int
	stale bool // someone else changed the object
	why   string
}

// replay puts the changes on head in their order. One that does not fit is
// left out, and every later one about the same object with it.
func replay(head firewall.Config, entries []Entry) replayed {
	r := replayed{config: head}
	touched := map[firewall.Ref]bool{}
	off := map[firewall.Ref]bool{}
	for i, e := range entries {
		ref := e.Change.Ref()
		var next firewall.Config
		var err error
		m := misfit{at: i}
		switch {
		case off[ref]:
			m.why = "an earlier change of the same object does not fit"
		case !touched[ref] && head.Hash(ref) != e.Base:
			m.stale, m.why = true, "somebody else has changed it meanwhile"
		default:
			if next, err = e.Change.Apply(r.config); err != nil {
				m.why = err.Error()
			} else if lost := unforeseen(head, r.config, next, e); lost != "" {
				m.stale, m.why = true, "it would remove "+lost+", which somebody else has changed meanwhile"
			}
		}
		if m.why != "" {
			off[ref] = true
			r.misfits = append(r.misfits, m)
			continue
		}
		touched[ref] = true
		r.config = next
	}
	if len(entries) > 0 {
		r.problems = r.config.Validate()
	}
	return r
}

// unforeseen names an object that the change would remove together with its
// own although the person has not seen it as it is now.
func unforeseen(head, before, after firewall.Config, e Entry) string {
	for _, ref := range vanished(before, after, e.Change.Ref()) {
		if head.Hash(ref) != e.Also[ref.String()] {
			return ref.String()
		}
	}
	return ""
}

// vanished lists the objects that a change of ref removed beside ref itself.
func vanished(before, after firewall.Config, ref firewall.Ref) []firewall.Ref {
	if ref.Kind == "all" {
		return nil // its base is the whole configuration
	}
	was, is := refs(before), refs(after)
	// Nearly all changes touch one place of a long list.
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		was, is = was[1:], is[1:]
	}
	for len(was) > 0 && len(is) > 0 && was[len(was)-1] == is[len(is)-1] {
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	left := map[firewall.Ref]bool{ref: true}
	for _, r := range is {
		left[r] = true
	}
	return slices.DeleteFunc(was, func(r firewall.Ref) bool { return left[r] })
}

// look gives an account's draft and its replay on what runs. The replay is
// made outside the lock and kept until the draft or what runs changes.
func (w *Writer) look(account string) (Draft, firewall.Config, Revision, replayed) {
	w.mu.Lock()
	d, head, rev, c := w.drafts[account], w.config, w.head, w.views[account]
	w.mu.Unlock()
	same := c.head == rev.Number && len(c.entries) == len(d.Changes) && (len(d.Changes) == 0 || &c.entries[0] == &d.Changes[0])
	if same && len(d.Changes) > 0 {
		return d, head, rev, c.replayed
	}
	r := replay(head, d.Changes)
	w.mu.Lock()
	w.views[account] = cached{rev.Number, d.Changes, r}
	w.mu.Unlock()
	return d, head, rev, r
}

// View is what the pages of an account show. It waits for nothing.
func (w *Writer) View(account string) View {
	d, head, rev, r := w.look(account)
	v := View{Config: r.config, Head: head, Revision: rev, Fits: len(r.misfits) == 0, Problems: r.problems, Reason: d.Reason}
	objects := map[firewall.Ref]bool{}
	for _, e := range d.Changes {
		v.Items = append(v.Items, Item{Ref: e.Change.Ref(), Sentence: e.Change.String(), Time: e.Time, Door: e.Door})
		objects[e.Change.Ref()] = true
	}
	v.Objects = len(objects)
	for _, m := range r.misfits {
		it := &v.Items[m.at]
		it.Misfit = m.why
		it.Theirs, it.Yours = sides(head, d.Changes[:m.at+1], it.Ref)
	}
	if !v.Fits {
		v.Config, v.Problems = head, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v.SafeMode = w.status.SafeMode
	v.Trial, v.Undo = w.trial.shown(account), w.undo.shown(account, w.head.Number)
	return v
}

// Save puts changes into the account's draft; they are on disk when nil is
// returned. hash is that of the first change's object as the form showed it
// ("" for a new one, or AnyHash), and Along of others that it showed too.
// Errors: *StaleError, firewall.Problems (which the changes bring about),
// *SafeModeError.
func (w *Writer) Save(ctx context.Context, who Who, hash string, changes ...firewall.Change) error {
	if err := w.refuseSafe(); err != nil {
		return err
	}
	w.edits.Lock()
	defer w.edits.Unlock()
	d, head, _, was := w.look(who.Account)
	shown := was.config
	if len(was.misfits) > 0 {
		shown = head
	}
	if ref := changes[0].Ref(); !asShown(shown, ref, hash) {
		yours := shown
		for _, c := range changes {
			if next, err := c.Apply(yours); err == nil {
				yours = next
			}
		}
		return &StaleError{Ref: ref, Yours: yours, Theirs: shown, Why: "it has changed since this page was loaded"}
	}
	old := settled(d.Changes, was.misfits, changes)
	next := append(slices.Clone(old), w.entries(who, head, replay(head, old).config, changes)...)
	r := replay(head, next)
	if ps := brought(was, r, next, len(old)); len(ps) > 0 {
		return ps
	}
	return w.keepDraft(who.Account, Draft{Changes: coalesce(head, next, len(old)), Reason: d.Reason})
}

// Along is what follows the hash of a Save when its form showed a second object
// as well: a change of that one in the meantime is a *StaleError, too.
func Along(ref firewall.Ref, hash string) string { return " " + ref.String() + "=" + hash }

// asShown reports whether the objects are as the hash of a Save says.
func asShown(c firewall.Config, first firewall.Ref, hash string) bool {
	parts := strings.Split(hash, " ")
	if parts[0] != AnyHash && c.Hash(first) != parts[0] {
		return false
	}
	return !slices.ContainsFunc(parts[1:], func(p string) bool {
		name, hash, _ := strings.Cut(p, "=")
		kind, key, _ := strings.Cut(name, "/")
		return c.Hash(firewall.Ref{Kind: kind, Key: key}) != hash
	})
}

// entries is the changes as they are kept, each with the state of what it
// touches in head, which runs. cur is what they are put on.
func (w *Writer) entries(who Who, head, cur firewall.Config, changes []firewall.Change) []Entry {
	var list []Entry
	for _, c := range changes {
		e := Entry{ID: w.deps.NewID(), Time: time.Now(), Door: who.Door, Base: head.Hash(c.Ref()), Change: c}
		if next, err := c.Apply(cur); err == nil { // the replay tells an error
			for _, ref := range vanished(cur, next, c.Ref()) {
				if e.Also == nil {
					e.Also = map[string]string{}
				}
				e.Also[ref.String()] = head.Hash(ref)
			}
			cur = next
		}
		list = append(list, e)
	}
	return list
}

// settled leaves out what the new changes decide anew: a misfit about the same
// object (the person saw what runs, and edited that), and everything when the
// whole configuration is replaced.
func settled(entries []Entry, misfits []misfit, changes []firewall.Change) []Entry {
	again := map[firewall.Ref]bool{}
	for _, c := range changes {
		if c.Ref().Kind == "all" {
			return nil
		}
		again[c.Ref()] = true
	}
	off := map[int]bool{}
	for _, m := range misfits {
		off[m.at] = true
	}
	var left []Entry
	for i, e := range entries {
		if !off[i] || !again[e.Change.Ref()] {
			left = append(left, e)
		}
	}
	return left
}

// brought is what is wrong because of the entries from first on. Problems that
// were there before are not theirs: a draft must be mendable step by step.
func brought(was, now replayed, entries []Entry, first int) firewall.Problems {
	var ps firewall.Problems
	for _, m := range now.misfits {
		if m.at >= first {
			ps = append(ps, firewall.Problem{Field: entries[m.at].Change.Ref().String() + ".", Text: m.why})
		}
	}
	for _, p := range now.problems {
		if !slices.Contains(was.problems, p) {
			ps = append(ps, p)
		}
	}
	return ps
}

// coalesce leaves out earlier changes of the objects of entries[first:] that
// make no difference, so that switching on and off again leaves an empty draft.
// A large import is left as it is: each try replays the whole draft.
func coalesce(head firewall.Config, entries []Entry, first int) []Entry {
	changed, gone := map[firewall.Ref]bool{}, map[string]bool{}
	for _, e := range entries[first:] {
		changed[e.Change.Ref()] = true
		for ref := range e.Also {
			gone[ref] = true
		}
	}
	want := replay(head, entries)
	if len(want.misfits) > 0 || len(changed) > maxCoalesced {
		return entries
	}
	stamp := want.config.Stamp()
	same := func(less []Entry) bool {
		r := replay(head, less)
		return len(r.misfits) == 0 && r.config.Stamp() == stamp
	}
	// What was removed along, such as the limited rule of a new forward, goes together.
	if all := slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool {
		return changed[e.Change.Ref()] || gone[e.Change.Ref().String()]
	}); same(all) {
		return all
	}
	for ref := range changed {
		without := slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return e.Change.Ref() == ref })
		if same(without) {
			entries = without
			continue
		}
		for i := 0; i < len(entries); i++ {
			if entries[i].Change.Ref() == ref {
				if less := slices.Delete(slices.Clone(entries), i, i+1); same(less) {
					entries = less
					i--
				}
			}
		}
	}
	return entries
}

// Discard takes the changes of these objects out of the draft, or all of them
// when no ref is given. Errors: *NeededError, *SafeModeError.
func (w *Writer) Discard(ctx context.Context, who Who, refs ...firewall.Ref) error {
	if err := w.refuseSafe(); err != nil {
		return err
	}
	w.edits.Lock()
	defer w.edits.Unlock()
	d, head, _, was := w.look(who.Account)
	if len(refs) == 0 {
		return w.keepDraft(who.Account, Draft{})
	}
	left := slices.DeleteFunc(slices.Clone(d.Changes), func(e Entry) bool { return slices.Contains(refs, e.Change.Ref()) })
	now := replay(head, left)
	for _, m := range now.misfits {
		e := left[m.at]
		if !slices.ContainsFunc(was.misfits, func(o misfit) bool { return d.Changes[o.at].ID == e.ID }) {
			return &NeededError{refs[0], e.Change.String(), m.why}
		}
	}
	for _, p := range now.problems {
		if !slices.Contains(was.problems, p) {
			return &NeededError{refs[0], guilty(left, p), p.Text}
		}
	}
	if len(left) == 0 {
		d.Reason = ""
	}
	return w.keepDraft(who.Account, Draft{left, d.Reason})
}

// guilty is the change that a problem is about.
func guilty(entries []Entry, p firewall.Problem) string {
	for _, e := range entries {
		if strings.HasPrefix(p.Field, e.Change.Ref().String()+".") {
			return e.Change.String()
		}
	}
	return p.Field
}

// keepDraft writes a draft and then shows it. After an error it shows what the
// disk has, whatever that is. The caller holds edits.
func (w *Writer) keepDraft(account string, d Draft) error {
	if len(d.Changes) == 0 {
		d.Reason = ""
	}
	err := w.draftStore().Put(account, d)
	if err != nil {
		err = fmt.Errorf("save draft: %w", err)
		var e error
		if d, _, e = w.draftStore().Get(account); e != nil {
			return err
		}
	}
	w.mu.Lock()
	w.drafts[account] = d
	w.mu.Unlock()
	if err == nil {
		w.publish("draft", "", account, "")
	}
	return err
}
