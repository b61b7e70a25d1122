package simulate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/simulate"
)

// What the kernel does with a compiled policy is what the evaluator says of the
// configuration: the verdict, the rule that decides, the target of a forward and
// the port it leaves by. GATEHOUSE_SEED repeats a run, GATEHOUSE_POLICIES makes it longer.
func TestKernelAgreesWithDecide(t *testing.T) {
	seed, policies := uint64(time.Now().UnixNano()), 45
	if s := os.Getenv("GATEHOUSE_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	if s := os.Getenv("GATEHOUSE_POLICIES"); s != "" {
		policies, _ = strconv.Atoi(s)
	}
	t.Logf("GATEHOUSE_SEED=%d", seed)
	l, began := newLab(t), time.Now()
	told, packets := map[string]int{}, 0
	for i, facts := range worlds {
		l.become(facts)
		for n := range (policies + len(worlds) - 1) / len(worlds) {
			r := &draw{Rand: rand.New(rand.NewPCG(seed, uint64(i*1000+n))), facts: facts}
			cfg := r.policy()
			for cfg.Validate() != nil {
				cfg = r.policy()
			}
			r.facts.Blocked = r.blocked()
			b := newBatch(r, cfg, 300)
			for _, p := range b.probes {
				told[kind(p.want)]++
				if p.want.Limit.On() {
					told["within a limit"]++
				}
				if s := p.spared(b.facts); s != "" {
					told[s]++
				}
			}
			packets += len(b.probes)
			l.load(cfg, b.facts)
			if diff := l.try(b); diff != "" {
				t.Fatalf("GATEHOUSE_SEED=%d, world %d, policy %d: %s", seed, i, n, l.explain(b, diff))
			}
		}
	}
	t.Logf("%d packets in %v: %v", packets, time.Since(began).Round(time.Millisecond), told)
	for _, want := range []string{"pass rule", "pass rule here", "block rule", "reject rule", "pass rule forwarded", "within a limit", simulate.Blocked,
		"spared protocol 17", "spared protocol 58", simulate.Default, simulate.Spoofed,
		simulate.Private, simulate.Bogons, simulate.Invalid, simulate.WrongSide, simulate.AntiLockout, simulate.Neighbours, simulate.NoRoute, simulate.Martian} {
		if told[want] == 0 {
			t.Errorf("no packet met %q: the test has lost its teeth", want)
		}
	}
}

// kind is what a run must have seen: the automatic rule, or how a rule decided.
func kind(d simulate.Decision) string {
	if strings.HasPrefix(d.Rule, "auto/") {
		return d.Rule
	}
	s := string(d.Verdict) + " rule"
	switch {
	case d.Verdict != simulate.Pass:
	case d.Forward != "":
		s += " forwarded"
	case d.Local:
		s += " here"
	}
	return s
}

// String is the packet as a person writes it, and what is decided of it.
func (p probe) String() string {
	s := fmt.Sprintf("%s %v:%d > %v:%d proto %d type %d: %s %s", p.In, p.Src, p.SrcPort, p.Dst, p.DstPort, p.Proto, p.ICMP, p.want.Verdict, p.want.Rule)
	switch {
	case p.want.Local:
		s += " here"
	case p.want.Out != "":
		s += " out by " + p.want.Out
	}
	if p.want.Forward != "" {
		s += fmt.Sprintf(" forwarded by %s to %v:%d", p.want.Forward, p.want.To, p.want.ToPort)
	}
	return s
}

func lines(probes []probe) (out string) {
	for _, p := range probes {
		out += "\n\t" + p.String()
	}
	return out
}

// batch is packets that connection tracking cannot take for each other.
type batch struct {
	cfg    firewall.Config
	facts  firewall.Facts
	probes []probe
}

type probe struct {
	firewall.Packet
	want    simulate.Decision
	ingress bool // its interface is on, so that blocked sources are dropped before prerouting
}

func newProbe(cfg firewall.Config, p firewall.Packet, d simulate.Decision) probe {
	in, ok := cfg.ByDevice(p.In)
	return probe{p, d, ok && in.On}
}

func newBatch(r *draw, cfg firewall.Config, n int) batch {
	b, e, used, had := batch{cfg: cfg, facts: r.facts}, simulate.New(cfg, r.facts), map[string]bool{}, spent{}
	for i := range n {
		for try := 0; ; try++ {
			p := r.packet(i)
			d := e.Decide(p)
			if i%2 == 0 && try < 20 && strings.HasPrefix(d.Rule, "auto/") {
				continue // half of them for a rule, if one can be met
			}
			if keys := tuples(p, d, r.facts); !slices.ContainsFunc(keys, func(k string) bool { return used[k] }) && had.within(cfg, p, d) {
				for _, k := range keys {
					used[k] = true
				}
				b.probes = append(b.probes, newProbe(cfg, p, d))
				break
			}
		}
	}
	return b
}

// tuples is the connections that a packet could be taken for: its own and every
// answer to it, also to an address that masquerading may give it. Protocols
// without ports have no more than their addresses to be told by.
func tuples(p firewall.Packet, d simulate.Decision, facts firewall.Facts) []string {
	if p.Proto == 1 || p.Proto == 58 {
		return nil // every echo has a number of its own
	}
	key := func(src netip.Addr, sport uint16, dst netip.Addr, dport uint16) string {
		return fmt.Sprint(p.Proto, src, sport, dst, dport)
	}
	out := []string{key(p.Src, p.SrcPort, p.Dst, p.DstPort), key(d.To, d.ToPort, p.Src, p.SrcPort)}
	for _, a := range facts.Addrs[d.Out] {
		out = append(out, key(d.To, d.ToPort, a.Addr(), p.SrcPort))
	}
	return out
}

