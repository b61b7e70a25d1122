package link

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"gatehouse/firewall"
	"gatehouse/services/link/wan"
)

// running is a DHCP client and how to end it.
type running struct {
	*wan.Client
	host string
	stop context.CancelFunc
	done chan struct{}
}

// adopt takes over the address that a WAN still has from before a restart, so
// that traffic goes on while the client asks for it again.
func (s *Service) adopt(have snapshot) error {
	var errs []error
	for _, i := range s.config().Interfaces {
		d, there := have.device(i.Device)
		s.mu.Lock()
		_, known := s.held[i.Device]
		client := s.running[i.Device]
		s.mu.Unlock()
		if !there || known || client != nil || !dynamic(i) {
			continue
		}
		l, ok, err := s.leases.Get(i.Device)
		if err != nil {
			errs = append(errs, err)
		}
		set := false
		for _, p := range d.prefixes() {
			set = set || p.Addr() == l.Addr.Addr()
		}
		if ok && set && l.Held(time.Now()) {
			s.mu.Lock()
			s.held[i.Device] = l
			s.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

func (s *Service) config() firewall.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// reconcile starts and ends clients as the configuration says.
func (s *Service) reconcile(ctx context.Context) {
	cfg := s.config()
	wanted := map[string]bool{}
	for _, i := range cfg.Interfaces {
		if dynamic(i) {
			wanted[i.Device] = true
		}
	}
	s.mu.Lock()
	var ended []*running
	for device, r := range s.running {
		if !wanted[device] || r.host != cfg.System.Host {
			ended = append(ended, r)
			delete(s.running, device)
		}
	}
	var missing []string
	for device := range wanted {
		if s.running[device] == nil {
			missing = append(missing, device)
		}
	}
	s.mu.Unlock()
	for _, r := range ended {
		r.stop()
		<-r.done
	}
	s.forget(wanted)
	for _, device := range missing {
		s.start(ctx, device, cfg.System.Host)
	}
}

// forget drops leases of devices that run no client, which one may have got
// while it was being ended. The stored one stays: an undo asks for it again.
func (s *Service) forget(wanted map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for device := range s.held {
		if !wanted[device] {
			delete(s.held, device)
		}
	}
}

func (s *Service) start(ctx context.Context, device, host string) {
	remembered, _, err := s.leases.Get(device)
	if err != nil {
		s.log.Error("remembered lease cannot be read", "device", device, "error", err)
	}
	ctx, stop := context.WithCancel(ctx)
	r := &running{Client: wan.NewClient(s.log, device, host, wan.Sockets{}, s), host: host, stop: stop, done: make(chan struct{})}
	s.mu.Lock()
	_, set := s.held[device]
	s.running[device] = r
	s.mu.Unlock()
	go func() {
		defer close(r.done)
		var seed [32]byte
		crand.Read(seed[:]) // never fails (Go 1.24)
		// The client ends with ctx, without an error.
		_ = r.Run(ctx, rand.New(rand.NewChaCha8(seed)), remembered, set)
	}()
	// Read after the client is listed: a change before is seen here, one after by watch.
	if l, err := netlink.LinkByName(device); err == nil {
		d := deviceOf(l)
		r.Link(d.carrier, d.mac)
	}
}

func (s *Service) stopAll() {
	s.mu.Lock()
	all := s.running
	s.running = map[string]*running{}
	s.mu.Unlock()
	for _, r := range all {
		r.stop()
		<-r.done
	}
}

// Use is called by the DHCP client of device: l was granted or prolonged.
func (s *Service) Use(ctx context.Context, device string, l wan.Lease) {
	// A box that cannot write must still have internet: the lease is used anyway.
	if err := s.leases.Put(device, l); err != nil {
		s.log.Error("lease not remembered", "device", device, "error", err)
	}
	s.mu.Lock()
	old, had := s.held[device]
	s.held[device] = l
	s.mu.Unlock()
	if err := s.pass(ctx, false); err != nil {
		signal(s.poke)
	}
	if !had || !old.Same(l) {
		s.events(Event{LeaseHeld, device, s.name(device), l.Addr})
	}
}

// Drop is called by the DHCP client of device: l is over.
func (s *Service) Drop(ctx context.Context, device string, l wan.Lease) {
	if err := s.leases.Delete(device); err != nil {
		s.log.Error("lease not forgotten", "device", device, "error", err)
	}
	s.mu.Lock()
	delete(s.held, device)
	s.mu.Unlock()
	if err := s.pass(ctx, false); err != nil {
		signal(s.poke)
	}
	s.events(Event{LeaseLost, device, s.name(device), l.Addr})
}

func (s *Service) name(device string) firewall.Name {
	for _, i := range s.config().Interfaces {
		if i.Device == device {
			return i.Name
		}
	}
	return ""
}

// Renew asks the DHCP server of device again now; false when no client runs there.
func (s *Service) Renew(device string) bool { return s.tell(device, (*wan.Client).Renew) }

// Release gives the lease of device back; false when no client runs there. The
// client rests until Renew or until the cable is put in again.
func (s *Service) Release(device string) bool { return s.tell(device, (*wan.Client).Release) }

func (s *Service) tell(device string, f func(*wan.Client)) bool {
	s.mu.Lock()
	r := s.running[device]
	s.mu.Unlock()
	if r == nil {
		return false
	}
	f(r.Client)
	return true
}

// watch pokes Run at each change in the kernel until ctx is done. Cables go to
// the DHCP clients at once: no pass is waited for.
func (s *Service) watch(ctx context.Context) {
	for ctx.Err() == nil {
		signal(s.poke) // whatever happened while nobody watched
		if err := s.watchOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("kernel events lost", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (s *Service) watchOnce(ctx context.Context) error {
	done := make(chan struct{})
	links, addrs, routes := make(chan netlink.LinkUpdate), make(chan netlink.AddrUpdate), make(chan netlink.RouteUpdate)
	var why error
	var wait sync.WaitGroup
	// The library's readers end only once their last event was taken.
	defer wait.Wait()
	defer close(done)
	const room = 1 << 20
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ReceiveBufferSize: room, ListExisting: true}); err != nil {
		return err
	}
	wait.Go(func() { drain(done, links) })
	if err := netlink.AddrSubscribeWithOptions(addrs, done, netlink.AddrSubscribeOptions{ReceiveBufferSize: room}); err != nil {
		return err
	}
	wait.Go(func() { drain(done, addrs) })
	if err := netlink.RouteSubscribeWithOptions(routes, done, netlink.RouteSubscribeOptions{ReceiveBufferSize: room}); err != nil {
		return err
	}
	wait.Go(func() { drain(done, routes) })
	lost := errors.New("subscription ended")
	for why == nil {
		var ok bool
		select {
		case <-ctx.Done():
			return nil
		case l, open := <-links:
			if ok = open; ok {
				s.cable(l)
			}
		case _, ok = <-addrs:
		case _, ok = <-routes:
		}
		if !ok {
			why = lost
		}
		signal(s.poke)
	}
	return why
}

// drain takes the rest of c once nobody else does.
func drain[T any](done <-chan struct{}, c <-chan T) {
	<-done
	for range c {
	}
}

func (s *Service) cable(l netlink.LinkUpdate) {
	if l.Family != unix.AF_UNSPEC {
		return // a bridge tells of its ports in the same words
	}
	d := deviceOf(l.Link)
	if l.Header.Type == unix.RTM_DELLINK {
		d.carrier = false
	}
	s.mu.Lock()
	r := s.running[d.name]
	s.mu.Unlock()
	if r != nil {
		r.Link(d.carrier, d.mac)
	}
}
