package tables

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/quarantine"
	"gatehouse/web/page"
)

// list is the page of one list of sources.
type list struct {
	ask
	Frame   page.Frame
	Tabs    []tab
	Rows    []row
	Found   int // of the search
	Total   int // in the list
	Pages   int
	Seen    time.Time // when the list was read
	Updated time.Time // when the kernel was last asked who is in it; zero: not yet
	News    news
	Ghost   ghost
	Fresh   bool   // the line above takes the focus: what had it is gone
	Alert   string // why a button did nothing
	Mine    netip.Addr
	Exempt  bool        // Mine is never shut out
	Trials  []trial     // rules that only count
	Alarms  []alarm     // meters that are nearly full
	Limits  int         // rules with a limit
	Acts    []act       // what was done last
	Else    []elsewhere // other lists that hold what this one does not
}

// tab is one of the page's tabs.
type tab struct {
	Set, Label string
	Count      int
}

// row is one source as it is shown.
type row struct {
	quarantine.Entry
	At    int    // in the table
	Key   string // as forms send it
	Name  string // as a person reads it
	Host  string // of an address inside
	Rule  rule
	Focus bool // it has just come back
}

// rule is how a rule is called, with the way to it.
type rule struct{ Name, Link string }

// news is what has changed since the rows were shown.
type news struct {
	Held      bool
	New, Gone int
	More      bool // there are more new ones than were counted
}

// ghost stands where a row was that has just been released, with the way back.
type ghost struct {
	Text string
	Op   string // takes it back; "" when there is nothing to take back
	At   int    // row of the table; -1: above it
}

// inTable reports whether the ghost stands among the rows.
func (g ghost) inTable() bool { return g.Text != "" && g.At >= 0 }

// trial is a rule that only counts.
type trial struct {
	Rule  rule
	ID    firewall.ID
	Count int
}

// shownTrials is how many rules that only count have a line of their own.
const shownTrials = 5

// shownActs is how much of the audit the page shows, of so many acts that it reads:
// what limits did is among them.
const (
	shownActs = 10
	readActs  = 500
)

// elsewhere is another list that holds what was searched for.
type elsewhere struct {
	Label, Path string
	Found       int
}

// list reads one list of sources.
func (p *pages) list(r *http.Request, a ask) list {
	now := time.Now()
	l := list{ask: a}
	q := a.query()
	if a.held() { // only what stands above the rows is shown
		q.Max = 1
	}
	got := p.Lists.List(q)
	l.Pages = max(1, (got.Matched+perPage-1)/perPage)
	if a.Page > l.Pages { // what stood there is gone
		a.Page = l.Pages
		l.ask = a
		q.From = (a.Page - 1) * perPage
		got = p.Lists.List(q)
	}
	l.Found, l.Total, l.Seen, l.Updated = got.Matched, got.Total, now, got.Updated
	c, counts := p.Running(), p.Lists.Counts()
	l.Tabs = tabs(c, counts, a.Set)
	names := p.whose()
	for i, e := range got.Entries {
		x := row{Entry: e, At: i, Key: e.Source.String(), Name: called(e.Source), Rule: ruleOf(c, e.Rule)}
		if e.Source.IsSingleIP() {
			x.Host = names[e.Source.Addr()]
		}
		l.Rows = append(l.Rows, x)
	}
	if a.held() {
		l.News = p.news(a, got.Total)
	}
	l.Mine, l.Exempt = p.mine(r)
	for _, x := range c.Rules {
		if x.Limit.On() && x.On {
			l.Limits++
		}
	}
	if a.Set != quarantine.InWould && counts.Would > 0 {
		l.Trials = p.trials(c)
	}
	l.Alarms = p.alarms(c)
	for _, done := range p.Lists.Acts(readActs) {
		if done.Who.Account != "" && len(l.Acts) < shownActs { // what limits did stands in the list itself
			l.Acts = append(l.Acts, describe(done))
		}
	}
	if a.Search != "" && got.Matched == 0 {
		l.Else = p.elsewhere(a)
	}
	return l
}

