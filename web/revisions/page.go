// Package revisions is the history: what ran when, by whom, what changed, and
// the way back. A restored revision becomes the draft, to be reviewed like any change.
package revisions

import (
	"context"
	"net/http"
	"strconv"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// History is what ran: commit.Writer.
type History interface {
	View(account string) commit.View
	Revisions() []commit.Revision
	Revision(n uint64) (commit.Revision, firewall.Config, error)
	Diff(a, b uint64) ([]commit.Word, string, error)
	RestoreAsDraft(ctx context.Context, who commit.Who, n uint64) error
}

type pages struct {
	history History
	who     func(*http.Request) commit.Who
}

// New gives the routes; who says who sends a request.
func New(h History, who func(*http.Request) commit.Who) []page.Route {
	p := &pages{h, who}
	return []page.Route{
		{Method: http.MethodGet, Path: "/revisions", Serve: p.list},
		{Method: http.MethodGet, Path: "/revisions/{n}", Serve: p.show},
		{Method: http.MethodPost, Path: "/revisions/{n}", Serve: p.restore},
	}
}

// history is what the list shows.
type history struct {
	page.Frame
	Revisions []commit.Revision
	Running   uint64
	A, B      uint64 // what the compare form starts with
}

// list shows all revisions; with ?a=&b= it leads to their difference.
func (p *pages) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if q.Has("a") || q.Has("b") {
		a, errA := strconv.ParseUint(q.Get("a"), 10, 64)
		b, errB := strconv.ParseUint(q.Get("b"), 10, 64)
		if errA != nil || errB != nil {
			return page.NotFound{What: "This revision"}
		}
		return page.Go(w, r, "/revisions/"+strconv.FormatUint(b, 10)+"?from="+strconv.FormatUint(a, 10))
	}
	revs := p.history.Revisions()
	h := history{Frame: page.FrameFor(r, "Revisions", "/revisions"), Revisions: revs,
		Running: p.history.View(p.who(r).Account).Revision.Number}
	h.B = h.Running
	for _, rev := range revs {
		if rev.Number < h.Running && rev.State == commit.Confirmed {
			h.A = rev.Number
			break
		}
	}
	return page.Render(w, r, http.StatusOK, listPage(h))
}

// detail is one revision beside another.
type detail struct {
	page.Frame
	Revision commit.Revision
	From     uint64
	Running  uint64
	Words    []commit.Word
	Diff     string
	Damaged  string
}

// show tells what a revision changed: against the one that it replaced, or ?from=.
func (p *pages) show(w http.ResponseWriter, r *http.Request) error {
	n, err := number(r)
	if err != nil {
		return err
	}
	d := detail{Frame: page.FrameFor(r, "Revision "+strconv.FormatUint(n, 10), "/revisions"),
		Running: p.history.View(p.who(r).Account).Revision.Number}
	known := false
	for _, rev := range p.history.Revisions() {
		switch {
		case rev.Number == n:
			d.Revision, known = rev, true
		case known && rev.State == commit.Confirmed && d.From == 0:
			d.From = rev.Number
		}
	}
	if !known {
		return page.NotFound{What: "This revision"}
	}
	if q := r.URL.Query().Get("from"); q != "" {
		if d.From, err = strconv.ParseUint(q, 10, 64); err != nil {
			return page.NotFound{What: "This revision"}
		}
	}
	if d.Words, d.Diff, err = p.history.Diff(d.From, n); err != nil {
		d.Damaged = err.Error()
	}
	return page.Render(w, r, http.StatusOK, showPage(d))
}

// restore makes a revision the draft.
func (p *pages) restore(w http.ResponseWriter, r *http.Request) error {
	n, err := number(r)
	if err != nil {
		return err
	}
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	if err := f.Done(); err != nil {
		return err
	}
	if err := p.history.RestoreAsDraft(r.Context(), p.who(r), n); err != nil {
		return err
	}
	return page.Go(w, r, "/review")
}

func number(r *http.Request) (uint64, error) {
	n, err := strconv.ParseUint(r.PathValue("n"), 10, 64)
	if err != nil {
		return 0, page.NotFound{What: "This revision"}
	}
	return n, nil
}

// kind is the colour of a state.
func kind(s commit.State) page.Kind {
	switch s {
	case commit.Confirmed:
		return page.Pass
	case commit.Pending:
		return page.Info
	}
	return page.Off
}

// state is the word for a state.
func state(r commit.Revision) string {
	if r.State == commit.Confirmed && r.Auto {
		return "confirmed by itself"
	}
	return string(r.State)
}
