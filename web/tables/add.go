package tables

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gatehouse/firewall"
	"gatehouse/services/quarantine"
	"gatehouse/web/page"
)

// shortest is how short somebody can be shut out by hand, as by a rule.
const shortest = 10 * time.Second

// addForm is the form of a source that is shut out by hand, as it was typed.
type addForm struct {
	Address, Reason, For string
	Problems             firewall.Problems
	Frame                page.Frame
}

// addPath is the form filled in, to shut a source out (again).
func addPath(src netip.Prefix, reason string) string {
	q := url.Values{"address": {called(src)}}
	if reason != "" {
		q.Set("reason", reason)
	}
	return "/tables/add?" + q.Encode()
}

func (p *pages) newEntry(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	return p.renderAdd(w, r, http.StatusOK, addForm{Address: q.Get("address"), Reason: q.Get("reason"), For: q.Get("duration")})
}

func (p *pages) renderAdd(w http.ResponseWriter, r *http.Request, status int, f addForm) error {
	f.Frame = page.FrameFor(r, "Shut a source out", "/tables")
	return page.Render(w, r, status, addPage(f))
}

// add shuts a source out at once.
func (p *pages) add(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	f := addForm{Address: in.Get("address"), Reason: in.Get("reason"), For: in.Get("duration")}
	if err := in.Done(); err != nil {
		return err
	}
	src, said, ps := f.source(p.Keeper.Meant)
	d, more := lasts(f.For)
	f.Problems = append(append(ps, text("reason", f.Reason)...), more...)
	if len(f.Problems) == 0 {
		ctx, stop := context.WithTimeout(r.Context(), actTime)
		defer stop()
		err := p.Keeper.Add(ctx, p.by(r), src, f.Reason, d)
		refused, ok := errors.AsType[firewall.Problems](err)
		if err != nil && !ok {
			return slow(err)
		}
		f.Problems = refused
	}
	if len(f.Problems) > 0 {
		return p.renderAdd(w, r, http.StatusUnprocessableEntity, f)
	}
	set := ask{Set: quarantine.InLockOuts}
	if d == 0 {
		set.Set = quarantine.InQuarantine
	}
	page.Say(w, page.Toast{Text: called(src) + " is shut out" + lasting(d) + "." + said})
	return page.Go(w, r, set.path())
}

// source reads the address: one address, or a network. meant is what becomes of
// it: an IPv6 address stands for its prefix, as it does for the rules.
func (f addForm) source(meant func(netip.Prefix) netip.Prefix) (src netip.Prefix, said string, ps firewall.Problems) {
	bad := func(text string) (netip.Prefix, string, firewall.Problems) {
		return src, "", firewall.Problems{{Field: "address", Text: text}}
	}
	var typed netip.Prefix
	switch {
	case f.Address == "":
		return bad("Write an address or a network.")
	case strings.Contains(f.Address, "/"):
		net, err := firewall.ParsePrefix(f.Address)
		if err != nil {
			return bad(page.Sentence(err))
		}
		typed = net
	default:
		a, err := firewall.ParseAddr(f.Address)
		if err != nil {
			return bad(page.Sentence(err))
		}
		typed = netip.PrefixFrom(a, a.BitLen())
	}
	if src = meant(typed); src != typed {
		said = " " + called(typed) + " is one source with all of " + src.String() + "."
		if !typed.IsSingleIP() {
			said = " " + typed.String() + " was taken as " + src.String() + "."
		}
	}
	return src, said, nil
}

// lasts reads how long; empty is until somebody releases it.
func lasts(typed string) (time.Duration, firewall.Problems) {
	if typed == "" {
		return 0, nil
	}
	n, err := firewall.ParseSeconds(typed)
	d := time.Duration(n) * time.Second
	switch {
	case err != nil:
		return 0, firewall.Problems{{Field: "duration", Text: page.Sentence(err) + " Empty is until it is released."}}
	case d < shortest:
		return 0, firewall.Problems{{Field: "duration", Text: "Use at least 10 seconds, or leave it empty: until it is released."}}
	}
	return d, nil
}

// lasting is how long in a sentence.
func lasting(d time.Duration) string {
	if d == 0 {
		return " until somebody releases it"
	}
	return " for " + firewall.Seconds(int(d/time.Second))
}

// text holds for a reason, as for every text of the configuration.
func text(field, s string) firewall.Problems {
	switch {
	case utf8.RuneCountInString(s) > 200:
		return firewall.Problems{{Field: field, Text: "Use at most 200 characters."}}
	case !utf8.ValidString(s):
		return firewall.Problems{{Field: field, Text: "This is not valid UTF-8 text."}}
	case strings.ContainsFunc(s, unicode.IsControl):
		return firewall.Problems{{Field: field, Text: "Remove the line break or control character."}}
	}
	return nil
}

// keepForm is the form of the time that a source stays shut out.
type keepForm struct {
	Key, Name string
	Now       string // how long it lasts as it is
	For       string
	At        string // where the person came from
	Back      string
	Problems  firewall.Problems
	Frame     page.Frame
}

// keepPath is the form for one source; back is the list it stands in.
func keepPath(src netip.Prefix, back string) string {
	return "/tables/keep?" + url.Values{"source": {src.String()}, "at": {back}}.Encode()
}

func (p *pages) editTime(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	return p.renderKeep(w, r, http.StatusOK, keepForm{Key: q.Get("source"), At: q.Get("at")})
}

// renderKeep shows the form; a source that is free by now has none.
func (p *pages) renderKeep(w http.ResponseWriter, r *http.Request, status int, f keepForm) error {
	src, err := source(f.Key)
	if err != nil {
		return err
	}
	e, ok := p.Lists.Get(src)
	if !ok {
		return free(src)
	}
	a, err := readAt(f.At)
	if err != nil {
		return err
	}
	f.Name, f.Now, f.Back = called(src), leaves(e, time.Now()), a.path()
	f.Frame = page.FrameFor(r, "Keep "+f.Name, "/tables")
	return page.Render(w, r, status, keepPage(f))
}

// free is the error for a source that is not shut out any more.
func free(src netip.Prefix) error {
	return page.Refused{Status: http.StatusNotFound, Title: "Free already",
		Text: called(src) + " is not shut out any more. Somebody released it, or its time is over. You can shut it out by hand."}
}

// keep changes how long a source stays shut out, from now.
func (p *pages) keep(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	f := keepForm{Key: in.Get("source"), For: in.Get("duration"), At: in.Get("at")}
	if err := in.Done(); err != nil {
		return err
	}
	src, err := source(f.Key)
	if err != nil {
		return err
	}
	d, ps := lasts(f.For)
	f.Problems = ps
	if len(ps) == 0 {
		ctx, stop := context.WithTimeout(r.Context(), actTime)
		defer stop()
		err := p.Keeper.Keep(ctx, p.by(r), src, d)
		refused, ok := errors.AsType[firewall.Problems](err)
		switch {
		case errors.Is(err, quarantine.ErrGone):
			return free(src)
		case err != nil && !ok:
			return slow(err)
		}
		f.Problems = refused
	}
	if len(f.Problems) > 0 {
		return p.renderKeep(w, r, http.StatusUnprocessableEntity, f)
	}
	a, err := readAt(f.At)
	if err != nil {
		return err
	}
	page.Say(w, page.Toast{Text: called(src) + " stays shut out" + lasting(d) + "."})
	return page.Go(w, r, a.path())
}
