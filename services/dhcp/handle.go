package dhcp

import (
	"errors"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/firewall"
)

// maxPacket is more than any client sends: an Ethernet frame's worth.
const maxPacket = 1500

// listen reads messages of a port until it is closed.
func (s *Server) listen(r *run, p *port) {
	g := newGate(s.limits)
	buf, oob := make([]byte, maxPacket+1), make([]byte, 128)
	for {
		n, src, dst, err := p.read(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// A device that goes down reports so once; the watcher closes the port when it is gone.
			if s.once("read "+p.name, time.Now()) {
				s.log.Warn("reading failed", "port", p.name, "err", err)
			}
			select {
			case <-r.ctx.Done():
			case <-time.After(watchEvery):
			}
			continue
		}
		s.handle(r, p, g, buf[:n], src, dst)
	}
}

// handle answers one packet. Whatever is in it, the server goes on.
func (s *Server) handle(r *run, p *port, g *gate, pkt []byte, src, dst netip.Addr) {
	defer func() {
		if bug := recover(); bug != nil {
			s.count(func(c *Stats) { c.Panics++ })
			if s.once("panic", time.Now()) {
				s.log.Error("message dropped because of a bug", "bug", bug, "stack", string(debug.Stack()))
			}
		}
	}()
	now := time.Now()
	s.count(func(c *Stats) { c.Heard++ })
	mac := peekMAC(pkt)
	if mac == "" || len(pkt) > maxPacket {
		s.count(func(c *Stats) { c.Malformed++ })
		return
	}
	if !g.pass(mac, s.knows(p.name, mac), now) {
		s.count(func(c *Stats) { c.Limited++ })
		return
	}
	m, err := parse(pkt)
	if err != nil {
		s.count(func(c *Stats) {
			if errors.Is(err, errRelayed) {
				c.Relayed++
			} else {
				c.Malformed++
			}
		})
		return
	}
	m.Src, m.Dst = src, dst
	s.answer(r, p, m, now)
}

func (s *Server) knows(device string, mac firewall.MAC) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv := s.served[device]
	return sv != nil && sv.pool.Knows(mac)
}

func (s *Server) count(f func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.stats)
}

// unresolved is the lease while there is no resolver to hand out: a client that
// came before the WAN's own lease must not stay without names until T1 of a long one.
const unresolved = 120 * time.Second

// decided is a decision together with what its answer is made of.
type decided struct {
	scope Scope
	dns   []netip.Addr
	m     Message
	v     Verdict
}

// decide asks the pool of the device. ok is false when no scope is there.
func (s *Server) decide(device string, m Message, now time.Time) (d decided, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sv := s.served[device]
	if sv == nil {
		s.stats.Unserved++
		return d, false
	}
	m.Unicast = m.Dst.IsValid() && m.Dst != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && m.Dst != sv.scope.broadcast()
	if len(sv.scope.DNS) == 0 && len(s.dns) == 0 && s.waiting {
		m.Wish = unresolved // the WAN may have its lease in a moment: ask again soon
	}
	v := sv.pool.Decide(m, now)
	s.record(Exchange{now, sv.scope.In, m.MAC, m.Type.String(), v.Answer, v.Addr, v.Why})
	return decided{sv.scope, s.dns, m, v}, true
}

// answer decides a message and does what the decision says.
func (s *Server) answer(r *run, p *port, m Message, now time.Time) {
	d, ok := s.decide(p.name, m, now)
	if !ok {
		return
	}
	switch {
	case d.v.Event == Exhausted || d.v.Event == StaticBusy:
		if s.once(string(d.v.Event)+" "+p.name, now) {
			s.log.Warn("client gets no address", "in", d.scope.In, "mac", m.MAC, "why", d.v.Why)
			s.tell(d.event())
		}
	case d.v.Probe && s.limits.Probe > 0:
		r.work.Go(func() { s.probe(r, p, d) })
	case len(d.v.Write) > 0:
		s.enqueue(job{addrs: addrsOf(d.v.Write), done: func(err error) { s.stored(r, p, d, err) }})
	default:
		s.send(r, p, d)
	}
}

