package tables

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/quarantine"
	"gatehouse/web/page"
)

// exemptFor is how long "never again" holds before the alias of the draft does.
const exemptFor = 24 * time.Hour

// actTime is how long an act may take: many elements go to the kernel in one batch.
const actTime = 20 * time.Second

// op is what a button of the list asks for.
type op struct {
	verb string
	at   int          // row of the table that the button stood in; -1: none
	src  netip.Prefix // release, never
	rest string       // undo: the token; menu: the source
	back netip.Prefix // undo: the row that comes back, when it is one
	ask  ask          // where the button was
	sel  []netip.Prefix
	upto time.Time // all: those that were there then
	keep bool      // all: the strikes stay
}

// opOf is the value of a button: verb:row:source.
func opOf(verb string, at int, key string) string { return fmt.Sprintf("%s:%d:%s", verb, at, key) }

// readOp reads the POST of the list.
func readOp(r *http.Request) (o op, err error) {
	f, err := page.ReadForm(r)
	if err != nil {
		return o, err
	}
	if o.ask, err = readAt(f.Get("at")); err != nil {
		return o, err
	}
	bad := func(why string) error { return page.BadForm{Err: errors.New("op " + why)} }
	value := f.Get("op")
	o.at = -1
	o.verb, o.rest, _ = strings.Cut(value, ":")
	for _, s := range f.All("sel") {
		src, err := source(s)
		if err != nil {
			return o, err
		}
		o.sel = append(o.sel, src)
	}
	if upto := f.Get("upto"); upto != "" {
		n, err := strconv.ParseInt(upto, 10, 64)
		if err != nil {
			return o, bad(value)
		}
		o.upto = time.Unix(0, n)
	}
	o.keep = f.On("keep")
	if err := f.Done(); err != nil {
		return o, err
	}
	switch o.verb {
	case "release", "never":
		at, src, _ := strings.Cut(o.rest, ":")
		if o.at, err = strconv.Atoi(at); err != nil || o.at < 0 || o.at > perPage {
			return o, bad(value)
		}
		o.src, err = source(src)
		return o, err
	case "undo":
		token, src, one := strings.Cut(o.rest, ":")
		if o.rest = token; one {
			o.back, err = source(src)
		}
		if token == "" {
			err = bad(value)
		}
		return o, err
	case "menu":
		_, err = source(o.rest)
		return o, err
	case "selected":
	case "all":
		if o.upto.IsZero() {
			return o, bad(value)
		}
	default:
		return o, bad(value)
	}
	return o, nil
}

// done is what became of an act: the toast, and what the list shows in place.
type done struct {
	toast page.Toast
	ghost ghost
	focus netip.Prefix
}

// act does what a button of the list asks for, at once. Only "never again" also
// changes the draft.
func (p *pages) act(w http.ResponseWriter, r *http.Request) error {
	o, err := readOp(r)
	if err != nil {
		return err
	}
	if o.verb == "menu" {
		if o.ask.Menu == o.rest {
			o.rest = ""
		}
		o.ask.Menu = o.rest
		if !page.IsPartial(r) {
			return page.Go(w, r, o.ask.path()+"#e-"+o.rest)
		}
		return p.answer(w, r, o.ask, done{}, nil)
	}
	d, err := p.do(r, o)
	o.ask.Menu = ""
	return p.answer(w, r, o.ask, d, err)
}

// do does it and says what became of it.
func (p *pages) do(r *http.Request, o op) (done, error) {
	ctx, stop := context.WithTimeout(r.Context(), actTime)
	defer stop()
	switch o.verb {
	case "never":
		return p.never(ctx, r, o)
	case "undo":
		d, err := p.takeBack(ctx, r, o.rest)
		d.focus = o.back
		return d, err
	case "release":
		return p.release(ctx, r, o, []netip.Prefix{o.src}, quarantine.Options{})
	case "selected":
		if len(o.sel) == 0 {
			return done{}, page.Refused{Status: http.StatusUnprocessableEntity, Title: "Nothing selected", Text: "Tick the sources that you want to release."}
		}
		return p.release(ctx, r, o, o.sel, quarantine.Options{})
	}
	var srcs []netip.Prefix
	q := o.ask.query()
	q.From, q.Max = 0, math.MaxInt32
	for _, e := range p.Lists.List(q).Entries {
		if !e.Since.After(o.upto) { // who came later was not in the question
			srcs = append(srcs, e.Source)
		}
	}
	if len(srcs) == 0 {
		return nothingLeft("They were free already.", -1), nil
	}
	return p.release(ctx, r, o, srcs, quarantine.Options{KeepStrikes: o.keep})
}

