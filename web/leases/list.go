package leases

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/dhcp"
	"gatehouse/web/page"
)

// shown is how many leases of one network the page lists: the rest is found by searching.
const shown = 500

// list is the page of leases.
type list struct {
	Frame    page.Frame
	Query    string
	Scopes   []scope
	Rest     []row // leases of networks that have no section
	Found    int   // leases and mappings that the search leaves
	HasScope bool  // there is a scope that a mapping could be in
	Now      time.Time
}

// scope is one network with its leases.
type scope struct {
	firewall.Scope
	Port    firewall.Interface
	Known   bool   // there is a scope
	State   string // of the scope in the draft: "", new, changed
	Serves  bool   // it hands out addresses now
	Problem string // why it does not, although it should
	Active  int    // leases in use, searched for or not
	Rows    []row
	More    int // leases that are left out of Rows
	Statics []mapping
}

// row is one lease as it is shown.
type row struct {
	dhcp.Lease
	Now    dhcp.State
	Static firewall.ID // the mapping of its client in the draft; empty: none
	CanMap bool        // a mapping can be made of it
}

// mapping is one static mapping as it is shown.
type mapping struct {
	firewall.StaticLease
	State string // "", new, changed, deleted
	Hash  string
	Here  bool   // its client has the address now
	Busy  string // who else has it now
}

// find puts the page together.
func (p *pages) find(v commit.View, query string, now time.Time) list {
	l := list{Query: query, Now: now, HasScope: len(v.Config.Scopes) > 0}
	byNet := map[firewall.Name][]dhcp.Lease{}
	for _, lease := range p.Server.List() {
		byNet[lease.In] = append(byNet[lease.In], lease)
	}
	devices, failed := p.Server.Serving()
	for _, in := range v.Config.Interfaces {
		s, known := v.Config.Scope(in.Name)
		if in.Role == firewall.WAN && !known {
			continue
		}
		sec := scope{Scope: s, Port: in, Known: known, Serves: slices.Contains(devices, in.Device), Problem: failed[in.Device]}
		switch was := v.Head.Hash(scopeRef(in.Name)); {
		case known && was == "":
			sec.State = "new"
		case was != v.Config.Hash(scopeRef(in.Name)):
			sec.State = "changed"
		}
		leases := byNet[in.Name]
		delete(byNet, in.Name)
		sec.Statics = mappings(v, s, leases, query, now)
		for _, lease := range leases {
			if lease.At(now) == dhcp.Active {
				sec.Active++
			}
		}
		sec.Rows = rows(leases, s, known, query, now)
		l.Found += len(sec.Rows) + len(sec.Statics)
		if sec.More = len(sec.Rows) - shown; sec.More > 0 {
			sec.Rows = sec.Rows[:shown]
		}
		l.Scopes = append(l.Scopes, sec)
	}
	for _, leases := range byNet {
		l.Rest = append(l.Rest, rows(leases, firewall.Scope{}, false, query, now)...)
	}
	l.Found += len(l.Rest)
	slices.SortFunc(l.Rest, func(a, b row) int { return a.Addr.Compare(b.Addr) })
	l.Rest = l.Rest[:min(len(l.Rest), shown)]
	return l
}

// rows is the leases that the search leaves.
func rows(leases []dhcp.Lease, s firewall.Scope, known bool, query string, now time.Time) (list []row) {
	for _, l := range leases {
		r := row{Lease: l, Now: l.At(now)}
		if i := slices.IndexFunc(s.Statics, func(st firewall.StaticLease) bool { return st.MAC == l.MAC }); i >= 0 {
			r.Static = s.Statics[i].ID
		}
		r.CanMap = known && r.Static == "" && l.MAC != "" && r.Now != dhcp.Declined && r.Now != dhcp.Static
		if matches(query, l.Addr.String(), l.Host, called(l), string(l.MAC), string(l.In), string(r.Now)) {
			list = append(list, r)
		}
	}
	return list
}

// mappings is the static mappings of one scope, with those that the draft deletes.
func mappings(v commit.View, s firewall.Scope, leases []dhcp.Lease, query string, now time.Time) (list []mapping) {
	add := func(m mapping) {
		if !matches(query, text(m.Addr), m.Host, string(m.MAC), m.Descr, "static") {
			return
		}
		for _, l := range leases {
			if l.Addr == m.Addr && l.At(now) == dhcp.Active {
				if m.Here = l.MAC == m.MAC; !m.Here {
					m.Busy = fmt.Sprintf("Leased to %s until %s.", whose(l), clock(l.Until, now))
				}
			}
		}
		list = append(list, m)
	}
	for _, st := range s.Statics {
		m := mapping{StaticLease: st, Hash: v.Config.Hash(staticRef(st.ID))}
		switch was := v.Head.Hash(staticRef(st.ID)); {
		case was == "":
			m.State = "new"
		case was != m.Hash:
			m.State = "changed"
		}
		add(m)
	}
	head, _ := v.Head.Scope(s.In)
	for _, st := range head.Statics {
		if _, _, there := v.Config.Static(st.ID); !there {
			add(mapping{StaticLease: st, State: "deleted"})
		}
	}
	return list
}

