package forwards

import (
	"fmt"
	"strings"

	"gatehouse/firewall"
	"gatehouse/web/page"
)

// form is the editor's fields as a person typed them, byte for byte.
type form struct {
	On, Reflect      bool
	Descr, In, Proto string
	Only, FromNot    bool   // Only: the sources are restricted
	From             string // counts only with Only, and then must not be empty
	Dst, Dport       string
	To, ToPort       string
	Rule             string // linked or none
	Limit            page.Limit
}

// The choices of Rule.
const (
	linked = "linked"
	none   = "none"
)

// blank is a new forward.
func blank(c firewall.Config) form {
	f := form{On: true, Reflect: true, Proto: string(firewall.TCP), Rule: linked, Limit: page.ShowLimit(c, firewall.Limit{})}
	for _, in := range c.Interfaces {
		if in.Role == firewall.WAN {
			f.In, f.Dst = string(in.Name), string(in.Name)+" address"
			break
		}
	}
	return f
}

// show gives the fields of a forward of c and of the limit of its linked rule.
// show and form.forward undo each other.
func show(c firewall.Config, v firewall.Forward) form {
	f := form{Limit: page.ShowLimit(c, ruleOf(c, v).Limit),
		On: v.On, Reflect: v.Reflect, Descr: v.Descr, In: string(v.In), Proto: string(v.Proto),
		Dst: v.Dst.String(), Dport: v.Ports.String(), To: v.To.String(), Rule: none}
	if v.ToPort != v.Ports.From {
		f.ToPort = fmt.Sprint(v.ToPort)
	}
	if !v.From.IsAny() {
		f.Only, f.From, f.FromNot = true, v.From.List(), v.From.Not
	}
	if v.Rule != "" {
		f.Rule = linked
	}
	return f
}

func read(p *page.Form) form {
	return form{On: p.On("on"), Reflect: p.On("reflect"), Descr: p.Raw("descr"), In: p.Get("in"), Proto: p.Get("proto"),
		Only: p.On("only"), FromNot: p.On("from_not"), From: p.Raw("from"), Dst: p.Raw("dst"), Dport: p.Raw("dport"),
		To: p.Raw("to"), ToPort: p.Raw("to_port"), Rule: p.Get("rule"), Limit: page.ReadLimit(p)}
}

// forward gives the value of the fields; old is what it was (the zero value for
// a new one) and fresh an id for a linked rule that is not there yet. What
// cannot be read is told and left at something that passes the other checks.
func (f form) forward(old firewall.Forward, fresh firewall.ID) (firewall.Forward, firewall.Problems) {
	var ps firewall.Problems
	add := func(field, text string) { ps = append(ps, firewall.Problem{Field: field, Text: text}) }
	v := firewall.Forward{ID: old.ID, On: f.On, Reflect: f.Reflect, Descr: f.Descr, In: firewall.Name(f.In), Proto: firewall.Proto(f.Proto),
		From: f.sources(add)}
	var err error
	if v.Dst, err = firewall.ParseEnd(f.Dst); err != nil {
		add("dst", page.Sentence(err))
		v.Dst = firewall.End{Kind: firewall.EndIfAddr, Name: v.In}
	}
	if v.Ports, err = parseRange(f.Dport); err != nil {
		add("dport", page.Sentence(err))
		v.Ports = firewall.PortRange{From: 1, To: 1}
	}
	badPort := err != nil
	if v.To, err = firewall.ParseAddr(f.To); err != nil {
		add("to", "Write the address of a host inside, for example 192.168.1.10.")
	}
	v.ToPort = v.Ports.From
	if strings.TrimSpace(f.ToPort) != "" {
		to, err := parseRange(f.ToPort)
		switch {
		case err != nil:
			add("to_port", page.Sentence(err))
		case !badPort && to.Len() > 1 && to.Len() != v.Ports.Len():
			add("to_port", fmt.Sprintf("%s outside are %s, %s inside are %s. Write the first port inside only.",
				v.Ports, page.Count(v.Ports.Len(), "port"), to, page.Count(to.Len(), "port")))
		default:
			v.ToPort = to.From
		}
	}
	switch f.Rule {
	case linked:
		if v.Rule = old.Rule; v.Rule == "" {
			v.Rule = fresh
		}
	case none:
	default:
		add("rule", "Choose what lets the connections through.")
	}
	return v, ps
}

