package simulate

import (
	"fmt"
	"net/netip"
	"slices"

	"gatehouse/firewall"
)

// Survives reports whether a new packet of this connection would still be
// passed and sent to the same target.
func Survives(cfg firewall.Config, facts firewall.Facts, flow firewall.Flow) bool {
	return New(cfg, facts).Survives(flow)
}

// Survives reports whether a new packet of this connection would still be
// passed and sent to the same target. What the box itself began survives. It
// asks the policy, not the routes: a line that is down for a moment cuts nothing.
// Nor does a limit cut what it let through; what it refused was never a connection.
func (e *Evaluator) Survives(flow firewall.Flow) bool {
	p := flow.Packet
	if flow.Mark&firewall.MarkRefused != 0 {
		return false
	}
	if p.In == "" {
		if len(e.net.own[p.Src]) > 0 || p.Src.IsLoopback() {
			return true
		}
		if p.In = e.entrance(p.Src); p.In == "" {
			return !e.shutOut(p) // no route: nothing else is known against it
		}
	}
	d := e.Decide(p)
	if d.Rule == NoRoute || d.Rule == Spoofed && len(e.net.lookup(p.Src)) == 0 {
		return true
	}
	to := flow.To
	if !to.IsValid() {
		to, flow.ToPort = p.Dst, p.DstPort
	}
	ported := p.Proto == 6 || p.Proto == 17 || p.Proto == 132
	return d.Verdict == Pass && d.To == to && (!ported || d.ToPort == flow.ToPort)
}

// entrance is the device that a source would come in by.
func (e *Evaluator) entrance(src netip.Addr) string {
	if devices := e.net.lookup(src); len(devices) > 0 {
		return devices[0]
	}
	return ""
}

// Settled is the facts as they will be once cfg is in force: interfaces with
// fixed addresses have them, those that are off have none. What DHCP gave stays.
func Settled(cfg firewall.Config, facts firewall.Facts) firewall.Facts {
	out := firewall.Facts{Addrs: map[string][]netip.Prefix{}, Blocked: facts.Blocked}
	gone := map[firewall.Route]bool{} // connected networks that go with their address
	for device, have := range facts.Addrs {
		in, ok := cfg.ByDevice(device)
		for _, p := range have {
			mode := in.V4.Mode
			if p.Addr().Is6() {
				mode = in.V6.Mode
			}
			if !ok || in.On && (mode == firewall.DHCP || p.Addr().IsLinkLocalUnicast()) {
				out.Addrs[device] = append(out.Addrs[device], p)
			} else {
				gone[firewall.Route{Dst: p.Masked(), Device: device}] = true
			}
		}
	}
	for _, r := range facts.Routes {
		if !gone[firewall.Route{Dst: r.Dst.Masked(), Device: r.Device}] || r.Via.IsValid() {
			out.Routes = append(out.Routes, r)
		}
	}
	for _, in := range cfg.Interfaces {
		if !in.On {
			continue
		}
		for _, one := range []struct {
			fixed bool
			addr  netip.Prefix
			gw    netip.Addr
		}{{in.V4.Mode == firewall.Static, in.V4.Addr, in.V4.Gateway}, {in.V6.Mode == firewall.Static, in.V6.Addr, in.V6.Gateway}} {
			if !one.fixed || !one.addr.IsValid() {
				continue
			}
			out.Addrs[in.Device] = append(out.Addrs[in.Device], one.addr)
			if one.gw.IsValid() {
				out.Routes = append(out.Routes, firewall.Route{Dst: everything(one.gw), Via: one.gw, Device: in.Device})
			}
		}
	}
	return out
}

func everything(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// Reaches reports whether an administrator at from, who is connected through
// device, would still reach the web page on an address that the box has there
// under cfg; if not, a sentence says why. facts are those of now.
func Reaches(cfg firewall.Config, facts firewall.Facts, from netip.Addr, device string) (ok bool, why string) {
	e := New(cfg, Settled(cfg, facts))
	in, known := cfg.ByDevice(device)
	switch {
	case !known:
		return false, fmt.Sprintf("No interface uses the port %s.", device)
	case !in.On:
		return false, fmt.Sprintf("%s is switched off.", in.Name)
	}
	why = fmt.Sprintf("%s has no address that %s could use.", in.Name, from)
	// The address on the administrator's own network first: its answer is the one to tell.
	addrs := slices.Clone(e.net.facts.Addrs[device])
	slices.SortStableFunc(addrs, func(a, b netip.Prefix) int { return contained(b, from) - contained(a, from) })
	told := false
	for _, a := range addrs {
		if a.Addr().Is4() != from.Is4() || a.Addr().IsLinkLocalUnicast() != from.IsLinkLocalUnicast() {
			continue
		}
		d := e.Decide(firewall.Packet{In: device, Src: from, Dst: a.Addr(), Proto: 6, SrcPort: 50000, DstPort: cfg.Admin.HTTPS})
		if d.Verdict == Pass && d.Local && d.To == a.Addr() && d.ToPort == cfg.Admin.HTTPS {
			return true, ""
		}
		if !told {
			why, told = e.because(d, from, in, a.Addr()), true
		}
	}
	return false, why
}

func contained(p netip.Prefix, a netip.Addr) int {
	if p.Contains(a) {
		return 1
	}
	return 0
}

// because says in a sentence why the web page is out of reach.
func (e *Evaluator) because(d Decision, from netip.Addr, in firewall.Interface, page netip.Addr) string {
	if f, ok := e.cfg.Forward(d.Forward); ok {
		return fmt.Sprintf("The forward “%s” takes port %d of %s away from the web page.", title(f.Descr, f), e.cfg.Admin.HTTPS, page)
	}
	for _, r := range e.cfg.Rules {
		if d.Rule == (firewall.Ref{Kind: "rule", Key: string(r.ID)}).String() {
			return fmt.Sprintf("The rule “%s” stops it.", title(r.Descr, r))
		}
	}
	switch d.Rule {
	case Blocked:
		return fmt.Sprintf("%s is locked out or in quarantine: the box drops all that it sends. On the console, `gatehouse release %[1]s` lets it in again.", from)
	case Spoofed:
		return fmt.Sprintf("%s would not be answered: the way back to it does not lead through %s.", from, in.Name)
	case Private, Bogons:
		return fmt.Sprintf("%s does not accept sources such as %s.", in.Name, from)
	}
	return fmt.Sprintf("Nothing on %s lets %s reach the web page.", in.Name, from)
}

func title(descr string, v fmt.Stringer) string {
	if descr != "" {
		return descr
	}
	return v.String()
}