// release lets sources go. One that is gone already is as it should be.
func (p *pages) release(ctx context.Context, r *http.Request, o op, srcs []netip.Prefix, how quarantine.Options) (done, error) {
	got, err := p.Keeper.Release(ctx, p.by(r), srcs, how)
	if err != nil {
		return done{}, slow(err)
	}
	said := ""
	switch n := len(got.Released); {
	case n == 0 && len(srcs) == 1:
		return nothingLeft(called(srcs[0])+" was free already.", o.at), nil
	case n == 0:
		return nothingLeft("They were free already.", -1), nil
	case n == 1:
		said = "Released " + called(got.Released[0].Source) + "."
	default:
		said = "Released " + page.Number(n) + " sources."
	}
	d := done{toast: page.Toast{Text: said, Undo: undoPath(o.ask), With: got.Token}, ghost: ghost{Op: "undo:" + got.Token, Text: said, At: o.at}}
	if len(got.Released) == 1 {
		d.ghost.Op += ":" + got.Released[0].Source.String()
	}
	return d, nil
}

// nothingLeft is done when what was asked for was so already.
func nothingLeft(said string, at int) done {
	return done{toast: page.Toast{Text: said}, ghost: ghost{Text: said, At: at}}
}

// undoPath is where the button of a toast leads, and where that leads back to.
func undoPath(a ask) string { return "/tables/undo?" + a.values().Encode() }

// undo is the button of the toast.
func (p *pages) undo(w http.ResponseWriter, r *http.Request) error {
	a, err := readAsk(r.URL.Query())
	if err != nil {
		return err
	}
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	token := f.Get("undo")
	if err := f.Done(); err != nil {
		return err
	}
	if token == "" {
		return page.BadForm{Err: errors.New("no token")}
	}
	ctx, stop := context.WithTimeout(r.Context(), actTime)
	defer stop()
	d, err := p.takeBack(ctx, r, token)
	if err != nil {
		return err
	}
	page.Say(w, d.toast)
	return page.Go(w, r, a.path())
}

// takeBack undoes a release as long as that is possible.
func (p *pages) takeBack(ctx context.Context, r *http.Request, token string) (done, error) {
	token, never := strings.CutPrefix(token, neverMark)
	switch err := p.Keeper.Undo(ctx, p.by(r), token); {
	case errors.Is(err, quarantine.ErrTooLate):
		return done{}, tooLate
	case err != nil:
		return done{}, slow(err)
	}
	d := done{toast: page.Toast{Text: "Shut out again, as before."}}
	if never {
		d.toast.Text += " " + p.forget(r)
	}
	return d, nil
}

// tooLate is the answer to an Undo that comes too late.
var tooLate = page.Refused{Status: http.StatusConflict, Title: "Too late",
	Text: "A release can be taken back for 10 seconds. What was done lately stands below the list: from there a source can be shut out again."}

// slow words the error of an act that had to wait too long for another one.
func slow(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return page.Refused{Status: http.StatusServiceUnavailable, Title: "Busy",
			Text: "Other acts were not done in time. Nothing was done; try once more."}
	}
	return err
}

// answer shows the list as it is now, with what was done or why not: in place
// when htmx pressed the button, else by way of a redirect.
func (p *pages) answer(w http.ResponseWriter, r *http.Request, a ask, d done, failed error) error {
	if !page.IsPartial(r) {
		if failed != nil {
			return failed
		}
		if d.toast.Text != "" {
			page.Say(w, d.toast)
		}
		return page.Go(w, r, a.path())
	}
	status, alert := http.StatusOK, ""
	if failed != nil {
		var known bool
		if status, alert, known = told(failed); !known {
			return failed
		}
	}
	a.hold, a.seen = false, time.Time{}
	l := p.list(r, a)
	l.Alert = alert
	if failed == nil {
		l.Ghost = d.ghost
		l.Fresh = !l.focus(d.focus) && d.ghost.Text == "" && a.Menu == ""
	}
	l.Frame = page.FrameFor(r, "Tables", "/tables")
	l.Frame.Toast = d.toast
	return page.Render(w, r, status, fragment(l))
}

// told is an error in a sentence above the list; false for one that is ours to read.
func told(err error) (status int, text string, known bool) {
	if e, ok := errors.AsType[page.Refused](err); ok {
		return e.Status, e.Text, true
	}
	if e, ok := errors.AsType[*commit.SafeModeError](err); ok {
		return http.StatusServiceUnavailable, e.Error() + ". Nothing was done.", true
	}
	if ps, ok := errors.AsType[firewall.Problems](err); ok {
		text := "Nothing was done."
		for _, one := range ps {
			text += " " + one.Text
		}
		return http.StatusUnprocessableEntity, text, true
	}
	if e, ok := errors.AsType[page.StaleError](err); ok {
		return http.StatusConflict, e.Error() + " Nothing was done; try once more.", true
	}
	return 0, "", false
}

// askAll is the question before all are released, on a page of its own.
func (p *pages) askAll(w http.ResponseWriter, r *http.Request) error {
	a, err := readAt(r.URL.Query().Get("at"))
	if err != nil {
		return err
	}
	a.Page = 1
	l := p.list(r, a)
	if !l.acts() || a.Set == setAliases || a.Set == setAutomatic {
		return page.NotFound{What: "This table"}
	}
	if l.Found == 0 {
		page.Say(w, page.Toast{Text: "They are free already."})
		return page.Go(w, r, a.path())
	}
	l.Frame = page.FrameFor(r, l.question(), "/tables")
	return page.Render(w, r, http.StatusOK, allPage(l))
}
