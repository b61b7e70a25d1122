package dhcp

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"gatehouse/firewall"
)

// How long things that are only in memory last, and what strangers may cost.
const (
	offerHold    = 10 * time.Second // an offer nobody took is free again
	probeFresh   = time.Minute      // silence after an ARP probe is believed so long
	quarantine   = time.Hour        // a declined address is given to nobody so long
	declineLimit = 5                // declines of one client within declineSpan
	declineSpan  = time.Hour
	declineNames = 1024 // clients whose declines are counted
	rescanPause  = 250 * time.Millisecond
)

// Pool decides for one scope. It is values and a given time only: no clock, no
// disk, no socket. It is not safe for concurrent use.
//
// Its rows are the truth for reading. A decision changes them at once, so that
// a second client cannot be promised the same address while the first row is on
// its way to the disk; the answer goes out only when it is there.
type Pool struct {
	scope    Scope
	reserved map[netip.Addr]firewall.MAC // addresses of static leases

	rows   map[netip.Addr]Lease
	client map[string]netip.Addr    // client key -> its latest address
	macs   map[firewall.MAC]int     // rows of each known client
	offers map[netip.Addr]offer     // soft holds
	held   map[string]netip.Addr    // client key -> the address offered to it
	silent map[netip.Addr]time.Time // probed, nobody there: believed until
	busy   map[netip.Addr]time.Time // somebody is there, but the quarantine is full: not now

	fresh    netip.Addr   // every pool address below it was handed out once
	spare    []netip.Addr // addresses to use again, best first
	dry      time.Time    // nothing can become free before
	declines map[string][]time.Time
}

// offer is a soft hold.
type offer struct {
	client string
	mac    firewall.MAC
	until  time.Time
}

// NewPool makes the pool of a scope out of the rows that lie in its network;
// others are ignored.
func NewPool(s Scope, rows []Lease) *Pool {
	p := &Pool{
		scope: s, reserved: map[netip.Addr]firewall.MAC{},
		rows: map[netip.Addr]Lease{}, client: map[string]netip.Addr{}, macs: map[firewall.MAC]int{},
		offers: map[netip.Addr]offer{}, held: map[string]netip.Addr{}, silent: map[netip.Addr]time.Time{}, busy: map[netip.Addr]time.Time{},
		fresh: s.From, declines: map[string][]time.Time{},
	}
	for mac, st := range s.Statics {
		p.reserved[st.Addr] = mac
	}
	// Oldest promise first: a client's latest address is the one it keeps.
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b Lease) int { return cmp.Or(a.Last.Compare(b.Last), a.Addr.Compare(b.Addr)) })
	for _, l := range rows {
		if s.Net.Contains(l.Addr) {
			p.put(l)
		}
	}
	return p
}

// Knows reports whether the MAC has a row or a static lease here.
func (p *Pool) Knows(mac firewall.MAC) bool {
	_, pinned := p.scope.Statics[mac]
	return pinned || p.macs[mac] > 0
}

// Rows returns every stored row, in any order.
func (p *Pool) Rows() []Lease { return slices.Collect(maps.Values(p.rows)) }

// put makes l the row of its address.
func (p *Pool) put(l Lease) {
	p.forget(l.Addr)
	p.rows[l.Addr] = l
	if l.Client != "" {
		p.client[l.Client] = l.Addr
		p.macs[l.MAC]++
	}
	if l.State != Active {
		p.dry = time.Time{} // something may have become free
	}
}

// forget takes the row and the offer of an address away.
func (p *Pool) forget(a netip.Addr) {
	p.unhold(a)
	l, ok := p.rows[a]
	if !ok {
		return
	}
	delete(p.rows, a)
	p.dry = time.Time{}
	if l.Client == "" {
		return
	}
	if p.client[l.Client] == a {
		delete(p.client, l.Client)
	}
	if p.macs[l.MAC]--; p.macs[l.MAC] <= 0 {
		delete(p.macs, l.MAC)
	}
}

// hold promises the address to the sender of m for offerHold; an earlier
// promise to it ends.
func (p *Pool) hold(a netip.Addr, m Message, now time.Time) {
	p.unhold(a)
	if old, ok := p.held[m.Client]; ok {
		p.unhold(old)
	}
	p.offers[a] = offer{m.Client, m.MAC, now.Add(offerHold)}
	p.held[m.Client] = a
}

// unhold ends the soft hold of an address.
func (p *Pool) unhold(a netip.Addr) {
	o, ok := p.offers[a]
	if !ok {
		return
	}
	delete(p.offers, a)
	delete(p.held, o.client)
	p.dry = time.Time{}
}

// why an address is not for a client; "" means it is.
const (
	fine     = ""
	notHere  = "the address is not in this network"
	notPool  = "the address is not in the pool"
	pinned   = "the address is kept for a static lease"
	moved    = "a static lease gives the client another address"
	otherHas = "another client has the address"
	sick     = "the address is in quarantine"
	promised = "the address was offered to another client"
)

// refusal says why the sender of m may not have the address now, or fine.
func (p *Pool) refusal(a netip.Addr, m Message, now time.Time) string {
	if !p.scope.host(a) {
		return notHere
	}
	own := false // a static lease: the MAC is the proof
	if st, ok := p.scope.Statics[m.MAC]; ok && p.scope.host(st.Addr) {
		if st.Addr != a {
			return moved
		}
		own = true
	} else if _, ok := p.reserved[a]; ok {
		return pinned
	} else if !p.scope.inPool(a) {
		return notPool
	}
	l, known := p.rows[a]
	switch {
	case known && l.State == Declined && now.Before(l.Until):
		return sick
	case known && l.live(now) && l.Client != m.Client && (!own || l.MAC != m.MAC):
		return otherHas
	case now.Before(p.busy[a]):
		return sick
	}
	if o, ok := p.offers[a]; ok && o.client != m.Client && now.Before(o.until) && !own {
		return promised
	}
	return fine
}

