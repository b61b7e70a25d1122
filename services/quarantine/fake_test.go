package quarantine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/events"
)

// kernel is sets and connections as the kernel keeps them, timeouts included.
type kernel struct {
	mu     sync.Mutex
	table  int // how often the table was made
	sets   map[string]map[string]*element
	size   map[string]int // of sets that can be full
	flows  []firewall.Flow
	slow   time.Duration // what a look at all connections takes
	broken error         // what every change gets
	asked  []string      // of conntrack: "all" or a source
	told   []string      // changes of sets: "add blocked4", ...
	polls  []time.Time
	jitter func()            // before and after each call, for others to come between
	after  func(what string) // a call has done its work and has not returned
}

// did lets something happen before a call returns, once.
func (k *kernel) did(what string) {
	k.mu.Lock()
	after := k.after
	k.mu.Unlock()
	if after != nil {
		after(what)
	}
}

// dawdle makes every call take some time, or (nil) none.
func (k *kernel) dawdle(jitter func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.jitter = jitter
}

// takes is the time that a call takes.
func (k *kernel) takes() {
	k.mu.Lock()
	jitter := k.jitter
	k.mu.Unlock()
	if jitter != nil {
		jitter()
	}
}

type element struct {
	ruleset.Element
	ends time.Time // zero: never
}

var errNone = errors.New("no such set")

func newKernel() *kernel {
	k := &kernel{}
	k.fresh(nil)
	return k
}

// fresh is a table that was made anew, as after a flush by somebody else, with these members.
func (k *kernel) fresh(with map[string][]ruleset.Element) {
	k.mu.Lock()
	k.table++
	k.sets, k.size = map[string]map[string]*element{}, map[string]int{blocked4: maxBlocked, blocked6: maxBlocked}
	for _, set := range append(slices.Clone(blockedSets), exempt4, exempt6) {
		k.sets[set] = map[string]*element{}
	}
	k.mu.Unlock()
	for set, list := range with {
		if err := k.Add(context.Background(), membersOf(set, list)...); err != nil {
			panic(err)
		}
	}
}

func (k *kernel) gone() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sets = map[string]map[string]*element{}
}

func name(e ruleset.Element) string { return fmt.Sprintf("%x-%x", e.Key[0].Lo, e.Key[0].Hi) }

// sweep takes out what has ended; mu is held.
func (k *kernel) sweep() {
	for _, set := range k.sets {
		maps.DeleteFunc(set, func(_ string, e *element) bool { return !e.ends.IsZero() && !time.Now().Before(e.ends) })
	}
}

func (k *kernel) Members(_ context.Context, set string) (list []ruleset.Member, err error) {
	defer k.did("members " + set)
	k.takes()
	defer k.takes()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep()
	if set == blocked4 {
		k.polls = append(k.polls, time.Now())
	}
	if k.sets[set] == nil {
		return nil, errNone
	}
	for _, n := range slices.Sorted(maps.Keys(k.sets[set])) {
		e := k.sets[set][n]
		if out := e.Element; e.ends.IsZero() {
			list = append(list, ruleset.Member{Set: set, Element: out})
		} else {
			out.Left = time.Until(e.ends)
			list = append(list, ruleset.Member{Set: set, Element: out})
		}
	}
	return list, nil
}

func (k *kernel) Add(_ context.Context, ms ...ruleset.Member) error {
	k.takes()
	defer k.takes()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep()
	if k.broken != nil {
		return k.broken
	}
	more := map[string]int{}
	for _, m := range ms {
		if k.sets[m.Set] == nil {
			return errNone
		}
		if k.sets[m.Set][name(m.Element)] == nil {
			more[m.Set]++
		}
		for n, o := range k.sets[m.Set] {
			if m.Set != blockedNets4 && m.Set != blockedNets6 {
				break
			}
			if a, b := m.Key[0], o.Key[0]; n != name(m.Element) && a.Lo <= b.Hi && b.Lo <= a.Hi {
				return fmt.Errorf("%s overlaps", m.Set)
			}
		}
		if m.Timeout > 0 && m.Left > m.Timeout {
			return fmt.Errorf("%v left of %v", m.Left, m.Timeout)
		}
	}
	for set, n := range more {
		if k.size[set] > 0 && len(k.sets[set])+n > k.size[set] {
			return fmt.Errorf("%s is full", set)
		}
	}
	for _, m := range ms {
		k.told = append(k.told, "add "+m.Set)
		e := &element{Element: m.Element}
		if m.Timeout > 0 {
			e.ends = time.Now().Add(m.Timeout)
			if m.Left > 0 {
				e.ends = time.Now().Add(m.Left)
			}
		}
		k.sets[m.Set][name(m.Element)] = e
	}
	return nil
}