// tabs are the lists with how much each holds. What rules that only count would
// have done is a list only when there is something in it.
func tabs(c firewall.Config, n quarantine.Counts, now string) []tab {
	ts := []tab{{quarantine.InQuarantine, "Quarantine", n.Quarantine}, {quarantine.InLockOuts, "Lock-outs", n.LockOuts}}
	if n.Would > 0 || now == quarantine.InWould {
		ts = append(ts, tab{quarantine.InWould, "Only counted", n.Would})
	}
	sets := 0
	for _, a := range c.Aliases {
		if a.Kind == firewall.Addresses {
			sets++
		}
	}
	return append(ts, tab{setAliases, "Aliases", sets}, tab{setAutomatic, "Automatic", -1})
}

// news counts what came and went since the rows were shown.
func (p *pages) news(a ask, total int) news {
	n := news{Held: true}
	q := a.query()
	q.Sort, q.Desc, q.From, q.Max = "since", true, 0, perPage
	for _, e := range p.Lists.List(q).Entries {
		if !e.Since.After(a.seen) {
			break
		}
		n.New++
	}
	n.More = n.New == perPage
	if a.Search == "" && !n.More {
		n.Gone = max(0, a.total+n.New-total)
	}
	return n
}

// trials are the running rules that only count, with how many they would have shut out.
func (p *pages) trials(c firewall.Config) (out []trial) {
	for _, r := range c.Rules {
		if !r.On || !r.Limit.On() || !r.Limit.DryRun || len(out) == shownTrials {
			continue
		}
		found := p.Lists.List(quarantine.Query{Set: quarantine.InWould, Search: string(r.ID), Max: 1})
		if found.Matched > 0 {
			out = append(out, trial{ruleOf(c, r.ID), r.ID, found.Matched})
		}
	}
	return out
}

// elsewhere looks for what was not found here in the other lists.
func (p *pages) elsewhere(a ask) (out []elsewhere) {
	for _, t := range []tab{{Set: quarantine.InQuarantine, Label: "Quarantine"}, {Set: quarantine.InLockOuts, Label: "Lock-outs"}} {
		if t.Set == a.Set {
			continue
		}
		if n := p.Lists.List(quarantine.Query{Set: t.Set, Search: a.Search, Max: 1}).Matched; n > 0 {
			out = append(out, elsewhere{t.Label, ask{Set: t.Set, Search: a.Search}.path(), n})
		}
	}
	return out
}

// ruleOf names a rule of what runs.
func ruleOf(c firewall.Config, id firewall.ID) rule {
	if id == "" {
		return rule{}
	}
	r, ok := c.Rule(id)
	if !ok {
		return rule{Name: "a rule that is gone"}
	}
	return rule{page.Harmless(cmp.Or(r.Descr, r.String())), "/rules/" + string(id)}
}

// alarm is a meter that is nearly full, in words.
type alarm struct {
	Rule rule
	Text string
}

func (p *pages) alarms(c firewall.Config) (out []alarm) {
	for _, a := range p.Watch.Full() {
		out = append(out, alarm{ruleOf(c, a.Rule), filled(a)})
	}
	return out
}

// filled says what it means that a meter, or the list of those that are shut out,
// is nearly full.
func filled(a quarantine.Alarm) string {
	used := fmt.Sprintf("%s of %s %s", page.Number(a.Used), page.Number(a.Size), sources(a))
	switch {
	case a.Rule == "":
		return "The list of those that are shut out is nearly full: " + used + ". Of a source that does not fit only the excess is dropped."
	case !a.Time.IsZero():
		return "had no room for more than its " + page.Number(a.Size) + " " + sources(a) + ". Those that do not fit share one limit."
	}
	return "is nearly full: " + used + ". Those that do not fit share one limit."
}

