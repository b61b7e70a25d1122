package compile

import (
	"strings"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// logRate bounds what one chain writes to the log (packets a second, burst):
// a flood must not fill the reader (security.md T37).
var logRate = ruleset.Limit{Rate: 100, Burst: 200}

// blockSets is the constant sets of the private and bogon blocks.
func (b *builder) blockSets() {
	for _, s := range []struct {
		name string
		want func(firewall.Interface) bool
		nets []string
	}{
		{"private", func(in firewall.Interface) bool { return in.BlockPrivate }, firewall.PrivateNets},
		{"bogons", func(in firewall.Interface) bool { return in.BlockBogons }, firewall.BogonNets},
	} {
		if len(b.on(s.want)) == 0 {
			continue
		}
		v4, v6 := byFamily(firewall.MustMerge(s.nets))
		b.set(intervals(s.name+"4", ruleset.Origin("auto/"+s.name), false, v4))
		b.set(intervals(s.name+"6", ruleset.Origin("auto/"+s.name), true, v6))
	}
}

// auto is the action chains of the automatic rules.
func (b *builder) auto() {
	b.dropChain("default", true)
	b.dropChain("invalid", false)
	b.dropChain("spoofed", true)
	b.dropChain("private", true)
	b.dropChain("bogons", true)
	b.dropChain("wrong-side", true)
	b.chain(ruleset.Chain{Name: autoChain("anti-lockout"), Rules: []ruleset.Rule{{Origin: "auto/anti-lockout", Comment: "anti-lockout",
		Stmts: []ruleset.Stmt{b.counter(AutoCounter("anti-lockout")), b.label(""), accept}}}})
}

var (
	accept = ruleset.Verdict{Kind: ruleset.Accept}
	drop   = ruleset.Verdict{Kind: ruleset.Drop}
	back   = ruleset.Verdict{Kind: ruleset.Return}
)

func jump(name string) ruleset.Verdict { return ruleset.Verdict{Kind: ruleset.Jump, Chain: name} }

func gotoChain(name string) ruleset.Verdict { return ruleset.Verdict{Kind: ruleset.Goto, Chain: name} }

// AutoCounter is the name of the counter of an automatic rule: "spoofed" for
// auto/spoofed. Names of nft objects cannot hold a dash.
func AutoCounter(what string) string { return "c_" + strings.ReplaceAll(what, "-", "_") }

func autoChain(what string) string { return "a_" + strings.ReplaceAll(what, "-", "_") }

// dropChain counts, logs when it should, and drops.
func (b *builder) dropChain(what string, log bool) {
	origin := ruleset.Origin("auto/" + what)
	var rules []ruleset.Rule
	if log {
		rules = append(rules, logRule(origin, firewall.Block))
	}
	rules = append(rules, ruleset.Rule{Origin: origin, Comment: what, Stmts: []ruleset.Stmt{b.counter(AutoCounter(what)), drop}})
	b.chain(ruleset.Chain{Name: autoChain(what), Rules: rules})
}

// logRule is a line that only logs; the prefix says which rule and what it did.
func logRule(origin ruleset.Origin, a firewall.Action) ruleset.Rule {
	return ruleset.Rule{Origin: origin, Stmts: []ruleset.Stmt{logRate,
		ruleset.Log{Group: LogGroup, Prefix: firewall.LogPrefix(string(origin), a)}}}
}

// label writes the ct label of a passed connection; "" for automatic rules.
func (b *builder) label(id firewall.ID) ruleset.Stmt {
	return ruleset.Label{Rule: b.numbers[id], Revision: firewall.StampNumber(b.stamp)}
}

// base is the base chains: what every packet goes through.
func (b *builder) base() {
	b.chain(ruleset.Chain{Name: "pre", Hook: &ruleset.Hook{Type: "filter", Name: "prerouting", Priority: mangle}, Rules: b.pre()})
	b.chain(ruleset.Chain{Name: "input", Hook: &ruleset.Hook{Type: "filter", Name: "input", Priority: filter, Drop: true}, Rules: b.input()})
	b.chain(ruleset.Chain{Name: "forward", Hook: &ruleset.Hook{Type: "filter", Name: "forward", Priority: filter, Drop: true}, Rules: b.forward()})
}

func line(origin ruleset.Origin, comment string, stmts ...ruleset.Stmt) ruleset.Rule {
	return ruleset.Rule{Origin: origin, Comment: comment, Stmts: stmts}
}

// pre drops what cannot be honest. It runs after conntrack so that replies to
// the box's own questions, a resolver in 10/8 behind the WAN say, still come in.
func (b *builder) pre() []ruleset.Rule {
	rules := []ruleset.Rule{
		line("auto/established", "", ruleset.VMap{Field: ruleset.CTStateField, Arms: []ruleset.Arm{
			{Key: ruleset.U32(ruleset.StateEstablished), Verdict: accept}, {Key: ruleset.U32(ruleset.StateRelated), Verdict: accept}}}),
		line("auto/loopback", "", devices(ruleset.IIFName, "lo"), accept),
	}
	rules = append(rules, b.dhcpReplies(accept)...)
	rules = append(rules, b.dhcpRequests()...)
	rules = append(rules, b.neighbours()...)
	rules = b.blockFrom(rules, "private", func(in firewall.Interface) bool { return in.BlockPrivate })
	rules = b.blockFrom(rules, "bogons", func(in firewall.Interface) bool { return in.BlockBogons })
	return append(rules, line("auto/spoofed", "no way back to the source through this interface", ruleset.NoRouteBack{}, gotoChain(autoChain("spoofed"))))
}

// blockFrom drops sources of a constant set on the interfaces that ask for it.
func (b *builder) blockFrom(rules []ruleset.Rule, what string, want func(firewall.Interface) bool) []ruleset.Rule {
	on := b.on(want)
	if len(on) == 0 {
		return rules
	}
	origin := ruleset.Origin("auto/" + what)
	return append(rules,
		line(origin, "", interfaces(ruleset.IIFName, on), family(false), ruleset.Match{Field: ruleset.IPSaddr, Set: what + "4"}, gotoChain(autoChain(what))),
		line(origin, "", interfaces(ruleset.IIFName, on), family(true), ruleset.Match{Field: ruleset.IP6Saddr, Set: what + "6"}, gotoChain(autoChain(what))))
}

// dhcpRequests accepts what the DHCP server of a LAN is asked, from clients that
// have no address yet too; it comes before the check for invalid packets (lab fact L12).
func (b *builder) dhcpRequests() (rules []ruleset.Rule) {
	server := b.on(func(in firewall.Interface) bool {
		s, ok := b.cfg.Scope(in.Name)
		return ok && s.On
	})
	if len(server) > 0 {
		rules = append(rules, line("auto/dhcp-server", "DHCP requests", interfaces(ruleset.IIFName, server), family(false),
			ruleset.Match{Field: ruleset.FibDaddrType, In: []ruleset.Range{ruleset.One(ruleset.U32(ruleset.AddrLocal)), ruleset.One(ruleset.U32(ruleset.AddrBroadcast))}},
			proto(17), port(ruleset.UDPDport, 67), accept))
	}
	return rules
}

// dhcpReplies is what the DHCP client of a WAN is answered. The client listens
// before the rules: in prerouting the replies are not spoofed, whoever sends
// them, and in input they are dropped, or the kernel would answer to a port that
// nobody listens on and show that the box is there.
func (b *builder) dhcpReplies(v ruleset.Verdict) (rules []ruleset.Rule) {
	if client := b.on(func(in firewall.Interface) bool { return in.V4.Mode == firewall.DHCP }); len(client) > 0 {
		rules = append(rules, line("auto/dhcp-client", "DHCP replies", interfaces(ruleset.IIFName, client), family(false),
			proto(17), port(ruleset.UDPSport, 67), port(ruleset.UDPDport, 68), v))
	}
	return rules
}

func port(f ruleset.Field, n uint16) ruleset.Stmt {
	return ruleset.Match{Field: f, In: []ruleset.Range{ruleset.One(ruleset.Port(n))}}
}

// neighbours accepts what IPv6 cannot do without on a link: neighbour discovery
// with hop limit 255 (RFC 4861) on every interface, multicast listener messages inside (RFC 4890).
func (b *builder) neighbours() (rules []ruleset.Rule) {
	if on := b.on(anyRole); len(on) > 0 {
		rules = append(rules, line("auto/neighbours", "neighbour discovery", interfaces(ruleset.IIFName, on), family(true),
			hopLimit(255), proto(58), icmp6Types(135, 136), accept))
	}
	if on := b.on(inside); len(on) > 0 {
		rules = append(rules, line("auto/neighbours", "multicast listeners", interfaces(ruleset.IIFName, on), family(true),
			hopLimit(1), proto(58), icmp6Types(130, 131, 132, 143), accept))
	}
	return rules
}

func hopLimit(n uint8) ruleset.Match {
	return ruleset.Match{Field: ruleset.IP6HopLimit, In: []ruleset.Range{ruleset.One(ruleset.Byte(n))}}
}

func icmp6Types(ns ...uint8) ruleset.Match {
	m := ruleset.Match{Field: ruleset.ICMPv6TypeField}
	for _, n := range ns {
		m.In = append(m.In, ruleset.One(ruleset.Byte(n)))
	}
	return m
}

func known() ruleset.Rule {
	return line("auto/established", "known connections", ruleset.VMap{Field: ruleset.CTStateField, Arms: []ruleset.Arm{
		{Key: ruleset.U32(ruleset.StateEstablished), Verdict: accept},
		{Key: ruleset.U32(ruleset.StateRelated), Verdict: accept},
		{Key: ruleset.U32(ruleset.StateInvalid), Verdict: gotoChain(autoChain("invalid"))}}})
}

// input decides what reaches the box itself.
func (b *builder) input() []ruleset.Rule {
	rules := []ruleset.Rule{line("auto/loopback", "", devices(ruleset.IIFName, "lo"), accept)}
	rules = append(rules, b.dhcpRequests()...)
	rules = append(rules, b.unsettledFirst()...)
	if len(b.begun()) > 0 {
		rules = append(rules, line("auto/limits", "", proto(6), syn, jump("begun")))
	}
	rules = append(rules, known())
	rules = append(rules, b.dhcpReplies(drop)...)
	rules = append(rules, b.neighbours()...)
	// The web pages answer on an address of the interface the packet came in by, and
	// on no other: else the outside address would lead to them from inside (C07).
	ports := adminPorts(b.cfg.Admin)
	if on := b.on(anyRole); len(on) > 0 {
		rules = append(rules, line("auto/wrong-side", "web pages by another interface's address", proto(6), ports,
			ruleset.Match{Field: ruleset.FibDaddrIIFType, Not: true, In: []ruleset.Range{ruleset.One(ruleset.U32(ruleset.AddrLocal))}}, gotoChain(autoChain("wrong-side"))))
	}
	if lans := b.on(func(in firewall.Interface) bool { return in.Role == firewall.LAN }); len(lans) > 0 {
		rules = append(rules, line("auto/anti-lockout", "", interfaces(ruleset.IIFName, lans), proto(6), ports, gotoChain(autoChain("anti-lockout"))))
	}
	return append(rules, b.dispatch()...)
}

// syn matches the first packet of a connection, and the answer to it.
var syn = tcpFlags(ruleset.SYN|ruleset.RST, ruleset.SYN)

// forward decides what goes through the box. The MSS is clamped in the same
// chain, before a SYN-ACK is accepted as known: a base chain of its own would
// cost every packet one more hook.
func (b *builder) forward() []ruleset.Rule {
	clamp := []ruleset.Stmt{proto(6), syn, ruleset.ClampMSS{}}
	if len(b.begun()) > 0 { // one look at the flags for both
		b.chain(ruleset.Chain{Name: "syn", Rules: []ruleset.Rule{
			line("auto/limits", "", jump("begun")), line("auto/mss", "clamp MSS to the route", proto(6), ruleset.ClampMSS{})}})
		clamp[2] = jump("syn")
	}
	return append(append(b.unsettledFirst(), line("auto/mss", "clamp MSS to the route", clamp...), known()), b.dispatch()...)
}

// dispatch sends a packet to the list of its interface; what no rule decides is denied.
func (b *builder) dispatch() (rules []ruleset.Rule) {
	var arms []ruleset.Arm
	for _, in := range b.on(anyRole) {
		arms = append(arms, ruleset.Arm{Key: ruleset.Iface(in.Device), Verdict: jump(listChain(in.Name))})
	}
	if len(arms) > 0 {
		rules = append(rules, line("auto/dispatch", "", ruleset.VMap{Field: ruleset.IIFName, Arms: arms}))
	}
	return append(rules, line("auto/default", "default deny", gotoChain(autoChain("default"))))
}

func adminPorts(a firewall.Admin) ruleset.Match {
	m := ruleset.Match{Field: ruleset.TCPDport}
	for _, r := range firewall.MergePorts(a.Ports()) {
		m.In = append(m.In, ruleset.Range{Lo: ruleset.Port(r.From), Hi: ruleset.Port(r.To)})
	}
	return m
}
