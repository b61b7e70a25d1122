package firewall

import "net/netip"

// Factory is revision 0: no interface has a role, nothing passes, and the web
// pages answer where the wizard runs.
func Factory() Config {
	return Config{
		Schema: Schema,
		System: System{Host: "gatehouse", Domain: "home.arpa", Zone: "UTC"},
		Admin:  Admin{HTTPS: 443, HTTP: 80},
	}
}

// Warnings is what a valid configuration does that its owner may not expect.
func (c Config) Warnings() Problems {
	var ps Problems
	lan := false
	for _, in := range c.Interfaces {
		lan = lan || in.Role == LAN && in.On
	}
	if !lan && len(c.Interfaces) > 0 {
		checker{&ps, Ref{Kind: "admin"}}.add("https", "No interface has the role LAN: the web pages answer nowhere, only the console is left.")
	}
	empty := func(k checker, field string, e Ends) {
		for _, m := range e.Of {
			if m.Kind == EndAlias && len(c.AliasAddrs(m.Name)) == 0 {
				k.add(field, "The alias %s is empty: this matches nobody.", m.Name)
			}
		}
	}
	for _, r := range c.Rules {
		k := checker{&ps, Ref{"rule", string(r.ID)}}
		empty(k, "src", r.Src)
		empty(k, "dst", r.Dst)
		c.warnLimit(k, r)
	}
	for _, f := range c.Forwards {
		k := checker{&ps, Ref{"forward", string(f.ID)}}
		empty(k, "from", f.From)
		if f.Proto != UDP && f.Reflect && (f.Ports.Overlaps(PortRange{c.Admin.HTTPS, c.Admin.HTTPS})) {
			k.add("dport", "This port is also the web page's; from inside, the outside address now leads to the forward.")
		}
	}
	return ps
}

// DefaultPool is the DHCP range that suits an address: all but .1 to .9 and the
// last ten of a network of 64 or more, else every host address on the larger
// side of the box's own.
func DefaultPool(p netip.Prefix) (from, to netip.Addr) {
	if !p.IsValid() || !p.Addr().Is4() || p.Bits() > 30 {
		return from, to
	}
	first, last, box := p.Masked().Addr().Next(), LastAddr(p).Prev(), p.Addr()
	if p.Bits() <= 26 {
		for range 9 {
			first, last = first.Next(), last.Prev()
		}
		last = last.Prev()
	}
	switch {
	case !(AddrRange{first, last}).Contains(box):
		return first, last
	case distance(first, box) > distance(box, last):
		return first, box.Prev()
	}
	return box.Next(), last
}

// distance is how many addresses lie between two of IPv4.
func distance(a, b netip.Addr) int {
	x, y := a.As4(), b.As4()
	n := 0
	for i := range 4 {
		n = n<<8 + int(y[i]) - int(x[i])
	}
	return n
}
