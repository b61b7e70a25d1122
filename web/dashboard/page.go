// Package dashboard is the first page: the way to the internet, who is there,
// what was dropped last and by which rule.
package dashboard

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/dhcp"
	"gatehouse/services/link"
	"gatehouse/services/logs"
	"gatehouse/web/page"
)

// shown is how many dropped packets and leases the page lists.
const (
	shownDrops  = 50
	shownLeases = 12
)

// Deps is what the page asks; nothing may be nil.
type Deps struct {
	Config   func() firewall.Config // what runs
	Revision func() commit.Revision // its number
	Ports    func() []link.Port
	Leases   func() []dhcp.Lease
	Drops    func(n int, want func(logs.Line) bool) []logs.Line // newest first
	Settings func() []string                                    // kernel settings that are not as wanted, a sentence each
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
	return page.Render(w, r, http.StatusOK, dashboardPage(v))
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
		d.Rule = "a rule that is gone"
		if r, ok := c.Rule(firewall.ID(id)); ok {
			d.Rule, d.Link = r.String(), "/rules/"+id
			if r.Descr != "" {
				d.Rule = r.Descr
			}
		}
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
