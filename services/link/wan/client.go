package wan

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Port is what the client works for: it sets what a lease says. Both are called
// from Run, one at a time, and may block; Run waits.
type Port interface {
	Use(ctx context.Context, device string, l Lease)  // remember it, then set it
	Drop(ctx context.Context, device string, l Lease) // forget it, then unset it
}

// Client keeps a lease on one device. Its methods may be called from anywhere.
type Client struct {
	log    *slog.Logger
	device string
	host   string
	wire   Wire
	port   Port
	asks   chan func(m *Machine, now time.Time) []Action
	done   chan struct{} // closed when Run returns

	mu   sync.Mutex // guards view
	view View

	// Run's own:
	mac    net.HardwareAddr
	link   [2]*hearing // packet, udp; nil = closed
	in     chan []byte
	checks sync.WaitGroup
}

// View is what a page shows of a client.
type View struct {
	State   State
	Lease   Lease  // zero Addr: none
	Problem string // why nothing can be sent or heard; empty = fine
}

// NewClient makes the client of device. host goes out as option 12 and may be empty.
func NewClient(log *slog.Logger, device, host string, wire Wire, port Port) *Client {
	return &Client{log: log.With("device", device), device: device, host: host, wire: wire, port: port,
		asks: make(chan func(*Machine, time.Time) []Action), done: make(chan struct{}), view: View{State: Down}, in: make(chan []byte)}
}

// Run keeps the lease until ctx is done, and leaves the address in place then.
// remembered and set are as for NewMachine; r needs to differ between boxes.
func (c *Client) Run(ctx context.Context, r *rand.Rand, remembered Lease, set bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer c.checks.Wait()
	defer cancel()
	defer close(c.done)
	defer c.hear(false, false)
	m := NewMachine(r, remembered, set, time.Now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var wake <-chan time.Time
		if next := m.Next(); !next.IsZero() {
			timer.Reset(time.Until(next))
			wake = timer.C
		}
		var acts []Action
		select {
		case <-ctx.Done():
			return nil
		case ask := <-c.asks:
			acts = ask(m, time.Now())
		case b := <-c.in:
			if reply, err := Parse(b); err == nil && reply.MAC == string(c.mac) {
				acts = m.Hear(time.Now(), reply)
			}
		case <-wake:
			acts = m.Wake(time.Now())
		}
		c.do(ctx, acts)
		c.hear(m.Hears())
		lease, _ := m.Held()
		c.show(func(v *View) { v.State, v.Lease = m.State(), lease })
	}
}

// Link tells whether the port is up, and its hardware address: another address
// is another client to every server.
func (c *Client) Link(up bool, mac net.HardwareAddr) {
	c.ask(func(m *Machine, now time.Time) []Action {
		var acts []Action
		if c.mac != nil && !bytes.Equal(c.mac, mac) {
			acts = m.Link(now, false)
		}
		c.mac = bytes.Clone(mac)
		return append(acts, m.Link(now, up)...)
	})
}

// Renew asks the server again now.
func (c *Client) Renew() { c.ask((*Machine).Renew) }

// Release gives the lease back and keeps still until Renew.
func (c *Client) Release() { c.ask((*Machine).Release) }

// View is where the client stands.
func (c *Client) View() View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

func (c *Client) ask(f func(*Machine, time.Time) []Action) {
	select {
	case c.asks <- f:
	case <-c.done:
	}
}

func (c *Client) show(f func(*View)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.view)
}

func (c *Client) do(ctx context.Context, acts []Action) {
	for _, a := range acts {
		switch {
		case a.Send != nil:
			c.trouble(c.send(*a.Send))
		case a.Check != nil:
			c.checks.Go(func() { c.check(ctx, a.Check.Addr.Addr()) })
		case a.Use != nil:
			c.log.Info("lease held", "addr", a.Use.Addr, "server", a.Use.Server, "for", a.Use.Granted)
			c.port.Use(ctx, c.device, *a.Use)
		case a.Drop != nil:
			c.log.Warn("lease lost", "addr", a.Drop.Addr, "server", a.Drop.Server)
			c.port.Drop(ctx, c.device, *a.Drop)
		}
	}
}

// check asks whether somebody else uses the address and tells the machine.
func (c *Client) check(ctx context.Context, a netip.Addr) {
	taken, err := c.wire.Taken(ctx, c.device, a)
	if err != nil {
		c.log.Warn("address not checked", "addr", a, "error", err)
	}
	if taken {
		c.log.Warn("address declined: another device uses it", "addr", a)
	}
	c.ask(func(m *Machine, now time.Time) []Action { return m.Checked(now, a, taken) })
}

// trouble shows and logs an error when it is another one than last time.
func (c *Client) trouble(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if c.View().Problem != text && text != "" {
		c.log.Warn("cannot ask for a lease", "error", err)
	}
	c.show(func(v *View) { v.Problem = text })
}

func (c *Client) send(m Message) error {
	b, err := m.Marshal(c.mac, c.host)
	if err != nil {
		return err
	}
	i := 0
	if m.To.IsValid() {
		i = 1
	}
	if c.link[i] == nil || c.link[i].dead() {
		c.shut(i)
		var conn Conn
		if i == 1 {
			conn, err = c.wire.UDP(c.device, m.CIAddr, m.To)
		} else {
			conn, err = c.wire.Packet(c.device)
		}
		if err != nil {
			return err
		}
		c.link[i] = attend(conn, c.in)
	}
	if err := c.link[i].conn.Send(b); err != nil {
		return fmt.Errorf("send DHCP message: %w", err)
	}
	return nil
}

// hear closes what need not be open.
func (c *Client) hear(packet, udp bool) {
	if !packet {
		c.shut(0)
	}
	if !udp {
		c.shut(1)
	}
}

func (c *Client) shut(i int) {
	if c.link[i] != nil {
		c.link[i].close()
		c.link[i] = nil
	}
}

// hearing is an open Conn and the goroutine that reads it.
type hearing struct {
	conn   Conn
	closed chan struct{} // close asked the reader to end
	ended  chan struct{} // the reader has ended
}

func attend(conn Conn, in chan<- []byte) *hearing {
	h := &hearing{conn: conn, closed: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(h.ended)
		for {
			b, err := conn.Receive()
			if err != nil {
				return
			}
			select {
			case in <- b:
			case <-h.closed:
				return
			}
		}
	}()
	return h
}

// dead reports whether reading failed, as it does when the port goes down.
func (h *hearing) dead() bool {
	select {
	case <-h.ended:
		return true
	default:
		return false
	}
}

func (h *hearing) close() {
	close(h.closed)
	h.conn.Close()
	<-h.ended
}
