package compile

import (
	"fmt"
	"slices"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// limiter is the limit of one rule that is on.
type limiter struct {
	firewall.Limit
	id     firewall.ID
	mark   uint32 // the rule's number, where the ct mark has it
	fams   []bool // the families that the rule is for: IPv6 or not
	tcp    bool   // TCP may pass the rule
	others bool   // other protocols may
}

// limited is the limiters of the rules that are on, in their order.
func limited(c firewall.Config) (out []limiter) {
	numbers := c.LimitNumbers()
	for _, r := range c.Rules {
		if !r.On || !r.Limit.On() {
			continue
		}
		l := limiter{Limit: r.Limit, id: r.ID, mark: numbers[r.ID] << firewall.MarkShift}
		protos, _ := r.Proto.Numbers(false)
		l.tcp = protos == nil || slices.Contains(protos, 6)
		l.others = protos == nil || slices.ContainsFunc(protos, func(n uint8) bool { return n != 6 })
		if r.Family != firewall.IPv6 {
			l.fams = append(l.fams, false)
		}
		if r.Family != firewall.IPv4 {
			l.fams = append(l.fams, true)
		}
		out = append(out, l)
	}
	return out
}

// judged reports whether sources that exceed the limit are shut out, or listed
// as if they were: then some are spared.
func (l limiter) judged() bool { return l.Over != firewall.DropExcess }

// once is the kernel's form of New in Window: New at once, and at most twice as
// many in any Window.
func once(l firewall.Limit) ruleset.Limit {
	rate, unit := l.Rate()
	return ruleset.Limit{Rate: rate, Unit: unit, Burst: uint32(l.New)}
}

// shared is what all sources together may begin that did not fit into a meter:
// as many as one source; by a limit of open connections alone, as many in ten seconds.
func (l limiter) shared() ruleset.Limit {
	if l.New == 0 {
		return once(firewall.Limit{New: l.Open, Window: 10})
	}
	return once(l.Limit)
}

// MeterSet is a set in which a limit remembers sources.
type MeterSet struct {
	Rule firewall.ID
	What string // firewall.OverOpen, OverNew
	Name string
	V6   bool
	Size int // how many sources fit
}

// MeterSets is the meters of all limits that are on. The elements are keyed as
// those of BlockedSet; taking one out lets its source begin from nothing.
func MeterSets(c firewall.Config) (out []MeterSet) {
	for _, l := range limited(c) {
		for _, v6 := range l.fams {
			if l.Open > 0 {
				out = append(out, MeterSet{l.id, firewall.OverOpen, l.openSet(c.Sources, v6), v6, c.Sources.Size()})
			}
			if l.New > 0 {
				out = append(out, MeterSet{l.id, firewall.OverNew, l.newSet(c.Sources, v6), v6, c.Sources.Size()})
			}
		}
	}
	return out
}

// An element keeps the limit that it was made with, so the names of meters hold
// all that the limit and its sources depend on: after a change they are others.

func (l limiter) openSet(s firewall.Sources, v6 bool) string {
	return fmt.Sprintf("open_%s_%d_%s", l.id, l.Open, kind(s, v6))
}

func (l limiter) newSet(s firewall.Sources, v6 bool) string {
	return fmt.Sprintf("new_%s_%din%d_%s", l.id, l.New, l.Window, kind(s, v6))
}

func (l limiter) shareSet() string {
	if l.New == 0 {
		return fmt.Sprintf("share_%s_%d", l.id, l.Open)
	}
	return fmt.Sprintf("share_%s_%din%d", l.id, l.New, l.Window)
}

// kind is how sources are told apart: 4, or 6 and the length of the prefix.
func kind(s firewall.Sources, v6 bool) string {
	if v6 {
		return fmt.Sprintf("6_%d", s.Prefix())
	}
	return "4"
}

// meters is the sets of every limit.
func (b *builder) meters() {
	for _, l := range b.limiters {
		meter := ruleset.Set{Origin: l.origin(), Runtime: true, Meter: true, Dynamic: true, Size: uint32(b.cfg.Sources.Size())}
		for _, v6 := range l.fams {
			meter.Key = []ruleset.Type{addrType(v6)}
			if l.Open > 0 {
				meter.Name, meter.Timeout = l.openSet(b.cfg.Sources, v6), false
				b.set(meter)
			}
			if l.New > 0 {
				meter.Name, meter.Timeout = l.newSet(b.cfg.Sources, v6), true
				b.set(meter)
			}
		}
		// One element for each protocol: there is always room, or the limit would end here.
		meter.Name, meter.Timeout, meter.Key, meter.Size = l.shareSet(), false, []ruleset.Type{ruleset.InetProto}, 256
		b.set(meter)
	}
}

func (l limiter) origin() ruleset.Origin { return ruleset.Origin("rule/" + string(l.id)) }

// OverCounter is the name of the counter of what a rule's limit refused, or in a
// dry run would have.
func OverCounter(id firewall.ID) string { return "c_over_" + string(id) }

// window is how long a source is remembered: after that it may do as much as a new one.
func (l limiter) window() time.Duration { return time.Duration(l.Window) * time.Second }
