// Package link keeps the ports as the configuration says: switched on or off,
// MTU, addresses, default routes, the DHCP client of a WAN, kernel settings. It
// converges: whatever changes in the kernel, by a cable or by hand, is looked at
// again and put right, at most once a second. What the kernel really has is
// what it tells the others: runtime sets, facts, pages.
package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/link/wan"
)

// Sets takes the members of runtime sets: Fill replaces what the set holds.
type Sets interface {
	Fill(ctx context.Context, set string, members []ruleset.Element) error
}

// Leases remembers the lease of each WAN by its device, over restarts.
type Leases interface {
	Get(device string) (wan.Lease, bool, error)
	Put(device string, l wan.Lease) error
	Delete(devices ...string) error
}

// Kind says what an Event is about.
type Kind string

// The kinds of Event. AddrGone is when flows that were translated to the address must be cut.
const (
	Appeared  Kind = "appeared"   // the port is there
	Gone      Kind = "gone"       // the port is not there any more
	Up        Kind = "up"         // the cable is in
	Down      Kind = "down"       // the cable is out
	AddrNew   Kind = "addr-new"   // Addr is on the port
	AddrGone  Kind = "addr-gone"  // Addr is not on the port any more
	LeaseHeld Kind = "lease-held" // a lease was granted that says something new
	LeaseLost Kind = "lease-lost" // it is over
)

// Event tells a change of an Ethernet port, after it is so in the kernel.
type Event struct {
	Kind   Kind
	Device string
	Name   firewall.Name // of the configured interface, or empty
	Addr   netip.Prefix  // of AddrNew, AddrGone, LeaseHeld, LeaseLost
}

// Service keeps the ports.
type Service struct {
	log    *slog.Logger
	sets   Sets
	leases Leases
	events func(Event)
	proc   string // where sysctls are: /proc/sys

	poke    chan struct{} // something changed: look again
	clients chan struct{} // the wanted DHCP clients may have changed

	// turn is held by the one pass that is changing the kernel.
	turn   chan struct{}
	filled map[string]string // what each set got last; turn's holder only
	seen   bool              // old snapshots exist; turn's holder only

	mu      sync.Mutex // guards the rest
	cfg     firewall.Config
	keep    map[string][]netip.Prefix
	held    map[string]wan.Lease // granted and in use, by device
	running map[string]*running  // DHCP clients, by device
	touched touched
	have    snapshot            // of the last pass
	wrong   map[string][]string // problems of the last pass, by device
	faults  []Sysctl            // settings of the last pass that are not as wanted
}

// New makes the service. events is called from several goroutines, holding no
// lock: it may ask what is now, but must return soon and not call for changes.
func New(log *slog.Logger, sets Sets, leases Leases, events func(Event)) *Service {
	return &Service{log: log, sets: sets, leases: leases, events: events, proc: "/proc/sys",
		poke: make(chan struct{}, 1), clients: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		filled: map[string]string{}, held: map[string]wan.Lease{}, running: map[string]*running{}, wrong: map[string][]string{},
		touched: touched{mtu: map[string]int{}, addrs: map[string]map[netip.Prefix]bool{}, on: map[string]bool{}}}
}

// Reload makes the ports as cfg says and returns when they are. What could not
// be done is returned, told by Status and tried again; the rest stands: an
// error here does not undo anything. cfg must be valid. A configuration without
// interfaces leaves every port alone. DHCP clients run only while Run does.
func (s *Service) Reload(ctx context.Context, cfg firewall.Config) error {
	return s.reload(ctx, cfg, nil)
}

// Try is Reload for the time in which cfg waits for its confirmation: the static
// addresses that the interfaces inside had in old stay beside the new ones until
// the next Reload, so that the old address of the pages goes on answering. An
// old address whose network is another port's in cfg does not stay.
func (s *Service) Try(ctx context.Context, cfg, old firewall.Config) error {
	keep := map[string][]netip.Prefix{}
	for _, i := range old.Interfaces {
		if !i.On || i.Role == firewall.WAN {
			continue
		}
		if i.V4.Mode == firewall.Static {
			keep[i.Device] = append(keep[i.Device], i.V4.Addr)
		}
		if i.V6.Mode == firewall.Static {
			keep[i.Device] = append(keep[i.Device], i.V6.Addr)
		}
	}
	return s.reload(ctx, cfg, keep)
}

