package simulate

import (
	"net/netip"
	"slices"

	"gatehouse/firewall"
)

// resolver turns names into addresses and ports, each alias once.
type resolver struct {
	cfg     firewall.Config
	net     network
	aliases map[firewall.Name][]firewall.AddrRange
	ports   map[firewall.Name][]firewall.PortRange
}

// ends is a source or destination without names.
type ends struct {
	not, any, self bool
	in             [][]firewall.AddrRange // each merged
}

func (r resolver) ends(e firewall.Ends) ends {
	out := ends{not: e.Not}
	var plain []firewall.AddrRange
	for _, m := range e.Of {
		switch m.Kind {
		case firewall.EndAny:
			out.any = true
		case firewall.EndSelf:
			out.self = true
		case firewall.EndAlias:
			if _, ok := r.aliases[m.Name]; !ok {
				r.aliases[m.Name] = r.cfg.AliasAddrs(m.Name)
			}
			out.in = append(out.in, r.aliases[m.Name])
		case firewall.EndIfNet:
			for _, p := range r.of(m.Name) {
				if !p.Addr().Is6() || !p.Addr().IsLinkLocalUnicast() { // every link is that network
					plain = append(plain, firewall.PrefixRange(p))
				}
			}
		case firewall.EndIfAddr:
			for _, p := range r.of(m.Name) {
				plain = append(plain, firewall.AddrRange{From: p.Addr(), To: p.Addr()})
			}
		default:
			if one, ok := m.Range(); ok {
				plain = append(plain, one)
			}
		}
	}
	if len(plain) > 0 {
		out.in = append(out.in, firewall.Merge(plain))
	}
	return out
}

// of is what the device of an interface has at the moment.
func (r resolver) of(n firewall.Name) []netip.Prefix {
	in, ok := r.cfg.Interface(n)
	if !ok {
		return nil
	}
	return r.net.facts.Addrs[in.Device]
}

// matches reports whether an address is meant; local says that it is the box's own.
func (e ends) matches(a netip.Addr, local bool) bool {
	hit := e.any || e.self && local || slices.ContainsFunc(e.in, func(rs []firewall.AddrRange) bool { return contains(rs, a) })
	return hit != e.not
}

// contains looks an address up in merged ranges.
func contains(rs []firewall.AddrRange, a netip.Addr) bool {
	i, _ := slices.BinarySearchFunc(rs, a, func(r firewall.AddrRange, a netip.Addr) int {
		if r.To.Less(a) {
			return -1
		}
		return 1
	})
	return i < len(rs) && rs[i].Contains(a)
}

// ports is a list of ports without names. An alias without entries leaves a
// list that nobody matches.
type ports struct {
	any bool
	in  [][]firewall.PortRange
}

func (r resolver) portList(ps firewall.Ports) ports {
	out := ports{any: len(ps) == 0}
	for _, p := range ps {
		if p.Alias == "" {
			out.in = append(out.in, []firewall.PortRange{p.Range})
			continue
		}
		if _, ok := r.ports[p.Alias]; !ok {
			r.ports[p.Alias] = r.cfg.AliasPorts(p.Alias)
		}
		out.in = append(out.in, r.ports[p.Alias])
	}
	return out
}

func (p ports) matches(n uint16) bool {
	return p.any || slices.ContainsFunc(p.in, func(rs []firewall.PortRange) bool {
		return slices.ContainsFunc(rs, func(r firewall.PortRange) bool { return r.From <= n && n <= r.To })
	})
}

// rule is a rule without names; index 0 is for IPv4, 1 for IPv6.
type rule struct {
	ref      string
	action   firewall.Action
	limit    firewall.Limit
	family   [2]bool
	anyProto bool
	protos   [2][]uint8
	anyICMP  bool
	icmp     [2][]uint8
	src, dst ends
	sport    ports
	dport    ports
}

func (r resolver) rule(in firewall.Rule) rule {
	out := rule{ref: firewall.Ref{Kind: "rule", Key: string(in.ID)}.String(), action: in.Action, limit: in.Limit,
		family:   [2]bool{in.Family != firewall.IPv6, in.Family != firewall.IPv4},
		anyProto: in.Proto == firewall.AnyProto, anyICMP: len(in.ICMP) == 0,
		src: r.ends(in.Src), dst: r.ends(in.Dst), sport: r.portList(in.SrcPorts), dport: r.portList(in.DstPorts)}
	for i, v6 := range []bool{false, true} {
		out.protos[i], _ = in.Proto.Numbers(v6)
		for _, name := range in.ICMP {
			if n, ok := firewall.ICMPNumber(name, v6); ok {
				out.icmp[i] = append(out.icmp[i], n)
			}
		}
	}
	return out
}

// matches looks at the packet as it is after port forwarding (design 6).
func (r *rule) matches(p firewall.Packet, local bool) bool {
	v := 0
	if p.Src.Is6() {
		v = 1
	}
	return r.family[v] &&
		(r.anyProto || slices.Contains(r.protos[v], p.Proto)) &&
		(r.anyICMP || slices.Contains(r.icmp[v], p.ICMP)) &&
		r.dport.matches(p.DstPort) && r.sport.matches(p.SrcPort) &&
		r.src.matches(p.Src, false) && r.dst.matches(p.Dst, local)
}

// forward is a forward without names.
type forward struct {
	id      firewall.ID
	device  string
	reflect bool
	protos  []uint8
	from    ends
	dst     ends
	ports   firewall.PortRange
	to      netip.Addr
	toPort  uint16
}

func (r resolver) forward(f firewall.Forward, device string) forward {
	protos, _ := f.Proto.Numbers(false)
	return forward{id: f.ID, device: device, reflect: f.Reflect, protos: protos, from: r.ends(f.From),
		dst: r.ends(firewall.Ends{Of: []firewall.End{f.Dst}}), ports: f.Ports, to: f.To, toPort: f.ToPort}
}

// translate gives the target of a packet that enters by an outside interface
// or, when reflected, by any interface inside; false when the forward is not meant.
func (f forward) translate(p firewall.Packet, by side) (to netip.Addr, port uint16, ok bool) {
	reflected := f.reflect && by.Device == p.In && by.Role != firewall.WAN
	if p.In != f.device && !reflected || p.Src.Is4() != f.to.Is4() || !slices.Contains(f.protos, p.Proto) ||
		p.DstPort < f.ports.From || p.DstPort > f.ports.To || !f.dst.matches(p.Dst, false) || !f.from.matches(p.Src, false) {
		return to, 0, false
	}
	return f.to, f.toPort + (p.DstPort - f.ports.From), true
}