func (k *kernel) Remove(_ context.Context, ms ...ruleset.Member) error {
	defer k.did("remove")
	k.takes()
	defer k.takes()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep()
	if k.broken != nil {
		return k.broken
	}
	for _, m := range ms {
		if k.sets[m.Set] == nil {
			return errNone
		}
		// A member is put in before it is taken out.
		if k.sets[m.Set][name(m.Element)] == nil && k.size[m.Set] > 0 && len(k.sets[m.Set]) >= k.size[m.Set] {
			return fmt.Errorf("%s is full", m.Set)
		}
	}
	for _, m := range ms {
		k.told = append(k.told, "remove "+m.Set)
		delete(k.sets[m.Set], name(m.Element))
	}
	return nil
}

func (k *kernel) Fill(_ context.Context, set string, list []ruleset.Element) error {
	k.mu.Lock()
	if k.sets[set] == nil {
		k.mu.Unlock()
		return errNone
	}
	k.sets[set] = map[string]*element{}
	k.mu.Unlock()
	return k.Add(context.Background(), membersOf(set, list)...)
}

func (k *kernel) Made(_ context.Context, set string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sets[set] == nil {
		return "", errNone
	}
	return fmt.Sprint(k.table), nil
}

// polled is how often somebody asked who is shut out.
func (k *kernel) polled() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.polls)
}

// lock is what a rule does: the source is shut out at once, if it is not yet.
func (k *kernel) lock(src string, lasts time.Duration) {
	p := prefix(src)
	if p.Addr().Is6() && p.IsSingleIP() {
		p = firewall.Sources{}.Of(p.Addr())
	}
	m := memberOf(p, 64)
	m.Timeout = lasts
	k.mu.Lock()
	k.sweep()
	_, there := k.sets[m.Set][name(m.Element)]
	k.mu.Unlock()
	if !there {
		if err := k.Add(context.Background(), m); err != nil {
			panic(err)
		}
	}
}

// has is how a source is shut out: "" not, "for good", or what is left.
func (k *kernel) has(src string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sweep()
	m := memberOf(prefix(src), 64)
	switch e := k.sets[m.Set][name(m.Element)]; {
	case e == nil:
		return ""
	case e.ends.IsZero():
		return "for good"
	default:
		return time.Until(e.ends).String()
	}
}

func (k *kernel) Flows(_ context.Context, f func(firewall.Flow) error) error {
	return k.list("all", func(firewall.Flow) bool { return true }, f)
}

func (k *kernel) FlowsOf(_ context.Context, src netip.Prefix, f func(firewall.Flow) error) error {
	return k.list(src.String(), func(f firewall.Flow) bool { return src.Contains(f.Src) }, f)
}

func (k *kernel) list(what string, of func(firewall.Flow) bool, f func(firewall.Flow) error) error {
	k.mu.Lock()
	k.asked = append(k.asked, what)
	list, slow := slices.Clone(k.flows), k.slow
	k.mu.Unlock()
	time.Sleep(slow)
	for _, one := range list {
		if of(one) {
			if err := f(one); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *kernel) Cut(_ context.Context, flows []firewall.Flow) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.flows)
	for _, f := range flows {
		k.flows = slices.DeleteFunc(k.flows, func(o firewall.Flow) bool { return o.Packet == f.Packet })
	}
	return before - len(k.flows), nil
}

func (k *kernel) CutFrom(_ context.Context, src netip.Prefix) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := len(k.flows)
	k.flows = slices.DeleteFunc(k.flows, func(f firewall.Flow) bool { return src.Contains(f.Src) })
	return before - len(k.flows), nil
}

