package wan

import (
	"math/rand/v2"
	"net/netip"
	"time"
)

// State is where the client stands (RFC 2131 figure 5).
type State string

// The states. Down is ours: the link is down, or the client was released.
const (
	Down       State = "down"
	Selecting  State = "selecting"
	Requesting State = "requesting"
	Checking   State = "checking" // granted; does somebody else use the address?
	Rebooting  State = "rebooting"
	Bound      State = "bound"
	Renewing   State = "renewing"
	Rebinding  State = "rebinding"
)

// Action is what the machine wants done: exactly one field is set.
type Action struct {
	Send  *Message // put it on the wire
	Check *Lease   // ask the link who uses its address, then call Checked
	Use   *Lease   // a granted or prolonged lease: remember it, then set it; an earlier address goes
	Drop  *Lease   // the lease is over: forget it, take its address and routes away
}

// Machine decides; it has no clock, socket or goroutine. Its caller hands in
// what happened and the time, does the actions in their order and wakes it at Next.
type Machine struct {
	rand     *rand.Rand
	state    State
	up       bool
	held     Lease     // set on the port; zero Addr = none
	hint     Lease     // what the last server gave, asked for again
	offer    Reply     // Requesting: the accepted one
	pending  Lease     // Checking: the granted one
	xid      uint32    // of the running exchange
	began    time.Time // of the running exchange: what Secs counts from
	asked    time.Time // first message of the state: what a lease counts from
	tries    int       // messages sent in the running exchange
	naks     int       // in a row, without a lease between them
	next     time.Time // when Wake is due
	declined int       // leases in a row whose address somebody else used
}

// NewMachine starts in Down. remembered is the stored lease (or zero); set says
// that its address is on the port already, as after a restart of the program.
func NewMachine(r *rand.Rand, remembered Lease, set bool, now time.Time) *Machine {
	m := &Machine{rand: r, state: Down, hint: remembered}
	if set && remembered.Held(now) {
		m.held = remembered
		m.next = remembered.Until
	}
	return m
}

// State is where the machine stands.
func (m *Machine) State() State { return m.state }

// Held is the lease whose address is in use; ok is false when there is none.
func (m *Machine) Held() (l Lease, ok bool) { return m.held, m.held.Addr.IsValid() }

// Next is when to call Wake; zero: never.
func (m *Machine) Next() time.Time { return m.next }

// Hears reports whether an answer may come: by a packet socket, or by UDP to our address.
func (m *Machine) Hears() (packet, udp bool) {
	switch m.state {
	case Selecting, Requesting, Rebooting, Rebinding:
		return true, false
	case Renewing:
		return false, true
	}
	return false, false
}

// Link tells that the link came up or went down. The address stays while its
// lease lasts; a link that comes up asks at once whether the network is the same.
func (m *Machine) Link(now time.Time, up bool) []Action {
	if up == m.up {
		return nil
	}
	m.up = up
	if !up {
		m.state = Down
		m.next = m.held.Until
		return nil
	}
	m.naks = 0
	if m.held.Addr.IsValid() || m.hint.Held(now) {
		return m.start(now, Rebooting)
	}
	return m.start(now, Selecting)
}

// Renew asks for the lease again, as the renew button does: at once.
func (m *Machine) Renew(now time.Time) []Action {
	switch {
	case !m.up:
		return nil
	case m.held.Addr.IsValid():
		return m.start(now, Renewing)
	}
	return m.start(now, Selecting)
}

// Release gives the lease back and stops until Renew or a link that comes up.
func (m *Machine) Release(now time.Time) []Action {
	var acts []Action
	if m.held.Addr.IsValid() && m.up {
		acts = append(acts, Action{Send: &Message{Kind: Release, XID: m.rand.Uint32(), CIAddr: m.held.Addr.Addr(),
			Server: m.held.Server, To: m.held.Server}})
	}
	acts = append(acts, m.lose()...)
	m.state, m.next = Down, time.Time{}
	return acts
}

