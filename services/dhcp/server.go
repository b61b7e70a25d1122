// Package dhcp is the DHCPv4 server (RFC 2131) of the inside interfaces: Pool
// decides, Server speaks, and Lease is what is remembered. An ACK goes out only
// after its lease is on disk.
package dhcp

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
)

// Server serves the scopes of a configuration. Create it with New, run it with
// Run, give it configurations with Reload; all methods may be called at any
// time and together.
type Server struct {
	log    *slog.Logger
	leases Leases
	limits Limits
	tell   func(Event)
	queue  chan job // to the committer

	portMu sync.Mutex       // guards what follows; taken before mu
	ports  map[string]*port // open ones, by device
	run    *run             // nil while Run is not running

	mu      sync.Mutex // guards what follows
	loaded  bool
	served  map[string]*served   // by device
	others  map[netip.Addr]Lease // rows outside every scope
	dns     []netip.Addr         // resolvers of scopes without their own
	waiting bool                 // resolvers may come yet
	recent  []Exchange           // the newest last
	stats   Stats                // counts since the start
	told    map[string]time.Time // what was told when, see once
	failed  map[string]string    // device -> why its port is not open
}

// served is one scope and its pool.
type served struct {
	scope Scope
	pool  *Pool
}

// run is what exists only while Run runs.
type run struct {
	ctx  context.Context
	wire wire
	work sync.WaitGroup // readers and probes
}

// Stats are counts of messages since the start.
type Stats struct {
	Heard     int // messages read
	Limited   int // over a rate
	Malformed int // not a client's message
	Relayed   int // from a relay; none is allowed
	Unserved  int // on a port without a scope
	Lost      int // dropped because the disk was too slow
	Unsent    int // answers that could not be sent
	Unstored  int // answers not sent because the lease did not reach the disk
	Panics    int // messages that a bug was found with
}

// New makes a server that keeps its leases in the given place. event is called
// for each event, from several goroutines; it must not block. It may be nil.
func New(log *slog.Logger, leases Leases, limits Limits, event func(Event)) *Server {
	if event == nil {
		event = func(Event) {}
	}
	return &Server{
		log: log, leases: leases, limits: limits, tell: event, queue: make(chan job, 1024),
		ports: map[string]*port{}, served: map[string]*served{}, others: map[netip.Addr]Lease{},
		told: map[string]time.Time{}, failed: map[string]string{},
	}
}

// watchEvery is how often the server looks whether its ports are still there.
// Nothing is lost meanwhile: clients repeat themselves for longer.
const watchEvery = time.Second

// Run serves until ctx is done. It fails only when the leases cannot be read or
// no packet socket can be had; a port that cannot be opened is tried again
// every second.
func (s *Server) Run(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	w, err := openWire()
	if err != nil {
		return err
	}
	r := &run{ctx: ctx, wire: w}
	s.portMu.Lock()
	s.run = r
	s.portMu.Unlock()

	stop, committed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(committed)
		s.commit(stop)
	}()
	s.watch(ctx)

	s.portMu.Lock()
	s.run = nil
	for name, p := range s.ports {
		s.shut(name, p)
	}
	s.portMu.Unlock()
	r.work.Wait()
	close(stop)
	<-committed
	return w.close()
}

// watch keeps ports open and time limits right until ctx is done.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	start, drift := time.Now(), time.Duration(0)
	for {
		// The error is in failed, and was logged when it was new.
		_ = s.converge()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		d := now.Round(0).Sub(start.Round(0)) - now.Sub(start)
		if (d - drift).Abs() > 30*time.Second {
			s.log.Warn("wall clock was set", "by", d-drift)
			drift = d
			s.restamp(now)
		}
	}
}

func (s *Server) restamp(now time.Time) {
	s.mu.Lock()
	var rows []Lease
	for _, sv := range s.served {
		rows = append(rows, sv.pool.Restamp(now)...)
	}
	s.mu.Unlock()
	if len(rows) > 0 {
		s.enqueue(job{addrs: addrsOf(rows)})
	}
}

