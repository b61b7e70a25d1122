package main

import (
	"context"
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
	if p.Lease.Addr.IsValid() {
		return append(lines, setup.Line{Name: "Address", OK: true, Text: p.Lease.Addr.String() + " from " + p.Lease.Server.String() + "."})
	}
	offer, err := s.probe(ctx, device)
	if err != nil {
		return append(lines, setup.Line{Name: "Address", Text: err.Error()})
	}
	if !offer.Made() {
		return append(lines, setup.Line{Name: "Address", Text: "No DHCP server answered. If your provider gave you numbers, choose “Fixed address”."})
	}
	return append(lines, setup.Line{Name: "Address", OK: true, Text: offer.Server.String() + " offers " + offer.Addr.String() + "."})
}
