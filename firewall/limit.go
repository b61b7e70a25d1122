package firewall

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Limit bounds what one source may do by a pass rule (design 5). The zero value
// is no limit. TCP connections are counted exactly and cannot be counted against
// a third party; of other protocols each first packet counts.
type Limit struct {
	Open         int  `json:"open,omitempty"`          // connections open at once, 1-1,000,000; 0 = any number
	New          int  `json:"new,omitempty"`           // new connections in Window, 1-1,000,000; 0 = any number
	Window       int  `json:"window,omitempty"`        // seconds, 1-86,400
	Over         Over `json:"over,omitempty"`          // what becomes of a source that wants more
	LockFor      int  `json:"lock_for,omitempty"`      // seconds that a lock-out lasts, 10-86,400
	Strikes      int  `json:"strikes,omitempty"`       // lock-outs within StrikeWindow that make it quarantine, 1-100; 0 = never
	StrikeWindow int  `json:"strike_window,omitempty"` // seconds, 60-2,592,000
	Never        Name `json:"never,omitempty"`         // alias of sources that are limited but never punished
	DryRun       bool `json:"dry_run,omitempty"`       // count and list only: nothing is dropped
}

// Over is what happens to a source that exceeds a limit.
type Over string

// What happens beyond a limit. Each drops the excess; lock-out and quarantine
// also drop everything else from the source, for LockFor or until it is released.
const (
	DropExcess Over = "drop"
	LockOut    Over = "lock-out"
	Quarantine Over = "quarantine"
)

// NeverQuarantine is the alias that new limits exempt from punishment.
const NeverQuarantine Name = "NEVER_QUARANTINE"

// On reports whether anything is limited.
func (l Limit) On() bool { return l.Open > 0 || l.New > 0 }

// Punishes reports whether a source that exceeds the limit is shut out.
func (l Limit) Punishes() bool { return l.On() && !l.DryRun && l.Over != DropExcess }

// Rate is the speed at which a source gets new connections back once it has used
// up New: n in a unit of the kernel, which knows second, minute, hour, day and
// week. It is the smallest unit in which New in Window is a whole number, and
// rounded down in weeks when there is none, so never more than was asked for.
// Without New, or without Window, it is 0.
func (l Limit) Rate() (n uint64, unit time.Duration) {
	if l.New <= 0 || l.Window <= 0 {
		return 0, time.Second
	}
	const week = 7 * 24 * time.Hour
	for _, unit = range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, week} {
		part := uint64(l.New) * uint64(unit/time.Second)
		n = part / uint64(l.Window)
		if part%uint64(l.Window) == 0 {
			break
		}
	}
	return n, unit
}

// String says what the limit is: "20 open, 10 new in 5s per source, then locked out for 5m".
func (l Limit) String() string {
	var what []string
	if l.Open > 0 {
		what = append(what, fmt.Sprintf("%d open", l.Open))
	}
	if l.New > 0 {
		what = append(what, fmt.Sprintf("%d new in %s", l.New, Seconds(l.Window)))
	}
	s := strings.Join(what, ", ") + " per source, "
	switch {
	case l.DryRun:
		return s + "counted only"
	case l.Over == Quarantine:
		return s + "then quarantine"
	case l.Over == LockOut && l.Strikes > 0:
		return s + fmt.Sprintf("then locked out for %s, quarantine after %d in %s", Seconds(l.LockFor), l.Strikes, Seconds(l.StrikeWindow))
	case l.Over == LockOut:
		return s + "then locked out for " + Seconds(l.LockFor)
	}
	return s + "the excess is dropped"
}

// Sources says how sources are told apart, and how many a limit remembers.
type Sources struct {
	Prefix6 int `json:"prefix6,omitempty"` // length of the IPv6 prefix that is one source, 48-128; 0 = 64
	Meter   int `json:"meter,omitempty"`   // sources that each limit remembers, 4-1,000,000; 0 = 65,536
}

// Prefix is the length of the IPv6 prefix that is one source.
func (s Sources) Prefix() int { return cmp.Or(s.Prefix6, 64) }

// Size is how many sources a limit remembers.
func (s Sources) Size() int { return cmp.Or(s.Meter, 65536) }

// Of is the source that an address belongs to: itself, or its IPv6 prefix.
func (s Sources) Of(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = s.Prefix()
	}
	p, _ := a.Prefix(bits)
	return p
}

