package page

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"gatehouse/firewall"
)

func never() firewall.Config {
	return firewall.Config{Aliases: []firewall.Alias{{Name: firewall.NeverQuarantine, Kind: firewall.Addresses}, {Name: "PORTS", Kind: firewall.PortList}, {Name: "OFFICE", Kind: firewall.Addresses}}}
}

// typed is the untouched fields of no limit, with changes by form field.
func typed(t *testing.T, was firewall.Limit, pairs ...string) Limit {
	t.Helper()
	f := ShowLimit(never(), was)
	v := url.Values{"limit_open": {f.Open}, "limit_new": {f.New}, "limit_window": {f.Window}, "over": {f.Over}, "lock_for": {f.LockFor},
		"strikes": {f.Strikes}, "strike_window": {f.StrikeWindow}, "never": {f.Never}}
	if f.DryRun {
		v.Set("dry_run", "1")
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(v.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	form, err := ReadForm(r)
	if err != nil {
		t.Fatal(err)
	}
	l := ReadLimit(form)
	if err := form.Done(); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLimitIsReadAsItIsWritten(t *testing.T) {
	usual := firewall.Limit{Over: firewall.LockOut, LockFor: 300, Strikes: 3, StrikeWindow: 3600, Never: firewall.NeverQuarantine}
	with := func(do func(*firewall.Limit)) firewall.Limit {
		l := usual
		do(&l)
		return l
	}
	set := with(func(l *firewall.Limit) { l.Open, l.Over, l.LockFor, l.DryRun = 7, firewall.Quarantine, 1800, true })
	for _, c := range []struct {
		name  string
		was   firewall.Limit
		pairs []string
		want  firewall.Limit
		says  string // "field: text" of every problem, with "; " between
	}{
		{"untouched", firewall.Limit{}, nil, firewall.Limit{}, ""},
		{"a number and the rest as it stands", firewall.Limit{}, []string{"limit_open", "20"}, with(func(l *firewall.Limit) { l.Open = 20 }), ""},
		{"both numbers", firewall.Limit{}, []string{"limit_new", " 1 000 000 ", "limit_window", "1m30s"}, with(func(l *firewall.Limit) { l.New, l.Window = 1_000_000, 90 }), ""},
		{"nothing is done to it", set, nil, set, ""},
		{"the number goes, and the limit with it", set, []string{"limit_open", ""}, firewall.Limit{}, ""},
		{"all is cleared", set, []string{"limit_open", "", "lock_for", "", "strikes", "", "strike_window", "", "never", ""}, firewall.Limit{}, ""},
		{"chosen, but no number", firewall.Limit{}, []string{"over", "quarantine"}, with(func(l *firewall.Limit) { l.Over = firewall.Quarantine }), ""},
		{"counted only, but no number", firewall.Limit{}, []string{"dry_run", "1"}, with(func(l *firewall.Limit) { l.DryRun = true }), ""},
		{"nobody exempt", firewall.Limit{}, []string{"limit_open", "1", "never", ""}, with(func(l *firewall.Limit) { l.Open, l.Never = 1, "" }), ""},
		{"never promoted", firewall.Limit{}, []string{"limit_open", "1", "strikes", " "}, with(func(l *firewall.Limit) { l.Open, l.Strikes = 1, 0 }), ""},
		{"no connection at all", firewall.Limit{}, []string{"limit_open", "0"}, with(func(l *firewall.Limit) { l.Open = 1 }), "limit_open: Enter a whole number from 1 to 1 000 000."},
		{"all wrong at once", firewall.Limit{}, []string{"limit_open", "-1", "limit_new", "ten", "limit_window", "5 minutes", "lock_for", "1h30", "strikes", "101", "strike_window", "x"},
			with(func(l *firewall.Limit) { l.Open, l.New, l.Window, l.Strikes = 1, 1, 1, 0 }),
			"limit_open: Enter a whole number from 1 to 1 000 000.; limit_new: Enter a whole number from 1 to 1 000 000.; limit_window: Write for example 30s, 5m or 2h.; " +
				"lock_for: Write for example 30s, 5m or 2h.; strikes: Enter a whole number from 1 to 100, or 0 for never.; strike_window: Write for example 30s, 5m or 2h."},
		{"signs and huge numbers", firewall.Limit{}, []string{"limit_open", "+5", "limit_new", "99999999999999999999", "limit_window", "0"},
			with(func(l *firewall.Limit) { l.Open, l.New, l.Window = 1, 1, 1 }),
			"limit_open: Enter a whole number from 1 to 1 000 000.; limit_new: Enter a whole number from 1 to 1 000 000.; limit_window: The time must be 1 second to 1 day."},
	} {
		got, ps := typed(t, c.was, c.pairs...).Value(never(), c.was)
		var says []string
		for _, p := range ps {
			says = append(says, p.Field+": "+p.Text)
		}
		if got != c.want || strings.Join(says, "; ") != c.says {
			t.Errorf("%s:\n got %+v %q\nwant %+v %q", c.name, got, strings.Join(says, "; "), c.want, c.says)
		}
	}
	if got := ShowLimit(firewall.Config{}, firewall.Limit{}).Never; got != "" {
		t.Errorf("a new limit names the alias %s, which is not there", got)
	}
}

func TestLimitSaysWhatTheKernelDoes(t *testing.T) {
	for _, c := range []struct{ n, window, want string }{
		{"", "", "For example 10 in 5s: 10 at once, then 2 a second; never more than 20 in any 5s."},
		{"10", "5s", "10 at once, then 2 a second; never more than 20 in any 5s."},
		{"7", "5", "7 at once, then 84 a minute; never more than 14 in any 5s."},
		{"1", "1h", "1 at once, then 1 an hour; never more than 2 in any 1h."},
		{"1", "2h", "1 at once, then 12 a day; never more than 2 in any 2h."},
		{"1", "86399", "1 at once, then 7 a week; never more than 2 in any 23h59m59s."},
		{"10", "", "For example 10 in 5s: 10 at once, then 2 a second; never more than 20 in any 5s."},
		{"0", "5s", "For example 10 in 5s: 10 at once, then 2 a second; never more than 20 in any 5s."},
		{"10", "2d", "For example 10 in 5s: 10 at once, then 2 a second; never more than 20 in any 5s."},
	} {
		if got := (Limit{New: c.n, Window: c.window}).speed(); got != c.want {
			t.Errorf("%s in %s: %q, want %q", c.n, c.window, got, c.want)
		}
	}
}

func TestLimitIsShortInAList(t *testing.T) {
	l := firewall.Limit{Open: 20, New: 10, Window: 5, Over: firewall.LockOut, LockFor: 300}
	if got := LimitGist(l); got != "20 open · 10/5s" {
		t.Error(got)
	}
	l.DryRun = true
	if got := LimitGist(l); got != "20 open · 10/5s · counts only" {
		t.Error(got)
	}
	html := render(t, LimitPill(l))
	for _, want := range []string{`<span class="pill" title="20 open, 10 new in 5s per source, counted only">`, `<span class="sr">limit: 20 open, 10 new in 5s per source, counted only</span>`} {
		if !strings.Contains(html, want) {
			t.Errorf("%s\nlacks %s", html, want)
		}
	}
	if html := render(t, LimitPill(firewall.Limit{})); html != "" {
		t.Errorf("no limit is shown as %s", html)
	}
}

// The card is folded unless there is something to see, and never hides what is wrong.
func TestLimitCardIsOpenWhenSetOrWrong(t *testing.T) {
	c := never()
	for _, x := range []struct {
		name string
		f    Limit
		ps   firewall.Problems
		open bool
	}{
		{"untouched", ShowLimit(c, firewall.Limit{}), nil, false},
		{"set", ShowLimit(c, firewall.Limit{Open: 20, Over: firewall.DropExcess}), nil, true},
		{"wrong", ShowLimit(c, firewall.Limit{}), firewall.Problems{{Field: "never", Text: "There is no alias."}}, true},
		{"another field is wrong", ShowLimit(c, firewall.Limit{}), firewall.Problems{{Field: "dport", Text: "Port."}}, false},
	} {
		html := render(t, LimitCard(x.f, x.ps, c))
		if got := strings.Contains(html, `<details class="card" open`); got != x.open {
			t.Errorf("%s: open is %v", x.name, got)
		}
		for _, name := range LimitFields() {
			if !strings.Contains(html, `name="`+name+`"`) {
				t.Errorf("%s: the field %s is missing", x.name, name)
			}
		}
		if strings.Contains(html, "PORTS") || !strings.Contains(html, `<option value="OFFICE">`) {
			t.Errorf("%s: the aliases of addresses, and no others, can be chosen", x.name)
		}
	}
	html := render(t, LimitCard(ShowLimit(c, firewall.Limit{}), firewall.Problems{{Field: "over", Text: "Lock-out needs TCP."}}, c))
	if !strings.Contains(html, `aria-describedby="f-over-error"`) || !strings.Contains(html, `id="f-over-error">Lock-out needs TCP.`) {
		t.Error("the problem of the choice is not tied to it")
	}
}
