package firewall

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// MarshalJSON writes a line without a note as its value alone.
func (e PortEntry) MarshalJSON() ([]byte, error) {
	if e.Note == "" {
		return json.Marshal(e.End)
	}
	type plain PortEntry
	return json.Marshal(plain(e))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *PortEntry) UnmarshalJSON(b []byte) error {
	*e = PortEntry{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &e.End)
	}
	type plain PortEntry
	return strict(b, (*plain)(e))
}

// Apply adds the alias.
func (c AddAlias) Apply(cfg Config) (Config, error) {
	var err error
	cfg.Aliases, err = put(cfg.Aliases, c.Alias, isAlias(c.Alias.Name), "the alias "+string(c.Alias.Name), false)
	return cfg, err
}

// Apply replaces the alias and, after a rename, every use of it.
func (c UpdateAlias) Apply(cfg Config) (Config, error) {
	var err error
	if cfg.Aliases, err = put(cfg.Aliases, c.Alias, isAlias(c.Name), "the alias "+string(c.Name), true); err != nil {
		return cfg, err
	}
	if c.Alias.Name != c.Name {
		cfg = cfg.aliasCalled(c.Name, c.Alias.Name)
	}
	return cfg, nil
}

// Apply removes the alias; Validate tells who still uses it.
func (c DeleteAlias) Apply(cfg Config) (Config, error) {
	var err error
	cfg.Aliases, err = drop(cfg.Aliases, isAlias(c.Name), "the alias "+string(c.Name))
	return cfg, err
}

// Apply puts New in the place of Old everywhere and removes Old.
func (c ReplaceAlias) Apply(cfg Config) (Config, error) {
	was, ok := cfg.Alias(c.Old)
	now, there := cfg.Alias(c.New)
	switch {
	case !ok:
		return cfg, fmt.Errorf("the alias %s is not there any more", c.Old)
	case !there:
		return cfg, fmt.Errorf("the alias %s is not there any more", c.New)
	case c.Old == c.New:
		return cfg, fmt.Errorf("%s cannot take its own place", c.Old)
	case was.Kind != now.Kind:
		return cfg, fmt.Errorf("%s holds %s, not %s", c.New, now.Kind, was.Kind)
	case cfg.holds(c.New, c.Old):
		return cfg, fmt.Errorf("%s contains %s and cannot take its place", c.New, c.Old)
	}
	cfg.Aliases = slices.DeleteFunc(slices.Clone(cfg.Aliases), isAlias(c.Old))
	return cfg.aliasCalled(c.Old, c.New), nil
}

// holds reports whether an alias contains another, directly or further in.
func (c Config) holds(outer, inner Name) bool {
	found := false
	c.walkAlias(outer, map[Name]bool{}, func(a Alias) { found = found || slices.Contains(a.contains(), inner) })
	return found
}

// aliasCalled is the configuration with every use of an alias by another name.
// Where that name stands already, it stands once.
func (c Config) aliasCalled(old, now Name) Config {
	c = c.renamed(func(e End) End {
		if e.Kind == EndAlias && e.Name == old {
			e.Name = now
		}
		return e
	}, func(p PortEnd) PortEnd {
		if p.Alias == old {
			p.Alias = now
		}
		return p
	})
	end := func(e End) bool { return e.Kind == EndAlias && e.Name == now }
	port := func(p PortEnd) bool { return p.Alias == now }
	for i := range c.Rules {
		r := &c.Rules[i]
		if r.Limit.Never == old {
			r.Limit.Never = now
		}
		r.Src.Of, r.Dst.Of = once(r.Src.Of, end), once(r.Dst.Of, end)
		r.SrcPorts, r.DstPorts = once(r.SrcPorts, port), once(r.DstPorts, port)
	}
	for i := range c.Forwards {
		c.Forwards[i].From.Of = once(c.Forwards[i].From.Of, end)
	}
	for i := range c.Aliases {
		a := &c.Aliases[i]
		a.Addrs = once(a.Addrs, func(e Entry) bool { return end(e.End) })
		a.Ports = once(a.Ports, func(e PortEntry) bool { return port(e.End) })
	}
	return c
}