// next finds an address for a client that has none and asks for none: one never
// used, then the one expired longest, released ones last. It is invalid when
// the pool is exhausted.
func (p *Pool) next(m Message, now time.Time) netip.Addr {
	for p.fresh.IsValid() && !p.scope.To.Less(p.fresh) {
		a := p.fresh
		p.fresh = a.Next()
		if _, used := p.rows[a]; !used && p.refusal(a, m, now) == fine {
			return a
		}
	}
	if len(p.spare) == 0 && !now.Before(p.dry) {
		p.rescan(m, now)
	}
	for len(p.spare) > 0 {
		a := p.spare[0]
		p.spare = p.spare[1:]
		if p.refusal(a, m, now) == fine {
			return a
		}
	}
	return netip.Addr{}
}

// rescan collects what can be used again. It looks at every address of the
// pool, so when it finds nothing it also notes when to look next: a flood of
// requests to a full pool must not scan it each time.
func (p *Pool) rescan(m Message, now time.Time) {
	soonest := now.Add(time.Hour)
	for a := p.scope.From; a.IsValid() && !p.scope.To.Less(a); a = a.Next() {
		if p.refusal(a, m, now) == fine {
			p.spare = append(p.spare, a)
			continue
		}
		if l, ok := p.rows[a]; ok && now.Before(l.Until) && l.Until.Before(soonest) {
			soonest = l.Until
		}
		if o, ok := p.offers[a]; ok && o.until.Before(soonest) {
			soonest = o.until
		}
		if t := p.busy[a]; now.Before(t) && t.Before(soonest) {
			soonest = t
		}
	}
	slices.SortStableFunc(p.spare, func(a, b netip.Addr) int {
		x, y := p.rows[a], p.rows[b]
		return cmp.Or(cmp.Compare(rank(x), rank(y)), x.Until.Compare(y.Until))
	})
	if len(p.spare) == 0 {
		p.dry = later(soonest, now.Add(rescanPause))
	}
}

// rank orders rows for use again: none, expired, released or once declined.
func rank(l Lease) int {
	switch l.State {
	case "":
		return 0
	case Active:
		return 1
	}
	return 2
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Probed notes that nobody answered for the address.
func (p *Pool) Probed(a netip.Addr, now time.Time) {
	believe(p.silent, a, now)
}

// believe notes something about an address for probeFresh.
func believe(m map[netip.Addr]time.Time, a netip.Addr, now time.Time) {
	if len(m) > 4096 {
		maps.DeleteFunc(m, func(_ netip.Addr, t time.Time) bool { return !now.Before(t) })
	}
	m[a] = now.Add(probeFresh)
}

// Conflict notes that a stranger answers for an address that is offered to
// nobody else meanwhile. It returns the row to store, if the address goes into
// quarantine.
func (p *Pool) Conflict(a netip.Addr, who firewall.MAC, now time.Time) []Lease {
	if l, ok := p.rows[a]; ok && l.live(now) {
		return nil // its client answered: it took the address while we asked
	}
	p.unhold(a)
	return p.isolate(a, who, now)
}

// isolate puts an address into quarantine, or only cuts it loose from its
// client when a tenth of the pool is there already: one client that declines
// everything must not eat the pool.
func (p *Pool) isolate(a netip.Addr, who firewall.MAC, now time.Time) []Lease {
	old, used := p.rows[a]
	n := 0
	for _, l := range p.rows {
		if l.State == Declined && now.Before(l.Until) {
			n++
		}
	}
	row := Lease{Addr: a, In: p.scope.In, MAC: who, State: Declined, First: old.First, Last: now, Until: now.Add(quarantine)}
	if row.First.IsZero() {
		row.First = now
	}
	if n >= max(1, p.scope.size()/10) {
		believe(p.busy, a, now)
		if !used {
			return nil
		}
		row.State, row.Until = Released, now
	}
	p.put(row)
	return []Lease{row}
}

// Stored notes that the row is on disk as it was when it was decided.
func (p *Pool) Stored(l Lease) {
	if now, ok := p.rows[l.Addr]; ok && now.Client == l.Client && now.State == l.State && now.Until.Equal(l.Until) {
		now.durable = l.Until
		p.rows[l.Addr] = now
	}
}

// Release takes the address back from its client, as an administrator does; it
// also ends a quarantine. It returns the row to store.
func (p *Pool) Release(a netip.Addr, now time.Time) []Lease {
	l, ok := p.rows[a]
	if !ok || l.State == Released {
		return nil
	}
	l.State, l.Until, l.durable = Released, now, time.Time{}
	p.put(l)
	return []Lease{l}
}

// Delete forgets the address and its client. It reports whether there was a row.
func (p *Pool) Delete(a netip.Addr) bool {
	_, ok := p.rows[a]
	p.forget(a)
	return ok
}

// Restamp rewrites the wall-clock part of every time limit after the wall clock
// was set, and returns the rows to store. What is left of each lease stays.
func (p *Pool) Restamp(now time.Time) []Lease {
	var out []Lease
	for a, l := range p.rows {
		if l.State == Released || !now.Before(l.Until) {
			continue
		}
		left, run := l.Until.Sub(now), l.Until.Sub(l.Last)
		l.Until = now.Add(left)
		l.Last = l.Until.Add(-run)
		p.rows[a] = l
		out = append(out, l)
	}
	return out
}
