package tables

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatehouse/services/quarantine"
	"gatehouse/web/page"
)

// The tabs; the first three are lists of the service.
const (
	setAliases   = "aliases"
	setAutomatic = "automatic"
)

// perPage is how many rows one page shows.
const perPage = 200

// ask is what a person wants to see: what a permanent URL says.
type ask struct {
	Set    string
	Search string
	Sort   string // "" = since, newest first
	Desc   bool
	Page   int // from 1
	Paused bool
	Menu   string // the source whose further acts are shown
	Name   string // the alias that is shown
	Find   string // the page is that of an address instead
	hold   bool   // the rows must stay where they are
	fresh  bool   // somebody asked for the rows as they are now
	seen   time.Time
	total  int // of the list when it was shown
}

// sorts are the columns that can be sorted by.
var sorts = []string{"address", "rule", "times", "since", "leaves", "packets", "last"}

// readAsk reads a query. What it does not know is as good as not said, but a set
// that is not there is 404: a permanent URL must not show something else.
func readAsk(q url.Values) (ask, error) {
	a := ask{Set: q.Get("set"), Search: strings.TrimSpace(q.Get("q")), Sort: q.Get("sort"), Desc: q.Get("desc") == "1", Page: 1,
		Paused: q.Get("live") == "off", Menu: q.Get("menu"), Name: q.Get("name"), Find: q.Get("find"), hold: q.Get("hold") != "", fresh: q.Get("fresh") != ""}
	if a.Set == "" {
		a.Set = quarantine.InQuarantine
	}
	if !slices.Contains([]string{quarantine.InQuarantine, quarantine.InLockOuts, quarantine.InWould, setAliases, setAutomatic}, a.Set) {
		return a, page.NotFound{What: "This table"}
	}
	if len(a.Search) > 200 {
		a.Search = a.Search[:200]
	}
	a.Search = strings.ToValidUTF8(a.Search, "")
	if !slices.Contains(sorts, a.Sort) {
		a.Sort, a.Desc = "", false
	}
	if n, err := strconv.Atoi(q.Get("page")); err == nil && n > 1 && n < 1_000_000 {
		a.Page = n
	}
	if n, err := strconv.ParseInt(q.Get("seen"), 10, 64); err == nil {
		a.seen = time.Unix(0, n)
	}
	a.total, _ = strconv.Atoi(q.Get("total"))
	return a, nil
}

// held reports whether the page asks by itself while its rows must not be moved.
func (a ask) held() bool { return (a.hold || a.Paused) && !a.seen.IsZero() }

// query is what the service is asked.
func (a ask) query() quarantine.Query {
	q := quarantine.Query{Set: a.Set, Search: a.Search, Sort: a.Sort, Desc: a.Desc, From: (a.Page - 1) * perPage, Max: perPage}
	if q.Sort == "" {
		q.Sort, q.Desc = "since", true
	}
	return q
}

// values is the query that says it, without what is usual.
func (a ask) values() url.Values {
	q := url.Values{"set": {a.Set}}
	set := func(key, value string, on bool) {
		if on {
			q.Set(key, value)
		}
	}
	set("q", a.Search, a.Search != "")
	set("sort", a.Sort, a.Sort != "")
	set("desc", "1", a.Desc)
	set("page", strconv.Itoa(a.Page), a.Page > 1)
	set("live", "off", a.Paused)
	set("menu", a.Menu, a.Menu != "")
	set("name", a.Name, a.Name != "")
	set("find", a.Find, a.Find != "")
	return q
}

// path is the permanent URL.
func (a ask) path() string {
	if a.Find != "" {
		return "/tables/find?" + url.Values{"q": {a.Find}}.Encode()
	}
	return "/tables?" + a.values().Encode()
}

// at is the same in a form field; readAt reads it.
func (a ask) at() string { return a.values().Encode() }

// readAt reads what at wrote: where a button was.
func readAt(at string) (ask, error) {
	q, err := url.ParseQuery(at)
	if err != nil {
		return ask{}, page.BadForm{Err: err}
	}
	return readAsk(q)
}

// tabTo is the path of another tab.
func tabTo(set string) string { return ask{Set: set}.path() }

// with is the path of the same list with one thing changed.
func (a ask) with(change func(*ask)) string {
	a.Menu = ""
	change(&a)
	return a.path()
}

// pageTo is the path of another page of the list.
func (a ask) pageTo(n int) string { return a.with(func(a *ask) { a.Page = n }) }

// live is the path that the list refreshes itself by: with what is shown, so that
// the answer can say what has changed since.
func (a ask) live(seen time.Time, total int) string {
	q := a.values()
	q.Set("seen", strconv.FormatInt(seen.UnixNano(), 10))
	q.Set("total", strconv.Itoa(total))
	return "/tables?" + q.Encode()
}

// sorted says how the list is sorted by a column, as aria-sort has it.
func (a ask) sorted(by string) string {
	switch {
	case a.Sort == "" && by == "since", a.Sort == by && a.Desc:
		return "descending"
	case a.Sort == by:
		return "ascending"
	}
	return ""
}

// sortBy is the path that sorts by a column, and turns the order of the one that
// it is sorted by. Numbers and times start with the largest.
func (a ask) sortBy(by string) string {
	return a.with(func(a *ask) {
		a.Page = 1
		a.Desc = a.sorted(by) == "ascending" || a.sorted(by) == "" && by != "address" && by != "rule"
		a.Sort = by
		if by == "since" && a.Desc {
			a.Sort, a.Desc = "", false
		}
	})
}
