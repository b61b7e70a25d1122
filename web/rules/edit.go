package rules

import (
	"slices"

	"gatehouse/firewall"
	"gatehouse/web/page"
)

func (e editor) heading() string {
	if e.Rule.ID == "" {
		return "New rule"
	}
	return "Edit rule"
}

func (e editor) action() string {
	if e.Rule.ID == "" {
		return "/rules/new"
	}
	return "/rules/" + string(e.Rule.ID)
}

// home is the list of the rules of an interface; empty: the floating ones.
func home(in string) string {
	if in == "" {
		in = tabFloating
	}
	return list{Tab: in}.at()
}

func (e editor) logHint() string {
	hint := "Writes a line for every new connection that this rule decides."
	if e.Hits != "" {
		hint += " So far it had " + e.Hits + " hits."
	}
	return hint
}

func (e editor) hasType(name string) bool { return slices.Contains(e.ICMP, name) }

// onlyIn says which family has an ICMP type when not both have it.
func onlyIn(name string) string {
	_, v4 := firewall.ICMPNumber(name, false)
	_, v6 := firewall.ICMPNumber(name, true)
	switch {
	case v4 && !v6:
		return "IPv4 only"
	case v6 && !v4:
		return "IPv6 only"
	}
	return ""
}

// interfaces is the choices of where a connection comes in.
func interfaces(c firewall.Config) []page.Option {
	list := []page.Option{{Value: "", Label: "all interfaces (floating)"}}
	for _, in := range c.Interfaces {
		list = append(list, page.Option{Value: string(in.Name), Label: string(in.Name)})
	}
	return list
}

// sectionNames is the sections that there are, in their order.
func sectionNames(c firewall.Config) (names []string) {
	for _, r := range c.Rules {
		if r.Section != "" && !slices.Contains(names, r.Section) {
			names = append(names, r.Section)
		}
	}
	return names
}

func families() []page.Option {
	return []page.Option{{Value: "both", Label: "IPv4 and IPv6"}, {Value: "v4", Label: "IPv4 only"}, {Value: "v6", Label: "IPv6 only"}}
}
