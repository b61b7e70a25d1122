package changes

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// decision is the fields of /confirm, /undo and /extend.
type decision struct {
	revision uint64 // 0 = whichever: the page at a new address does not know it
	token    string
	poll     bool
}

func readDecision(r *http.Request) (decision, error) {
	f, err := page.ReadForm(r)
	if err != nil {
		return decision{}, err
	}
	d := decision{token: f.Get("token"), poll: f.Get("poll") == "1"}
	number := f.Get("revision")
	if err := f.Done(); err != nil {
		return decision{}, err
	}
	if number != "" {
		if d.revision, err = strconv.ParseUint(number, 10, 64); err != nil {
			return decision{}, page.BadForm{Err: err}
		}
	}
	return d, nil
}

// ask is the page that the link with the token opens, at the new address.
func (p *Pages) ask(w http.ResponseWriter, r *http.Request) error {
	v := p.drafts.View(p.who(r).Account)
	s := question{Frame: page.FrameFor(r, "Keep the changes?", "")}
	if v.Trial != nil {
		s.Left = time.Until(v.Trial.Deadline)
		s.Waits = true
	}
	return page.Render(w, r, http.StatusOK, askPage(s))
}

// confirm is the click on Keep, or the poll of the bar's script.
func (p *Pages) confirm(w http.ResponseWriter, r *http.Request) error {
	d, err := readDecision(r)
	if err != nil {
		return err
	}
	if d.poll {
		return p.poll(w, r, d)
	}
	who := p.who(r)
	if err := p.current(who, d); err != nil {
		return err
	}
	err = p.trials.Confirm(r.Context(), who, d.token, page.ConnTime(r.Context()))
	switch {
	case errors.Is(err, commit.ErrConnection):
		// This one proves nothing; the next press comes on another.
		w.Header().Set("Connection", "close")
		s := question{Frame: page.FrameFor(r, "Press Keep once more", ""), Token: d.token, Revision: d.revision, Again: true, Waits: true}
		return page.Render(w, r, http.StatusConflict, askPage(s))
	case err != nil:
		return stranger(who, err)
	case who.Account == "":
		return page.Render(w, r, http.StatusOK, askPage(question{Frame: page.FrameFor(r, "The changes are kept", ""), Kept: true}))
	}
	return page.Go(w, r, "/applied")
}

// current refuses a button of an older test.
func (p *Pages) current(who commit.Who, d decision) error {
	v := p.drafts.View(who.Account)
	testing := v.Trial != nil && v.Trial.Revision == d.revision
	kept := v.Undo != nil && v.Undo.Revision == d.revision
	if d.revision != 0 && !testing && !kept && v.Trial != nil {
		return page.Refused{Status: http.StatusConflict, Title: "Another revision is being tested",
			Text: "This page is about revision " + strconv.FormatUint(d.revision, 10) + ", and revision " +
				strconv.FormatUint(v.Trial.Revision, 10) + " is running now. Nothing was done."}
	}
	return nil
}

// stranger keeps names and numbers from somebody who is not signed in and has
// no good token.
func stranger(who commit.Who, err error) error {
	if who.Account != "" {
		return err
	}
	return page.Refused{Status: http.StatusForbidden, Title: "This link does not work",
		Text: "It was used already, or its time is over. Sign in to see what runs."}
}

// answer is what the bar's script is told.
type answer struct {
	State string `json:"state"`
	Left  int    `json:"left"` // seconds
}

// poll confirms by itself what needs no click, on a connection that proves that
// the person still gets through. Every answer closes its connection, so that
// the next poll, or the click, comes on a new one.
func (p *Pages) poll(w http.ResponseWriter, r *http.Request, d decision) error {
	w.Header().Set("Connection", "close")
	who := p.who(r)
	if _, err := p.trials.Seen(r.Context(), who, d.token, page.ConnTime(r.Context())); err != nil &&
		!errors.Is(err, commit.ErrTooLate) && !errors.Is(err, commit.ErrNoTrial) {
		return stranger(who, err)
	}
	v := p.drafts.View(who.Account)
	a, status := answer{State: "testing"}, http.StatusOK
	switch {
	case v.Trial != nil && v.Trial.Revision == d.revision:
		a.Left = int(max(0, time.Until(v.Trial.Deadline)).Seconds())
		if !v.Trial.Human {
			status = http.StatusConflict // it would be confirmed, had the connection been new enough
		}
	case v.Revision.Number >= d.revision:
		a.State = "confirmed"
	default:
		a.State = "reverted"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // a reader that went away is not our fault
	return nil
}

// undo takes back what is tested, or what confirmed itself a while ago.
func (p *Pages) undo(w http.ResponseWriter, r *http.Request) error {
	d, err := readDecision(r)
	if err != nil {
		return err
	}
	who := p.who(r)
	if err := p.current(who, d); err != nil {
		return err
	}
	w.Header().Set("Connection", "close")
	if err := p.trials.Undo(r.Context(), who, d.token); err != nil {
		return stranger(who, err)
	}
	if who.Account == "" {
		return page.Render(w, r, http.StatusOK, askPage(question{Frame: page.FrameFor(r, "Taken back", ""), Back: true}))
	}
	page.Say(w, page.Toast{Text: "Taken back. Your changes are in the draft again."})
	return page.Go(w, r, "/review")
}

// extend gives the test a minute more.
func (p *Pages) extend(w http.ResponseWriter, r *http.Request) error {
	d, err := readDecision(r)
	if err != nil {
		return err
	}
	who := p.who(r)
	if err := p.current(who, d); err != nil {
		return err
	}
	if _, err := p.trials.Extend(r.Context(), who, d.token); err != nil {
		return err
	}
	page.Say(w, page.Toast{Text: "One minute more."})
	return page.Go(w, r, "/applied")
}
