package firewall

import (
	"cmp"
	"net/netip"
	"slices"
)

func (c Config) validateRule(k checker, r Rule) {
	if r.Action != Pass && r.Action != Block && r.Action != Reject {
		k.add("action", "Choose pass, block or reject.")
	}
	if _, ok := c.Interface(r.In); r.In != "" && !ok {
		k.add("in", "There is no interface %s.", r.In)
	}
	if r.Family != IPv4 && r.Family != IPv6 && r.Family != Both {
		k.add("family", "Choose IPv4, IPv6 or both.")
	}
	k.text("descr", r.Descr)
	k.text("section", r.Section)
	if _, ok := r.Proto.Numbers(false); !ok {
		k.add("proto", "Choose a protocol from the list or write a number from 0 to 255.")
	}
	c.validateICMP(k, r)
	c.validateLimit(k, r)
	c.validatePorts(k, "sport", r.SrcPorts, r.Proto)
	c.validatePorts(k, "dport", r.DstPorts, r.Proto)
	src := c.validateEnds(k, "src", r.Src)
	dst := c.validateEnds(k, "dst", r.Dst)
	if slices.ContainsFunc(r.Src.Of, func(e End) bool { return e.Kind == EndSelf }) {
		k.add("src", "*this box* can only be a destination: rules decide what enters.")
	}
	if src != "" && dst != "" && src != dst {
		k.add("dst", "Source is %s, destination is %s.", src, dst)
	}
	for _, end := range [][2]string{{"src", src}, {"dst", dst}} {
		field, fam := end[0], end[1]
		if fam == "IPv4" && r.Family == IPv6 || fam == "IPv6" && r.Family == IPv4 {
			k.add(field, "These addresses are %s, but the rule is for IP%s only.", fam, r.Family)
		}
	}
	if r.Forward == "" {
		return
	}
	f, ok := c.Forward(r.Forward)
	switch {
	case !ok || f.Rule != r.ID:
		k.add("forward", "The forward that made this rule is gone.")
	case hashOf(f.linked(r)) != hashOf(r):
		k.add("forward", "This rule is made by the forward %s; change it there.", f.title())
	}
}

func (c Config) validateICMP(k checker, r Rule) {
	if len(r.ICMP) > 0 && r.Proto != ICMP {
		k.add("icmp", "ICMP types need the protocol ICMP.")
		return
	}
	for _, name := range r.ICMP {
		_, v4 := ICMPNumber(name, false)
		_, v6 := ICMPNumber(name, true)
		switch {
		case !v4 && !v6:
			k.add("icmp", "`%s` is not an ICMP type.", name)
		case !v4 && r.Family == IPv4:
			k.add("icmp", "%s exists in IPv6 only.", name)
		case !v6 && r.Family == IPv6:
			k.add("icmp", "%s exists in IPv4 only.", name)
		}
	}
}

func (c Config) validatePorts(k checker, field string, ps Ports, proto Proto) {
	if len(ps) > 0 && !proto.HasPorts() {
		k.add(field, "Ports need TCP, UDP or SCTP.")
	}
	if len(ps) > 15 {
		k.add(field, "At most 15 ports; make a port alias of them.")
	}
	for _, p := range ps {
		if p.Alias == "" {
			if p.Range.From == 0 || p.Range.To < p.Range.From {
				k.add(field, "The range ends (%d) before it starts (%d).", p.Range.To, p.Range.From)
			}
			continue
		}
		if a, ok := c.Alias(p.Alias); !ok {
			k.add(field, "There is no alias `%s`.", p.Alias)
		} else if a.Kind != PortList {
			k.add(field, "%s holds addresses, not ports.", p.Alias)
		}
	}
}

