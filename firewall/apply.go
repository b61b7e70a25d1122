package firewall

import (
	"fmt"
	"slices"
)

func isRule(id ID) func(Rule) bool            { return func(r Rule) bool { return r.ID == id } }
func isForward(id ID) func(Forward) bool      { return func(f Forward) bool { return f.ID == id } }
func isAlias(n Name) func(Alias) bool         { return func(a Alias) bool { return a.Name == n } }
func isInterface(n Name) func(Interface) bool { return func(i Interface) bool { return i.Name == n } }
func isScope(n Name) func(Scope) bool         { return func(s Scope) bool { return s.In == n } }

// Apply adds the rule.
func (c AddRule) Apply(cfg Config) (Config, error) {
	var err error
	if cfg.Rules, err = put(cfg.Rules, c.Rule, isRule(c.Rule.ID), c.Rule.title(), false); err != nil {
		return cfg, err
	}
	return MoveRule{c.Rule.ID, c.Place}.Apply(cfg)
}

// Apply replaces the rule.
func (c UpdateRule) Apply(cfg Config) (Config, error) {
	var err error
	cfg.Rules, err = put(cfg.Rules, c.Rule, isRule(c.Rule.ID), c.Rule.title(), true)
	return cfg, err
}

// Apply moves the rule; its neighbour must still be there.
func (c MoveRule) Apply(cfg Config) (Config, error) {
	r, ok := cfg.Rule(c.ID)
	if !ok {
		return cfg, fmt.Errorf("the rule is not there any more")
	}
	rest, _ := drop(cfg.Rules, isRule(c.ID), "")
	at := len(rest)
	if next := c.Place.Before + c.Place.After; next != "" {
		if at = slices.IndexFunc(rest, isRule(next)); at < 0 {
			return cfg, fmt.Errorf("%s cannot move: the rule it should stand beside is not there any more", r.title())
		}
		if c.Place.After != "" {
			at++
		}
	}
	cfg.Rules = slices.Insert(rest, at, r)
	return cfg, nil
}

// Apply removes the rule. A rule that a forward made goes with the forward only.
func (c DeleteRule) Apply(cfg Config) (Config, error) {
	r, _ := cfg.Rule(c.ID)
	if r.Forward != "" {
		if f, ok := cfg.Forward(r.Forward); ok && f.Rule == r.ID {
			return cfg, fmt.Errorf("%s belongs to the forward %s; delete the forward, or unlink its rule there", r.title(), f.title())
		}
	}
	var err error
	cfg.Rules, err = drop(cfg.Rules, isRule(c.ID), "the rule")
	return cfg, err
}

// Apply adds the forward, and its linked rule last.
func (c AddForward) Apply(cfg Config) (Config, error) {
	var err error
	if cfg.Forwards, err = put(cfg.Forwards, c.Forward, isForward(c.Forward.ID), c.Forward.title(), false); err != nil {
		return cfg, err
	}
	return cfg.linkRule(c.Forward)
}

// Apply replaces the forward; the linked rule keeps its place, switch and log.
func (c UpdateForward) Apply(cfg Config) (Config, error) {
	was, _ := cfg.Forward(c.Forward.ID)
	var err error
	if cfg.Forwards, err = put(cfg.Forwards, c.Forward, isForward(c.Forward.ID), c.Forward.title(), true); err != nil {
		return cfg, err
	}
	if was.Rule != "" && was.Rule != c.Forward.Rule {
		cfg.Rules = slices.DeleteFunc(slices.Clone(cfg.Rules), isRule(was.Rule))
	}
	return cfg.linkRule(c.Forward)
}

// Apply removes the forward and its linked rule.
func (c DeleteForward) Apply(cfg Config) (Config, error) {
	f, _ := cfg.Forward(c.ID)
	var err error
	if cfg.Forwards, err = drop(cfg.Forwards, isForward(c.ID), "the forward"); err != nil {
		return cfg, err
	}
	if f.Rule != "" {
		cfg.Rules = slices.DeleteFunc(slices.Clone(cfg.Rules), isRule(f.Rule))
	}
	return cfg, nil
}

