// Package simulate says what the box does with a packet: an evaluator of the
// configuration itself, not of the ruleset compiled from it. The two are tested
// against each other on the kernel. It answers "would this shut me out?" and
// "which connections does the new policy deny?". It is pure.
package simulate

import (
	"net/netip"
	"slices"

	"gatehouse/firewall"
)

// Verdict is what becomes of a packet.
type Verdict = firewall.Action

// The verdicts.
const (
	Pass   = firewall.Pass
	Block  = firewall.Block
	Reject = firewall.Reject
)

// What decides when no rule of the configuration does. The names are those of
// the log prefixes and origins of the compiled form, but for the last four,
// which the kernel decides by itself.
const (
	Blocked     = "auto/blocked"      // the source is locked out or in quarantine
	DHCPClient  = "auto/dhcp-client"  // a DHCP reply on a WAN that asks for its address
	DHCPServer  = "auto/dhcp-server"  // a DHCP request where a scope runs
	Neighbours  = "auto/neighbours"   // neighbour discovery; multicast listeners inside
	Private     = "auto/private"      // a private source on an interface that blocks them
	Bogons      = "auto/bogons"       // a source that nobody may use
	Spoofed     = "auto/spoofed"      // the way back to the source is another interface
	Invalid     = "auto/invalid"      // belongs to no connection and cannot open one
	WrongSide   = "auto/wrong-side"   // the web pages by an address of another interface
	AntiLockout = "auto/anti-lockout" // the web pages from a LAN
	Default     = "auto/default"      // default deny
	Loopback    = "auto/loopback"     // the box talks to itself
	Output      = "auto/output"       // sent by the box
	Martian     = "auto/martian"      // addresses that no packet on a wire may carry (RFC 1812, 5.3.7)
	NoRoute     = "auto/no-route"     // nowhere to send it
)

// Decision is what becomes of a packet and why.
type Decision struct {
	Verdict Verdict
	Rule    string         // "rule/01J..." or one of the auto/ names
	Limit   firewall.Limit // what passes it only while the source keeps within, zero without one
	Local   bool           // it is for the box itself
	Out     string         // else the device it leaves by, "" when there is no route
	To      netip.Addr     // the destination after a forward; the packet's own without one
	ToPort  uint16         // the same for the port
	Forward firewall.ID    // the forward that translated it, "" when none did
}

func (d Decision) is(v Verdict, rule string) Decision {
	d.Verdict, d.Rule = v, rule
	return d
}

// Decide says what a box with this valid configuration does with the first
// packet of a connection. ICMPv6 messages that need a hop limit of 255 or 1
// (neighbour discovery, multicast listeners) are taken to have it. A source is
// taken to be within the limits: what it has done before is not known here.
func Decide(cfg firewall.Config, facts firewall.Facts, p firewall.Packet) Decision {
	return New(cfg, facts).Decide(p)
}

// Evaluator decides packets by one configuration, its aliases resolved. It is
// never written to once made, so that it may be shared.
type Evaluator struct {
	cfg      firewall.Config
	net      network
	sides    map[string]side // the interfaces that are on, by device
	floating []rule
	forwards []forward
	admin    []firewall.PortRange
	private  []firewall.AddrRange
	bogons   []firewall.AddrRange
	blocked  prefixes
}

// side is an interface that is on, with its list.
type side struct {
	firewall.Interface
	serves bool // a DHCP scope runs
	rules  []rule
}

// New resolves a valid configuration and the facts of the moment.
func New(cfg firewall.Config, facts firewall.Facts) *Evaluator {
	e := &Evaluator{cfg: cfg, net: newNetwork(facts), sides: map[string]side{},
		admin:   firewall.MergePorts(cfg.Admin.Ports()),
		private: firewall.MustMerge(firewall.PrivateNets), bogons: firewall.MustMerge(firewall.BogonNets), blocked: newPrefixes(facts.Blocked)}
	r := resolver{cfg: cfg, net: e.net, aliases: map[firewall.Name][]firewall.AddrRange{}, ports: map[firewall.Name][]firewall.PortRange{}}
	lists := map[firewall.Name][]rule{}
	for _, one := range cfg.Rules {
		if one.On {
			lists[one.In] = append(lists[one.In], r.rule(one))
		}
	}
	e.floating = lists[""]
	for _, in := range cfg.Interfaces {
		if in.On {
			s, ok := cfg.Scope(in.Name)
			e.sides[in.Device] = side{Interface: in, serves: ok && s.On, rules: lists[in.Name]}
		}
	}
	for _, f := range cfg.Forwards {
		if in, ok := cfg.Interface(f.In); ok && f.On && in.On {
			e.forwards = append(e.forwards, r.forward(f, in.Device))
		}
	}
	return e
}

