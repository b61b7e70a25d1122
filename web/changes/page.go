// Package changes is what stands behind the change bar: the review of a draft,
// its apply, and the confirm that keeps it.
package changes

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// Drafts is what is saved and not applied: commit.Writer.
type Drafts interface {
	View(account string) commit.View
	Plan(ctx context.Context, who commit.Who) (commit.Plan, error)
	Apply(ctx context.Context, who commit.Who, o commit.Options) (commit.Applied, error)
	Discard(ctx context.Context, who commit.Who, refs ...firewall.Ref) error
}

// Trials is the revision that waits for its confirm: commit.Writer.
type Trials interface {
	Confirm(ctx context.Context, who commit.Who, token string, accepted time.Time) error
	Seen(ctx context.Context, who commit.Who, token string, accepted time.Time) (bool, error)
	Extend(ctx context.Context, who commit.Who, token string) (time.Time, error)
	Undo(ctx context.Context, who commit.Who, token string) error
}

// Pages is the routes behind the bar, and the apply that editors call.
type Pages struct {
	drafts Drafts
	trials Trials
	who    func(*http.Request) commit.Who
}

// New returns the pages; who says who sends a request. Nothing may be nil.
func New(drafts Drafts, trials Trials, who func(*http.Request) commit.Who) *Pages {
	return &Pages{drafts, trials, who}
}

// Routes returns the routes. The confirm and the undo are open: a one-time
// token in the link is as good as a session, since a new address has none.
func (p *Pages) Routes() []page.Route {
	return []page.Route{
		{Method: http.MethodGet, Path: "/review", Serve: p.review},
		{Method: http.MethodPost, Path: "/discard", Serve: p.discard},
		{Method: http.MethodPost, Path: "/apply", Serve: p.apply},
		{Method: http.MethodGet, Path: "/applied", Serve: p.applied},
		{Method: http.MethodGet, Path: "/confirm", Open: true, Serve: p.ask},
		{Method: http.MethodPost, Path: "/confirm", Open: true, Serve: p.confirm},
		{Method: http.MethodPost, Path: "/undo", Open: true, Serve: p.undo},
		{Method: http.MethodPost, Path: "/extend", Serve: p.extend},
	}
}

// Version names a draft on what runs: page.Bar.Draft. It is commit's
// Plan.Reviewed of a draft that fits.
func Version(v commit.View) string {
	return v.Head.Stamp()[:16] + v.Config.Stamp()[:16]
}

// review shows what Apply would do.
func (p *Pages) review(w http.ResponseWriter, r *http.Request) error {
	return p.showReview(w, r, http.StatusOK, nil)
}

// showReview shows the review with an error of an apply that came to nothing.
func (p *Pages) showReview(w http.ResponseWriter, r *http.Request, status int, failed error) error {
	who := p.who(r)
	v := p.drafts.View(who.Account)
	s := review{Account: who.Account, Addr: who.Addr, View: v, Version: Version(v), Failed: failed, First: len(v.Head.Interfaces) == 0}
	if len(v.Items) > 0 {
		s.Plan, s.Err = p.drafts.Plan(r.Context(), who)
	}
	if s.Err != nil && !tells(s.Err) {
		return s.Err
	}
	s.Frame = page.FrameFor(r, "Review", "")
	return page.Render(w, r, status, reviewPage(s))
}

// tells reports whether the review page says by itself what an error means.
func tells(err error) bool {
	if errors.Is(err, commit.ErrNothing) {
		return true
	}
	for _, is := range []func(error) bool{isA[firewall.Problems], isA[*commit.StaleError], isA[*commit.TestingError],
		isA[*commit.SafeModeError], isA[*commit.RefusedError]} {
		if is(err) {
			return true
		}
	}
	return false
}