// validateEnds gives the family of the members when all have one and it is the same.
func (c Config) validateEnds(k checker, field string, e Ends) (family string) {
	if len(e.Of) == 0 {
		k.add(field, "Name at least one address, network or alias, or choose any.")
	}
	if e.Not && len(e.Of) > 1 {
		k.add(field, "Use *not* with a single entry.")
	}
	v4, v6, open := false, false, false
	for _, m := range e.Of {
		switch m.Kind {
		case EndAny:
			open = true
			if len(e.Of) > 1 {
				k.add(field, "'any' already covers the rest.")
			}
			if e.Not {
				k.add(field, "*not any* would match nobody.")
			}
		case EndAlias:
			open = true
			if a, ok := c.Alias(m.Name); !ok {
				k.add(field, "There is no alias or interface `%s`.", m.Name)
			} else if a.Kind != Addresses {
				k.add(field, "%s holds ports, not addresses.", m.Name)
			}
		case EndIfNet, EndIfAddr:
			open = true
			if _, ok := c.Interface(m.Name); !ok {
				k.add(field, "There is no interface `%s`.", m.Name)
			}
		case EndSelf:
			open = true
		default:
			r, _ := m.Range()
			v4, v6 = v4 || r.From.Is4(), v6 || r.From.Is6()
		}
	}
	switch {
	case open || e.Not || v4 == v6:
		return ""
	case v4:
		return "IPv4"
	}
	return "IPv6"
}

func (c Config) validateForward(k checker, at int) {
	f := c.Forwards[at]
	k.text("descr", f.Descr)
	if _, ok := c.Interface(f.In); !ok {
		k.add("in", "There is no interface %s.", f.In)
	}
	if f.Proto != TCP && f.Proto != UDP && f.Proto != TCPUDP {
		k.add("proto", "A forward needs TCP or UDP.")
	}
	from := c.validateEnds(k, "from", f.From)
	switch {
	case f.Dst.Kind == EndIfAddr && f.Dst.Name == f.In:
	case f.Dst.Kind == EndAddr:
		if f.Dst.Addr.Is4() != f.To.Is4() {
			k.add("to", "Destination and target must be of one family.")
		}
	default:
		k.add("dst", "Choose %s address, or write one address.", f.In)
	}
	if f.Ports.From == 0 || f.Ports.To < f.Ports.From {
		k.add("dport", "Port must be 1–65535.")
	}
	if end := int(f.ToPort) + f.Ports.Len() - 1; f.ToPort == 0 || end > 65535 {
		if f.ToPort == 0 {
			k.add("to_port", "Port must be 1–65535.")
		} else {
			k.add("to_port", "The range would end at %d.", end)
		}
	}
	c.validateTarget(k, f, from)
	for _, other := range c.Forwards[:at] {
		if f.On && other.On && f.In == other.In && f.Ports.Overlaps(other.Ports) && sharesProto(f.Proto, other.Proto) &&
			sameDst(f, other) && hashOf(f.From) == hashOf(other.From) {
			k.add("dport", "Port %s is already forwarded by %s.", f.Ports, other.title())
		}
	}
	if r, ok := c.Rule(f.Rule); f.Rule != "" && (!ok || r.Forward != f.ID) {
		k.add("rule", "The linked rule is missing.")
	}
}

func (c Config) validateTarget(k checker, f Forward, from string) {
	if !f.To.IsValid() || f.To.IsUnspecified() || f.To.IsMulticast() || f.To.IsLoopback() {
		k.add("to", "Write the address of a host inside.")
		return
	}
	if from != "" && (from == "IPv4") != f.To.Is4() {
		k.add("from", "Source is %s, the target is not.", from)
	}
	for _, in := range c.Interfaces {
		p := in.V4.Addr
		if f.To.Is6() {
			p = in.V6.Addr
		}
		if !p.IsValid() {
			continue
		}
		switch {
		case f.To == p.Addr():
			k.add("to", "%s is this box itself; write a rule with destination *this box* instead.", f.To)
		case p.Contains(f.To) && f.To.Is4() && p.Bits() < 31 && (f.To == p.Masked().Addr() || f.To == LastAddr(p)):
			k.add("to", "%s is the network or broadcast address of %s.", f.To, in.Name)
		}
	}
}

func sharesProto(a, b Proto) bool { return a == b || a == TCPUDP || b == TCPUDP }