// once keeps only the first of those that same holds for. The list is the caller's own.
func once[S ~[]T, T any](list S, same func(T) bool) S {
	seen := false
	return slices.DeleteFunc(list, func(v T) bool {
		again := seen && same(v)
		seen = seen || same(v)
		return again
	})
}

// Use is one place where an alias stands: the object, and the field of its form.
type Use struct {
	Ref   Ref
	Field string
}

// AliasUses is every place where an alias stands, by its name. The rule that a
// forward made says what the forward says, so there only its limit counts.
func (c Config) AliasUses() map[Name][]Use {
	out := map[Name][]Use{}
	add := func(n Name, ref Ref, field string) {
		u := Use{ref, field}
		if list := out[n]; n != "" && (len(list) == 0 || list[len(list)-1] != u) {
			out[n] = append(list, u)
		}
	}
	ends := func(list []End, ref Ref, field string) {
		for _, e := range list {
			if e.Kind == EndAlias {
				add(e.Name, ref, field)
			}
		}
	}
	for _, r := range c.Rules {
		ref := Ref{"rule", string(r.ID)}
		if r.Forward == "" {
			ends(r.Src.Of, ref, "src")
		}
		for _, p := range r.SrcPorts {
			add(p.Alias, ref, "sport")
		}
		ends(r.Dst.Of, ref, "dst")
		for _, p := range r.DstPorts {
			add(p.Alias, ref, "dport")
		}
		add(r.Limit.Never, ref, "never")
	}
	for _, f := range c.Forwards {
		ends(f.From.Of, Ref{"forward", string(f.ID)}, "from")
	}
	for _, a := range c.Aliases {
		for _, n := range a.contains() {
			add(n, Ref{"alias", string(a.Name)}, "items")
		}
	}
	return out
}

// Inside says that what an entry stands for lies in another entry of the same
// alias, so that it changes nothing while that one is there (C02).
type Inside struct{ Entry, In int } // indexes of Addrs or Ports

// Redundant is the entries that lie in another one, sorted by their index.
// Aliases in the alias are not looked into.
func (a Alias) Redundant() []Inside {
	var spans []span
	for i, e := range a.Addrs {
		if r, ok := e.End.Range(); ok {
			spans = append(spans, span{r.From, r.To, i})
		}
	}
	for i, e := range a.Ports {
		if e.End.Alias == "" {
			spans = append(spans, span{number(e.End.Range.From), number(e.End.Range.To), i})
		}
	}
	// The widest of those that start at the same place first: whoever ends
	// before the furthest end so far then lies in the one that has that end.
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(a.from.Compare(b.from), b.to.Compare(a.to), a.at-b.at)
	})
	var out []Inside
	for i, wide := 1, 0; i < len(spans); i++ {
		if spans[i].from.BitLen() == spans[wide].from.BitLen() && !spans[wide].to.Less(spans[i].to) {
			out = append(out, Inside{spans[i].at, spans[wide].at})
		} else {
			wide = i
		}
	}
	slices.SortFunc(out, func(a, b Inside) int { return a.Entry - b.Entry })
	return out
}

// span is an entry as a stretch of a line.
type span struct {
	from, to netip.Addr
	at       int
}

// number puts a port on the same kind of line as addresses.
func number(port uint16) netip.Addr {
	return netip.AddrFrom4([4]byte{2: byte(port >> 8), 3: byte(port)})
}

// String says what the alias is: "WEB, addresses: 192.168.1.10, 192.168.1.16/28 and 1 more".
func (a Alias) String() string {
	const named = 2
	lines := make([]string, 0, named)
	for i := 0; i < min(named, len(a.Addrs)); i++ {
		lines = append(lines, a.Addrs[i].End.String())
	}
	for i := 0; i < min(named, len(a.Ports)); i++ {
		lines = append(lines, a.Ports[i].End.String())
	}
	n := len(a.Addrs) + len(a.Ports)
	s := fmt.Sprintf("%s, %s", a.Name, a.Kind)
	switch {
	case n == 0:
		return s + ": none"
	case n > named:
		return fmt.Sprintf("%s: %s and %d more", s, strings.Join(lines, ", "), n-named)
	}
	return s + ": " + strings.Join(lines, ", ")
}
