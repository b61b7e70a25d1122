package interfaces

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"gatehouse/firewall"
	"gatehouse/web/page"
)

// changes is what the form changes: the interface, and, when the DHCP server
// is to follow, its scope and static mappings where they do not fit any more.
func (f form) changes(c firewall.Config, old, now firewall.Interface) []firewall.Change {
	if old.Name == "" {
		return []firewall.Change{firewall.AddInterface{Interface: now}}
	}
	out := []firewall.Change{firewall.UpdateInterface{Name: old.Name, Interface: now}}
	s, ok := c.Scope(old.Name)
	if !ok || !f.Along {
		return out
	}
	s.In = now.Name
	if now.Role == firewall.WAN || now.V4.Mode != firewall.Static {
		if s.On {
			s.On = false
			out = append(out, firewall.PutScope{Scope: s})
		}
		return out
	}
	if !now.V4.Addr.IsValid() || now.V4.Addr == old.V4.Addr {
		return out
	}
	net := now.V4.Addr.Masked()
	moved := s
	if !fits(s, now.V4.Addr) {
		moved.From, moved.To = firewall.DefaultPool(now.V4.Addr)
	}
	if s.Gateway.IsValid() && !net.Contains(s.Gateway) {
		moved.Gateway = netip.Addr{} // this box
	}
	if moved.From != s.From || moved.To != s.To || moved.Gateway != s.Gateway {
		out = append(out, firewall.PutScope{Scope: moved})
	}
	for _, st := range s.Statics {
		if a, ok := shift(st.Addr, old.V4.Addr, net); ok && !net.Contains(st.Addr) {
			st.Addr = a
			out = append(out, firewall.UpdateStatic{Static: st})
		}
	}
	return out
}

// fits reports whether the range of a scope can stay with this address.
func fits(s firewall.Scope, p netip.Prefix) bool {
	net := p.Masked()
	ends := net.Bits() >= 31 || s.From != net.Addr() && s.To != firewall.LastAddr(net)
	return net.Contains(s.From) && net.Contains(s.To) && ends && !(firewall.AddrRange{From: s.From, To: s.To}).Contains(p.Addr())
}

// shift is an address at the same place of another network: .10 stays .10.
// False when it was not in the old one or the new one is too small.
func shift(a netip.Addr, from, to netip.Prefix) (netip.Addr, bool) {
	if !a.Is4() || !from.IsValid() || !from.Contains(a) || !to.Addr().Is4() {
		return a, false
	}
	x, was, now := a.As4(), from.Masked().Addr().As4(), to.Masked().Addr().As4()
	carry := 0
	for i := 3; i >= 0; i-- {
		n := int(now[i]) + int(x[i]) - int(was[i]) + carry
		carry = n >> 8
		x[i] = byte(n)
	}
	moved := netip.AddrFrom4(x)
	return moved, to.Contains(moved)
}

// wrong is what the changes make wrong, beside the fields of the form. The
// interface is looked at as the last of all: of two that collide the later one
// is told, and here the person edits this one.
func wrong(c firewall.Config, changes []firewall.Change, in firewall.Interface) firewall.Problems {
	next := c
	for _, ch := range changes {
		var err error
		if next, err = ch.Apply(next); err != nil {
			return firewall.Problems{{Field: "name", Text: page.Sentence(err)}}
		}
	}
	last := func(i firewall.Interface) bool { return i.Name == in.Name && i.Device == in.Device }
	if at := slices.IndexFunc(next.Interfaces, last); at >= 0 {
		own := next.Interfaces[at]
		next.Interfaces = append(slices.Delete(slices.Clone(next.Interfaces), at, at+1), own)
	}
	ps := page.Found(c, next, ref(in.Name))
	for n, p := range ps {
		kind, rest, _ := strings.Cut(p.Field, "/")
		key, field, _ := strings.Cut(rest, ".")
		switch {
		case kind == "scope" && key == string(in.Name):
			ps[n] = firewall.Problem{Field: "along", Text: "DHCP: " + p.Text}
		case kind == "alias" && field == "name" && strings.EqualFold(key, string(in.Name)):
			ps[n] = firewall.Problem{Field: "name", Text: key + " is already an alias."}
		case kind == "static":
			if _, st, ok := next.Static(firewall.ID(key)); ok {
				ps[n].Text = "Static mapping " + st.Addr.String() + " (" + string(st.MAC) + "): " + p.Text
			}
		}
	}
	return ps
}

// goes is what a deletion takes with it.
type goes struct {
	Scope    bool
	Statics  int
	Rules    int
	Forwards int
	Blocked  firewall.Problems // who names the interface and would be wrong then
}

func wouldGo(c firewall.Config, name firewall.Name) goes {
	s, ok := c.Scope(name)
	g := goes{Scope: ok, Statics: len(s.Statics)}
	for _, r := range c.Rules {
		if r.In == name {
			g.Rules++
		}
	}
	for _, f := range c.Forwards {
		if f.In == name {
			g.Forwards++
		}
	}
	if next, err := (firewall.DeleteInterface{Name: name}).Apply(c); err == nil {
		g.Blocked = stillUsed(c, page.Found(c, next, ref(name)))
	}
	return g
}

// list names what goes, in the words of a sentence.
func (g goes) list() (out []string) {
	if g.Scope {
		s := "its DHCP scope"
		if g.Statics > 0 {
			s += " with " + page.Count(g.Statics, "static mapping")
		}
		out = append(out, s)
	}
	if g.Rules > 0 {
		out = append(out, page.Count(g.Rules, "rule")+" of its list")
	}
	if g.Forwards > 0 {
		out = append(out, page.Count(g.Forwards, "port forward"))
	}
	return out
}

// stillUsed names the objects whose problems a deletion would bring about.
func stillUsed(c firewall.Config, ps firewall.Problems) firewall.Problems {
	out := make(firewall.Problems, 0, len(ps))
	for _, p := range ps {
		kind, rest, _ := strings.Cut(p.Field, "/")
		key, _, _ := strings.Cut(rest, ".")
		switch kind {
		case "rule":
			if r, ok := c.Rule(firewall.ID(key)); ok {
				p.Text = "Rule “" + cmp.Or(r.Descr, r.String()) + "” uses it."
			}
		case "forward":
			if f, ok := c.Forward(firewall.ID(key)); ok {
				p.Text = "Forward “" + cmp.Or(f.Descr, f.String()) + "” uses it."
			}
		case "alias":
			p.Text = "Alias " + key + " uses it."
		}
		if !slices.ContainsFunc(out, func(o firewall.Problem) bool { return o.Text == p.Text }) {
			out = append(out, p)
		}
	}
	return out
}