// sources is what a meter counts.
func sources(a quarantine.Alarm) string {
	if a.V6 {
		return "IPv6 sources"
	}
	return "IPv4 sources"
}

// focus marks the row of a source that has just come back; false when it is not here.
func (l *list) focus(src netip.Prefix) (here bool) {
	for i := range l.Rows {
		l.Rows[i].Focus = l.Rows[i].Source == src
		here = here || l.Rows[i].Focus
	}
	return here
}

// heading is what the list is called in a sentence.
func (l list) heading() string {
	switch l.Set {
	case quarantine.InQuarantine:
		return "Sources in quarantine"
	case quarantine.InLockOuts:
		return "Sources that are locked out"
	}
	return "Sources that rules which only count would have shut out"
}

// acts reports whether something can be done with the rows.
func (l list) acts() bool { return l.Set != quarantine.InWould }

// columns are the headings of the list.
func (l list) columns() (cs []page.Column) {
	sortable := func(label, by string, num bool) {
		cs = append(cs, page.Column{Label: label, Num: num, Href: l.sortBy(by), Sorted: l.sorted(by)})
	}
	if l.acts() {
		cs = append(cs, page.Column{Label: "Select", Quiet: true})
	}
	sortable("Address", "address", false)
	cs = append(cs, page.Column{Label: "Why"})
	sortable("Rule", "rule", false)
	sortable("Times", "times", true)
	sortable("Since", "since", false)
	if l.acts() {
		sortable("Leaves", "leaves", false)
		sortable("Dropped", "packets", true)
		sortable("Last packet", "last", false)
		cs = append(cs, page.Column{Label: "Actions", Quiet: true})
	}
	return cs
}

// maxEntries is how many sources of one family the kernel keeps.
const maxEntries = 65536

// holds says how long the list is, and what the search leaves of it.
func (l list) holds() string {
	switch {
	case l.Search != "":
		return page.Number(l.Found) + " found in " + counted(l.Total, "entry", "entries")
	case !l.acts():
		return counted(l.Total, "entry", "entries")
	}
	return counted(l.Total, "entry", "entries") + " of at most " + page.Number(maxEntries)
}

// String says what has changed since the rows were shown.
func (n news) String() string {
	var s string
	switch {
	case !n.Held || n.New == 0 && n.Gone == 0:
		return ""
	case n.More:
		return fmt.Sprintf("%d or more new", n.New)
	case n.New > 0:
		s = fmt.Sprintf("%d new", n.New)
		if n.Gone > 0 {
			s += ", "
		}
	}
	if n.Gone > 0 {
		s += fmt.Sprintf("%d gone", n.Gone)
	}
	return s
}

// counted is a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return page.Number(n) + " " + many
}

// releaseAll is the button that releases all that is listed, on all its pages.
func (l list) releaseAll() string {
	switch {
	case l.Search != "" && l.Found > 1:
		return "Release all " + page.Number(l.Found) + " found"
	case l.Found > 1:
		return "Release all " + page.Number(l.Found) + " addresses"
	}
	return "Release 1 address"
}

// question is what is asked before that.
func (l list) question() string {
	from := "quarantine"
	if l.Set == quarantine.InLockOuts {
		from = "the lock-outs"
	}
	return "Release " + counted(l.Found, "address", "addresses") + " from " + from + "?"
}

// empty is what it means that the list is empty.
func (l list) empty() string {
	switch l.Set {
	case quarantine.InQuarantine:
		return "Nobody is in quarantine."
	case quarantine.InLockOuts:
		return "Nobody is locked out."
	}
	return "No rule that only counts would have shut anybody out."
}

// export is the path of the list as a file.
func (l list) export() string {
	a := l.ask
	a.Page, a.Paused, a.Menu = 1, false, ""
	return "/tables/" + a.Set + ".csv?" + a.values().Encode()
}

// op is the value of a button of the row.
func (x row) op(verb string) string { return opOf(verb, x.At, x.Key) }