// linkRule brings the rule of a forward in line with it, or adds it last.
func (cfg Config) linkRule(f Forward) (Config, error) {
	if f.Rule == "" {
		return cfg, nil
	}
	r, ok := cfg.Rule(f.Rule)
	switch {
	case !ok:
		r = Rule{ID: f.Rule, On: true, Descr: f.Descr}
	case r.Forward != f.ID:
		return cfg, fmt.Errorf("%s is not the rule of the forward %s", r.title(), f.title())
	}
	var err error
	cfg.Rules, err = put(cfg.Rules, f.linked(r), isRule(f.Rule), "the rule of "+f.title(), ok)
	return cfg, err
}

// linked is the pass rule of a forward: it sees the address after translation (design 6).
func (f Forward) linked(r Rule) Rule {
	r.Action, r.In, r.Proto, r.Forward = Pass, f.In, f.Proto, f.ID
	r.Family = IPv4
	if f.To.Is6() {
		r.Family = IPv6
	}
	r.Src, r.SrcPorts, r.ICMP = f.From, nil, nil
	r.Dst = Ends{Of: []End{{Kind: EndAddr, Addr: f.To}}}
	r.DstPorts = Ports{{Range: f.inside()}}
	return r
}

// inside is the ports that the outside ports become.
func (f Forward) inside() PortRange {
	return PortRange{f.ToPort, f.ToPort + (f.Ports.To - f.Ports.From)}
}

// Apply sets the limit.
func (c SetLimit) Apply(cfg Config) (Config, error) {
	r, ok := cfg.Rule(c.Rule)
	if !ok {
		return cfg, fmt.Errorf("the rule is not there any more")
	}
	r.Limit = c.Limit
	return UpdateRule{r}.Apply(cfg)
}

// Apply adds the interface.
func (c AddInterface) Apply(cfg Config) (Config, error) {
	var err error
	cfg.Interfaces, err = put(cfg.Interfaces, c.Interface, isInterface(c.Interface.Name), "the interface "+string(c.Interface.Name), false)
	return cfg, err
}

// Apply replaces the interface and, after a rename, every use of it.
func (c UpdateInterface) Apply(cfg Config) (Config, error) {
	var err error
	if cfg.Interfaces, err = put(cfg.Interfaces, c.Interface, isInterface(c.Name), "the interface "+string(c.Name), true); err != nil {
		return cfg, err
	}
	to := c.Interface.Name
	if to == c.Name {
		return cfg, nil
	}
	cfg = cfg.renamed(func(e End) End {
		if (e.Kind == EndIfNet || e.Kind == EndIfAddr) && e.Name == c.Name {
			e.Name = to
		}
		return e
	}, func(p PortEnd) PortEnd { return p })
	for i := range cfg.Rules {
		if cfg.Rules[i].In == c.Name {
			cfg.Rules[i].In = to
		}
	}
	for i := range cfg.Forwards {
		if cfg.Forwards[i].In == c.Name {
			cfg.Forwards[i].In = to
		}
	}
	for i := range cfg.Scopes {
		if cfg.Scopes[i].In == c.Name {
			cfg.Scopes[i].In = to
		}
	}
	return cfg, nil
}

// Apply removes the interface with all that belongs to it.
func (c DeleteInterface) Apply(cfg Config) (Config, error) {
	var err error
	if cfg.Interfaces, err = drop(cfg.Interfaces, isInterface(c.Name), "the interface "+string(c.Name)); err != nil {
		return cfg, err
	}
	cfg.Scopes = slices.DeleteFunc(slices.Clone(cfg.Scopes), isScope(c.Name))
	cfg.Forwards = slices.DeleteFunc(slices.Clone(cfg.Forwards), func(f Forward) bool { return f.In == c.Name })
	cfg.Rules = slices.DeleteFunc(slices.Clone(cfg.Rules), func(r Rule) bool { return r.In == c.Name })
	return cfg, nil
}

