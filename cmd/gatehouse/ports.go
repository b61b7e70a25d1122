package main

import (
	"context"
	"net/netip"
	"slices"

	"gatehouse/services/link"
	"gatehouse/web/setup"
)

// Ports is what the wizard shows.
func (s *setupPorts) Ports() []setup.Port {
	var out []setup.Port
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.link.Status() {
		seen, ours := s.ports[p.Device]
		if !ours {
			continue
		}
		o := setup.Port{Device: p.Device, Driver: p.Driver, MAC: string(p.MAC), Up: p.Link, Mbit: p.Speed,
			Probed: seen.probed, Offer: offered(seen.Offer), Router: seen.Offer.RouterSeen.IsValid()}
		for _, a := range p.Addrs {
			if a.Addr().Is4() {
				o.Addr = a
			}
		}
		if p.Lease.Addr.IsValid() { // set up already: the lease is what is offered
			o.Probed, o.Offer = true, setup.Offer{Server: p.Lease.Server, Router: p.Lease.Router, Addr: p.Lease.Addr, DNS: p.Lease.DNS}
		}
		out = append(out, o)
	}
	return out
}

func offered(o link.Offer) setup.Offer {
	return setup.Offer{Server: o.Server, Router: o.Router, Addr: o.Addr, DNS: o.DNS}
}

// Test tries the way to the internet through a port.
func (s *setupPorts) Test(ctx context.Context, device string) []setup.Line {
	i := slices.IndexFunc(s.link.Status(), func(p link.Port) bool { return p.Device == device })
	if i < 0 {
		return []setup.Line{{Name: "Port", Text: device + " is not there."}}
	}
	p := s.link.Status()[i]
	lines := []setup.Line{{Name: "Cable", OK: p.Link, Text: map[bool]string{true: "Something is connected.", false: "No link. Is the cable in, and the modem on?"}[p.Link]}}
	if !p.Link {
		return lines
	}
	if l := p.Lease; l.Addr.IsValid() {
		lines = append(lines, setup.Line{Name: "Address", OK: true, Text: l.Addr.String() + " from " + l.Server.String() + "."}, gatewayLine(ctx, device, l.Router))
		return append(lines, resolverLine(ctx, l.DNS))
	}
	offer, err := s.probe(ctx, device)
	if err != nil {
		return append(lines, setup.Line{Name: "Address", Text: err.Error()})
	}
	if !offer.Made() {
		return append(lines, setup.Line{Name: "Address", Text: "No DHCP server answered. If your provider gave you numbers, choose “Fixed address”."})
	}
	// Without an address of its own the box can ask the gateway, but no resolver.
	return append(lines, setup.Line{Name: "Address", OK: true, Text: offer.Server.String() + " offers " + offer.Addr.String() + "."},
		gatewayLine(ctx, device, offer.Router))
}

// gatewayLine says whether the provider's gateway is there: it answers ARP.
func gatewayLine(ctx context.Context, device string, gw netip.Addr) setup.Line {
	line := setup.Line{Name: "Gateway", Text: "The provider names none."}
	if !gw.Is4() {
		return line
	}
	there, err := link.Neighbour(ctx, device, gw)
	switch {
	case err != nil:
		line.Text = err.Error()
	case there:
		line.OK, line.Text = true, gw.String()+" answers."
	default:
		line.Text = gw.String() + " does not answer on this cable."
	}
	return line
}

// resolverLine says whether one of the provider's resolvers answers.
func resolverLine(ctx context.Context, resolvers []netip.Addr) setup.Line {
	for _, r := range resolvers {
		if link.Answers(ctx, r) {
			return setup.Line{Name: "Names", OK: true, Text: "The resolver " + r.String() + " answers."}
		}
	}
	return setup.Line{Name: "Names", Text: "No resolver of the provider answers."}
}
