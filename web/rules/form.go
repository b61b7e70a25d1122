package rules

import (
	"slices"
	"strconv"
	"strings"

	"gatehouse/firewall"
	"gatehouse/web/page"
)

// numbered is the choice of the protocol list that means "by number".
const numbered = "number"

// form is the editor's fields as a person typed them. Texts are kept byte for
// byte, so that a refused form comes back as it was sent.
type form struct {
	On, Log                bool
	Descr, Section         string
	Action, In, Family     string
	Proto, Number          string // Number counts when Proto is numbered
	ICMP                   []string
	Src, Sport, Dst, Dport string
	SrcNot, DstNot         bool
	Limit                  page.Limit
	Before, After          string // where a new rule goes; both empty: the end
}

// blank is a new rule for one list: what most people want to change least.
func blank(c firewall.Config, in firewall.Name) form {
	return show(c, firewall.Rule{On: true, Action: firewall.Pass, In: in, Family: firewall.Both, Proto: firewall.TCP,
		Src: firewall.Anyone(), Dst: firewall.Anyone()})
}

// show gives the fields of a rule of c. show and form.rule undo each other.
func show(c firewall.Config, r firewall.Rule) form {
	f := form{On: r.On, Log: r.Log, Descr: r.Descr, Section: r.Section, Action: string(r.Action), In: string(r.In),
		Family: string(r.Family), Proto: string(r.Proto), ICMP: r.ICMP,
		Src: r.Src.List(), SrcNot: r.Src.Not, Dst: r.Dst.List(), DstNot: r.Dst.Not, Limit: page.ShowLimit(c, r.Limit)}
	if len(r.SrcPorts) > 0 {
		f.Sport = r.SrcPorts.String()
	}
	if len(r.DstPorts) > 0 {
		f.Dport = r.DstPorts.String()
	}
	if !slices.ContainsFunc(protocols(), func(o page.Option) bool { return o.Value == f.Proto }) {
		f.Proto, f.Number = numbered, string(r.Proto)
	}
	return f
}

// protocols is the choices of the protocol list.
func protocols() []page.Option {
	return []page.Option{{Value: "any", Label: "any"}, {Value: "tcp", Label: "TCP"}, {Value: "udp", Label: "UDP"},
		{Value: "tcp+udp", Label: "TCP and UDP"}, {Value: "icmp", Label: "ICMP (and ICMPv6)"}, {Value: "esp", Label: "ESP"},
		{Value: "ah", Label: "AH"}, {Value: "gre", Label: "GRE"}, {Value: "igmp", Label: "IGMP"}, {Value: "sctp", Label: "SCTP"},
		{Value: numbered, Label: "by number…"}}
}

// read takes the fields of a POST. A linked rule has four of its own and the
// limit; the rest belongs to its forward, and a form that sends it is refused
// by Done.
func read(p *page.Form, linked bool) form {
	f := form{On: p.On("on"), Log: p.On("log"), Descr: p.Raw("descr"), Section: p.Raw("section"), Limit: page.ReadLimit(p)}
	if linked {
		return f
	}
	f.Action, f.In, f.Family = p.Get("action"), p.Get("in"), p.Get("family")
	f.Proto, f.Number, f.ICMP = p.Get("proto"), p.Raw("number"), p.All("icmp")
	f.Src, f.SrcNot, f.Sport = p.Raw("src"), p.On("src_not"), p.Raw("sport")
	f.Dst, f.DstNot, f.Dport = p.Raw("dst"), p.On("dst_not"), p.Raw("dport")
	return f
}

