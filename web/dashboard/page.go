// Package dashboard is the first page: the way to the internet, who is there,
// what was dropped last and by which rule.
package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/dhcp"
	"gatehouse/services/link"
	"gatehouse/services/logs"
	"gatehouse/services/quarantine"
	"gatehouse/web/page"
)

// shown is how many dropped packets, leases and sources the page lists.
const (
	shownDrops  = 50
	shownLeases = 12
	shownShut   = 8
)

// Quarantine is who is shut out: quarantine.Service.
type Quarantine interface {
	Counts() quarantine.Counts
	List(quarantine.Query) quarantine.List
	// Full returns the meters that are nearly full.
	Full() []quarantine.Alarm
}

// Deps is what the page asks; nothing may be nil.
type Deps struct {
	Config   func() firewall.Config // what runs
	Revision func() commit.Revision // its number
	Ports    func() []link.Port
	Leases   func() []dhcp.Lease
	Drops    func(n int, want func(logs.Line) bool) []logs.Line // newest first
	Settings func() []string                                    // kernel settings that are not as wanted, a sentence each
	Shut     Quarantine
}

type pages struct{ Deps }

// New gives the routes.
func New(d Deps) []page.Route {
	p := &pages{d}
	return []page.Route{{Method: http.MethodGet, Path: "/", Serve: p.show}}
}

// view is everything that the page shows.
type view struct {
	page.Frame
	Fresh    bool // nothing is set up yet
	Ports    []link.Port
	Leases   []dhcp.Lease
	Active   int
	Drops    []drop
	Revision commit.Revision
	Settings []string
	Shut     []shut // the newest of those that are shut out
	ShutAll  int
	Alarms   []alarm
	Now      time.Time
}

// shut is one source that is shut out.
type shut struct {
	quarantine.Entry
	Rule, Link string
}

// alarm is a meter that is nearly full.
type alarm struct {
	quarantine.Alarm
	Rule, Link string
}

// drop is one dropped packet in words.
type drop struct {
	logs.Line
	In    string // interface name, or device
	Rule  string // how the rule is called
	Link  string // to it; empty for automatic rules
	Proto string
}

func (p *pages) show(w http.ResponseWriter, r *http.Request) error {
	c := p.Config()
	v := view{Frame: page.FrameFor(r, "Dashboard", "/"), Fresh: len(c.Interfaces) == 0, Ports: p.Deps.Ports(),
		Revision: p.Deps.Revision(), Settings: p.Deps.Settings()}
	now := time.Now()
	for _, l := range p.Deps.Leases() {
		if l.At(now) == dhcp.Active {
			if v.Active++; len(v.Leases) < shownLeases {
				v.Leases = append(v.Leases, l)
			}
		}
	}
	for _, l := range p.Deps.Drops(shownDrops, func(l logs.Line) bool { return l.Action != firewall.Pass }) {
		v.Drops = append(v.Drops, explain(c, l))
	}
	v.Now = now
	p.shut(&v, c)
	return page.Render(w, r, http.StatusOK, dashboardPage(v))
}

// shut lists who was shut out last, and the meters that are nearly full.
func (p *pages) shut(v *view, c firewall.Config) {
	n := p.Shut.Counts()
	v.ShutAll = n.Quarantine + n.LockOuts
	for _, set := range []string{quarantine.InQuarantine, quarantine.InLockOuts} {
		for _, e := range p.Shut.List(quarantine.Query{Set: set, Sort: "since", Desc: true, Max: shownShut}).Entries {
			name, link := ruleOf(c, e.Rule)
			v.Shut = append(v.Shut, shut{e, name, link})
		}
	}
	slices.SortStableFunc(v.Shut, func(a, b shut) int { return b.Since.Compare(a.Since) })
	v.Shut = v.Shut[:min(len(v.Shut), shownShut)]
	for _, a := range p.Shut.Full() {
		name, link := ruleOf(c, a.Rule)
		v.Alarms = append(v.Alarms, alarm{a, name, link})
	}
}

// ruleOf names a rule, with the way to it; empty for none.
func ruleOf(c firewall.Config, id firewall.ID) (name, link string) {
	r, ok := c.Rule(id)
	switch {
	case id == "":
		return "", ""
	case !ok:
		return "a rule that is gone", ""
	}
	return cmp.Or(r.Descr, r.String()), "/rules/" + string(id)
}

// automatic is what the automatic rules are called here.
var automatic = map[string]string{
	"auto/default": "Default: everything else is blocked", "auto/spoofed": "Source not reachable through this port", "auto/private": "Private source from the Internet",
	"auto/bogons": "Source that nobody may use", "auto/wrong-side": "Web page by another interface's address", "auto/invalid": "Not part of a known connection",
}

// explain names interface, protocol and rule of a logged packet.
func explain(c firewall.Config, l logs.Line) drop {
	d := drop{Line: l, In: l.Packet.In, Rule: l.Rule, Proto: protocol(l.Proto)}
	if in, ok := c.ByDevice(l.Packet.In); ok {
		d.In = string(in.Name)
	}
	if name, ok := automatic[l.Rule]; ok {
		d.Rule = name
	}
	if id, ok := strings.CutPrefix(l.Rule, "rule/"); ok {
		d.Rule, d.Link = ruleOf(c, firewall.ID(id))
	}
	return d
}

func protocol(n uint8) string {
	if name, ok := map[uint8]string{1: "ICMP", 2: "IGMP", 6: "TCP", 17: "UDP", 47: "GRE", 50: "ESP", 51: "AH", 58: "ICMPv6", 132: "SCTP"}[n]; ok {
		return name
	}
	return strconv.Itoa(int(n))
}

// end is an address with its port, where the protocol has ports.
func (d drop) end(dst bool) string {
	a, port := d.Src, d.SrcPort
	if dst {
		a, port = d.Dst, d.DstPort
	}
	switch {
	case !a.IsValid():
		return "–"
	case d.Proto != "TCP" && d.Proto != "UDP" && d.Proto != "SCTP":
		return a.String()
	case a.Is6():
		return "[" + a.String() + "]:" + strconv.Itoa(int(port))
	}
	return a.String() + ":" + strconv.Itoa(int(port))
}

// portPill is the state of a port in a word.
func portPill(p link.Port) (page.Kind, string) {
	switch {
	case !p.Present:
		return page.Block, "missing"
	case p.Name == "":
		return page.Off, "no role"
	case !p.Link:
		return page.Block, "no cable"
	case p.DHCP && !p.Lease.Addr.IsValid():
		return page.Reject, "no address"
	}
	return page.Pass, "up"
}