func isA[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

// discard takes one object's changes out of the draft, or all of them.
func (p *Pages) discard(w http.ResponseWriter, r *http.Request) error {
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	version, one := f.Get("draft"), f.Get("ref")
	if undo := f.Get("undo"); undo != "" { // the button of a toast
		one = undo
	}
	if err := f.Done(); err != nil {
		return err
	}
	who := p.who(r)
	if one != "" {
		kind, key, _ := strings.Cut(one, "/")
		if err := p.drafts.Discard(r.Context(), who, firewall.Ref{Kind: kind, Key: key}); err != nil {
			return err
		}
		page.Say(w, page.Toast{Text: "Taken out of the draft."})
		return page.Go(w, r, back(r))
	}
	if v := p.drafts.View(who.Account); version != Version(v) {
		return errOtherDraft
	}
	if err := p.drafts.Discard(r.Context(), who); err != nil {
		return err
	}
	page.Say(w, page.Toast{Text: "The draft is empty. What runs has not changed."})
	return page.Go(w, r, back(r))
}

// errOtherDraft is the answer to a button of a page that shows an older draft.
var errOtherDraft = page.Refused{Status: http.StatusConflict, Title: "The draft has changed",
	Text: "The draft, or what runs, is not as this page showed it any more. Nothing was done: review it again."}

// back is the page of ours that the request came from; the review when that
// cannot be told, or answers to no GET.
func back(r *http.Request) string {
	u, err := url.Parse(r.Referer())
	if err != nil || u.Host != r.Host || u.Path == "/apply" || strings.HasSuffix(u.Path, "/new") {
		return "/review"
	}
	return page.Local(u.RequestURI())
}

// apply applies the draft that the page showed.
func (p *Pages) apply(w http.ResponseWriter, r *http.Request) error {
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	version, anyway := f.Get("draft"), f.On("anyway")
	if err := f.Done(); err != nil {
		return err
	}
	v := p.drafts.View(p.who(r).Account)
	if len(v.Items) > 0 && version != Version(v) {
		return errOtherDraft
	}
	return p.run(w, r, v, anyway)
}

// Now applies the draft as it is and answers the request: the "Save and
// apply" of an editor. It reads no form.
func (p *Pages) Now(w http.ResponseWriter, r *http.Request) error {
	return p.run(w, r, p.drafts.View(p.who(r).Account), false)
}

// run applies the draft. What would shut the person out goes to the review
// first, where the red button is.
func (p *Pages) run(w http.ResponseWriter, r *http.Request, v commit.View, anyway bool) error {
	who := p.who(r)
	plan, err := p.drafts.Plan(r.Context(), who)
	if err == nil {
		err = plan.Refused
	}
	switch {
	case isA[firewall.Problems](err), isA[*commit.RefusedError](err):
		return p.showReview(w, r, http.StatusUnprocessableEntity, err)
	case isA[*commit.StaleError](err):
		return p.showReview(w, r, http.StatusConflict, err)
	case err != nil:
		return err
	case !plan.Reaches && !anyway:
		return page.Go(w, r, "/review")
	}
	done, err := p.drafts.Apply(r.Context(), who, commit.Options{Reviewed: plan.Reviewed})
	// The old connection may outlive a rule that locks the person out, so the
	// next request must come on a new one (h1 closes, h2 goes away).
	w.Header().Set("Connection", "close")
	if isA[firewall.Problems](err) || isA[*commit.RefusedError](err) {
		return p.showReview(w, r, http.StatusUnprocessableEntity, err)
	}
	if err != nil {
		return err
	}
	s := result{Revision: done.Revision, Token: done.Token, Left: time.Until(done.Deadline), Human: done.Human,
		Problems: done.Problems, Why: plan.Risk.Why, URLs: moved(v.Head, v.Config, page.ConnOf(r.Context()).Local), First: len(v.Head.Interfaces) == 0}
	s.Frame = page.FrameFor(r, "Applied", "")
	// The token is known here only; the bar must work before it refetches itself.
	s.Frame.Bar.Undo = page.Undo{}
	s.Frame.Bar.Testing = page.Testing{Revision: int(done.Revision), Account: who.Account, Mine: true, Left: s.Left,
		Auto: !done.Human, Token: done.Token}
	if t := p.drafts.View(who.Account).Trial; t != nil {
		s.Extends = t.Extends
	}
	return page.Render(w, r, http.StatusOK, resultPage(s))
}

// applied shows how the last apply stands: what the result page becomes.
func (p *Pages) applied(w http.ResponseWriter, r *http.Request) error {
	v := p.drafts.View(p.who(r).Account)
	s := result{Revision: v.Revision.Number, Frame: page.FrameFor(r, "Applied", ""), Draft: len(v.Items), Reason: v.Reason,
		First: v.Revision.Number > 0 && v.Revision.Target == 0}
	if v.Trial != nil {
		s.Revision, s.Left, s.Human, s.Extends = v.Trial.Revision, time.Until(v.Trial.Deadline), v.Trial.Human, v.Trial.Extends
		s.URLs = elsewhere(v.Head, page.ConnOf(r.Context()).Local)
		s.Problems, s.Other = v.Trial.Problems, map[bool]string{false: v.Trial.Account}[v.Trial.Mine]
	} else {
		s.Over = true
	}
	if page.IsPartial(r) {
		return page.Render(w, r, http.StatusOK, resultCard(s))
	}
	return page.Render(w, r, http.StatusOK, resultPage(s))
}