// Reload serves the scopes of c from now on. Clients keep their addresses where
// the new scopes have them. The error says what of it does not work (a scope
// that is not right, a port that is not there or is taken); everything else is
// served, and ports are tried again until they work.
func (s *Server) Reload(ctx context.Context, c firewall.Config) error {
	scopes, wrong := Scopes(c)
	if err := s.load(ctx); err != nil {
		return err
	}
	s.arrange(scopes)
	return errors.Join(wrong, s.converge())
}

// SetResolvers says which resolvers clients get where the scope names none: the
// WAN's. IPv6 ones are left out. While more may come (waiting: a WAN asks for
// its own lease) and there is none, leases are short.
func (s *Server) SetResolvers(addrs []netip.Addr, waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dns, s.waiting = slices.Clone(addrs), waiting
}

// load reads the rows once.
func (s *Server) load(ctx context.Context) error {
	s.mu.Lock()
	done := s.loaded
	s.mu.Unlock()
	if done {
		return nil
	}
	rows, err := s.leases.All(ctx)
	if err != nil {
		return fmt.Errorf("read leases: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		return nil
	}
	s.loaded = true
	now := time.Now()
	for _, l := range rows {
		if l.Addr.Is4() {
			s.others[l.Addr] = l.loaded(now)
		}
	}
	return nil
}

// arrange gives every row to the pool that its address lies in. A pool whose
// scope did not change stays, soft offers and all.
func (s *Server) arrange(scopes []Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[string]*served{}
	for _, sc := range scopes {
		if old := s.served[sc.Device]; old != nil && old.scope.same(sc) {
			next[sc.Device] = old
			delete(s.served, sc.Device)
		}
	}
	for _, old := range s.served {
		for _, l := range old.pool.Rows() {
			s.others[l.Addr] = l
		}
	}
	for _, sc := range scopes {
		if next[sc.Device] != nil {
			continue
		}
		var rows []Lease
		for a, l := range s.others {
			if sc.Net.Contains(a) {
				rows = append(rows, l)
				delete(s.others, a)
			}
		}
		next[sc.Device] = &served{scope: sc, pool: NewPool(sc, rows)}
	}
	s.served = next
}

// converge opens the ports that are wanted and closes those that are not, or
// whose device is gone.
func (s *Server) converge() error {
	s.portMu.Lock()
	defer s.portMu.Unlock()
	if s.run == nil {
		return nil
	}
	s.mu.Lock()
	want := make(map[string]bool, len(s.served))
	for name := range s.served {
		want[name] = true
	}
	s.mu.Unlock()
	for name, p := range s.ports {
		if !want[name] || p.gone() {
			s.shut(name, p)
		}
	}
	var errs []error
	for name := range want {
		if s.ports[name] != nil {
			continue
		}
		p, err := openPort(name)
		s.noteFailure(name, err)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.ports[name] = p
		s.log.Info("serving addresses", "port", name)
		r := s.run
		r.work.Go(func() { s.listen(r, p) })
		if p.arp != nil {
			r.work.Go(p.listenARP)
		}
	}
	return errors.Join(errs...)
}

// noteFailure logs a failure when it is a new one.
func (s *Server) noteFailure(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		delete(s.failed, name)
	case s.failed[name] != err.Error():
		s.failed[name] = err.Error()
		s.log.Warn("port cannot be served, trying again", "port", name, "err", err)
	}
}

// Serving returns the devices that are served now, and why others are not.
func (s *Server) Serving() (devices []string, failed map[string]string) {
	s.portMu.Lock()
	defer s.portMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	failed = map[string]string{}
	for name := range s.served {
		if s.ports[name] != nil {
			devices = append(devices, name)
		} else if why := s.failed[name]; why != "" {
			failed[name] = why
		}
	}
	slices.Sort(devices)
	return devices, failed
}

// shut closes a port; its reader ends by itself.
func (s *Server) shut(name string, p *port) {
	delete(s.ports, name)
	if err := p.close(); err != nil {
		s.log.Warn("port not closed", "port", name, "err", err)
	}
}
