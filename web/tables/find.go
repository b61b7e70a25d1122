package tables

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/dhcp"
	"gatehouse/services/quarantine"
	"gatehouse/web/page"
)

// flowTime is how long the connections may take to be listed.
const flowTime = 3 * time.Second

// Of each kind of place the page shows so many.
const (
	shownFlows = 10
	shownNames = 50
)

// found is everywhere that an address is.
type found struct {
	Frame   page.Frame
	Tabs    []tab
	Query   string
	Problem string // why the query is no address
	Named   []host // hosts that are called so, when it is a name
	Src     netip.Prefix
	Now     time.Time
	Entries []row                  // shut out by these
	Would   []row                  // by rules that only count
	Exempt  []quarantine.Exemption // why limits spare it
	Ours    []string               // it is the box's own on these devices
	Sets    []place                // aliases that hold it
	Rules   []place                // rules that name it
	Forward []place                // forwards that name it
	Any     int                    // rules that let in or block any source
	Leases  []dhcp.Lease           // who has it
	Statics []firewall.StaticLease
	Flows   flows
}

// host is a host inside, by its name.
type host struct {
	Name string
	Addr netip.Addr
}

// place is one thing that names the address.
type place struct {
	rule
	How string // "source, by alias BAD_NETS"
}

// flows is the connections of the address that are open now.
type flows struct {
	Count  int
	First  []firewall.Flow
	Failed bool // they could not be listed in time
}

// findPath is the page that says where a source is.
func findPath(src netip.Prefix) string {
	return "/tables/find?" + url.Values{"q": {called(src)}}.Encode()
}

func (p *pages) find(w http.ResponseWriter, r *http.Request) error {
	q := strings.ToValidUTF8(strings.TrimSpace(r.URL.Query().Get("q")), "")
	if len(q) > 200 {
		q = q[:200]
	}
	c := p.Running()
	f := found{Query: q, Tabs: tabs(c, p.Lists.Counts(), ""), Now: time.Now()}
	f.Frame = page.FrameFor(r, "Where is it?", "/tables")
	status := http.StatusOK
	var err error
	if f.Src, err = address(q); err != nil {
		if f.Named = p.named(q); len(f.Named) == 0 {
			status, f.Problem = http.StatusUnprocessableEntity, "Write an address, such as 203.0.113.7 or 2001:db8::7."
			if q != "" {
				f.Problem = "`" + strings.ReplaceAll(page.Harmless(q), "`", "") + "` is no address, and no host inside is called so. Write for example 203.0.113.7."
			}
		}
		return page.Render(w, r, status, findPage(f))
	}
	f.Frame.Title = "Where is " + called(f.Src) + "?"
	p.shut(&f, c)
	f.names(c, p.Facts())
	for _, l := range p.Leases() {
		if f.Src.Contains(l.Addr) && len(f.Leases) < shownNames {
			f.Leases = append(f.Leases, l)
		}
	}
	f.Flows = p.flows(r.Context(), f.Src)
	return page.Render(w, r, status, findPage(f))
}