// The ct mark of a connection that a limited rule passed (design 7): two flags
// and the number of the rule. The low 16 bits are for gateways and tags.
const (
	MarkPending  uint32 = 1 << 31    // its handshake is not complete and not counted yet
	MarkShared   uint32 = 1 << 30    // with MarkPending: its source did not fit into the meter; without: the server has not answered its handshake
	MarkRefused  uint32 = 1 << 29    // it completed beyond the limit: no packet of it passes
	MarkRule     uint32 = 0x1fff0000 // which rule: LimitNumbers, shifted by MarkShift
	MarkShift           = 16
	maxLimited          = 4000 // rules with a limit: half of what MarkRule can name
	limitNumbers        = MarkRule >> MarkShift
)

// LimitNumbers gives every rule with a limit a number from 1 to 8191, for the ct
// mark. It depends on the id; only where two ids would get the same it depends on
// which others there are.
func (c Config) LimitNumbers() map[ID]uint32 {
	var ids []ID
	for _, r := range c.Rules {
		if r.Limit.On() {
			ids = append(ids, r.ID)
		}
	}
	slices.Sort(ids)
	out, taken := make(map[ID]uint32, len(ids)), make(map[uint32]bool, len(ids))
	for _, id := range ids {
		n := 1 + fnv(id)%limitNumbers
		for taken[n] {
			n = 1 + n%limitNumbers
		}
		out[id], taken[n] = n, true
	}
	return out
}

func (c Config) validateLimit(k checker, r Rule) {
	l := r.Limit
	if l == (Limit{}) {
		return
	}
	if !l.On() {
		k.add("limit_open", "Give a number of open or of new connections, or clear the rest of the limit.")
	}
	if r.Action != Pass {
		k.add("limit_open", "Limits work on pass rules.")
	}
	if l.Open < 0 || l.Open > 1_000_000 {
		k.add("limit_open", "Enter a whole number from 1 to 1 000 000.")
	}
	switch {
	case (l.New == 0) != (l.Window == 0):
		k.add("limit_new", "Give both numbers or none.")
	case l.New < 0 || l.New > 1_000_000:
		k.add("limit_new", "Enter a whole number from 1 to 1 000 000.")
	case l.Window < 0 || l.Window > 86400:
		k.add("limit_window", "The time must be 1 second to 1 day.")
	}
	switch l.Over {
	case DropExcess, LockOut, Quarantine:
	default:
		k.add("over", "Choose what happens when the limit is exceeded.")
	}
	punish := l.Over == LockOut || l.Over == Quarantine
	if punish && r.Proto != TCP {
		k.add("over", "Lock-out needs TCP: other protocols can only drop the excess.")
	}
	if punish && (l.LockFor < 10 || l.LockFor > 86400) {
		k.add("lock_for", "A lock-out lasts 10 seconds to 1 day.")
	}
	if l.Strikes < 0 || l.Strikes > 100 {
		k.add("strikes", "Enter a whole number from 1 to 100, or 0 for never.")
	}
	if l.Strikes > 0 && (l.StrikeWindow < 60 || l.StrikeWindow > 30*86400) {
		k.add("strike_window", "The time must be 1 minute to 30 days.")
	}
	if a, ok := c.Alias(l.Never); l.Never != "" && !ok {
		k.add("never", "There is no alias `%s`.", l.Never)
	} else if ok && a.Kind != Addresses {
		k.add("never", "%s holds ports, not addresses.", l.Never)
	}
}

// warnLimit tells what a limit that shuts sources out does to those whom its
// owner may not have meant, or not to those whom he meant.
func (c Config) warnLimit(k checker, r Rule) {
	l := r.Limit
	if !l.On() || l.Over == DropExcess {
		return
	}
	if in, ok := c.Interface(r.In); l.Never == "" {
		if r.In == "" || ok && in.Role == LAN {
			k.add("never", "Nobody is exempt from this limit: a host inside that is shut out cannot open these pages either.")
		}
		return
	}
	exempt := c.AliasAddrs(l.Never)
	if len(exempt) == 0 {
		k.add("never", "The alias %s is empty: it exempts nobody from this limit.", l.Never)
	}
	for _, all := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		if slices.Contains(exempt, AddrRange{all.Addr(), LastAddr(all)}) {
			k.add("never", "The alias %s holds %s: everybody is exempt, and nobody is ever shut out.", l.Never, all)
		}
	}
}

func (c Config) validateSources(k checker) {
	if n := c.Sources.Prefix6; n != 0 && (n < 48 || n > 128) {
		k.add("prefix6", "The prefix length must be 48 to 128.")
	}
	if n := c.Sources.Meter; n != 0 && (n < 4 || n > 1_000_000) {
		k.add("meter", "Enter a whole number from 4 to 1 000 000.")
	}
	if n := len(c.LimitNumbers()); n > maxLimited {
		k.add("meter", "At most %d rules can have a limit; this has %d.", maxLimited, n)
	}
}