// sameDst: "WAN address" may be any address of the interface, so it overlaps a written one.
func sameDst(a, b Forward) bool {
	return a.To.Is4() == b.To.Is4() && (a.Dst == b.Dst || a.Dst.Kind == EndIfAddr || b.Dst.Kind == EndIfAddr)
}

func (c Config) validateScope(k checker, s Scope, seen map[ID]bool) {
	in, ok := c.Interface(s.In)
	switch {
	case !ok:
		k.add("in", "There is no interface %s.", s.In)
		return
	case !s.On && len(s.Statics) == 0:
		return
	case in.Role == WAN:
		k.add("on", "The DHCP server never runs on a WAN.")
		return
	case in.V4.Mode != Static:
		k.add("on", "%s has no fixed address.", s.In)
		return
	case !in.V4.Addr.IsValid():
		return // told at the interface
	}
	net, box := in.V4.Addr.Masked(), in.V4.Addr.Addr()
	if s.On {
		k.pool(s, net, box)
	}
	if s.Lease < 60 || s.Lease > 7*86400 {
		k.add("lease", "The lease time must be 60 seconds to 7 days.")
	}
	if s.Gateway.IsValid() && !net.Contains(s.Gateway) {
		k.add("gw", "Gateway must be inside %s.", net)
	}
	if len(s.DNS) > 4 || slices.ContainsFunc(s.DNS, func(a netip.Addr) bool { return !a.Is4() }) {
		k.add("dns", "At most 4 IPv4 addresses.")
	}
	if s.Domain != "" && !DomainName(s.Domain) {
		k.add("domain", "Domain: use letters, digits, dashes and dots, for example home.arpa.")
	}
	for i, st := range s.Statics {
		sk := checker{k.ps, Ref{"static", string(st.ID)}}
		sk.id(seen, st.ID)
		sk.static4(st, s.Statics[:i], net, box)
	}
}

func (k checker) pool(s Scope, net netip.Prefix, box netip.Addr) {
	for _, end := range []struct {
		field string
		a     netip.Addr
	}{{"from", s.From}, {"to", s.To}} {
		switch {
		case !end.a.Is4() || !net.Contains(end.a):
			k.add(end.field, "The range must lie inside %s.", net)
			return
		case net.Bits() < 31 && end.a == net.Addr():
			k.add(end.field, "%s is the network's own address.", end.a)
		case net.Bits() < 31 && end.a == LastAddr(net):
			k.add(end.field, "%s is the network's broadcast address.", end.a)
		}
	}
	switch {
	case s.To.Less(s.From):
		k.add("to", "The range ends (%s) before it starts (%s).", s.To, s.From)
	case AddrRange{s.From, s.To}.Contains(box):
		k.add("from", "The range contains the box's own address %s.", box)
	}
}

func (k checker) static4(s StaticLease, before []StaticLease, net netip.Prefix, box netip.Addr) {
	k.text("descr", s.Descr)
	if _, err := ParseMAC(string(s.MAC)); err != nil {
		k.add("mac", "A MAC has 12 hex digits.")
	}
	switch {
	case !s.Addr.Is4() || !net.Contains(s.Addr):
		k.add("addr", "The address must lie inside %s.", net)
	case s.Addr == box:
		k.add("addr", "%s is the box's own address.", s.Addr)
	case net.Bits() < 31 && (s.Addr == net.Addr() || s.Addr == LastAddr(net)):
		k.add("addr", "%s is the network or broadcast address.", s.Addr)
	}
	if s.Host != "" && !label(s.Host) {
		k.add("host", "Host name: use 1–63 letters, digits and dashes, no dot.")
	}
	for _, o := range before {
		who := cmp.Or(o.Host, string(o.MAC))
		switch {
		case o.MAC == s.MAC:
			k.add("mac", "%s already has %s (%s).", s.MAC, o.Addr, who)
		case o.Addr == s.Addr:
			k.add("addr", "%s already belongs to %s.", s.Addr, who)
		case s.Host != "" && o.Host == s.Host:
			k.add("host", "%s is already the name of %s.", s.Host, o.MAC)
		}
	}
}
