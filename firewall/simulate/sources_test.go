package simulate_test

import (
	"fmt"
	"net/netip"
	"slices"

	"gatehouse/firewall"
	"gatehouse/firewall/simulate"
)

// sources is how the policy tells sources apart, and how few a limit may remember.
func (r *draw) sources() firewall.Sources {
	return firewall.Sources{Prefix6: pick(r, 0, 48, 56, 65, 127, 128), Meter: pick(r, 0, 4, 4, 1000)}
}

// limit is a random limit of a pass rule, small enough to be met by what a batch holds.
func (r *draw) limit(p firewall.Proto) firewall.Limit {
	l := firewall.Limit{Over: firewall.DropExcess, DryRun: r.chance(20)}
	what := r.IntN(3)
	if what != 0 {
		l.Open = pick(r, 1, 2, 5, 300, 1_000_000)
	}
	if what != 1 {
		l.New, l.Window = pick(r, 1, 2, 7, 300, 1_000_000), pick(r, 1, 7, 60, 86400)
	}
	if p == firewall.TCP && r.chance(70) {
		l.Over, l.LockFor = pick(r, firewall.LockOut, firewall.Quarantine), pick(r, 10, 86400)
		l.Strikes, l.StrikeWindow = pick(r, 0, 3), 3600
	}
	if r.chance(40) {
		l.Never = pick(r, r.named(firewall.Addresses)...)
	}
	return l
}

// blocked is who is shut out while a batch is tried: hosts, IPv6 prefixes, and
// networks that may hold them or each other.
func (r *draw) blocked() (out []netip.Prefix) {
	if r.chance(40) {
		return nil
	}
	for range 1 + r.IntN(8) {
		v6 := r.family()
		a := r.addr(v6)
		if !v6 && r.chance(30) {
			a = addr(pick(r, outside[false]...))
		}
		if a.IsMulticast() || a.IsLoopback() || a.IsUnspecified() {
			continue // no source; the kernel drops some of these before it looks at ours
		}
		p := r.cfg.Sources.Of(a)
		if r.chance(25) {
			p, _ = a.Prefix(map[bool]int{false: pick(r, 8, 24, 29, 31), true: pick(r, 47, 63, 96, 126)}[v6])
		}
		out = append(out, p)
	}
	return out
}

// shut makes it likely that the packet comes from a blocked source, or from just
// beside one; some of these are what a host inside may still say.
func (r *draw) shut(p *firewall.Packet) {
	one, v6 := pick(r, r.facts.Blocked...), p.Src.Is6()
	if one.Addr().Is6() != v6 {
		return
	}
	in := firewall.PrefixRange(one)
	if a := pick(r, in.From, in.From, in.To, in.From.Prev(), in.To.Next()); a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() {
		p.Src = a
	}
	if !r.chance(50) {
		return
	}
	if in := pick(r, r.cfg.Interfaces...); in.Role != firewall.WAN {
		p.In = in.Device
	}
	if v6 {
		p.Proto, p.ICMP = 58, pick[uint8](r, 132, 133, 134, 135, 136, 137)
		return
	}
	p.Proto, p.SrcPort, p.DstPort = 17, pick[uint16](r, 68, 68, 68, 67), pick[uint16](r, 67, 67, 67, 68)
	if a := r.own(p.In); a.IsValid() {
		p.Dst = a
	}
}

// own is an IPv4 address of a device; the zero one when it has none.
func (r *draw) own(device string) (a netip.Addr) {
	for _, p := range r.facts.Addrs[device] {
		if p.Addr().Is4() {
			a = p.Addr()
		}
	}
	return a
}

// spent counts what each source has had of each limit in a batch. A batch keeps
// every source within, for what becomes of the excess is not the evaluator's to say.
type spent map[string]int

// within spends one connection, unless that would be too many.
func (s spent) within(cfg firewall.Config, p firewall.Packet, d simulate.Decision) bool {
	source := cfg.Sources.Of(p.Src).String()
	open, begun := []string{d.Rule + " open " + source}, []string(nil)
	if p.Proto != 6 { // TCP counts new ones at their handshake, which none here completes
		begun = append(begun, d.Rule+" new "+source)
		if cfg.Sources.Size() < 1000 { // the sources that do not fit share what one has
			open, begun = append(open, d.Rule+" open"), append(begun, d.Rule+" new")
		}
	}
	full := func(most int, keys []string) bool {
		return most > 0 && slices.ContainsFunc(keys, func(k string) bool { return s[k] >= most })
	}
	if full(d.Limit.Open, open) || full(d.Limit.New, begun) {
		return false
	}
	for _, k := range slices.Concat(open, begun) {
		s[k]++
	}
	return true
}

// spared says what a blocked source may still send; "" of other packets.
func (p probe) spared(facts firewall.Facts) string {
	if p.want.Rule == simulate.Blocked || !slices.ContainsFunc(facts.Blocked, func(n netip.Prefix) bool { return n.Contains(p.Src) }) {
		return ""
	}
	return fmt.Sprintf("spared protocol %d", p.Proto)
}
