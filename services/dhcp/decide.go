package dhcp

import (
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Answer is what goes back to the client.
type Answer uint8

// The answers. Inform is an ACK that gives no address.
const (
	Silent Answer = iota
	Offer
	Ack
	Nak
	Inform
)

// String is for logs.
func (a Answer) String() string {
	return [...]string{"silent", "offer", "ack", "nak", "inform"}[a]
}

// Verdict is a decision: the answer, and what must be on disk before it is sent.
type Verdict struct {
	Answer Answer
	Addr   netip.Addr    // Offer, Ack: the address
	Lease  time.Duration // Offer, Ack: for how long
	Why    string        // for people, constant text
	Write  []Lease       // rows to store first, one per address
	Probe  bool          // Offer: ask the network first whether somebody uses Addr
	Event  EventKind     // what to tell besides; None for most
}

func silent(why string) Verdict { return Verdict{Why: why} }
func nak(why string) Verdict    { return Verdict{Answer: Nak, Why: why} }

// Decide answers a message by the table of RFC 2131 section 4.3. The pool is
// the only authority on its network: it refuses what it does not know to be
// right, and adopts a client that it has forgotten if its address is free.
func (p *Pool) Decide(m Message, now time.Time) Verdict {
	switch m.Type {
	case dhcpv4.MessageTypeDiscover:
		return p.discover(m, now)
	case dhcpv4.MessageTypeRequest:
		return p.request(m, now)
	case dhcpv4.MessageTypeDecline:
		return p.decline(m, now)
	case dhcpv4.MessageTypeRelease:
		return p.release(m, now)
	case dhcpv4.MessageTypeInform:
		return p.inform(m)
	}
	return silent("not a message for a server")
}

func (p *Pool) discover(m Message, now time.Time) Verdict {
	if len(p.recentDeclines(m.Client, now)) >= declineLimit {
		return silent("the client declined too many addresses")
	}
	if st, ok := p.scope.Statics[m.MAC]; ok && p.scope.host(st.Addr) {
		if why := p.refusal(st.Addr, m, now); why != fine {
			v := silent(why)
			v.Event = StaticBusy
			v.Addr = st.Addr
			return v
		}
		return p.offer(st.Addr, m, now, "static lease")
	}
	for _, c := range []struct {
		addr netip.Addr
		why  string
	}{{p.client[m.Client], "its own address"}, {p.held[m.Client], "offered before"}, {m.Requested, "asked for"}} {
		if c.addr.IsValid() && p.refusal(c.addr, m, now) == fine {
			return p.offer(c.addr, m, now, c.why)
		}
	}
	if a := p.next(m, now); a.IsValid() {
		return p.offer(a, m, now, "next free address")
	}
	v := silent("the pool is exhausted")
	v.Event = Exhausted
	return v
}

// offer holds the address. A static lease is offered without a probe: an
// administrator said who has it.
func (p *Pool) offer(a netip.Addr, m Message, now time.Time, why string) Verdict {
	p.hold(a, m, now)
	l, known := p.rows[a]
	bound := known && l.Client == m.Client
	_, fixed := p.reserved[a]
	asked := now.Before(p.silent[a])
	return Verdict{Answer: Offer, Addr: a, Lease: p.term(m), Why: why, Probe: !bound && !fixed && !asked}
}

// term is how long the client may have an address: what it asks for, within a
// minute and the scope's lease.
func (p *Pool) term(m Message) time.Duration {
	if m.Wish == 0 {
		return p.scope.Lease
	}
	return min(max(m.Wish, time.Minute), p.scope.Lease)
}

func (p *Pool) request(m Message, now time.Time) Verdict {
	switch {
	case m.Server.IsValid() && m.Server != p.scope.Server:
		if a, ok := p.held[m.Client]; ok {
			p.unhold(a)
		}
		return silent("it chose another server")
	case m.Server.IsValid() && m.Requested.IsValid():
		return p.selecting(m, now)
	case m.CIAddr.IsValid(): // some clients name the server in a renewal, too
		return p.extend(m.CIAddr, m, now)
	case m.Requested.IsValid():
		return p.extend(m.Requested, m, now) // INIT-REBOOT
	}
	return silent("it names no address")
}

func (p *Pool) selecting(m Message, now time.Time) Verdict {
	if why := p.refusal(m.Requested, m, now); why != fine {
		return nak(why)
	}
	return p.bind(m.Requested, m, now, "takes the offer")
}

// extend answers INIT-REBOOT, RENEWING and REBINDING: the client says that it
// has an address already.
func (p *Pool) extend(a netip.Addr, m Message, now time.Time) Verdict {
	if why := p.refusal(a, m, now); why != fine {
		return nak(why)
	}
	own, ok := p.client[m.Client]
	if ok && own != a && p.rows[own].live(now) && p.refusal(own, m, now) == fine {
		return nak("the client has another address")
	}
	if l, known := p.rows[a]; known && l.Client == m.Client {
		left, term := l.durable.Sub(now), p.term(m)
		if l.live(now) && left >= term*3/4 && left <= term && !p.renamed(l, m) {
			// Young leases are confirmed as they are on disk: no write.
			return Verdict{Answer: Ack, Addr: a, Lease: left, Why: "young lease"}
		}
		return p.bind(a, m, now, "extended")
	}
	return p.bind(a, m, now, "adopted")
}

// renamed reports whether the client calls itself something new.
func (p *Pool) renamed(l Lease, m Message) bool {
	return len(m.Host) > 0 && !slices.Equal(m.Host, l.RawHost)
}

// bind makes the address the client's. Another address that it held is given
// back if the same machine held it.
func (p *Pool) bind(a netip.Addr, m Message, now time.Time, why string) Verdict {
	term := p.term(m)
	l := Lease{
		Addr: a, In: p.scope.In, Client: m.Client, MAC: m.MAC, RawHost: slices.Clone(m.Host), State: Active,
		First: now, Last: now, Until: now.Add(term),
	}
	if old, ok := p.rows[a]; ok && old.Client == m.Client {
		l.First, l.durable = old.First, old.durable
		if len(l.RawHost) == 0 {
			l.RawHost = old.RawHost
		}
	}
	l.Host = CleanHost(l.RawHost)
	if st, ok := p.scope.Statics[m.MAC]; ok && st.Host != "" {
		l.Host = st.Host
	}
	v := Verdict{Answer: Ack, Addr: a, Lease: term, Why: why, Event: Given}
	if own, ok := p.client[m.Client]; ok && own != a && p.rows[own].live(now) && p.rows[own].MAC == m.MAC {
		v.Write = p.Release(own, now)
	}
	if o, ok := p.held[m.Client]; ok {
		p.unhold(o)
	}
	p.put(l)
	v.Write = append(v.Write, l)
	return v
}

func (p *Pool) decline(m Message, now time.Time) Verdict {
	a := m.Requested
	l, known := p.rows[a]
	bound := known && l.Client == m.Client && l.live(now)
	offered := p.held[m.Client] == a && a.IsValid()
	switch {
	case m.Server != p.scope.Server:
		return silent("meant for another server")
	case !bound && !offered:
		return silent("declines what it does not have")
	}
	recent := p.recentDeclines(m.Client, now)
	if len(recent) >= declineLimit || len(recent) == 0 && len(p.declines) >= declineNames {
		return silent("the client declined too many addresses")
	}
	p.declines[m.Client] = append(recent, now)
	p.unhold(a)
	return Verdict{Addr: a, Why: "declined", Write: p.isolate(a, m.MAC, now), Event: Conflict}
}

// recentDeclines are the declines of the client that still count; counts that
// are over are dropped when the table is full.
func (p *Pool) recentDeclines(client string, now time.Time) []time.Time {
	if len(p.declines) >= declineNames {
		for k, ts := range p.declines {
			if now.Sub(ts[len(ts)-1]) >= declineSpan {
				delete(p.declines, k)
			}
		}
	}
	ts := p.declines[client]
	for len(ts) > 0 && now.Sub(ts[0]) >= declineSpan {
		ts = ts[1:]
	}
	if len(ts) == 0 {
		delete(p.declines, client)
	}
	return ts
}

func (p *Pool) release(m Message, now time.Time) Verdict {
	l, ok := p.rows[m.CIAddr]
	switch {
	case m.Server != p.scope.Server:
		return silent("meant for another server")
	case !ok || l.Client != m.Client || !l.live(now):
		return silent("releases what it does not have")
	case m.Src != m.CIAddr:
		return silent("released from another address")
	}
	return Verdict{Addr: m.CIAddr, Why: "released", Write: p.Release(m.CIAddr, now), Event: Freed}
}

func (p *Pool) inform(m Message) Verdict {
	a := m.CIAddr
	if !a.IsValid() {
		a = m.Src
	}
	if !p.scope.host(a) {
		return silent(notHere)
	}
	return Verdict{Answer: Inform, Why: "asked for options"}
}
