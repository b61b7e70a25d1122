package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// String is the whole table as text that nft -f loads into a kernel without it.
// Label has no text and is left out; what its rule else says stays.
func (r Ruleset) String() string {
	var parts []string
	for _, c := range r.Counters {
		parts = append(parts, "\tcounter "+c.Name+" {\n\t}\n")
	}
	for _, s := range r.Sets {
		parts = append(parts, s.String())
	}
	for _, c := range r.AllChains() {
		parts = append(parts, c.String())
	}
	return "table inet " + Table + " {\n" + strings.Join(parts, "\n") + "}\n"
}

// AllChains is Chains and, when there is a Stamp, the chain that carries it.
func (r Ruleset) AllChains() []Chain {
	if r.Stamp == "" {
		return r.Chains
	}
	stamp := Rule{Origin: "auto/stamp", Comment: r.Stamp, Stmts: []Stmt{Verdict{Kind: Return}}}
	return append(r.Chains[:len(r.Chains):len(r.Chains)], Chain{Name: StampChain, Rules: []Rule{stamp}})
}

// String is the set as a block of a table.
func (s Set) String() string {
	var b strings.Builder
	kind, typ := "set", joinTypes(s.Key)
	if len(s.Data) > 0 {
		kind, typ = "map", typ+" : "+joinTypes(s.Data)
	}
	fmt.Fprintf(&b, "\t%s %s {\n\t\ttype %s\n", kind, s.Name, typ)
	if s.Size > 0 {
		fmt.Fprintf(&b, "\t\tsize %d\n", s.Size)
	}
	if flags := s.flags(); len(flags) > 0 {
		b.WriteString("\t\tflags " + strings.Join(flags, ",") + "\n")
	}
	if s.Counter {
		b.WriteString("\t\tcounter\n")
	}
	if len(s.Elements) > 0 {
		b.WriteString("\t\telements = {\n")
		for _, e := range s.Elements {
			b.WriteString("\t\t\t" + s.ElementText(e) + ",\n")
		}
		b.WriteString("\t\t}\n")
	}
	b.WriteString("\t}\n")
	return b.String()
}

func (s Set) flags() []string {
	var flags []string
	if s.Interval {
		flags = append(flags, "interval")
	}
	if s.Dynamic {
		flags = append(flags, "dynamic")
	}
	if s.Timeout {
		flags = append(flags, "timeout")
	}
	return flags
}

// ElementText is the element as nft writes it in a set of this type.
func (s Set) ElementText(e Element) string {
	var key, data []string
	for i, r := range e.Key {
		key = append(key, s.Key[i].RangeText(r))
	}
	text := strings.Join(key, " . ")
	if s.Counter {
		text += fmt.Sprintf(" counter packets %d bytes %d", e.Packets, e.Bytes)
	}
	if e.Timeout > 0 {
		text += " timeout " + strconv.FormatInt(e.Timeout.Milliseconds(), 10) + "ms"
	}
	for i, v := range e.Data {
		data = append(data, s.Data[i].Text(v))
	}
	if len(data) > 0 {
		text += " : " + strings.Join(data, " . ")
	}
	return text
}

func joinTypes(types []Type) string {
	var names []string
	for _, t := range types {
		names = append(names, t.String())
	}
	return strings.Join(names, " . ")
}

// String is the chain as a block of a table.
func (c Chain) String() string {
	var b strings.Builder
	b.WriteString("\tchain " + c.Name + " {\n")
	if c.Hook != nil {
		b.WriteString("\t\t" + c.Hook.String() + "\n")
	}
	for _, r := range c.Rules {
		b.WriteString("\t\t" + r.String() + "\n")
	}
	b.WriteString("\t}\n")
	return b.String()
}

// String is the first line of a base chain.
func (h Hook) String() string {
	device, policy := "", "accept"
	if h.Device != "" {
		device = " device " + quote(h.Device)
	}
	if h.Drop {
		policy = "drop"
	}
	return fmt.Sprintf("type %s hook %s%s priority %d; policy %s;", h.Type, h.Name, device, h.Priority, policy)
}

