package main

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/link"
)

// factoryStamp is the stamp of revision 0. While it runs, the box is as setupConfig
// says: what "as delivered" means depends on the ports and on what is at their other ends.
var factoryStamp = compile.Compile(firewall.Factory()).Stamp

// setupPorts is the box before the wizard's first Apply: each port without an
// offer has its own network and, where nobody else was seen, a DHCP server.
type setupPorts struct {
	log   *slog.Logger
	link  *link.Service
	probe func(ctx context.Context, device string) (link.Offer, error)
	owned interface { // addresses that we chose ourselves, over restarts
		Put(device string, p netip.Prefix) error
		All() (map[string]netip.Prefix, error)
	}
	changed func() // the configuration of the ports may be another

	mu    sync.Mutex // guards the rest
	only  []string   // the ports that are ours; empty = all
	ports map[string]seen
	gw    map[string]netip.Addr // default gateways of ports in use
	lost  bool                  // the box was set up once: what the ports have is its own
}

// seen is one port and what was seen there since its cable came. Its Link is
// set after the probe only: until then nobody is served there.
type seen struct {
	link.Candidate
	up, probing, probed bool
	more                []netip.Prefix     // further addresses of a port in use, both families
	asked               bool               // a probe has ended, well or not: the pages may answer
	inside              firewall.Interface // what it was in the configuration that ran; Role "" = nothing
	scope               firewall.Scope     // of inside
}

func newSetupPorts(log *slog.Logger, l *link.Service) *setupPorts {
	return &setupPorts{log: log, link: l, ports: map[string]seen{}, gw: map[string]netip.Addr{}}
}

// remember notes which ports are in use before anything is touched: they keep
// their address and tcp/22 until the wizard's Apply (design 4).
func (s *setupPorts) remember(only []string) error {
	owned, err := s.owned.All()
	if err != nil {
		return err
	}
	facts := s.link.Facts()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.only = only
	for _, device := range s.link.Ports() {
		if len(only) > 0 && !slices.Contains(only, device) {
			continue
		}
		p := found(device, facts.Addrs[device], owned[device])
		for _, r := range facts.Routes {
			if p.InUse && r.Device == device && r.Dst.Bits() == 0 && r.Via.Is4() {
				s.gw[device] = r.Via
			}
		}
		s.ports[device] = p
	}
	return nil
}

// found is a port with the addresses that are on it; own is what we once chose for it.
func found(device string, addrs []netip.Prefix, own netip.Prefix) seen {
	p := seen{Candidate: link.Candidate{Device: device}}
	for _, a := range addrs {
		if a.Addr().Is4() {
			p.Addrs = append(p.Addrs, a)
			p.InUse = p.InUse || own != a
		}
		if !a.Addr().IsLinkLocalUnicast() && (len(p.Addrs) == 0 || a != p.Addrs[0]) {
			p.more = append(p.more, a)
		}
	}
	return p
}

// ran tells that c runs, or ran last: what it gave the ports is no sign of a
// machine in use. In lockdown, and when the box starts over, a port inside keeps
// address, role and DHCP server; an outside one begins anew.
func (s *setupPorts) ran(c firewall.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range c.Interfaces {
		p, ours := s.ports[in.Device]
		if !ours {
			continue
		}
		if p.InUse {
			p.InUse, p.Addrs = false, nil
		}
		delete(s.gw, in.Device)
		p.inside, p.scope = firewall.Interface{}, firewall.Scope{}
		if in.On && in.Role != firewall.WAN && in.V4.Mode == firewall.Static {
			p.InUse, p.Addrs, p.inside = true, []netip.Prefix{in.V4.Addr}, in
			p.scope, _ = c.Scope(in.Name)
		}
		s.ports[in.Device] = p
	}
}