// renamed copies every list and passes every End and PortEnd through a function.
func (cfg Config) renamed(end func(End) End, port func(PortEnd) PortEnd) Config {
	ends := func(e Ends) Ends {
		e.Of = mapped(e.Of, end)
		return e
	}
	cfg.Rules = mapped(cfg.Rules, func(r Rule) Rule {
		r.Src, r.Dst = ends(r.Src), ends(r.Dst)
		r.SrcPorts, r.DstPorts = mapped(r.SrcPorts, port), mapped(r.DstPorts, port)
		return r
	})
	cfg.Forwards = mapped(cfg.Forwards, func(f Forward) Forward {
		f.From, f.Dst = ends(f.From), end(f.Dst)
		return f
	})
	cfg.Aliases = mapped(cfg.Aliases, func(a Alias) Alias {
		a.Addrs = mapped(a.Addrs, func(e Entry) Entry { e.End = end(e.End); return e })
		a.Ports = mapped(a.Ports, func(e PortEntry) PortEntry { e.End = port(e.End); return e })
		return a
	})
	cfg.Scopes = slices.Clone(cfg.Scopes)
	return cfg
}

func mapped[S ~[]T, T any](s S, f func(T) T) S {
	s = slices.Clone(s)
	for i := range s {
		s[i] = f(s[i])
	}
	return s
}

// Apply sets the scope.
func (c PutScope) Apply(cfg Config) (Config, error) {
	was, ok := cfg.Scope(c.Scope.In)
	c.Scope.Statics = was.Statics
	var err error
	cfg.Scopes, err = put(cfg.Scopes, c.Scope, isScope(c.Scope.In), "the scope of "+string(c.Scope.In), ok)
	return cfg, err
}

// Static finds a static mapping by its id, and the scope it is in.
func (cfg Config) Static(id ID) (in Name, s StaticLease, ok bool) {
	for _, sc := range cfg.Scopes {
		for _, s := range sc.Statics {
			if s.ID == id {
				return sc.In, s, true
			}
		}
	}
	return "", StaticLease{}, false
}

// withStatics gives a copy in which the mappings of one scope went through f.
func (cfg Config) withStatics(in Name, f func([]StaticLease) ([]StaticLease, error)) (Config, error) {
	i := slices.IndexFunc(cfg.Scopes, isScope(in))
	if i < 0 {
		return cfg, fmt.Errorf("%s has no DHCP scope", in)
	}
	statics, err := f(cfg.Scopes[i].Statics)
	if err != nil {
		return cfg, err
	}
	cfg.Scopes = slices.Clone(cfg.Scopes)
	cfg.Scopes[i].Statics = statics
	return cfg, nil
}

func isStatic(id ID) func(StaticLease) bool { return func(s StaticLease) bool { return s.ID == id } }

// Apply adds the mapping.
func (c AddStatic) Apply(cfg Config) (Config, error) {
	return cfg.withStatics(c.In, func(l []StaticLease) ([]StaticLease, error) {
		return put(l, c.Static, isStatic(c.Static.ID), c.Static.title(), false)
	})
}

// Apply replaces the mapping.
func (c UpdateStatic) Apply(cfg Config) (Config, error) {
	in, _, ok := cfg.Static(c.Static.ID)
	if !ok {
		return cfg, fmt.Errorf("%s is not there any more", c.Static.title())
	}
	return cfg.withStatics(in, func(l []StaticLease) ([]StaticLease, error) {
		return put(l, c.Static, isStatic(c.Static.ID), c.Static.title(), true)
	})
}

// Apply removes the mapping.
func (c DeleteStatic) Apply(cfg Config) (Config, error) {
	in, _, ok := cfg.Static(c.ID)
	if !ok {
		return cfg, fmt.Errorf("the static mapping is not there any more")
	}
	return cfg.withStatics(in, func(l []StaticLease) ([]StaticLease, error) {
		return drop(l, isStatic(c.ID), "the static mapping")
	})
}

// Apply sets the system.
func (c SetSystem) Apply(cfg Config) (Config, error) {
	cfg.System = c.System
	return cfg, nil
}

// Apply sets the web pages' places.
func (c SetAdmin) Apply(cfg Config) (Config, error) {
	cfg.Admin = c.Admin
	return cfg, nil
}

// Apply puts the other configuration in place.
func (c ReplaceAll) Apply(Config) (Config, error) { return c.Config, nil }

// Apply sets how sources are told apart.
func (c SetSources) Apply(cfg Config) (Config, error) {
	cfg.Sources = c.Sources
	return cfg, nil
}