// Wake is what happens when Next has come.
func (m *Machine) Wake(now time.Time) []Action {
	if m.next.IsZero() || now.Before(m.next) {
		return nil
	}
	if m.held.Addr.IsValid() && !m.held.Held(now) {
		acts := m.lose()
		if m.state == Down {
			m.next = time.Time{}
			return acts
		}
		if m.state == Selecting {
			return append(acts, m.again(now)...)
		}
		return append(acts, m.start(now, Selecting)...)
	}
	switch m.state {
	case Bound:
		return m.start(now, Renewing)
	case Renewing:
		if !now.Before(m.held.Rebind) {
			return m.start(now, Rebinding)
		}
	case Rebooting:
		// A server without a record of us stays silent: ask anyone, but keep the
		// address (RFC 2131 §3.2 step 3 allows it) until the lease is over.
		if m.tries >= 2 {
			return m.start(now, Selecting)
		}
	case Requesting:
		if m.tries >= 4 {
			return m.start(now, Selecting)
		}
	case Checking: // the check did not come back: nobody is known to object
		return m.use(now, m.pending)
	}
	return m.again(now)
}

// Hear is what happens when a server's answer to us came in.
func (m *Machine) Hear(now time.Time, r Reply) []Action {
	if r.XID != m.xid || m.tries == 0 {
		return nil
	}
	switch {
	case r.Kind == Offer && m.state == Selecting:
		if !r.Lease.Server.IsValid() {
			return nil
		}
		m.offer = r
		// The same exchange goes on: xid and start stay (RFC 2131 table 5).
		m.state, m.tries = Requesting, 0
		return m.again(now)
	case r.Kind == Nak && m.expects(r, true):
		return m.refused(now)
	case r.Kind == Ack && m.expects(r, false):
		return m.granted(now, r)
	}
	return nil
}

// expects reports whether an ACK or NAK may come now and from that server.
func (m *Machine) expects(r Reply, nak bool) bool {
	from := r.Lease.Server
	switch m.state {
	case Requesting:
		return (nak || r.Lease.Addr.Addr() == m.offer.Lease.Addr.Addr()) && (!from.IsValid() || from == m.offer.Lease.Server)
	case Renewing:
		return !from.IsValid() || !nak || from == m.held.Server
	case Rebooting, Rebinding:
		return true
	}
	return false
}

// refused starts again. A server that refuses again and again is asked ever more rarely.
func (m *Machine) refused(now time.Time) []Action {
	acts := m.lose()
	m.hint = Lease{}
	m.naks++
	if m.naks == 1 {
		return append(acts, m.start(now, Selecting)...)
	}
	m.begin(now, Selecting)
	m.next = now.Add(m.backoff(m.naks - 2))
	return acts
}

func (m *Machine) granted(now time.Time, r Reply) []Action {
	l := r.Lease
	if l.Granted < time.Second {
		return nil // no lease at all: as if nothing came
	}
	if !l.Server.IsValid() {
		l.Server = m.held.Server
		if m.state == Requesting {
			l.Server = m.offer.Lease.Server
		}
	}
	// The lease counts from our request, not from the answer (RFC 2131 §4.4.1).
	// With retries any of them may be the one that was answered: take the first.
	start := m.asked
	if !start.Add(l.Granted).After(now) {
		start = now
	}
	t1, t2 := r.T1, r.T2
	if t1 <= 0 || t1 >= l.Granted || t2 <= t1 || t2 >= l.Granted {
		t1, t2 = l.Granted/2, l.Granted*7/8
	}
	l.Since = start
	if m.held.Addr == l.Addr {
		l.Since = m.held.Since
	}
	l.Renew, l.Rebind, l.Until = start.Add(t1), start.Add(t2), start.Add(l.Granted)
	if m.state == Requesting && m.held.Addr != l.Addr && m.declined < 2 {
		m.state, m.tries, m.pending = Checking, 0, l
		m.next = now.Add(5 * time.Second)
		return []Action{{Check: &l}}
	}
	return m.use(now, l)
}

