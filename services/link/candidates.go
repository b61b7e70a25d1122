package link

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"gatehouse/services/link/wan"
)

// Offer is who else gives out addresses on a port.
type Offer struct {
	Addr       netip.Prefix // what a DHCP server offered; invalid: nobody did
	Server     netip.Addr
	Router     netip.Addr   // the router it named, or zero
	DNS        []netip.Addr // the resolvers it named
	RouterSeen netip.Addr   // link-local address of an IPv6 router; zero: none
}

// Made reports whether a DHCP server offered an address.
func (o Offer) Made() bool { return o.Addr.IsValid() }

// Probe asks on device for DHCP servers and IPv6 routers for about four seconds,
// and takes nothing: no server keeps a lease for it. The device must be up.
func Probe(ctx context.Context, device string) (Offer, error) {
	h, err := wan.Probe(ctx, device)
	return Offer{h.Offer.Addr, h.Offer.Server, h.Offer.Router, h.Offer.DNS, h.Router}, err
}

// Candidate is what a port may become, before anyone has configured it.
type Candidate struct {
	Device string
	Link   bool           // a cable was in
	InUse  bool           // had addresses that are not ours: it keeps them, and gets nothing
	Addrs  []netip.Prefix // on the port now
	Offer  Offer          // made: it is a WAN candidate, and gets no address
	Serve  bool           // a DHCP server may answer there, from the network of Addrs[0]
}

// Candidates looks at every device for the wizard: switches it on, waits up to
// four seconds for the cable, probes for about four, and gives each port without
// an offer a network of its own: 192.168.1.1/24, 192.168.2.1/24 and so on, none
// that overlaps an offer, an address or a route of the box. It may be called
// again, for all devices, when a cable was moved: addresses that it gave stay
// where they still fit. The next Reload with interfaces takes away what it did
// on ports without a role.
func (s *Service) Candidates(ctx context.Context, devices []string) ([]Candidate, error) {
	have, err := look()
	if err != nil {
		return nil, err
	}
	ours := s.undo().addrs
	list := make([]Candidate, len(devices))
	errs := make([]error, len(devices))
	var wait sync.WaitGroup
	for n, name := range devices {
		d, ok := have.device(name)
		c := &list[n]
		*c = Candidate{Device: name, Addrs: d.prefixes()}
		if !ok {
			continue
		}
		c.InUse = slices.ContainsFunc(c.Addrs, func(p netip.Prefix) bool { return !ours[name][p] && !p.Addr().IsLinkLocalUnicast() })
		if !c.InUse {
			c.Addrs = slices.DeleteFunc(c.Addrs, func(p netip.Prefix) bool { return !ours[name][p] })
		}
		wait.Go(func() { c.Link, c.Offer, errs[n] = s.probe(ctx, d, c.InUse) })
	}
	wait.Wait()
	if have, err = look(); err != nil {
		return nil, err
	}
	before := make([]netip.Prefix, len(list))
	for n, c := range list {
		if !c.InUse && len(c.Addrs) > 0 {
			before[n] = c.Addrs[0]
		}
	}
	Choose(list, taken(have, list))
	return list, errors.Join(append(errs, s.give(list, before, have)...)...)
}

// probe switches the port on, waits for its cable and asks around.
func (s *Service) probe(ctx context.Context, d device, inUse bool) (bool, Offer, error) {
	if !d.up {
		if !inUse && safeName(d.name) {
			// Or the kernel would take addresses and routes from whoever advertises there.
			s.set("net/ipv6/conf/"+d.name+"/accept_ra", "0")
		}
		st := step{device: d.name, up: true}
		if err := take(st, d.index); err != nil {
			return false, Offer{}, err
		}
		s.did(st, d)
	}
	if !cableIn(ctx, d.name) {
		return false, Offer{}, nil
	}
	o, err := Probe(ctx, d.name)
	return true, o, err
}

// cableIn waits for the link: gigabit ports need two to four seconds to agree.
func cableIn(ctx context.Context, device string) bool {
	ctx, stop := context.WithTimeout(ctx, 4*time.Second)
	defer stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		if have, err := look(); err == nil {
			if d, ok := have.device(device); ok && d.carrier {
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-again.C:
		}
	}
}

// taken are the networks that the box has on other ports or routes to already.
func taken(have snapshot, list []Candidate) (nets []netip.Prefix) {
	free := func(device string) bool {
		return slices.ContainsFunc(list, func(c Candidate) bool { return c.Device == device && !c.InUse })
	}
	for _, d := range have.devices {
		if !free(d.name) {
			nets = append(nets, d.prefixes()...)
		}
	}
	for _, r := range have.routes {
		if r.dst.Bits() > 0 && !free(r.device) {
			nets = append(nets, r.dst)
		}
	}
	return nets
}

// Choose fills in Addrs and Serve of the candidates. Ports in use keep theirs,
// ports with an offer get none, the others one network each, none of which
// overlaps another, an offer or one of taken. Addrs of a port that is not in use
// are what Choose gave it earlier: it keeps that when it still fits. Where a
// DHCP server or router was heard, or no cable is in, nobody is served.
func Choose(list []Candidate, taken []netip.Prefix) {
	taken = slices.Clone(taken)
	for _, c := range list {
		if c.Offer.Made() {
			taken = append(taken, c.Offer.Addr, netip.PrefixFrom(c.Offer.Server, c.Offer.Server.BitLen()))
		}
		if c.InUse {
			taken = append(taken, c.Addrs...)
		}
	}
	free := func(p netip.Prefix) bool { return !slices.ContainsFunc(taken, p.Overlaps) }
	open := func(c *Candidate) bool { return !c.InUse && !c.Offer.Made() }
	for n := range list {
		c := &list[n]
		switch {
		case !open(c):
			if !c.InUse {
				c.Addrs = nil
			}
		case len(c.Addrs) > 0 && free(c.Addrs[0]):
			c.Addrs = c.Addrs[:1]
			taken = append(taken, c.Addrs[0])
		default:
			c.Addrs = nil
		}
	}
	third := byte(1)
	for n := range list {
		c := &list[n]
		for ; open(c) && len(c.Addrs) == 0 && third < 255; third++ {
			if p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, third, 1}), 24); free(p) {
				c.Addrs = []netip.Prefix{p}
			}
		}
		c.Serve = open(c) && c.Link && len(c.Addrs) > 0 && !c.Offer.RouterSeen.IsValid()
	}
}

// give sets the chosen addresses; before is what each port had from us.
func (s *Service) give(list []Candidate, before []netip.Prefix, have snapshot) (errs []error) {
	var todo []step
	for n, c := range list {
		if c.InUse {
			continue
		}
		if old := before[n]; old.IsValid() && !slices.Contains(c.Addrs, old) {
			todo = append(todo, step{device: c.Device, del: old})
		}
	}
	for n, c := range list {
		if !c.InUse && len(c.Addrs) > 0 && c.Addrs[0] != before[n] {
			todo = append(todo, step{device: c.Device, add: c.Addrs[0]})
		}
	}
	for _, st := range todo {
		d, ok := have.device(st.device)
		if !ok {
			continue
		}
		if err := take(st, d.index); err != nil {
			errs = append(errs, err)
			continue
		}
		s.did(st, d)
	}
	return errs
}