// probe sends an offer when nobody answers for the address; else it takes
// another one.
func (s *Server) probe(r *run, p *port, d decided) {
	for range 3 {
		hw := [6]byte(d.m.packet.ClientHWAddr)
		who, twice := p.ask(r.ctx, r.wire, d.v.Addr, hw, s.limits.Probe)
		if twice {
			return // the client repeats itself: the first question answers it
		}
		now := time.Now()
		if who == "" {
			s.withPool(p.name, func(pool *Pool) { pool.Probed(d.v.Addr, now) })
			s.send(r, p, d)
			return
		}
		s.conflict(p, d, who, now)
		var ok bool
		if d, ok = s.decide(p.name, d.m, now); !ok || d.v.Answer != Offer {
			return
		}
		if !d.v.Probe {
			s.send(r, p, d)
			return
		}
	}
}

// conflict puts an address into quarantine that somebody answered for.
func (s *Server) conflict(p *port, d decided, who firewall.MAC, now time.Time) {
	var rows []Lease
	s.withPool(p.name, func(pool *Pool) { rows = pool.Conflict(d.v.Addr, who, now) })
	if len(rows) > 0 {
		s.enqueue(job{addrs: addrsOf(rows)})
	}
	// One a minute: a host that answers for every address must not fill the log.
	if s.once("conflict "+p.name, now) {
		s.log.Warn("address is in use by a stranger", "in", d.scope.In, "addr", d.v.Addr, "mac", who)
		s.tell(Event{Kind: Conflict, In: d.scope.In, Addr: d.v.Addr, MAC: who})
	}
}

func (s *Server) withPool(device string, f func(*Pool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sv := s.served[device]; sv != nil {
		f(sv.pool)
	}
}

// stored finishes a decision after its rows reached the disk, or did not.
func (s *Server) stored(r *run, p *port, d decided, err error) {
	if err != nil {
		s.count(func(c *Stats) { c.Unstored++ })
		return // the client asks again; its address stays its own meanwhile
	}
	if d.v.Answer != Silent {
		s.send(r, p, d)
	}
	if d.v.Event != None {
		s.tell(d.event())
	}
	level := s.log.Info
	if d.v.Why == "extended" {
		level = s.log.Debug
	}
	level("lease stored", "event", d.v.Event, "in", d.scope.In, "addr", d.v.Addr, "mac", d.m.MAC, "why", d.v.Why)
}

// event is what to tell of a decision.
func (d decided) event() Event {
	e := Event{Kind: d.v.Event, In: d.scope.In, Addr: d.v.Addr, MAC: d.m.MAC}
	for _, l := range d.v.Write {
		if l.Addr == d.v.Addr {
			e.Host = l.Host
		}
	}
	return e
}

// send sends the answer on the path that reaches the client.
func (s *Server) send(r *run, p *port, d decided) {
	if d.v.Answer == Silent {
		return
	}
	pkt, cut := reply(d.scope, d.dns, d.m, d.v, p.mtu)
	if cut && s.once("cut "+p.name, time.Now()) {
		s.log.Warn("options left out, the client takes no more", "in", d.scope.In, "mac", d.m.MAC)
	}
	to, err := pathOf(d.m, d.v), error(nil)
	if to.raw {
		err = r.wire.send(p.index, unix.ETH_P_IP, to.mac, datagram(d.scope.Server, to.to, pkt))
	} else {
		err = p.send(d.m.Dst, to.to, pkt)
	}
	if err != nil {
		s.count(func(c *Stats) { c.Unsent++ })
		if s.once("send "+p.name, time.Now()) {
			s.log.Warn("answer not sent", "port", p.name, "to", to.to, "err", err)
		}
	}
}

// once reports whether the thing was not told within the last minute, and
// notes that it is told now.
func (s *Server) once(what string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.told[what]; ok && now.Sub(t) < time.Minute {
		return false
	}
	s.told[what] = now
	return true
}

// record keeps the last 50 exchanges. The caller holds mu.
func (s *Server) record(e Exchange) {
	const keep = 50
	e.Type = strings.ToUpper(e.Type)
	if len(s.recent) >= 2*keep {
		s.recent = append(s.recent[:0], s.recent[len(s.recent)-keep:]...)
	}
	s.recent = append(s.recent, e)
}