// matches reports whether every word of the query is in one of the texts; a
// MAC is found in any notation.
func matches(query string, texts ...string) bool {
	all := strings.ToLower(strings.Join(texts, "\n"))
	for _, word := range strings.Fields(strings.ToLower(query)) {
		if strings.Contains(all, word) {
			continue
		}
		if mac, err := firewall.ParseMAC(word); err != nil || !strings.Contains(all, string(mac)) {
			return false
		}
	}
	return true
}

// called is what a client without a clean host name calls itself, made harmless
// for the eye: no control characters, nothing that turns the text around, 64
// characters at most. What stands in it is text for the page to escape.
func called(l dhcp.Lease) string {
	if l.Host != "" || len(l.RawHost) == 0 {
		return ""
	}
	var out []rune
	for _, r := range string(l.RawHost) {
		if len(out) == 64 {
			return string(out) + "…"
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		out = append(out, r)
	}
	return string(out)
}

// name64 is the name of a lease's client, clean or made harmless; may be empty.
func name64(l dhcp.Lease) string {
	if l.Host != "" {
		return l.Host
	}
	return called(l)
}

// whose is what a sentence calls the client of a lease.
func whose(l dhcp.Lease) string {
	if l.Host != "" {
		return l.Host
	}
	return string(l.MAC)
}

// at is the path of the list with a search.
func at(q string) string {
	if q == "" {
		return "/leases"
	}
	return "/leases?" + url.Values{"q": {q}}.Encode()
}

// clock is a time as a sentence says it.
func clock(t, now time.Time) string {
	if d := t.Sub(now); d < 18*time.Hour && d > -18*time.Hour {
		return t.Format("15:04")
	}
	return t.Format("2 Jan 15:04")
}

// span is a length of time in one unit, rounded.
func span(d time.Duration) string {
	switch d = d.Abs(); {
	case d < 90*time.Second:
		return page.Count(int(d.Seconds()+0.5), "second")
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()+0.5))
	case d < 36*time.Hour:
		return page.Count(int(d.Hours()+0.5), "hour")
	}
	return page.Count(int(d.Hours()/24+0.5), "day")
}

// when is how far away a time is.
func when(t, now time.Time) string {
	if t.After(now) {
		return "in " + span(t.Sub(now))
	}
	return span(now.Sub(t)) + " ago"
}

// kind is the colour of a lease's state.
func (r row) kind() page.Kind {
	switch r.Now {
	case dhcp.Active:
		return page.Pass
	case dhcp.Declined:
		return page.Block
	case dhcp.Offered:
		return page.Reject
	case dhcp.Expired, dhcp.Released:
		return page.Off
	}
	return page.Plain
}

// why is what the state means, where the word alone does not say it.
func (r row) why() string {
	switch {
	case r.Now == dhcp.Declined:
		return "Somebody uses this address without a lease. Nobody gets it before this ends."
	case r.Now == dhcp.Static && r.Lease.Last.IsZero():
		return "Kept for its client, which was never here."
	case r.Now == dhcp.Static:
		return "Kept for its client, which is not here."
	case r.Moves.IsValid():
		return "Gets " + r.Moves.String() + " when it renews."
	}
	return ""
}

// canRelease: an address that is in use or in quarantine can be taken back.
func (r row) canRelease() bool { return r.Now == dhcp.Active || r.Now == dhcp.Declined }

// canDelete: a row that is stored can be forgotten.
func (r row) canDelete() bool {
	return r.Now == dhcp.Active || r.Now == dhcp.Declined || r.Now == dhcp.Expired || r.Now == dhcp.Released
}

// mark is the class of a row of the draft.
func mark(state string) string {
	return map[string]string{"new": "new", "changed": "changed", "deleted": "gone"}[state]
}

// status is the state of a scope in a word.
func (s scope) status() (page.Kind, string) {
	switch {
	case !s.Known || !s.On:
		if s.Serves {
			return page.Reject, "on until Apply"
		}
		return page.Off, "off"
	case s.Problem != "":
		return page.Block, "not working"
	case s.Serves:
		return page.Pass, "on"
	case !s.Port.On:
		return page.Off, "interface off"
	case s.State != "":
		return page.Info, "on after Apply"
	}
	return page.Reject, "starting"
}

// impossible says why there can be no scope here; empty: there can.
func (s scope) impossible() string {
	if s.Port.V4.Mode != firewall.Static {
		return "It has no fixed IPv4 address."
	}
	return ""
}