// tried tells that c may have run, unconfirmed, when the program ended: its
// addresses are no sign of a machine in use on a port that had one of ours.
func (s *setupPorts) tried(c firewall.Config) error {
	owned, err := s.owned.All()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range c.Interfaces {
		p, ours := s.ports[in.Device]
		own, chosen := owned[in.Device]
		if !ours || p.inside.Role != "" || !chosen && in.V4.Mode != firewall.DHCP {
			continue
		}
		p.InUse, p.Addrs = false, nil
		if chosen {
			p.Addrs = []netip.Prefix{own}
		}
		delete(s.gw, in.Device)
		s.ports[in.Device] = p
	}
	return nil
}

// lose tells that the box was set up and has lost it all. Its ports have
// addresses because it gave them some, so none is a way in for tcp/22: that
// would open the machine to the neighbours on the internet side.
func (s *setupPorts) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
}

// devices is the ports that are ours.
func (s *setupPorts) devices() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.ports))
}

// watch looks at the ports until ctx ends: a cable that comes is probed before
// anything is served there, one that goes is forgotten.
func (s *setupPorts) watch(ctx context.Context, active func() bool) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if active() {
			s.look(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *setupPorts) look(ctx context.Context) {
	moved := false
	for _, p := range s.link.Status() {
		s.mu.Lock()
		was, ours := s.ports[p.Device]
		if !ours && p.Present && (len(s.only) == 0 || slices.Contains(s.only, p.Device)) {
			was, ours, moved = found(p.Device, p.Addrs, netip.Prefix{}), true, true // its driver came late
		}
		now := was
		now.up = p.Link
		switch {
		case !ours:
		case !p.Present && !was.InUse:
			delete(s.ports, p.Device) // pulled out, or it has another name now
			ours, moved = false, true
		case !p.Link && was.up:
			now.Link, now.probed, now.asked, now.Offer = false, false, false, link.Offer{}
			moved = true
		case p.Link && !was.probed && !was.probing && !was.InUse:
			now.probing = true
			go s.ask(ctx, p.Device)
		}
		if ours {
			s.ports[p.Device] = now
		}
		s.mu.Unlock()
		moved = moved || ours && now.up != was.up
	}
	if moved {
		s.changed()
	}
}

// ask probes one port and gives it a network when nobody offers one.
func (s *setupPorts) ask(ctx context.Context, device string) {
	offer, err := s.probe(ctx, device)
	if err != nil {
		s.log.Warn("probe", "device", device, "err", err)
	}
	s.mu.Lock()
	p := s.ports[device]
	if p.Device == "" {
		s.mu.Unlock()
		return // it went away meanwhile
	}
	p.probing, p.asked, p.probed, p.Link, p.Offer = false, p.up, p.up && err == nil, p.up && err == nil, offer
	s.ports[device] = p
	s.choose()
	s.mu.Unlock()
	s.log.Info("port probed", "device", device, "offer", offer.Addr, "router", offer.RouterSeen)
	s.changed()
}

// choose gives every port without an offer or address of its own a network that
// overlaps no other. The caller holds mu.
func (s *setupPorts) choose() {
	var list []link.Candidate
	for _, device := range slices.Sorted(maps.Keys(s.ports)) {
		list = append(list, s.ports[device].Candidate)
	}
	link.Choose(list, s.elsewhere())
	for _, c := range list {
		p := s.ports[c.Device]
		if !c.InUse && len(c.Addrs) > 0 && !slices.Equal(c.Addrs, p.Addrs) {
			if err := s.owned.Put(c.Device, c.Addrs[0]); err != nil {
				s.log.Warn("remember a chosen address", "device", c.Device, "err", err)
			}
		}
		p.Candidate = c
		s.ports[c.Device] = p
	}
}

// elsewhere is the networks on ports that are not ours, and the routes by them.
func (s *setupPorts) elsewhere() (nets []netip.Prefix) {
	facts := s.link.Facts()
	for device, addrs := range facts.Addrs {
		if _, ours := s.ports[device]; !ours {
			nets = append(nets, addrs...)
		}
	}
	for _, r := range facts.Routes {
		if _, ours := s.ports[r.Device]; !ours && r.Dst.Bits() > 0 {
			nets = append(nets, r.Dst)
		}
	}
	return nets
}

// config is the configuration that the box runs before the wizard's Apply. It is
// compiled, linked and served like any other.
func (s *setupPorts) config() firewall.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := firewall.Factory()
	c.Admin.SSH = false
	for i, device := range slices.Sorted(maps.Keys(s.ports)) {
		p := s.ports[device]
		in := firewall.Interface{Name: portName(i), Device: device, On: true,
			Role: firewall.LAN, V4: firewall.V4{Mode: firewall.None}, V6: firewall.V6{Mode: firewall.None}}
		if !p.InUse && !p.asked {
			in.Role = firewall.Other // it may lead outside: no pages before the probe has ended
		}
		switch {
		case p.inside.Role != "":
			in.Role, in.V4 = p.inside.Role, firewall.V4{Mode: firewall.Static, Addr: p.Addrs[0]}
			if p.scope.On {
				p.scope.In = in.Name
				c.Scopes = append(c.Scopes, p.scope)
			}
		case p.InUse:
			in.V4 = firewall.V4{Mode: firewall.Static, Addr: p.Addrs[0], Gateway: s.gw[device]}
			if s.gw[device].IsValid() && len(s.ports) > 1 {
				in.Role = firewall.Other // it leads outside: tcp/22 only
			}
			if !s.lost {
				c.Rules = append(c.Rules, sshRule(in.Name))
			}
		case p.Offer.Made() && len(s.ports) == 1:
			in.V4.Mode = firewall.DHCP // one port only: the pages answer on it
		case p.Offer.Made():
			in.Role = firewall.WAN // no address, no pages
		case len(p.Addrs) > 0:
			in.V4 = firewall.V4{Mode: firewall.Static, Addr: p.Addrs[0]}
			if p.Serve {
				from, to := firewall.DefaultPool(p.Addrs[0])
				c.Scopes = append(c.Scopes, firewall.Scope{In: in.Name, On: true, From: from, To: to, Lease: 120})
			}
		}
		c.Interfaces = append(c.Interfaces, in)
	}
	return c
}