// rule gives the value of the fields, for a rule of c that was old (of a new
// one, only its id). Every field that cannot be read is told and left at what
// passes the other checks, so that those are told as well.
func (f form) rule(c firewall.Config, old firewall.Rule) (firewall.Rule, firewall.Problems) {
	var ps firewall.Problems
	r := firewall.Rule{ID: old.ID, On: f.On, Log: f.Log, Descr: f.Descr, Section: f.Section, Action: firewall.Action(f.Action),
		In: firewall.Name(f.In), Family: firewall.Family(f.Family), Proto: firewall.Proto(f.Proto), ICMP: f.ICMP}
	if f.Proto == numbered {
		n, err := strconv.ParseUint(strings.TrimSpace(f.Number), 10, 8)
		if err != nil {
			ps = append(ps, firewall.Problem{Field: "number", Text: "Write a protocol number from 0 to 255."})
		}
		r.Proto = firewall.Proto(strconv.FormatUint(n, 10))
	}
	r.Src = parseEnds(&ps, "src", f.Src, f.SrcNot)
	r.Dst = parseEnds(&ps, "dst", f.Dst, f.DstNot)
	r.SrcPorts = parsePorts(&ps, "sport", f.Sport)
	r.DstPorts = parsePorts(&ps, "dport", f.Dport)
	limit, wrong := f.Limit.Value(c, old.Limit)
	r.Limit = limit
	return r, append(ps, wrong...)
}

// parseEnds reads a list of ends and tells every member that is none.
func parseEnds(ps *firewall.Problems, field, text string, not bool) firewall.Ends {
	if !each(ps, field, text, func(part string) error { _, err := firewall.ParseEnd(part); return err }) {
		return firewall.Anyone()
	}
	ends, err := firewall.ParseEnds(text)
	if err != nil {
		*ps = append(*ps, firewall.Problem{Field: field, Text: page.Sentence(err)})
		return firewall.Anyone()
	}
	ends.Not = not
	return ends
}

// parsePorts reads a list of ports and tells every member that is none.
func parsePorts(ps *firewall.Problems, field, text string) firewall.Ports {
	if strings.EqualFold(strings.TrimSpace(text), "any") ||
		!each(ps, field, text, func(part string) error { _, err := firewall.ParsePorts(part); return err }) {
		return nil
	}
	ports, err := firewall.ParsePorts(text)
	if err != nil {
		*ps = append(*ps, firewall.Problem{Field: field, Text: page.Sentence(err)})
	}
	return ports
}

// each tries every member of a list and adds a problem for each that fails.
func each(ps *firewall.Problems, field, text string, try func(string) error) bool {
	good := true
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == ';' }) {
		if strings.TrimSpace(part) == "" {
			continue
		}
		if err := try(part); err != nil {
			*ps = append(*ps, firewall.Problem{Field: field, Text: page.Sentence(err)})
			good = false
		}
	}
	return good
}

// fields is the rule as a person reads it, field by field: for a stale edit.
func fields(theirs, yours firewall.Rule) []page.Stale {
	list := func(r firewall.Rule) []string {
		in := string(r.In)
		if in == "" {
			in = "all interfaces (floating)"
		}
		return append([]string{page.YesNo(r.On), r.Descr, r.Section, string(r.Action), in, familyWord(r.Family), protoWord(r.Proto), strings.Join(r.ICMP, ", "),
			r.Src.String(), r.SrcPorts.String(), r.Dst.String(), r.DstPorts.String(), page.YesNo(r.Log)}, page.LimitWords(r.Limit)...)
	}
	return page.Differ(append([]string{"Active", "Description", "Section", "Action", "Interface", "Family", "Protocol", "ICMP types",
		"Source", "Source port", "Destination", "Destination port", "Log"}, page.LimitNames()...), list(theirs), list(yours))
}

func familyWord(f firewall.Family) string {
	switch f {
	case firewall.IPv4:
		return "IPv4"
	case firewall.IPv6:
		return "IPv6"
	}
	return "IPv4+6"
}

func protoWord(p firewall.Proto) string {
	switch {
	case p == firewall.AnyProto:
		return "any"
	case p != "" && p[0] >= '0' && p[0] <= '9':
		return "protocol " + string(p)
	}
	return strings.ToUpper(string(p))
}