// String is the rule on one line. Matches that the one behind them implies are
// left out, as nft does when it lists, so that nft makes the same rule of the
// text. (But nft 1.0.6 joins "sport != a dport != b" to one comparison, which is
// another condition, and ports on both sides of a counter; the kernel package does neither.)
func (r Rule) String() string {
	var words []string
	var next Stmt
	for i := len(r.Stmts) - 1; i >= 0; i-- {
		s := r.Stmts[i]
		if m, ok := s.(Match); ok && impliedBy(m, next, r.Stmts[:i]) {
			continue // next may imply the one before, too
		}
		if text := s.String(); text != "" {
			words = append([]string{text}, words...)
		}
		next = s
	}
	if r.Comment != "" {
		words = append(words, "comment "+quote(r.Comment))
	}
	return strings.Join(words, " ")
}

// impliedBy reports whether nft adds the match m by itself in front of next,
// and nothing more; before is what stands in front of m.
func impliedBy(m Match, next Stmt, before []Stmt) bool {
	if m.Not || m.Set != "" || len(m.In) != 1 || !m.In[0].Single() {
		return false
	}
	family, proto := needs(next)
	switch m.Field {
	case NFProtoField:
		return family != 0 && m.In[0].Lo == Byte(family)
	case L4Proto:
		// nft would add the family of an ICMP type, too.
		added := family != 0 && !slices.ContainsFunc(before, matchesFamily)
		return proto != 0 && m.In[0].Lo == Byte(proto) && !added
	}
	return false
}

func matchesFamily(s Stmt) bool {
	m, ok := s.(Match)
	return ok && m.Field == NFProtoField
}

// Address families as meta nfproto knows them.
const (
	NFProtoIPv4 = 2
	NFProtoIPv6 = 10
)

// needs is the address family and the IP protocol that nft adds before s; 0 = none.
func needs(s Stmt) (family, proto uint8) {
	switch s := s.(type) {
	case Match:
		return s.Field.Needs()
	case VMap:
		return s.Field.Needs()
	case Meter:
		return s.Key.Needs()
	}
	return 0, 0
}

// Needs is the family and the IP protocol that must have been matched before
// the field is read; 0 = any.
func (f Field) Needs() (family, proto uint8) {
	switch f {
	case IPSaddr, IPDaddr:
		return NFProtoIPv4, 0
	case IP6Saddr, IP6Daddr, IP6HopLimit:
		return NFProtoIPv6, 0
	case TCPSport, TCPDport, TCPFlagsField:
		return 0, 6
	case UDPSport, UDPDport:
		return 0, 17
	case SCTPSport, SCTPDport:
		return 0, 132
	case ICMPTypeField:
		return NFProtoIPv4, 1
	case ICMPv6TypeField:
		return NFProtoIPv6, 58
	}
	return 0, 0
}

// masked is a field, and the bits of it that count, as nft writes them.
func masked(f Field, mask Value) string {
	switch {
	case mask == "":
		return f.String()
	case f == TCPFlagsField && strings.Contains(f.Type().Text(mask), " "):
		return f.String() + " & (" + f.Type().Text(mask) + ")"
	}
	return f.String() + " & " + f.Type().Text(mask)
}

// String is the match as nft writes it.
func (m Match) String() string {
	bits := m.Field == CTStateField || m.Field == CTStatusField
	op := " "
	switch {
	case m.Not && bits:
		op = " ! "
	case m.Not:
		op = " != "
	case m.Mask != "":
		op = " == "
	}
	left := masked(m.Field, m.Mask) + op
	if m.Set != "" {
		return left + "@" + m.Set
	}
	var in []string
	for _, r := range m.In {
		in = append(in, m.Field.Type().RangeText(r))
	}
	if len(in) == 1 {
		return left + in[0]
	}
	return left + "{ " + strings.Join(in, ", ") + " }"
}