func (s *Service) reload(ctx context.Context, cfg firewall.Config, keep map[string][]netip.Prefix) error {
	s.mu.Lock()
	s.cfg, s.keep = cfg, keep
	for device := range s.held {
		if !slices.ContainsFunc(cfg.Interfaces, func(i firewall.Interface) bool { return i.Device == device && dynamic(i) }) {
			delete(s.held, device) // the stored one stays: an undo asks for it again
		}
	}
	s.mu.Unlock()
	signal(s.clients)
	return s.pass(ctx, true)
}

// Refill puts every runtime set's members in again, after the table was made anew.
func (s *Service) Refill(ctx context.Context) error { return s.pass(ctx, true) }

// Run keeps the ports until ctx is done. Addresses stay as they are then: a
// restart of the program must not stop the traffic.
func (s *Service) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() { s.watch(ctx) })
	defer s.stopAll()
	var last time.Time
	var due, retry <-chan time.Time // when the next pass is, nil = none planned
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.clients:
			s.reconcile(ctx)
		case <-s.poke:
			if due == nil {
				// A burst is one pass; a port that flaps costs one a second.
				due = time.After(max(30*time.Millisecond, time.Until(last.Add(time.Second))))
			}
		case <-retry:
			retry = nil
			signal(s.poke)
		case <-due:
			due, retry, last = nil, nil, time.Now()
			if err := s.pass(ctx, false); err != nil {
				retry = time.After(10 * time.Second)
			}
		}
	}
}

// pass looks, puts right, looks again, and tells what it saw.
func (s *Service) pass(ctx context.Context, refill bool) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	told, err := s.converge(ctx, refill)
	<-s.turn
	for _, e := range told {
		s.events(e)
	}
	return err
}

func (s *Service) converge(ctx context.Context, refill bool) ([]Event, error) {
	have, err := look()
	if err != nil {
		return nil, err
	}
	if err := s.adopt(have); err != nil {
		s.log.Error("remembered lease cannot be read", "error", err)
	}
	list := s.wishes()
	s.own(list, have)
	faults := s.settings(list, have)
	errs := map[string][]error{}
	// One round may undo a part of itself: removing a first address can take the
	// others of its network along, switching on brings routes. It settles in two.
	for range 4 {
		todo := steps(list, have, s.undo())
		if len(todo) == 0 {
			break
		}
		clear(errs)
		for _, st := range todo {
			d, _ := have.device(st.device)
			if err := take(st, d.index); err != nil {
				errs[st.device] = append(errs[st.device], err)
				continue
			}
			s.did(st, d)
		}
		if have, err = look(); err != nil {
			return nil, err
		}
	}
	return s.report(have, list, faults, errs), errors.Join(append(s.fill(ctx, list, have, refill), s.failures(list, have, errs)...)...)
}

// failures are the errors of this pass that the caller of Reload should see.
func (s *Service) failures(list []want, have snapshot, errs map[string][]error) (all []error) {
	for _, w := range list {
		all = append(all, errs[w.Device]...)
		for _, text := range w.problems(have) {
			all = append(all, errors.New(text))
		}
	}
	return all
}

