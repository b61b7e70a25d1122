package firewall

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
