package web

import (
	"net"
	"net/netip"
	"sync"
)

// caps counts open connections: in all, and per source (an IPv4 address or an
// IPv6 /64), so that one host cannot keep the others out.
type caps struct {
	total, each int

	mu   sync.Mutex // guards open and from
	open int
	from map[netip.Prefix]int
}

func newCaps(total, each int) *caps {
	return &caps{total: total, each: each, from: map[netip.Prefix]int{}}
}

func (c *caps) take(p netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= c.total || c.from[p] >= c.each {
		return false
	}
	c.open++
	c.from[p]++
	return true
}

func (c *caps) give(p netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.from[p]--; c.from[p] == 0 {
		delete(c.from, p)
	}
}

// capped is a listener that drops connections over its caps.
type capped struct {
	net.Listener
	caps *caps
}

// Accept returns the next connection that fits.
func (l *capped) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		a := addr(c.RemoteAddr())
		bits := 32
		if a.Is6() {
			bits = 64
		}
		p, _ := a.Prefix(bits) // the lengths fit; no address is one source
		if l.caps.take(p) {
			return &counted{Conn: c, give: sync.OnceFunc(func() { l.caps.give(p) })}, nil
		}
		_ = c.Close() // over the cap: nothing to say to it
	}
}

// counted is a connection that gives its place back once.
type counted struct {
	net.Conn
	give func()
}

// Close closes the connection and gives its place back.
func (c *counted) Close() error {
	defer c.give()
	return c.Conn.Close()
}
