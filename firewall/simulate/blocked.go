package simulate

import (
	"maps"
	"net/netip"
	"slices"

	"gatehouse/firewall"
)

// prefixes is networks that may overlap: 131,072 and more, so each is one entry
// of a map and only the lengths are looked through.
type prefixes struct {
	in   map[netip.Prefix]bool
	bits [2][]int // the lengths in use: IPv4, IPv6
}

func newPrefixes(nets []netip.Prefix) prefixes {
	p := prefixes{in: make(map[netip.Prefix]bool, len(nets))}
	for _, n := range nets {
		p.in[n.Masked()] = true
	}
	p.bits = lengths(maps.Keys(p.in))
	return p
}

func (p prefixes) contain(a netip.Addr) bool {
	return slices.ContainsFunc(p.bits[family(a)], func(bits int) bool {
		n, err := a.Prefix(bits)
		return err == nil && p.in[n]
	})
}

// shutOut reports whether a packet is dropped because its source is locked out
// or in quarantine, wherever it goes. A host inside keeps its address and its
// neighbours meanwhile, so that a release works at once: what it sends for these
// goes on to the other rules.
func (e *Evaluator) shutOut(p firewall.Packet) bool {
	s, on := e.sides[p.In]
	if on && s.Role != firewall.WAN && keepsOnLink(p) {
		return false
	}
	return e.blocked.contain(p.Src)
}

// keepsOnLink reports whether a host keeps its address by this packet (RFC 2131),
// or finds its neighbours and routers (RFC 4861).
func keepsOnLink(p firewall.Packet) bool {
	if p.Src.Is4() {
		return p.Proto == 17 && p.SrcPort == 68 && p.DstPort == 67
	}
	return p.Proto == 58 && p.ICMP >= 133 && p.ICMP <= 136
}