// connect makes n established connections of a source by a rule.
func (k *kernel) connect(src string, rule uint32, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range n {
		k.flows = append(k.flows, firewall.Flow{Open: true, Mark: rule << firewall.MarkShift,
			Packet: firewall.Packet{Src: netip.MustParseAddr(src), SrcPort: uint16(len(k.flows)), Proto: 6}})
	}
}

func (k *kernel) flowsOf(src string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.flows {
		if f.Src == netip.MustParseAddr(src) {
			n++
		}
	}
	return n
}

// shelf is a table that keeps what JSON keeps.
type shelf[T any] struct {
	mu     sync.Mutex
	rows   map[string][]byte
	writes int
	broken error
}

func (s *shelf[T]) PutAll(rows map[string]T) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	s.writes++
	if s.rows == nil {
		s.rows = map[string][]byte{}
	}
	for k, v := range rows {
		s.rows[k], _ = json.Marshal(v)
	}
	return nil
}

func (s *shelf[T]) Delete(keys ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	s.writes++
	for _, k := range keys {
		delete(s.rows, k)
	}
	return nil
}

func (s *shelf[T]) All() (map[string]T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]T{}
	for k, raw := range s.rows {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, err
		}
		all[k] = v
	}
	return all, nil
}

func (s *shelf[T]) setBroken(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

// disk is what a restart finds again.
type disk struct {
	entries    shelf[Entry]
	strikes    shelf[[]time.Time]
	acts       shelf[Act]
	exemptions shelf[Exemption]
}

// box is a service that runs on a kernel and a disk.
type box struct {
	*Service
	t      *testing.T
	kernel *kernel
	disk   *disk
	cfg    firewall.Config
	stop   func() // as the end of the program

	mu     sync.Mutex
	admins map[netip.Addr]time.Time
	events []time.Time
}

const (
	fast  = "01JFAST" // 100 new in 10 s, locked out for 5 minutes, quarantine after 3 in an hour
	wide  = "01JWIDE" // 10 open, locked out for 10 minutes
	harsh = "01JHARSH"
	shy   = "01JSHY" // counts only
	drops = "01JDROPS"
)

func config() firewall.Config {
	rule := func(id firewall.ID, l firewall.Limit) firewall.Rule {
		return firewall.Rule{ID: id, On: true, Action: firewall.Pass, Proto: firewall.TCP, Limit: l}
	}
	return firewall.Config{
		Aliases: []firewall.Alias{{Name: "FRIENDS", Kind: firewall.Addresses, Addrs: []firewall.Entry{{End: firewall.End{Kind: firewall.EndNet, Net: prefix("198.51.100.0/24")}}}}},
		Rules: []firewall.Rule{
			rule(fast, firewall.Limit{New: 100, Window: 10, Over: firewall.LockOut, LockFor: 300, Strikes: 3, StrikeWindow: 3600, Never: "FRIENDS"}),
			rule(wide, firewall.Limit{Open: 10, Over: firewall.LockOut, LockFor: 600, Strikes: 2, StrikeWindow: 7200, Never: "FRIENDS"}),
			rule(harsh, firewall.Limit{New: 5, Window: 60, Open: 5, Over: firewall.Quarantine, LockFor: 120}),
			rule(shy, firewall.Limit{New: 5, Window: 60, Open: 5, Over: firewall.LockOut, LockFor: 60, Strikes: 2, StrikeWindow: 600, DryRun: true}),
			rule(drops, firewall.Limit{New: 5, Window: 60, Open: 5, Over: firewall.DropExcess}),
		}}
}

// bubble runs a test on a box with a clock of its own.
func bubble(t *testing.T, test func(t *testing.T, b *box)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &box{t: t, kernel: newKernel(), disk: &disk{}, cfg: config(), admins: map[netip.Addr]time.Time{}}
		b.start()
		defer func() { b.stop() }()
		test(t, b)
	})
}

