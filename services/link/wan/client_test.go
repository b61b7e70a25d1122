package wan

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// provider is a Wire whose server grants an hour to everyone while awake, and
// a Port that remembers what it was told.
type provider struct {
	t      *testing.T
	mu     sync.Mutex // guards the rest
	awake  bool
	open   int
	unused bool // no socket can be opened
	byUDP  int
	used   []Lease
	lost   []Lease
}

type providerConn struct {
	p   *provider
	udp bool
	out chan []byte
	end chan struct{}
}

func (p *provider) conn(udp bool) (Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unused {
		return nil, errors.New("no such device")
	}
	p.open++
	return &providerConn{p: p, udp: udp, out: make(chan []byte, 4), end: make(chan struct{})}, nil
}

func (p *provider) Packet(string) (Conn, error)                 { return p.conn(false) }
func (p *provider) UDP(_ string, _, _ netip.Addr) (Conn, error) { return p.conn(true) }

func (p *provider) Taken(context.Context, string, netip.Addr) (bool, error) { return false, nil }

func (c *providerConn) Send(b []byte) error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	q, err := dhcpv4.FromBytes(b)
	if err != nil {
		c.p.t.Errorf("unreadable message: %v", err)
		return nil
	}
	if !c.p.awake {
		return nil
	}
	kind := byte(Ack)
	if q.Options[53][0] == byte(Discover) {
		kind = byte(Offer)
	}
	if c.udp {
		c.p.byUDP++
	}
	a := answer(c.p.t, kind, nil)
	binary.BigEndian.PutUint32(a[4:], binary.BigEndian.Uint32(q.TransactionID[:]))
	c.out <- a
	return nil
}

func (c *providerConn) Receive() ([]byte, error) {
	select {
	case b := <-c.out:
		return b, nil
	case <-c.end:
		return nil, errors.New("closed")
	}
}

func (c *providerConn) Close() error {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.open--
	close(c.end)
	return nil
}

func (p *provider) Use(_ context.Context, _ string, l Lease) {
	p.mu.Lock()
	p.used = append(p.used, l)
	p.mu.Unlock()
}
func (p *provider) Drop(_ context.Context, _ string, l Lease) {
	p.mu.Lock()
	p.lost = append(p.lost, l)
	p.mu.Unlock()
}

func (p *provider) sockets() int { p.mu.Lock(); defer p.mu.Unlock(); return p.open }
func (p *provider) losses() int  { p.mu.Lock(); defer p.mu.Unlock(); return len(p.lost) }
func (p *provider) set(f func()) { p.mu.Lock(); defer p.mu.Unlock(); f() }

func TestClientLivesThroughAServersLifeAndDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{t: t, awake: true}
		ctx, cancel := context.WithCancel(t.Context())
		c := NewClient(slog.New(slog.DiscardHandler), "wan0", "", p, p)
		ended := make(chan error)
		go func() { ended <- c.Run(ctx, rand.New(rand.NewPCG(1, 1)), Lease{}, false) }()

		c.Link(true, mac)
		synctest.Wait()
		if v := c.View(); v.State != Bound || v.Lease.Addr.Addr() != mine.Addr() || p.sockets() != 0 {
			t.Fatalf("not bound, or a socket left open: %+v, %d", v, p.sockets())
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		p.set(func() {
			if len(p.used) < 6 || len(p.lost) != 0 || p.byUDP < 5 {
				t.Errorf("in three hours %d grants, %d losses, %d by unicast", len(p.used), len(p.lost), p.byUDP)
			}
			p.awake = false
		})
		until := c.View().Lease.Until
		time.Sleep(time.Until(until) - time.Second)
		synctest.Wait()
		if v := c.View(); v.State != Rebinding || !v.Lease.Addr.IsValid() {
			t.Errorf("just before the end: %+v", v)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if v := c.View(); v.State != Selecting || v.Lease.Addr.IsValid() || p.losses() != 1 {
			t.Errorf("just after the end: %+v, %d lost", v, p.losses())
		}
		p.set(func() { p.awake = true })
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if c.View().State != Bound {
			t.Errorf("the server is back, the client is %s", c.View().State)
		}
		cancel()
		if err := <-ended; err != nil || p.sockets() != 0 {
			t.Errorf("ended with %v, %d sockets open", err, p.sockets())
		}
		c.Renew() // must not hang after the end
	})
}

func TestClientTellsWhyItCannotAskAndGoesOnTrying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{t: t, awake: true, unused: true}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := NewClient(slog.New(slog.DiscardHandler), "wan0", "", p, p)
		go c.Run(ctx, rand.New(rand.NewPCG(1, 1)), Lease{}, false)
		c.Link(true, mac)
		synctest.Wait()
		if v := c.View(); v.Problem != "no such device" {
			t.Errorf("view %+v", v)
		}
		p.set(func() { p.unused = false })
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if v := c.View(); v.State != Bound || v.Problem != "" {
			t.Errorf("view %+v", v)
		}
	})
}

func TestClientHundredFlapsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{t: t, awake: true}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := NewClient(slog.New(slog.DiscardHandler), "wan0", "", p, p)
		go c.Run(ctx, rand.New(rand.NewPCG(1, 1)), Lease{}, false)
		for range 100 {
			c.Link(true, mac)
			time.Sleep(300 * time.Millisecond)
			c.Link(false, mac)
			time.Sleep(300 * time.Millisecond)
		}
		c.Link(true, mac)
		synctest.Wait()
		if v := c.View(); v.State != Bound || p.sockets() != 0 || p.losses() != 0 {
			t.Errorf("after the flaps %+v, %d sockets, %d losses", v, p.open, len(p.lost))
		}
	})
}
