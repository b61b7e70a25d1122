package firewall

import (
	"net/netip"
	"slices"
)

// AddrRange is all addresses of one family from From to To, both included.
type AddrRange struct{ From, To netip.Addr }

// Contains reports whether a is in the range.
func (r AddrRange) Contains(a netip.Addr) bool {
	return a.BitLen() == r.From.BitLen() && !a.Less(r.From) && !r.To.Less(a)
}

// PrefixRange is the addresses of a network.
func PrefixRange(p netip.Prefix) AddrRange {
	return AddrRange{p.Masked().Addr(), LastAddr(p)}
}

// LastAddr is the last address of a network: for IPv4 the broadcast address.
func LastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// Merge sorts ranges, IPv4 first, and joins those that overlap or touch.
func Merge(rs []AddrRange) []AddrRange {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b AddrRange) int {
		if c := a.From.Compare(b.From); c != 0 {
			return c
		}
		return a.To.Compare(b.To)
	})
	var out []AddrRange
	for _, r := range rs {
		if n := len(out); n > 0 && r.From.BitLen() == out[n-1].From.BitLen() &&
			(!out[n-1].To.Less(r.From) || out[n-1].To.Next() == r.From) {
			if out[n-1].To.Less(r.To) {
				out[n-1].To = r.To
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// Alias finds an alias by its name.
func (c Config) Alias(n Name) (Alias, bool) {
	i := slices.IndexFunc(c.Aliases, func(a Alias) bool { return a.Name == n })
	if i < 0 {
		return Alias{}, false
	}
	return c.Aliases[i], true
}

// Interface finds an interface by its name.
func (c Config) Interface(n Name) (Interface, bool) {
	i := slices.IndexFunc(c.Interfaces, func(i Interface) bool { return i.Name == n })
	if i < 0 {
		return Interface{}, false
	}
	return c.Interfaces[i], true
}

// ByDevice finds the interface on a device.
func (c Config) ByDevice(device string) (Interface, bool) {
	i := slices.IndexFunc(c.Interfaces, func(i Interface) bool { return i.Device == device })
	if i < 0 {
		return Interface{}, false
	}
	return c.Interfaces[i], true
}

// Rule finds a rule by its id.
func (c Config) Rule(id ID) (Rule, bool) {
	i := slices.IndexFunc(c.Rules, func(r Rule) bool { return r.ID == id })
	if i < 0 {
		return Rule{}, false
	}
	return c.Rules[i], true
}

// Forward finds a forward by its id.
func (c Config) Forward(id ID) (Forward, bool) {
	i := slices.IndexFunc(c.Forwards, func(f Forward) bool { return f.ID == id })
	if i < 0 {
		return Forward{}, false
	}
	return c.Forwards[i], true
}

// Scope finds the DHCP scope of an interface.
func (c Config) Scope(in Name) (Scope, bool) {
	i := slices.IndexFunc(c.Scopes, func(s Scope) bool { return s.In == in })
	if i < 0 {
		return Scope{}, false
	}
	return c.Scopes[i], true
}

// AliasAddrs is every address of an alias and of the aliases in it, merged.
// An unknown alias or a loop, which Validate refuses, adds nothing.
func (c Config) AliasAddrs(n Name) []AddrRange {
	var out []AddrRange
	c.walkAlias(n, map[Name]bool{}, func(a Alias) {
		for _, e := range a.Addrs {
			if r, ok := e.End.Range(); ok {
				out = append(out, r)
			}
		}
	})
	return Merge(out)
}

// AliasPorts is every port of an alias and of the aliases in it, sorted and joined.
func (c Config) AliasPorts(n Name) []PortRange {
	var out []PortRange
	c.walkAlias(n, map[Name]bool{}, func(a Alias) {
		for _, p := range a.Ports {
			if p.End.Alias == "" {
				out = append(out, p.End.Range)
			}
		}
	})
	return MergePorts(out)
}

// walkAlias visits an alias and all that it contains, each once.
func (c Config) walkAlias(n Name, seen map[Name]bool, visit func(Alias)) {
	a, ok := c.Alias(n)
	if !ok || seen[n] {
		return
	}
	seen[n] = true
	visit(a)
	for _, in := range a.contains() {
		c.walkAlias(in, seen, visit)
	}
}

// contains lists the aliases that stand directly in a.
func (a Alias) contains() (out []Name) {
	for _, e := range a.Addrs {
		if e.End.Kind == EndAlias {
			out = append(out, e.End.Name)
		}
	}
	for _, p := range a.Ports {
		if p.End.Alias != "" {
			out = append(out, p.End.Alias)
		}
	}
	return out
}

// Range is the addresses of an address, network or range; false for the rest.
func (e End) Range() (AddrRange, bool) {
	switch e.Kind {
	case EndAddr:
		return AddrRange{e.Addr, e.Addr}, true
	case EndNet:
		return PrefixRange(e.Net), true
	case EndRange:
		return AddrRange{e.Addr, e.Last}, true
	}
	return AddrRange{}, false
}

// Numbers is every port of the list with its aliases, sorted and joined; nil means any.
func (c Config) Numbers(ps Ports) []PortRange {
	var out []PortRange
	for _, p := range ps {
		if p.Alias != "" {
			out = append(out, c.AliasPorts(p.Alias)...)
		} else {
			out = append(out, p.Range)
		}
	}
	return MergePorts(out)
}

// MergePorts sorts ranges of ports and joins those that overlap or touch.
func MergePorts(rs []PortRange) []PortRange {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b PortRange) int { return int(a.From) - int(b.From) })
	var out []PortRange
	for _, r := range rs {
		if n := len(out); n > 0 && int(r.From) <= int(out[n-1].To)+1 {
			out[n-1].To = max(out[n-1].To, r.To)
			continue
		}
		out = append(out, r)
	}
	return out
}

// RuleNumbers gives every rule a number that stays with its id: the ct label
// carries it (design 7). 0 is left for automatic rules.
func (c Config) RuleNumbers() map[ID]uint32 {
	out, taken := make(map[ID]uint32, len(c.Rules)), make(map[uint32]bool, len(c.Rules))
	ids := make([]ID, len(c.Rules))
	for i, r := range c.Rules {
		ids[i] = r.ID
	}
	slices.Sort(ids)
	for _, id := range ids {
		n := fnv(id)
		for n == 0 || taken[n] {
			n++
		}
		out[id], taken[n] = n, true
	}
	return out
}

// fnv is the FNV-1a hash of an id.
func fnv(id ID) uint32 {
	n := uint32(2166136261)
	for i := range len(id) {
		n = (n ^ uint32(id[i])) * 16777619
	}
	return n
}