// portName is Pa for the first port: each its own, for as many as there are.
func portName(i int) firewall.Name {
	name := "P"
	for ; i >= 26; i -= 26 {
		name += "z"
	}
	return firewall.Name(name + string(rune('a'+i)))
}

func sshRule(in firewall.Name) firewall.Rule {
	return firewall.Rule{ID: firewall.ID("SETUP" + in), On: true, Action: firewall.Pass, In: in, Family: firewall.IPv4, Proto: firewall.TCP,
		Src: firewall.Ends{Of: []firewall.End{{Kind: firewall.EndIfNet, Name: in}}},
		Dst: firewall.Ends{Of: []firewall.End{{Kind: firewall.EndSelf}}}, DstPorts: firewall.Ports{{Range: firewall.PortRange{From: 22, To: 22}}}}
}

// beside is what stays on ports in use beside the one address of config: somebody
// may have come by it.
func (s *setupPorts) beside() (list []firewall.Interface) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, device := range slices.Sorted(maps.Keys(s.ports)) {
		p := s.ports[device]
		if !p.InUse || p.inside.Role != "" || s.lost {
			continue
		}
		for _, a := range p.more {
			in := firewall.Interface{Device: device, Role: firewall.Other, On: true, V4: firewall.V4{Mode: firewall.None}, V6: firewall.V6{Mode: firewall.None}}
			if a.Addr().Is4() {
				in.V4 = firewall.V4{Mode: firewall.Static, Addr: a}
			} else {
				in.V6 = firewall.V6{Mode: firewall.Static, Addr: a}
			}
			list = append(list, in)
		}
	}
	return list
}

// meaning is what a configuration stands for: the factory's is the setup ports.
func (s *setupPorts) meaning(c firewall.Config) firewall.Config {
	if c.Stamp() == factoryStamp {
		return s.config()
	}
	return c
}

// rules is the ruleset of the setup ports under the factory's stamp.
func (s *setupPorts) rules() ruleset.Ruleset {
	rs := compile.Compile(s.config())
	rs.Stamp = factoryStamp
	return rs
}