// start is the start of the program: what is in the kernel stays.
func (b *box) start() {
	b.t.Helper()
	b.Service = New(slog.New(slog.DiscardHandler), Deps{Sets: b.kernel, Conntrack: b.kernel,
		Entries: &b.disk.entries, Strikes: &b.disk.strikes, Acts: &b.disk.acts, Exemptions: &b.disk.exemptions,
		Facts: func() firewall.Facts {
			return firewall.Facts{
				Addrs: map[string][]netip.Prefix{"wan0": {netip.MustParsePrefix("203.0.113.2/24")},
					"lan0": {netip.MustParsePrefix("192.168.1.1/24"), netip.MustParsePrefix("2001:db8:1::1/64")}},
				Routes: []firewall.Route{{Dst: prefix("0.0.0.0/0"), Via: netip.MustParseAddr("203.0.113.1"), Device: "wan0"}}}
		},
		Resolvers: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("9.9.9.9")} },
		Admins: func() map[netip.Addr]time.Time {
			b.mu.Lock()
			defer b.mu.Unlock()
			return maps.Clone(b.admins)
		},
		Publish: func(e events.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, time.Now())
		}})
	ctx, stop := context.WithCancel(b.t.Context())
	b.Know(b.cfg)
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	b.stop = func() {
		stop()
		if err := <-done; err != nil {
			b.t.Errorf("run: %v", err)
		}
		b.stop = func() {}
	}
	synctest.Wait()
}

// after lets time pass, and everything that is to happen in it happen.
func (b *box) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// told is how many events there were.
func (b *box) told() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.events)
}

func (b *box) restart() {
	b.stop()
	b.start()
}

// over is what happens when a source exceeds the limit of new connections: the
// kernel shuts it out and logs the packet.
func (b *box) over(src string, rule firewall.ID) {
	b.t.Helper()
	r, _ := b.cfg.Rule(rule)
	b.kernel.lock(src, seconds(r.Limit.LockFor))
	b.Offence(Line{Time: time.Now().Round(0), What: firewall.OverNew, Rule: rule, Src: prefix(src).Addr()})
}

// syn is a SYN beyond the limit of open connections, forged or not.
func (b *box) syn(src string, rule firewall.ID) {
	b.Offence(Line{Time: time.Now().Round(0), What: firewall.OverOpen, Rule: rule, Src: netip.MustParseAddr(src)})
}

func (b *box) number(rule firewall.ID) uint32 { return b.cfg.LimitNumbers()[rule] }

// want checks how a source is listed ("", or its kind) and that the kernel has the same.
func (b *box) want(src string, k Kind) Entry {
	b.t.Helper()
	synctest.Wait()
	e, _ := b.Get(prefix(src))
	if e.Kind != k {
		b.t.Errorf("%s is listed as %q, want %q", src, e.Kind, k)
	}
	has := b.kernel.has(src)
	if is := (map[Kind]bool{"": has == "", Quarantine: has == "for good", LockOut: has != "" && has != "for good"})[k]; !is {
		b.t.Errorf("%s is %q in the kernel, want %q", src, has, k)
	}
	return e
}

// left checks how long a source stays.
func (b *box) left(src string, want time.Duration) {
	b.t.Helper()
	e, ok := b.Get(prefix(src))
	if got := time.Until(e.Until); !ok || (got-want).Abs() > 2*time.Second {
		b.t.Errorf("%s leaves in %s, want %s", src, got, want)
	}
	if got, err := time.ParseDuration(b.kernel.has(src)); err != nil || (got-want).Abs() > 2*time.Second {
		b.t.Errorf("%s leaves the kernel in %s, want %s", src, got, want)
	}
}

var anna = Who{Account: "anna", Door: "web", Addr: netip.MustParseAddr("192.168.1.20")}

func (b *box) release(o Options, srcs ...string) Receipt {
	b.t.Helper()
	var list []netip.Prefix
	for _, s := range srcs {
		list = append(list, prefix(s))
	}
	r, err := b.Release(b.t.Context(), anna, list, o)
	if err != nil {
		b.t.Fatalf("release %v: %v", srcs, err)
	}
	return r
}

func prefix(s string) netip.Prefix {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen())
	}
	return netip.MustParsePrefix(s)
}