// expected is the counters that the batch should move.
func (b batch) expected() map[string]int {
	out := map[string]int{}
	for _, p := range b.probes {
		maps.Copy(out, add(out, p.counters()))
	}
	return out
}

func add(a map[string]int, names []string) map[string]int {
	for _, n := range names {
		a[n]++
	}
	return a
}

// counters is the counters that a packet should move.
func (p probe) counters() (out []string) {
	if p.Src.IsMulticast() && p.Src.Is6() || p.Src.IsLoopback() && p.Src.Is6() {
		return nil // the kernel drops it before the first hook
	}
	if p.want.Rule != simulate.Blocked || !p.ingress {
		out = append(out, "seen")
	}
	if p.want.Forward != "" {
		out = append(out, compile.RuleCounter(p.want.Forward))
	}
	if p.want.Local && p.want.Verdict == simulate.Pass {
		out = append(out, "input")
	}
	switch what, auto := strings.CutPrefix(p.want.Rule, "auto/"); {
	case !auto:
		out = append(out, compile.RuleCounter(firewall.ID(strings.TrimPrefix(p.want.Rule, "rule/"))))
	case slices.Contains([]string{simulate.Blocked, simulate.Default, simulate.Spoofed, simulate.Private, simulate.Bogons, simulate.Invalid, simulate.WrongSide, simulate.AntiLockout}, p.want.Rule):
		out = append(out, compile.AutoCounter(what))
	}
	return out
}

// leaves is where a packet should come out; nothing when it should not.
func (p probe) leaves() []arrival {
	if p.want.Verdict != simulate.Pass || p.want.Local {
		return nil
	}
	a := arrival{Device: p.want.Out, Dst: p.want.To}
	if p.Proto == 6 || p.Proto == 17 || p.Proto == 132 {
		a.Port = p.want.ToPort
	}
	return []arrival{a}
}

// try sends the batch to the box and says what went otherwise; "" when nothing did.
func (l *lab) try(b batch) string {
	before := l.counters()
	sent, came := map[uint32]probe{}, map[uint32][]arrival{}
	for _, p := range b.probes {
		sent[l.send(p.Packet)] = p
		l.drain(came)
	}
	return strings.Join(append(difference(before, l.counters(), b.expected()), strayed(sent, came)...), "\n\t")
}

// difference is every counter that moved more or less than it should.
func difference(before, after, want map[string]int) (out []string) {
	names := map[string]int{}
	maps.Copy(names, after)
	maps.Copy(names, want)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if got := after[name] - before[name]; got != want[name] {
			out = append(out, fmt.Sprintf("%s counted %d, not %d", name, got, want[name]))
		}
	}
	return out
}

// strayed is every probe that came out otherwise than it should.
func strayed(sent map[uint32]probe, came map[uint32][]arrival) (out []string) {
	for _, id := range slices.Sorted(maps.Keys(sent)) {
		if p := sent[id]; !slices.Equal(came[id], p.leaves()) {
			out = append(out, fmt.Sprintf("came out %v, not %v: %v", came[id], p.leaves(), p))
		}
	}
	return out
}

// explain finds one packet that goes otherwise, takes out of the policy what
// does not matter to it, and tells both.
func (l *lab) explain(b batch, diff string) string {
	fails := func(cfg firewall.Config, probes []probe) string {
		l.load(cfg, b.facts)
		return l.try(batch{cfg: cfg, facts: b.facts, probes: probes})
	}
	rest := b.probes
	for len(rest) > 1 {
		half := len(rest) / 2
		switch {
		case fails(b.cfg, rest[:half]) != "":
			rest = rest[:half]
		case fails(b.cfg, rest[half:]) != "":
			rest = rest[half:]
		default:
			return fmt.Sprintf("%s\nonly when these %d are sent together:%s", diff, len(rest), lines(rest))
		}
	}
	alone := func(cfg firewall.Config) string {
		p := rest[0].Packet
		return fails(cfg, []probe{newProbe(cfg, p, simulate.Decide(cfg, b.facts, p))})
	}
	cfg := smaller(b.cfg, func(c firewall.Config) bool { return c.Validate() == nil && alone(c) != "" })
	text, _ := json.Marshal(cfg)
	p := newProbe(cfg, rest[0].Packet, simulate.Decide(cfg, b.facts, rest[0].Packet))
	return fmt.Sprintf("%s\nof%s\nblocked %v\n%s", alone(cfg), lines([]probe{p}), b.facts.Blocked, text)
}

// smaller leaves out every rule, forward, alias and interface without which fails still holds.
func smaller(cfg firewall.Config, fails func(firewall.Config) bool) firewall.Config {
	for i := len(cfg.Rules) - 1; i >= 0; i-- {
		if next, err := (firewall.DeleteRule{ID: cfg.Rules[i].ID}).Apply(cfg); err == nil && fails(next) {
			cfg = next
		}
	}
	for i := len(cfg.Forwards) - 1; i >= 0; i-- {
		if next, err := (firewall.DeleteForward{ID: cfg.Forwards[i].ID}).Apply(cfg); err == nil && fails(next) {
			cfg = next
		}
	}
	for i := len(cfg.Aliases) - 1; i >= 0; i-- {
		if next, err := (firewall.DeleteAlias{Name: cfg.Aliases[i].Name}).Apply(cfg); err == nil && fails(next) {
			cfg = next
		}
	}
	return cfg
}