// address reads what the field takes: an address, or a network.
func address(q string) (netip.Prefix, error) {
	if strings.Contains(q, "/") {
		net, err := firewall.ParsePrefix(q)
		return net.Masked(), err
	}
	a, err := firewall.ParseAddr(q)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// named finds the hosts inside whose name holds what was typed.
func (p *pages) named(q string) (out []host) {
	if q == "" {
		return nil
	}
	for a, name := range p.whose() {
		if strings.Contains(strings.ToLower(name), strings.ToLower(q)) {
			out = append(out, host{name, a})
		}
	}
	slices.SortFunc(out, func(a, b host) int { return cmp.Or(strings.Compare(a.Name, b.Name), a.Addr.Compare(b.Addr)) })
	return out[:min(len(out), shownNames)]
}

// shut looks for the address among those that are shut out and those that never are.
func (p *pages) shut(f *found, c firewall.Config) {
	list := p.Lists.Holding(f.Src.Addr())
	if e, ok := p.Lists.Get(f.Src); ok && !slices.ContainsFunc(list, func(x quarantine.Entry) bool { return x.Source == e.Source }) {
		list = append(list, e)
	}
	for _, e := range list {
		x := row{Entry: e, Key: e.Source.String(), Name: called(e.Source), Rule: ruleOf(c, e.Rule)}
		if e.Would {
			f.Would = append(f.Would, x)
		} else {
			f.Entries = append(f.Entries, x)
		}
	}
	for _, e := range p.Watch.Exemptions() {
		if e.Source.Overlaps(f.Src) {
			f.Exempt = append(f.Exempt, e)
		}
	}
}

// names looks for the address in the configuration that runs.
func (f *found) names(c firewall.Config, facts firewall.Facts) {
	m := matcher{firewall.PrefixRange(f.Src), c, facts, map[firewall.Name]bool{}}
	for device, addrs := range facts.Addrs {
		if slices.ContainsFunc(addrs, func(a netip.Prefix) bool { return f.Src.Contains(a.Addr()) }) {
			name := device
			if in, ok := c.ByDevice(device); ok {
				name = string(in.Name)
			}
			f.Ours = append(f.Ours, name)
		}
	}
	slices.Sort(f.Ours)
	for _, a := range c.Aliases {
		if a.Kind == firewall.Addresses && m.alias(a.Name) {
			f.Sets = append(f.Sets, place{rule{string(a.Name), aliasPath(a.Name)}, m.line(a)})
		}
	}
	for _, x := range c.Rules {
		how := slices.Concat(m.ends("source", x.Src), m.ends("destination", x.Dst))
		if len(how) > 0 {
			f.Rules = append(f.Rules, place{ruleOf(c, x.ID), strings.Join(how, "; ")})
		} else if x.Src.IsAny() && x.On {
			f.Any++
		}
	}
	for _, x := range c.Forwards {
		how := m.ends("source", x.From)
		if by := m.end(x.Dst); by != "" {
			how = append(how, "destination, "+by)
		}
		if m.in(firewall.AddrRange{From: x.To, To: x.To}) {
			how = append(how, "leads to it")
		}
		if len(how) > 0 {
			f.Forward = append(f.Forward, place{rule{page.Harmless(cmp.Or(x.Descr, x.String())), "/forwards/" + string(x.ID)}, strings.Join(how, "; ")})
		}
	}
	for _, s := range c.Scopes {
		for _, st := range s.Statics {
			if f.Src.Contains(st.Addr) && len(f.Statics) < shownNames {
				f.Statics = append(f.Statics, st)
			}
		}
	}
}

// matcher tells what of a configuration names an address.
type matcher struct {
	want   firewall.AddrRange
	config firewall.Config
	facts  firewall.Facts
	known  map[firewall.Name]bool // aliases by whether they hold it
}

// in reports whether a range and the address have something in common.
func (m matcher) in(r firewall.AddrRange) bool {
	return r.From.BitLen() == m.want.From.BitLen() && !m.want.To.Less(r.From) && !r.To.Less(m.want.From)
}

func (m matcher) alias(n firewall.Name) bool {
	holds, looked := m.known[n]
	if !looked {
		holds = slices.ContainsFunc(m.config.AliasAddrs(n), m.in)
		m.known[n] = holds
	}
	return holds
}

// line is the line of an alias that holds the address.
func (m matcher) line(a firewall.Alias) string {
	for _, e := range a.Addrs {
		if r, ok := e.End.Range(); ok && m.in(r) {
			if e.Note != "" {
				return e.End.String() + " (" + page.Harmless(e.Note) + ")"
			}
			return e.End.String()
		}
	}
	for _, e := range a.Addrs {
		if e.End.Kind == firewall.EndAlias && m.alias(e.End.Name) {
			return "by alias " + string(e.End.Name)
		}
	}
	return ""
}

// ends says how a source or destination names the address, each member that does.
func (m matcher) ends(where string, e firewall.Ends) (how []string) {
	for _, one := range e.Of {
		if by := m.end(one); by != "" {
			if e.Not {
				by = "all but " + by
			}
			how = append(how, where+", "+by)
		}
	}
	return how
}

// end says how one member names the address; "" when it does not, or means anybody.
func (m matcher) end(e firewall.End) string {
	if r, ok := e.Range(); ok {
		if m.in(r) {
			return e.String()
		}
		return ""
	}
	switch e.Kind {
	case firewall.EndAlias:
		if m.alias(e.Name) {
			return "by alias " + string(e.Name)
		}
	case firewall.EndIfNet, firewall.EndIfAddr, firewall.EndSelf:
		in, _ := m.config.Interface(e.Name)
		for device, addrs := range m.facts.Addrs {
			for _, a := range addrs {
				r := firewall.AddrRange{From: a.Addr(), To: a.Addr()}
				if e.Kind == firewall.EndIfNet {
					r = firewall.PrefixRange(a)
				}
				if (e.Kind == firewall.EndSelf || device == in.Device) && m.in(r) {
					return e.String()
				}
			}
		}
	}
	return ""
}

// flows counts the connections of the address.
func (p *pages) flows(ctx context.Context, src netip.Prefix) (out flows) {
	ctx, stop := context.WithTimeout(ctx, flowTime)
	defer stop()
	err := p.Flows(ctx, func(f firewall.Flow) error {
		if src.Contains(f.Src) || src.Contains(f.Dst) || src.Contains(f.To) || src.Contains(f.As) {
			if out.Count++; len(out.First) < shownFlows {
				out.First = append(out.First, f)
			}
		}
		return ctx.Err()
	})
	out.Failed = err != nil
	return out
}

// protocol is a protocol as a person calls it.
func protocol(n uint8) string {
	if name, ok := map[uint8]string{1: "ICMP", 6: "TCP", 17: "UDP", 47: "GRE", 50: "ESP", 58: "ICMPv6", 132: "SCTP"}[n]; ok {
		return name
	}
	return fmt.Sprint("protocol ", n)
}

// port is an address with its port, where the protocol has ports.
func port(proto uint8, a netip.Addr, n uint16) string {
	if !a.IsValid() {
		return "–"
	}
	if proto != 6 && proto != 17 && proto != 132 {
		return a.String()
	}
	return netip.AddrPortFrom(a, n).String()
}

// line is a connection in words.
func line(f firewall.Flow) string {
	s := protocol(f.Proto) + " " + port(f.Proto, f.Src, f.SrcPort) + " → " + port(f.Proto, f.Dst, f.DstPort)
	if f.To.IsValid() && (f.To != f.Dst || f.ToPort != f.DstPort) {
		s += " → " + port(f.Proto, f.To, f.ToPort)
	}
	return s
}

// places is so many of them, and how many there are beside.
func places(list []place) (shown []place, more string) {
	if len(list) <= shownNames {
		return list, ""
	}
	return list[:shownNames], "and " + strconv.Itoa(len(list)-shownNames) + " more"
}
