package dhcp

import (
	"time"

	"gatehouse/firewall"
)

// Limits bound what one client and one port may cost.
type Limits struct {
	PerMAC  int           // messages a second of one MAC; twice as many at once
	PerPort int           // messages a second of all clients on one port that have no lease here; twice as many at once
	Probe   time.Duration // how long an ARP probe waits before the first offer of an address; 0: no probe
}

// UsualLimits are those of a box in a house or an office.
func UsualLimits() Limits { return Limits{PerMAC: 10, PerPort: 1000, Probe: 300 * time.Millisecond} }

// bucket is a token bucket.
type bucket struct {
	tokens float64
	last   time.Time
}

// take reports whether one more message fits a rate of n a second and a burst
// of 2n.
func (b *bucket) take(n int, now time.Time) bool {
	if b.last.IsZero() {
		b.tokens = float64(2 * n)
	} else {
		b.tokens = min(float64(2*n), b.tokens+now.Sub(b.last).Seconds()*float64(n))
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// gate lets messages of one port through. Clients that are known here have
// buckets of their own: a flood of invented MACs cannot shut them out. It is
// used by one goroutine.
type gate struct {
	limits   Limits
	port     bucket
	known    map[firewall.MAC]*bucket // at most as many as there are rows
	stranger map[firewall.MAC]*bucket // at most maxStrangers
}

const maxStrangers = 4096

func newGate(l Limits) *gate {
	return &gate{limits: l, known: map[firewall.MAC]*bucket{}, stranger: map[firewall.MAC]*bucket{}}
}

// pass reports whether a message of the MAC may be looked at.
func (g *gate) pass(mac firewall.MAC, known bool, now time.Time) bool {
	if known {
		return of(g.known, mac, 1<<16).take(g.limits.PerMAC, now)
	}
	return of(g.stranger, mac, maxStrangers).take(g.limits.PerMAC, now) && g.port.take(g.limits.PerPort, now)
}

// of is the bucket of a MAC. A full map is emptied: every bucket in it starts
// again full, which the bucket of the port makes good.
func of(m map[firewall.MAC]*bucket, mac firewall.MAC, most int) *bucket {
	b, ok := m[mac]
	if !ok {
		if len(m) >= most {
			clear(m)
		}
		b = &bucket{}
		m[mac] = b
	}
	return b
}
