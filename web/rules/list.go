package rules

import (
	"cmp"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// The tabs that are no interface; no interface can have these names.
const (
	tabAll      = "all"
	tabFloating = "any"
)

// chunk is the most rows of one table: the browser lays out only the tables
// that are in sight.
const chunk = 50

// list is the page of rules.
type list struct {
	Frame  page.Frame
	Alert  string // why a button did nothing
	Tab    string
	Query  string
	Menu   firewall.ID // whose row menu is open, without script
	Tabs   []tab
	Lists  []group
	Shown  int // rules that the search left
	Total  int
	IsFull bool // "All": the whole order of evaluation
}

type tab struct {
	Key, Label string
	Count      int
}

// group is the rules of one interface, or the floating ones.
type group struct {
	In       firewall.Name // empty: floating
	Title    string
	Auto     []automatic
	Sections []section
	Count    int // rules, found or not
	Floating int // how many floating rules are looked at before
}

// section is a run of rules that name the same section.
type section struct {
	Name   string
	Count  int
	Chunks [][]row
}

// row is one rule as it is shown.
type row struct {
	firewall.Rule
	State string // "", new, changed, moved, deleted
	Hash  string
	Hits  string
	Prev  firewall.ID // neighbours in the list as shown, to move past
	Next  firewall.ID
	First firewall.ID
}

// find puts together what the page shows.
func find(v commit.View, hits map[firewall.ID]uint64, want url.Values) list {
	l := list{Tab: want.Get("tab"), Query: strings.TrimSpace(want.Get("q")), Menu: firewall.ID(want.Get("menu"))}
	by := map[firewall.Name][]row{}
	for _, r := range merged(v) {
		by[r.In] = append(by[r.In], r)
	}
	l.Tabs = append(l.Tabs, tab{tabFloating, "Floating", present(by[""])})
	for _, in := range v.Config.Interfaces {
		l.Tabs = append(l.Tabs, tab{string(in.Name), string(in.Name), present(by[in.Name])})
	}
	l.Tabs = append(l.Tabs, tab{tabAll, "All", len(v.Config.Rules)})
	if !slices.ContainsFunc(l.Tabs, func(t tab) bool { return t.Key == l.Tab }) {
		l.Tab = firstTab(v.Config)
	}
	l.IsFull = l.Tab == tabAll
	add := func(in firewall.Name, title string) {
		if !l.IsFull && l.Tab != string(in) && (in != "" || l.Tab != tabFloating) {
			return
		}
		g := group{In: in, Title: title, Count: present(by[in]), Floating: present(by[""])}
		if in != "" {
			g.Auto = automatics(v.Config, in)
		}
		g.Sections = l.sections(by[in], hits)
		l.Total += g.Count
		l.Lists = append(l.Lists, g)
	}
	add("", "Floating: every interface")
	for _, in := range v.Config.Interfaces {
		add(in.Name, string(in.Name))
	}
	return l
}

// firstTab is where most rules are written: the first LAN.
func firstTab(c firewall.Config) string {
	for _, in := range c.Interfaces {
		if in.Role == firewall.LAN {
			return string(in.Name)
		}
	}
	return tabFloating
}

func present(rows []row) (n int) {
	for _, r := range rows {
		if r.State != "deleted" {
			n++
		}
	}
	return n
}

// sections cuts the rows of one list into runs, after the search.
func (l *list) sections(rows []row, hits map[firewall.ID]uint64) (out []section) {
	link(rows)
	needle := strings.ToLower(l.Query)
	for _, r := range rows {
		if needle != "" && !strings.Contains(haystack(r.Rule), needle) {
			continue
		}
		if n, ok := hits[r.ID]; ok {
			r.Hits = short(n)
		}
		if len(out) == 0 || out[len(out)-1].Name != r.Section {
			out = append(out, section{Name: r.Section})
		}
		s := &out[len(out)-1]
		if s.Count%chunk == 0 {
			s.Chunks = append(s.Chunks, nil)
		}
		last := len(s.Chunks) - 1
		s.Chunks[last] = append(s.Chunks[last], r)
		s.Count++
		l.Shown++
	}
	return out
}

// link tells every row its neighbours; a deleted one is nobody's.
func link(rows []row) {
	last := -1
	var first firewall.ID
	for i := range rows {
		if rows[i].State == "deleted" {
			continue
		}
		if last < 0 {
			first = rows[i].ID
		} else {
			rows[i].Prev, rows[last].Next = rows[last].ID, rows[i].ID
		}
		rows[i].First = first
		last = i
	}
}

func haystack(r firewall.Rule) string {
	return strings.ToLower(r.Descr + "\n" + r.Section + "\n" + r.String() + "\n" + string(r.ID))
}

// merged is the rules of the draft in their order, with those that it deletes
// where they stood.
func merged(v commit.View) []row {
	was := make(map[firewall.ID]firewall.Rule, len(v.Head.Rules))
	for _, r := range v.Head.Rules {
		was[r.ID] = r
	}
	is := make(map[firewall.ID]bool, len(v.Config.Rules))
	for _, r := range v.Config.Rules {
		is[r.ID] = true
	}
	gone := map[firewall.ID][]row{} // deleted rules by the rule that stood above them
	var above firewall.ID
	for _, r := range v.Head.Rules {
		if is[r.ID] {
			above = r.ID
			continue
		}
		gone[above] = append(gone[above], row{Rule: r, State: "deleted"})
	}
	still := steady(v.Head.Rules, v.Config.Rules)
	out := append(make([]row, 0, len(v.Config.Rules)), gone[""]...)
	for _, r := range v.Config.Rules {
		x := row{Rule: r, Hash: r.Hash()}
		switch old, there := was[r.ID]; {
		case !there:
			x.State = "new"
		case !reflect.DeepEqual(old, r) && old.Hash() != x.Hash: // the first tells most of them apart at once
			x.State = "changed"
		case !still[r.ID]:
			x.State = "moved"
		}
		out = append(append(out, x), gone[r.ID]...)
	}
	return out
}

// steady is the rules that kept their order: the longest run of them, so that
// moving one rule marks one rule.
func steady(was, is []firewall.Rule) map[firewall.ID]bool {
	at := make(map[firewall.ID]int, len(was))
	for i, r := range was {
		at[r.ID] = i
	}
	var seq []int
	for _, r := range is {
		if i, ok := at[r.ID]; ok {
			seq = append(seq, i)
		}
	}
	prev := make([]int, len(seq))
	var tails []int // by length: where the run with the smallest end ends
	for i, v := range seq {
		n, _ := slices.BinarySearchFunc(tails, v, func(t, v int) int { return seq[t] - v })
		prev[i] = -1
		if n > 0 {
			prev[i] = tails[n-1]
		}
		if n == len(tails) {
			tails = append(tails, i)
		} else {
			tails[n] = i
		}
	}
	keep := make(map[firewall.ID]bool, len(tails))
	if len(tails) > 0 {
		for i := tails[len(tails)-1]; i >= 0; i = prev[i] {
			keep[was[seq[i]].ID] = true
		}
	}
	return keep
}

func ref(id firewall.ID) firewall.Ref { return firewall.Ref{Kind: "rule", Key: string(id)} }

// short writes a count in four characters or so: 37, 1.2k, 8.1M.
func short(n uint64) string {
	switch {
	case n < 1000:
		return strconv.FormatUint(n, 10)
	case n < 10_000:
		return fmt.Sprintf("%.1fk", float64(n/100)/10)
	case n < 1_000_000:
		return fmt.Sprintf("%dk", n/1000)
	case n < 10_000_000:
		return fmt.Sprintf("%.1fM", float64(n/100_000)/10)
	case n < 1_000_000_000:
		return fmt.Sprintf("%dM", n/1_000_000)
	}
	return fmt.Sprintf("%.1fG", float64(n/100_000_000)/10)
}

// title is what a button calls the rule.
func title(r firewall.Rule) string { return cmp.Or(r.Descr, r.String()) }

// kind is the row's family and protocol in few words.
func (r row) kind() string {
	if r.Proto == firewall.AnyProto {
		return familyWord(r.Family) + " any"
	}
	return familyWord(r.Family) + " " + protoWord(r.Proto)
}

// from is the source with its port, which is rare.
func (r row) from() string {
	if len(r.SrcPorts) == 0 {
		return r.Src.String()
	}
	return r.Src.String() + " port " + r.SrcPorts.String()
}

// ports is the destination ports, or the ICMP types.
func (r row) ports() string {
	switch {
	case len(r.ICMP) > 0:
		return strings.Join(r.ICMP, ", ")
	case len(r.DstPorts) > 0:
		return r.DstPorts.String()
	}
	return "any"
}

// class is the row's looks: off, pending, made by a forward.
func (r row) class() string {
	var c []string
	if !r.On {
		c = append(c, "off")
	}
	switch r.State {
	case "":
	case "deleted":
		c = append(c, "gone")
	case "new":
		c = append(c, "new")
	default:
		c = append(c, "changed")
	}
	if r.Forward != "" {
		c = append(c, "linked")
	}
	return strings.Join(c, " ")
}

// size is the class that tells the browser how tall a table out of sight is.
func size(rows int) string {
	for _, n := range []int{2, 5, 10, 20, 35} {
		if rows <= n {
			return "chunk rows" + strconv.Itoa(n)
		}
	}
	return "chunk"
}

// at is the address of this list, with one more parameter.
func (l list) at(pairs ...string) string {
	q := url.Values{"tab": {l.Tab}}
	if l.Query != "" {
		q.Set("q", l.Query)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return "/rules?" + q.Encode()
}

// addAt is the address of the editor for a new rule of a list.
func addAt(in firewall.Name, pairs ...string) string {
	q := url.Values{"in": {string(in)}}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return "/rules/new?" + q.Encode()
}

func opValue(verb string, r row, neighbour firewall.ID) string {
	s := verb + ":" + string(r.ID) + ":" + brief(r.Hash)
	if neighbour != "" {
		s += ":" + string(neighbour)
	}
	return s
}

// addTo is the list that the Add button of the page adds to.
func (l list) addTo() firewall.Name {
	if l.Tab == tabFloating || l.IsFull {
		return ""
	}
	return firewall.Name(l.Tab)
}

// first is the rule that a new one at the top goes before.
func (g group) first() firewall.ID {
	for _, s := range g.Sections {
		for _, c := range s.Chunks {
			for _, r := range c {
				if r.First != "" {
					return r.First
				}
			}
		}
	}
	return ""
}

func comes(n int) string {
	if n == 1 {
		return "comes"
	}
	return "come"
}

func contains(n int) string {
	if n == 1 {
		return "contains"
	}
	return "contain"
}
