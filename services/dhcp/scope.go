package dhcp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall"
)

// Scope is what one interface hands out, with everything looked up that the
// configuration says in other places.
type Scope struct {
	In      firewall.Name
	Device  string       // the port, as the kernel calls it
	Server  netip.Addr   // the box's address there, and the server identifier
	Net     netip.Prefix // masked
	From    netip.Addr   // the pool, both ends included
	To      netip.Addr
	Lease   time.Duration
	Gateway netip.Addr
	DNS     []netip.Addr // empty: the resolvers that the server was told of
	Domain  string
	Statics map[firewall.MAC]firewall.StaticLease
}

// Scopes picks the scopes that can be served out of a configuration: on, on an
// interface that is on, has a static IPv4 address and is not a WAN, with a pool
// inside its network. The error names each scope that is on and left out; the
// others are served all the same.
func Scopes(c firewall.Config) ([]Scope, error) {
	var out []Scope
	var errs []error
	for _, sc := range c.Scopes {
		if !sc.On {
			continue
		}
		s, err := scopeOf(c, sc)
		if err == nil && slices.ContainsFunc(out, func(o Scope) bool { return o.Device == s.Device }) {
			err = errors.New("another scope serves this port")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("scope %s: %w", sc.In, err))
			continue
		}
		out = append(out, s)
	}
	return out, errors.Join(errs...)
}

func scopeOf(c firewall.Config, sc firewall.Scope) (Scope, error) {
	i := slices.IndexFunc(c.Interfaces, func(f firewall.Interface) bool { return f.Name == sc.In })
	if i < 0 {
		return Scope{}, errors.New("there is no such interface")
	}
	f := c.Interfaces[i]
	switch {
	case f.Role == firewall.WAN:
		return Scope{}, errors.New("a WAN gets no DHCP server")
	case !f.On:
		return Scope{}, errors.New("the interface is off")
	case f.V4.Mode != firewall.Static || !f.V4.Addr.Addr().Is4() || f.V4.Addr.Bits() > 30:
		return Scope{}, errors.New("the interface has no static IPv4 network")
	}
	s := Scope{
		In: sc.In, Device: f.Device, Server: f.V4.Addr.Addr(), Net: f.V4.Addr.Masked(), From: sc.From, To: sc.To,
		Lease: time.Duration(sc.Lease) * time.Second, Gateway: sc.Gateway, DNS: sc.DNS, Domain: sc.Domain,
		Statics: map[firewall.MAC]firewall.StaticLease{},
	}
	if !s.Net.Contains(s.From) || !s.Net.Contains(s.To) || s.To.Less(s.From) || s.Lease <= 0 {
		return Scope{}, fmt.Errorf("the pool %s-%s is not inside %s", s.From, s.To, s.Net)
	}
	if !s.Gateway.IsValid() {
		s.Gateway = s.Server
	}
	if s.Domain == "" {
		s.Domain = c.System.Domain
	}
	// The first of two rows for one MAC or one address wins: an imported
	// configuration must never stop the service.
	taken := map[netip.Addr]bool{}
	for _, st := range sc.Statics {
		if _, twice := s.Statics[st.MAC]; !twice && !taken[st.Addr] {
			s.Statics[st.MAC] = st
			taken[st.Addr] = true
		}
	}
	return s, nil
}

// same reports whether two scopes hand out the same things.
func (s Scope) same(o Scope) bool {
	return s.In == o.In && s.Device == o.Device && s.Server == o.Server && s.Net == o.Net &&
		s.From == o.From && s.To == o.To && s.Lease == o.Lease && s.Gateway == o.Gateway && s.Domain == o.Domain &&
		slices.Equal(s.DNS, o.DNS) && maps.Equal(s.Statics, o.Statics)
}

// host reports whether a client may have the address at all: inside the
// network, and neither its first, its last nor the box's own.
func (s Scope) host(a netip.Addr) bool {
	return s.Net.Contains(a) && a != s.Server && a != s.Net.Addr() && a != s.broadcast()
}

// inPool reports whether the address is one that any client may get.
func (s Scope) inPool(a netip.Addr) bool {
	return s.host(a) && !a.Less(s.From) && !s.To.Less(a)
}

// broadcast is the last address of the network.
func (s Scope) broadcast() netip.Addr {
	b := s.Net.Addr().As4()
	for i := s.Net.Bits(); i < 32; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(b)
}

// size is how many addresses the pool holds.
func (s Scope) size() int {
	f, t := s.From.As4(), s.To.As4()
	n := 0
	for i := range f {
		n = n<<8 + int(t[i]) - int(f[i])
	}
	return n + 1
}
