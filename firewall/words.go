package firewall

import (
	"fmt"
	"strings"
)

// title is how a sentence names the rule.
func (r Rule) title() string {
	if r.Descr != "" {
		return "rule “" + r.Descr + "”"
	}
	return "rule “" + r.String() + "”"
}

// String says what the rule does: "pass tcp from LAN net to any port 443 on LAN".
func (r Rule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Action, r.Proto)
	if len(r.ICMP) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(r.ICMP, ", "))
	}
	fmt.Fprintf(&b, " from %s", r.Src)
	if len(r.SrcPorts) > 0 {
		fmt.Fprintf(&b, " port %s", r.SrcPorts)
	}
	fmt.Fprintf(&b, " to %s", r.Dst)
	if len(r.DstPorts) > 0 {
		fmt.Fprintf(&b, " port %s", r.DstPorts)
	}
	if r.In == "" {
		b.WriteString(" on all interfaces")
	} else {
		fmt.Fprintf(&b, " on %s", r.In)
	}
	if r.Family != Both {
		fmt.Fprintf(&b, ", IP%s only", r.Family)
	}
	if r.Limit.On() {
		b.WriteString(", at most " + r.Limit.String())
	}
	if r.Log {
		b.WriteString(", logged")
	}
	if !r.On {
		b.WriteString(", off")
	}
	return b.String()
}

func (f Forward) title() string {
	if f.Descr != "" {
		return "“" + f.Descr + "”"
	}
	return "“" + f.String() + "”"
}

// String says what the forward does: "tcp WAN address port 443 to 10.0.0.5 port 8443".
func (f Forward) String() string {
	s := fmt.Sprintf("%s %s port %s to %s port %s", f.Proto, f.Dst, f.Ports, f.To, f.inside())
	if !f.From.IsAny() {
		s += " from " + f.From.String()
	}
	if f.Reflect {
		s += ", reflected"
	}
	if !f.On {
		s += ", off"
	}
	return s
}

func (s StaticLease) title() string {
	if s.Host != "" {
		return "the static mapping of " + s.Host
	}
	return "the static mapping of " + string(s.MAC)
}

// String says what the interface is: "LAN on eth1, 192.168.1.1/24".
func (i Interface) String() string {
	s := fmt.Sprintf("%s (%s) on %s, ", i.Name, strings.ToUpper(string(i.Role)), i.Device)
	switch i.V4.Mode {
	case Static:
		s += i.V4.Addr.String()
	case DHCP:
		s += "IPv4 by DHCP"
	default:
		s += "no IPv4"
	}
	if i.V6.Mode == Static {
		s += ", " + i.V6.Addr.String()
	}
	if !i.On {
		s += ", off"
	}
	return s
}

// String is the audit line.
func (c AddRule) String() string { return "Add rule: " + named(c.Rule.Descr, c.Rule.String()) }

// String is the audit line.
func (c UpdateRule) String() string { return "Change rule: " + named(c.Rule.Descr, c.Rule.String()) }

// String is the audit line.
func (c MoveRule) String() string { return "Move a rule" }

// String is the audit line.
func (c DeleteRule) String() string { return "Delete rule: " + c.Descr }

// String is the audit line.
func (c AddForward) String() string {
	return "Add forward: " + named(c.Forward.Descr, c.Forward.String())
}

// String is the audit line.
func (c UpdateForward) String() string {
	return "Change forward: " + named(c.Forward.Descr, c.Forward.String())
}

// String is the audit line.
func (c DeleteForward) String() string { return "Delete forward: " + c.Descr }

// String is the audit line.
func (c AddAlias) String() string { return "Add alias " + string(c.Alias.Name) }

// String is the audit line.
func (c UpdateAlias) String() string {
	if c.Name != c.Alias.Name {
		return fmt.Sprintf("Rename alias %s to %s", c.Name, c.Alias.Name)
	}
	return "Change alias " + string(c.Name)
}

// String is the audit line.
func (c DeleteAlias) String() string { return "Delete alias " + string(c.Name) }

// String is the audit line.
func (c ReplaceAlias) String() string {
	return fmt.Sprintf("Replace alias %s by %s everywhere, and delete it", c.Old, c.New)
}

// String is the audit line.
func (c AddInterface) String() string { return "Add interface " + c.Interface.String() }

// String is the audit line.
func (c UpdateInterface) String() string {
	if c.Name != c.Interface.Name {
		return fmt.Sprintf("Rename interface %s to %s", c.Name, c.Interface.Name)
	}
	return "Change interface " + c.Interface.String()
}

// String is the audit line.
func (c DeleteInterface) String() string { return "Delete interface " + string(c.Name) }

// String is the audit line.
func (c PutScope) String() string {
	if !c.Scope.On {
		return fmt.Sprintf("Switch DHCP off on %s", c.Scope.In)
	}
	return fmt.Sprintf("Set DHCP on %s: %s to %s", c.Scope.In, c.Scope.From, c.Scope.To)
}

// String is the audit line.
func (c AddStatic) String() string {
	return fmt.Sprintf("Add static mapping: %s gets %s", named(c.Static.Host, string(c.Static.MAC)), c.Static.Addr)
}

// String is the audit line.
func (c UpdateStatic) String() string {
	return fmt.Sprintf("Change static mapping: %s gets %s", named(c.Static.Host, string(c.Static.MAC)), c.Static.Addr)
}

// String is the audit line.
func (c DeleteStatic) String() string { return "Delete static mapping: " + c.Descr }

// String is the audit line.
func (c SetSystem) String() string {
	return fmt.Sprintf("Call the box %s.%s", c.System.Host, c.System.Domain)
}

// String is the audit line.
func (c SetAdmin) String() string { return fmt.Sprintf("Web pages on port %d", c.Admin.HTTPS) }

// String is the audit line.
func (c SetLimit) String() string {
	if !c.Limit.On() {
		return "No limit per source: " + c.Descr
	}
	return fmt.Sprintf("Limit %s: %s", c.Descr, c.Limit)
}

// String is the audit line.
func (c SetSources) String() string {
	return fmt.Sprintf("An IPv6 source is a /%d; limits remember %d sources", c.Sources.Prefix(), c.Sources.Size())
}

// String is the audit line.
func (c ReplaceAll) String() string { return named(c.Why, "Replace the whole configuration") }

func named(name, else_ string) string {
	if name != "" {
		return name
	}
	return else_
}