// report keeps what was seen for the pages and returns what changed.
func (s *Service) report(have snapshot, list []want, faults []Sysctl, errs map[string][]error) []Event {
	wrong := map[string][]string{}
	for _, w := range list {
		wrong[w.Device] = w.problems(have)
	}
	for device, es := range errs {
		for _, err := range es {
			wrong[device] = append(wrong[device], fmt.Sprintf("Linux refused to %s.", err))
			s.log.Warn("port not as wanted", "device", device, "error", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var told []Event
	if s.seen {
		told = changes(s.have, have, list)
	}
	for _, f := range faults {
		if !slices.Contains(s.faults, f) {
			s.log.Warn("kernel setting not as wanted", "path", f.Path, "wanted", f.Want, "is", f.Is, "error", f.Error)
		}
	}
	s.have, s.wrong, s.faults, s.seen = have, wrong, faults, true
	return told
}

// changes are the events that lead from one snapshot to the next.
func changes(old, now snapshot, list []want) (told []Event) {
	name := func(device string) firewall.Name {
		for _, w := range list {
			if w.Device == device {
				return w.Name
			}
		}
		return ""
	}
	tell := func(k Kind, device string, p netip.Prefix) { told = append(told, Event{k, device, name(device), p}) }
	for _, o := range old.devices {
		if n, ok := now.device(o.name); o.port() && (!ok || n.index != o.index) {
			for _, p := range o.prefixes() {
				tell(AddrGone, o.name, p)
			}
			tell(Gone, o.name, netip.Prefix{})
		}
	}
	for _, n := range now.devices {
		if !n.port() {
			continue
		}
		o, ok := old.device(n.name)
		if !ok || o.index != n.index {
			o = device{}
			tell(Appeared, n.name, netip.Prefix{})
		}
		if n.carrier != o.carrier {
			tell(map[bool]Kind{true: Up, false: Down}[n.carrier], n.name, netip.Prefix{})
		}
		for _, p := range o.prefixes() {
			if !n.has(p) {
				tell(AddrGone, n.name, p)
			}
		}
		for _, p := range n.prefixes() {
			if !o.has(p) {
				tell(AddrNew, n.name, p)
			}
		}
	}
	return told
}

func (s *Service) wishes() []want {
	s.mu.Lock()
	defer s.mu.Unlock()
	return wishes(s.cfg, s.held, s.keep)
}

// undo is a copy of what we have touched.
func (s *Service) undo() touched {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := touched{mtu: map[string]int{}, addrs: map[string]map[netip.Prefix]bool{}, on: map[string]bool{}}
	for k, v := range s.touched.mtu {
		t.mtu[k] = v
	}
	for k, v := range s.touched.addrs {
		t.addrs[k] = map[netip.Prefix]bool{}
		for p := range v {
			t.addrs[k][p] = true
		}
	}
	for k, v := range s.touched.on {
		t.on[k] = v
	}
	return t
}

// did remembers a step that was taken on d, as it was before.
func (s *Service) did(st step, d device) {
	s.log.Info("port changed", "device", st.device, "step", st.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.touched
	switch {
	case st.up:
		t.on[st.device] = true
	case st.mtu != 0:
		if _, known := t.mtu[st.device]; !known {
			t.mtu[st.device] = d.mtu
		}
	case st.add.IsValid():
		if t.addrs[st.device] == nil {
			t.addrs[st.device] = map[netip.Prefix]bool{}
		}
		t.addrs[st.device][st.add] = true
	case st.del.IsValid():
		delete(t.addrs[st.device], st.del)
	}
}

// own remembers that the ports with a role, and what is wanted on them, are ours:
// when the role goes, so does that, even where we found it in place.
func (s *Service) own(list []want, have snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range list {
		if _, there := have.device(w.Device); !there || w.off {
			continue
		}
		s.claim(w)
	}
}

// Ours tells that cfg ran before this program started, and runs no more: what it
// wanted on the ports was set by us, and goes with the next Reload where that
// wants something else. Without it the address of a revision that a crash took
// back would stay, on a port without a role.
func (s *Service) Ours(cfg firewall.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range wishes(cfg, nil, nil) {
		if !w.off {
			s.claim(w)
		}
	}
}

// claim notes that what is wanted is ours. The caller holds mu.
func (s *Service) claim(w want) {
	s.touched.on[w.Device] = true
	if s.touched.addrs[w.Device] == nil {
		s.touched.addrs[w.Device] = map[netip.Prefix]bool{}
	}
	for _, p := range w.addrs {
		s.touched.addrs[w.Device][p] = true
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