// Decide says what becomes of the first packet of a connection.
func (e *Evaluator) Decide(p firewall.Packet) Decision {
	d := Decision{Verdict: Pass, To: p.Dst, ToPort: p.DstPort}
	switch p.In {
	case "":
		return d.is(Pass, Output)
	case "lo":
		d.Local = true
		return d.is(Pass, Loopback)
	}
	if e.shutOut(p) { // at ingress, before the kernel looks at the packet
		return d.is(Block, Blocked)
	}
	if p.Src.Is6() && impossible6(p) {
		return d.is(Block, Martian)
	}
	if ref := e.dishonest(p); ref != "" {
		return d.is(Block, ref)
	}
	for _, f := range e.forwards {
		if to, port, ok := f.translate(p, e.sides[p.In]); ok {
			d.To, d.ToPort, d.Forward = to, port, f.id
			p.Dst, p.DstPort = to, port
			break
		}
	}
	d.Local, d.Out = e.net.way(p)
	switch {
	case e.net.impossible(p, d.Out):
		return d.is(Block, Martian)
	case d.Local:
		return e.input(d, p)
	case d.Out == "":
		return d.is(Reject, NoRoute)
	}
	return e.through(d, p)
}

// dishonest names what drops a packet because of its source, before anything
// looks at where it goes; "" for an honest one.
func (e *Evaluator) dishonest(p firewall.Packet) string {
	s, on := e.sides[p.In]
	switch {
	case on && e.automatic(s, p) != "":
		return ""
	case on && s.BlockPrivate && contains(e.private, p.Src):
		return Private
	case on && s.BlockBogons && contains(e.bogons, p.Src):
		return Bogons
	case !e.net.returns(p):
		return Spoofed
	}
	return ""
}

// automatic names the rule of an interface that lets in what DHCP and IPv6 need.
func (e *Evaluator) automatic(s side, p firewall.Packet) string {
	icmp6 := p.Src.Is6() && p.Proto == 58
	switch {
	case p.Src.Is4() && p.Proto == 17 && p.SrcPort == 67 && p.DstPort == 68 && s.V4.Mode == firewall.DHCP:
		return DHCPClient
	case p.Src.Is4() && p.Proto == 17 && p.DstPort == 67 && s.serves && e.net.heard(p):
		return DHCPServer
	case icmp6 && (p.ICMP == 135 || p.ICMP == 136): // RFC 4861
		return Neighbours
	case icmp6 && (p.ICMP >= 130 && p.ICMP <= 132 || p.ICMP == 143) && s.Role != firewall.WAN: // RFC 2710, RFC 3810
		return Neighbours
	}
	return ""
}

// input decides what is for the box itself.
func (e *Evaluator) input(d Decision, p firewall.Packet) Decision {
	s, on := e.sides[p.In]
	pages := p.Proto == 6 && slices.ContainsFunc(e.admin, func(r firewall.PortRange) bool { return r.From <= p.DstPort && p.DstPort <= r.To })
	switch auto := e.automatic(s, p); {
	case on && auto == DHCPClient: // the client listens before the rules; the box stays silent
		return d.is(Block, auto)
	case on && auto != "":
		return d.is(Pass, auto)
	case invalid(p):
		return d.is(Block, Invalid)
	case pages && len(e.sides) > 0 && !e.net.has(p.Dst, p.In):
		return d.is(Block, WrongSide)
	case pages && on && s.Role == firewall.LAN:
		return d.is(Pass, AntiLockout)
	}
	return e.lists(d, p)
}

// through decides what goes through the box.
func (e *Evaluator) through(d Decision, p firewall.Packet) Decision {
	if invalid(p) {
		return d.is(Block, Invalid)
	}
	return e.lists(d, p)
}

// lists is the floating rules, the list of the in-interface, default deny: the first match decides.
func (e *Evaluator) lists(d Decision, p firewall.Packet) Decision {
	s, on := e.sides[p.In]
	if !on {
		return d.is(Block, Default)
	}
	local := e.net.local(p.Dst, p.In)
	for _, list := range [][]rule{e.floating, s.rules} {
		for i := range list {
			if list[i].matches(p, local) {
				d.Limit = list[i].limit
				return d.is(list[i].action, list[i].ref)
			}
		}
	}
	return d.is(Block, Default)
}

// invalid reports whether no connection can begin with this packet, so that
// connection tracking calls it invalid: ICMP answers and errors that belong to
// nothing (nf_conntrack_proto_icmp.c and _icmpv6.c, valid_new and noct_valid_new).
func invalid(p firewall.Packet) bool {
	switch {
	case p.Proto == 1 && p.Src.Is4():
		return !slices.Contains([]uint8{8, 13, 15, 17}, p.ICMP)
	case p.Proto == 58 && p.Src.Is6():
		return !slices.Contains([]uint8{128, 139, 130, 131, 132, 133, 134, 135, 136, 143}, p.ICMP)
	}
	return false
}