// String is the reverse path check as nft writes it.
func (NoRouteBack) String() string { return "fib saddr . iif oif missing" }

// String is the verdict map as nft writes it.
func (v VMap) String() string {
	var arms []string
	for _, a := range v.Arms {
		arms = append(arms, v.Field.Type().Text(a.Key)+" : "+a.Verdict.String())
	}
	return masked(v.Field, v.Mask) + " vmap { " + strings.Join(arms, ", ") + " }"
}

// String is the verdict as nft writes it.
func (v Verdict) String() string {
	word := [...]string{"", "accept", "drop", "return", "goto", "jump"}[v.Kind]
	if v.Chain != "" {
		return word + " " + v.Chain
	}
	return word
}

// String is the statement as nft writes it.
func (c Count) String() string { return "counter name " + quote(c.Name) }

// String is the statement as nft writes it.
func (l Log) String() string {
	if l.Prefix == "" {
		return fmt.Sprintf("log group %d", l.Group)
	}
	return fmt.Sprintf("log prefix %s group %d", quote(l.Prefix), l.Group)
}

// String is the statement as nft writes it.
func (l Limit) String() string {
	over, burst := "", ""
	if l.Over {
		over = "over "
	}
	if l.Burst > 0 {
		burst = fmt.Sprintf(" burst %d packets", l.Burst)
	}
	return fmt.Sprintf("limit rate %s%d/%s%s", over, l.Rate, unitNames[l.Seconds()], burst)
}

// Seconds is the length of the Unit.
func (l Limit) Seconds() int {
	if l.Unit == 0 {
		return 1
	}
	return int(l.Unit / time.Second)
}

var unitNames = map[int]string{1: "second", 60: "minute", 3600: "hour", 24 * 3600: "day", 7 * 24 * 3600: "week"}

// String is the statement as nft writes it.
func (m Meter) String() string {
	op := "add"
	if m.Update {
		op = "update"
	}
	text := op + " @" + m.Set + " { " + masked(m.Key, m.Mask)
	if m.Timeout > 0 {
		text += " timeout " + strconv.FormatInt(m.Timeout.Milliseconds(), 10) + "ms"
	}
	switch {
	case m.Open > 0:
		text += fmt.Sprintf(" ct count over %d", m.Open)
	case m.Limit.Rate > 0:
		l := m.Limit
		l.Over = true
		text += " " + l.String()
	}
	return text + " }"
}

// String is the statement as nft writes it.
func (s SetMark) String() string {
	text := "ct mark set ct mark"
	if s.Keep&^s.Set != ^s.Set {
		text += " & " + Mark.Text(U32(s.Keep))
	}
	if s.Set != 0 {
		text += " | " + Mark.Text(U32(s.Set))
	}
	return text
}

// String is the statement as nft writes it.
func (r RejectWith) String() string {
	if r.Reset {
		return "reject with tcp reset"
	}
	return "reject with icmpx admin-prohibited"
}

// String is the statement as nft writes it.
func (d DNAT) String() string {
	family := "ip"
	if d.IPv6 || d.To.Is6() {
		family = "ip6"
	}
	switch {
	case d.Map != "" && d.ByUDP:
		return "dnat " + family + " to udp dport map @" + d.Map
	case d.Map != "":
		return "dnat " + family + " to tcp dport map @" + d.Map
	case d.Port != 0:
		return "dnat " + family + " to " + netip.AddrPortFrom(d.To, d.Port).String()
	}
	return "dnat " + family + " to " + d.To.String()
}

// String is the statement as nft writes it.
func (Masquerade) String() string { return "masquerade" }

// String is the statement as nft writes it.
func (ClampMSS) String() string { return "tcp option maxseg size set rt mtu" }

// String is empty: nft cannot write a part of a label, nor read one from the packet.
func (Label) String() string { return "" }

// quote puts text between the quotation marks of nft, which knows no escapes.
func quote(text string) string { return `"` + text + `"` }