// Checked ends Checking: taken says that somebody else on the link uses a. Then
// the server is told and asked again after ten seconds (RFC 2131 §3.1 step 5).
// The third address in a row is taken all the same: where a router answers for
// every address, as some access networks have it, there would be no internet at all.
func (m *Machine) Checked(now time.Time, a netip.Addr, taken bool) []Action {
	if m.state != Checking || m.pending.Addr.Addr() != a {
		return nil
	}
	if !taken {
		return m.use(now, m.pending)
	}
	m.declined++
	msg := &Message{Kind: Decline, XID: m.rand.Uint32(), Want: a, Server: m.pending.Server}
	m.hint = Lease{}
	m.begin(now, Selecting)
	m.next = now.Add(10 * time.Second)
	if end := m.held.Until; m.held.Addr.IsValid() && end.Before(m.next) {
		m.next = end
	}
	return []Action{{Send: msg}}
}

// use binds to the lease.
func (m *Machine) use(now time.Time, l Lease) []Action {
	m.held, m.hint, m.pending = l, l, Lease{}
	m.state, m.tries, m.naks, m.declined = Bound, 0, 0, 0
	m.next = l.Renew
	if !m.next.After(now) {
		m.next = now.Add(time.Second)
	}
	return []Action{{Use: &l}}
}

// lose drops the held lease, if there is one; it stays a hint.
func (m *Machine) lose() []Action {
	if !m.held.Addr.IsValid() {
		return nil
	}
	l := m.held
	m.held = Lease{}
	return []Action{{Drop: &l}}
}

// begin opens an exchange without sending yet.
func (m *Machine) begin(now time.Time, s State) {
	m.state, m.tries, m.began = s, 0, now
	m.xid = m.rand.Uint32()
}

func (m *Machine) start(now time.Time, s State) []Action {
	m.begin(now, s)
	return m.again(now)
}

// again sends the message of the state and sets when to try next.
func (m *Machine) again(now time.Time) []Action {
	secs := min(now.Sub(m.began)/time.Second, 65535)
	if m.tries == 0 {
		m.asked = now
	}
	msg := &Message{XID: m.xid, Secs: uint16(max(secs, 0)), Kind: Request}
	wait := m.backoff(m.tries)
	switch m.state {
	case Selecting:
		msg.Kind = Discover
		if m.hint.Addr.IsValid() {
			msg.Want = m.hint.Addr.Addr()
		}
	case Requesting:
		msg.Want, msg.Server = m.offer.Lease.Addr.Addr(), m.offer.Lease.Server
	case Rebooting:
		msg.Want = m.hint.Addr.Addr()
	case Renewing:
		msg.CIAddr, msg.To = m.held.Addr.Addr(), m.held.Server
		wait = m.half(now, m.held.Rebind)
	case Rebinding:
		msg.CIAddr = m.held.Addr.Addr()
		wait = m.half(now, m.held.Until)
	default:
		return nil
	}
	// Every other retry asks for a broadcast answer: some bridges and radios
	// lose the unicast to an address that nobody has yet.
	msg.Broadcast = m.tries%2 == 1 && !msg.CIAddr.IsValid()
	m.tries++
	m.next = now.Add(wait)
	if end := m.held.Until; m.held.Addr.IsValid() && end.Before(m.next) {
		m.next = end
	}
	return []Action{{Send: msg}}
}

// backoff is 4, 8, 16, 32, 64, 64 ... seconds, each give or take one (RFC 2131 §4.1).
func (m *Machine) backoff(tries int) time.Duration {
	jitter := time.Duration(m.rand.Int64N(int64(2*time.Second))) - time.Second
	return 4*time.Second<<min(tries, 4) + jitter
}

// half is half of what is left until end, but at least a minute (RFC 2131
// §4.4.5); short leases scale the minute down, so that one lost packet of a
// two-minute lease does not cost the address. It never runs past end.
func (m *Machine) half(now, end time.Time) time.Duration {
	least := min(time.Minute, max(time.Second, m.held.Granted/20))
	left := end.Sub(now)
	return min(max(left/2, least), max(left, 0))
}