// sources reads who may use the forward. A restriction that is empty, or that
// was typed and not switched on, is never read as any (C05).
func (f form) sources(add func(field, text string)) firewall.Ends {
	typed := strings.TrimSpace(f.From) != ""
	switch {
	case !f.Only && (typed || f.FromNot):
		add("from", "Tick “Only from these sources”, or clear this field.")
		return firewall.Anyone()
	case !f.Only:
		return firewall.Anyone()
	case !typed:
		add("from", "Name at least one source, or take the tick away to let everybody in.")
		return firewall.Anyone()
	}
	bad := false
	for _, part := range strings.FieldsFunc(f.From, func(r rune) bool { return r == ',' || r == '\n' || r == ';' }) {
		if _, err := firewall.ParseEnd(part); err != nil && strings.TrimSpace(part) != "" {
			add("from", page.Sentence(err))
			bad = true
		}
	}
	ends, err := firewall.ParseEnds(f.From)
	if bad || err != nil {
		return firewall.Anyone()
	}
	ends.Not = f.FromNot
	return ends
}

// parseRange reads one port or range; a service name stands for its port.
func parseRange(s string) (firewall.PortRange, error) {
	s = strings.TrimSpace(s)
	switch {
	case s == "":
		return firewall.PortRange{}, fmt.Errorf("write a port, such as 443, or a range, such as 8000-8010")
	case strings.ContainsAny(s, ",;"):
		return firewall.PortRange{}, fmt.Errorf("one port or one range; make another forward for the next")
	}
	p, err := firewall.ParsePortEnd(s)
	if err != nil {
		return firewall.PortRange{}, fmt.Errorf("`%s`: %w", s, err)
	}
	if p.Alias != "" {
		return firewall.PortRange{}, fmt.Errorf("`%s` is not a port, a range or a service", s)
	}
	return p.Range, nil
}

// inside is the ports at the host: the outside ones, shifted one to one.
func inside(v firewall.Forward) firewall.PortRange {
	return firewall.PortRange{From: v.ToPort, To: v.ToPort + (v.Ports.To - v.Ports.From)}
}

// becomes says which ports the typed ones come out at; empty when that cannot be told.
func (f form) becomes() string {
	out, err := parseRange(f.Dport)
	if err != nil {
		return ""
	}
	in := out
	if strings.TrimSpace(f.ToPort) != "" {
		if in, err = parseRange(f.ToPort); err != nil {
			return ""
		}
	}
	if int(in.From)+out.Len()-1 > 65535 || out.Len() == 1 {
		return ""
	}
	in.To = in.From + (out.To - out.From)
	return fmt.Sprintf("%s comes out at %s, one to one.", out, in)
}

// limit gives the limit of the fields, which is the linked rule's; was is what
// that had.
func (f form) limit(c firewall.Config, was firewall.Limit) (firewall.Limit, firewall.Problems) {
	l, ps := f.Limit.Value(c, was)
	if f.Rule == none && l != (firewall.Limit{}) {
		ps = append(ps, firewall.Problem{Field: f.Limit.Asks(), Text: "Limits need the linked pass rule."})
	}
	return l, ps
}

// fields is two forwards field by field, where they differ.
func fields(theirs, yours ruled) []page.Stale {
	list := func(v ruled) []string {
		return append([]string{page.YesNo(v.On), v.Descr, string(v.In), protoWord(v.Proto), v.From.String(), v.Dst.String(), v.Ports.String(),
			v.To.String(), inside(v.Forward).String(), page.YesNo(v.Rule != ""), page.YesNo(v.Reflect)}, page.LimitWords(v.Limit)...)
	}
	return page.Differ(append([]string{"Active", "Description", "Interface", "Protocol", "From", "Outside address", "Outside port", "To", "Port inside",
		"Linked pass rule", "Reflection"}, page.LimitNames()...), list(theirs), list(yours))
}

func protoWord(p firewall.Proto) string { return strings.ToUpper(string(p)) }
