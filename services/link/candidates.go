package link

import (
	"context"
	"net/netip"
	"slices"

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
