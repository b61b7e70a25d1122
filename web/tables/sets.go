package tables

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/quarantine"
	"gatehouse/web/page"
)

// aliasList is the tab of the address aliases, or one of them.
type aliasList struct {
	ask
	Frame   page.Frame
	Tabs    []tab
	All     []firewall.Alias
	Alias   firewall.Alias // the one that is shown
	Entries []firewall.Entry
	Found   int
	Pages   int
}

// aliasPath is the page that shows what an alias holds.
func aliasPath(n firewall.Name) string { return ask{Set: setAliases, Name: string(n)}.path() }

// aliases shows the address aliases that run, or what one of them holds.
func (p *pages) aliases(w http.ResponseWriter, r *http.Request, a ask) error {
	c := p.Running()
	l := aliasList{ask: a, Tabs: tabs(c, p.Lists.Counts(), a.Set), Pages: 1}
	title := "Tables"
	if a.Name == "" {
		for _, one := range c.Aliases {
			if one.Kind == firewall.Addresses {
				l.All = append(l.All, one)
			}
		}
	} else {
		var ok bool
		if l.Alias, ok = c.Alias(firewall.Name(a.Name)); !ok || l.Alias.Kind != firewall.Addresses {
			return page.NotFound{What: "This alias"}
		}
		title = a.Name
		l.Entries = matching(l.Alias.Addrs, a.Search)
		l.Found = len(l.Entries)
		l.Pages = max(1, (l.Found+perPage-1)/perPage)
		l.Page = min(l.Page, l.Pages)
		l.Entries = l.Entries[(l.Page-1)*perPage : min(l.Page*perPage, l.Found)]
	}
	if page.IsPartial(r) {
		return page.Render(w, r, http.StatusOK, aliasEntries(l))
	}
	l.Frame = page.FrameFor(r, title, "/tables")
	return page.Render(w, r, http.StatusOK, aliasPage(l))
}

// matching is the lines of an alias that a search leaves: those that hold an
// address, or whose text holds what was typed.
func matching(all []firewall.Entry, q string) []firewall.Entry {
	if q == "" {
		return all
	}
	whole, err := address(q)
	var out []firewall.Entry
	for _, e := range all {
		r, isRange := e.End.Range()
		hit := err == nil && isRange && r.Contains(whole.Addr())
		if hit || strings.Contains(strings.ToLower(e.End.String()+"\n"+e.Note), strings.ToLower(q)) {
			out = append(out, e)
		}
	}
	return out
}

// editor is the path of an alias' editor.
func editor(n firewall.Name) string { return "/aliases/" + url.PathEscape(string(n)) }

// autoList is the tab of the sets that the box fills by itself.
type autoList struct {
	ask
	Frame   page.Frame
	Tabs    []tab
	Now     time.Time
	Meters  []meter
	Exempt  []quarantine.Exemption
	Ports   []ports
	Waiting []waiting
}

// meter is one meter of a limit and how full it is.
type meter struct {
	quarantine.Alarm
	rule
}

// ports is the addresses and networks of an interface.
type ports struct {
	Name        string
	Addrs, Nets []string
}

// waiting is a source that has to wait for its next try to sign in.
type waiting struct {
	Source netip.Prefix
	Left   time.Duration
}

// automatic shows what the box fills by itself.
func (p *pages) automatic(w http.ResponseWriter, r *http.Request, a ask) error {
	c := p.Running()
	l := autoList{ask: a, Tabs: tabs(c, p.Lists.Counts(), a.Set), Now: time.Now(), Exempt: p.Watch.Exemptions()}
	for _, m := range p.Watch.Meters() {
		l.Meters = append(l.Meters, meter{m, ruleOf(c, m.Rule)})
	}
	facts := p.Facts()
	for _, in := range c.Interfaces {
		x := ports{Name: string(in.Name)}
		for _, addr := range facts.Addrs[in.Device] {
			x.Addrs = append(x.Addrs, addr.Addr().String())
			if !addr.Addr().IsLinkLocalUnicast() || addr.Addr().Is4() { // "LAN net" leaves link-local IPv6 out
				x.Nets = append(x.Nets, addr.Masked().String())
			}
		}
		l.Ports = append(l.Ports, x)
	}
	for src, left := range p.Waiting() {
		l.Waiting = append(l.Waiting, waiting{src, left})
	}
	slices.SortFunc(l.Waiting, func(a, b waiting) int {
		return cmp.Or(cmp.Compare(b.Left, a.Left), a.Source.Addr().Compare(b.Source.Addr()))
	})
	if page.IsPartial(r) {
		if a.hold {
			w.Header().Set("HX-Reswap", "none")
		}
		return page.Render(w, r, http.StatusOK, autoSets(l))
	}
	l.Frame = page.FrameFor(r, "Tables", "/tables")
	return page.Render(w, r, http.StatusOK, autoPage(l))
}

// counts is what a meter counts.
func (m meter) counts() string {
	if m.What == firewall.OverOpen {
		return "open connections"
	}
	return "new connections"
}
