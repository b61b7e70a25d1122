package tables

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

var sourcesRef = firewall.Ref{Kind: "sources"}

// settingsForm is how sources are told apart, as it was typed.
type settingsForm struct {
	draft.Editor
	Prefix, Meter string
}

func showSettings(s firewall.Sources) settingsForm {
	return settingsForm{Prefix: strconv.Itoa(s.Prefix()), Meter: strconv.Itoa(s.Size())}
}

// sources reads the fields; what cannot be read is told.
func (f settingsForm) sources() (s firewall.Sources, ps firewall.Problems) {
	number := func(field, typed, says string) int {
		n, err := strconv.Atoi(strings.NewReplacer(" ", "", ",", "", "/", "").Replace(typed))
		if err != nil || n < 1 {
			ps = append(ps, firewall.Problem{Field: field, Text: says})
		}
		return n
	}
	s.Prefix6 = number("prefix6", f.Prefix, "The prefix length must be 48 to 128.")
	s.Meter = number("meter", f.Meter, "Enter a whole number from 4 to 1 000 000.")
	usual := firewall.Sources{}
	if s.Prefix6 == usual.Prefix() { // what is usual is not written down
		s.Prefix6 = 0
	}
	if s.Meter == usual.Size() {
		s.Meter = 0
	}
	return s, ps
}

func (p *pages) settings(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	f := showSettings(v.Config.Sources)
	f.Hash = v.Config.Hash(sourcesRef)
	return p.renderSettings(w, r, http.StatusOK, v, f)
}

func (p *pages) renderSettings(w http.ResponseWriter, r *http.Request, status int, v commit.View, f settingsForm) error {
	f.Open(r, v, sourcesRef, "Sources and meters", "/tables")
	return page.Render(w, r, status, settingsPage(f, len(v.Config.LimitNumbers())))
}

func (p *pages) saveSettings(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	f := settingsForm{Prefix: in.Get("prefix6"), Meter: in.Get("meter"), Editor: draft.Read(in)}
	if err := in.Done(); err != nil {
		return err
	}
	v := p.View(r)
	s, ps := f.sources()
	change := firewall.SetSources{Sources: s}
	if len(ps) > 0 {
		if next, err := change.Apply(v.Config); err == nil {
			ps = page.And(ps, page.Found(v.Config, next, sourcesRef))
		}
		f.Problems = ps
		return p.renderSettings(w, r, http.StatusUnprocessableEntity, v, f)
	}
	status, err := p.Save(w, r, v, &f.Editor, draft.Edit{Changes: []firewall.Change{change}, Stale: staleSources,
		Said: fmt.Sprintf("Saved: an IPv6 source is a /%d, and each limit remembers %s sources.", s.Prefix(), page.Number(s.Size())), Back: "/tables"})
	if status != 0 {
		return p.renderSettings(w, r, status, v, f)
	}
	return err
}

func staleSources(err *commit.StaleError) page.StaleError {
	list := func(c firewall.Config) []string {
		return []string{strconv.Itoa(c.Sources.Prefix()), strconv.Itoa(c.Sources.Size())}
	}
	return page.StaleError{What: "How sources are told apart", Back: "/tables/settings",
		Fields: page.Differ([]string{"IPv6 prefix", "Sources per limit"}, list(err.Theirs), list(err.Yours))}
}
