// Package draft is what the pages that edit the configuration have in common:
// the way to the draft of whoever sends a request, what an editor holds beside
// its fields, what a button of a list asks for, and the words of a conflict.
package draft

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// Drafts keeps the changes of an account until it applies them: commit.Writer.
type Drafts interface {
	View(account string) commit.View
	Save(ctx context.Context, who commit.Who, hash string, changes ...firewall.Change) error
	Discard(ctx context.Context, who commit.Who, refs ...firewall.Ref) error
}

// Desk is where a page works on drafts; nothing may be nil.
type Desk struct {
	Drafts Drafts
	Who    func(*http.Request) commit.Who // who sends a request
	// Apply applies the draft and answers the request; it must not read the body.
	Apply page.Handler
}

// View returns the draft of whoever sends r.
func (d Desk) View(r *http.Request) commit.View { return d.Drafts.View(d.Who(r).Account) }

// Edit is what a page wants in the draft.
type Edit struct {
	Changes []firewall.Change // at least one; the object of the first is the one that is edited
	Hash    string            // of that object as the page showed it; empty for a new one
	Along   string            // commit.Along of what the page showed beside it
	Said    string            // by the toast, when it is done
	Back    string            // path that the browser goes to after Save
	// Stale words a conflict.
	Stale func(*commit.StaleError) page.StaleError
}

// Put keeps an edit and returns the toast that says so; v is the draft before.
// Errors: page.StaleError, firewall.Problems and the others of commit.
func (d Desk) Put(r *http.Request, v commit.View, e Edit) (page.Toast, error) {
	err := d.Drafts.Save(r.Context(), d.Who(r), e.Hash, e.Changes...)
	if s, ok := errors.AsType[*commit.StaleError](err); ok {
		return page.Toast{}, e.Stale(s)
	}
	return e.toast(v), err
}

// toast has an Undo, but not when other objects change along or when the object
// had changes in the draft before: Undo takes all of one object's changes out.
func (e Edit) toast(v commit.View) page.Toast {
	ref := e.Changes[0].Ref()
	along := slices.ContainsFunc(e.Changes, func(c firewall.Change) bool { return c.Ref() != ref })
	if along || pending(v, ref) {
		return page.Toast{Text: e.Said}
	}
	return page.Toast{Text: e.Said, Undo: "/discard", With: ref.String()}
}

// Undo takes all changes of an object out of the draft.
func (d Desk) Undo(r *http.Request, ref firewall.Ref) (page.Toast, error) {
	return page.Toast{Text: "Taken out of the draft."}, d.Drafts.Discard(r.Context(), d.Who(r), ref)
}

// Editor is what the editor of one object holds beside its fields.
type Editor struct {
	Frame    page.Frame
	Hash     string // of the object as it was shown; empty for a new one
	Problems firewall.Problems
	Warnings []string
	Stale    page.StaleError
	Others   int // objects with pending changes, beside this one
	then     string
}

// Read takes an editor's own fields of a POST: hash, and then (save or apply).
func Read(f *page.Form) Editor { return Editor{Hash: f.Get("hash"), then: f.Get("then")} }

// Open gives the editor of an object its frame, and counts the objects beside it.
func (e *Editor) Open(r *http.Request, v commit.View, ref firewall.Ref, title, active string) {
	e.Others = v.Objects
	if pending(v, ref) {
		e.Others--
	}
	e.Frame = page.FrameFor(r, title, active)
}

// Save keeps what an editor sent, and applies the draft when it asked for that.
// With a status the editor is to be shown again: 422 with what is wrong, 409
// with both versions, and then the next save replaces the other one. With 0 the
// request is answered, or err says why not.
func (d Desk) Save(w http.ResponseWriter, r *http.Request, v commit.View, e *Editor, edit Edit) (status int, err error) {
	err = d.Drafts.Save(r.Context(), d.Who(r), e.Hash+edit.Along, edit.Changes...)
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		e.Problems = page.Beside(ps, edit.Changes[0].Ref())
		return http.StatusUnprocessableEntity, nil
	}
	if s, ok := errors.AsType[*commit.StaleError](err); ok {
		now := s.Theirs.Hash(s.Ref)
		if now == "" { // deleted: there is nothing to replace
			return 0, edit.Stale(s)
		}
		e.Stale, e.Hash = edit.Stale(s), now
		return http.StatusConflict, nil
	}
	if err != nil {
		return 0, err
	}
	if e.then == "apply" {
		return 0, d.Apply(w, r)
	}
	page.Say(w, edit.toast(v))
	return 0, page.Go(w, r, edit.Back)
}

// pending reports whether the draft holds changes of an object.
func pending(v commit.View, ref firewall.Ref) bool {
	return slices.ContainsFunc(v.Items, func(i commit.Item) bool { return i.Ref == ref })
}
