package dhcp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"gatehouse/firewall"
)

func TestPoolReusesInOrder(t *testing.T) {
	// .100 released last, .101 expired last, .102 expired first, .103 never used.
	p := NewPool(testScope(4, time.Hour), nil)
	row := func(n byte, st State, until time.Duration) {
		mac := firewall.MAC(fmt.Sprintf("02:00:00:00:01:%02x", n))
		p.put(Lease{Addr: ip(n), Client: clientKey(nil, mac), MAC: mac, State: st, Last: start, Until: start.Add(until)})
	}
	row(100, Released, 0)
	row(101, Active, 2*time.Hour)
	row(102, Active, time.Hour)
	var got []netip.Addr
	for i := range 5 {
		v := p.Decide(discover(firewall.MAC(fmt.Sprintf("02:00:00:00:02:%02x", i))), start.Add(3*time.Hour))
		got = append(got, v.Addr)
	}
	want := []netip.Addr{ip(103), ip(102), ip(101), ip(100), {}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestPoolProbesOnlyAddressesNewToTheClient(t *testing.T) {
	p := NewPool(testScope(3, time.Hour), nil)
	if v := p.Decide(discover(macA), start); !v.Probe {
		t.Error("first offer is not probed")
	}
	p.Probed(ip(100), start)
	if v := p.Decide(discover(macA), start.Add(time.Second)); v.Probe {
		t.Error("probed again within a minute")
	}
	p.Decide(selecting(macA, ip(100)), start)
	if v := p.Decide(discover(macA), start.Add(2*time.Hour)); v.Probe {
		t.Error("the client's own address is probed")
	}
	if v := p.Decide(discover(macS), start); v.Probe {
		t.Error("a static lease is probed")
	}
}

func TestPoolPutsAConflictInQuarantine(t *testing.T) {
	p := NewPool(testScope(3, time.Hour), nil)
	p.Decide(discover(macA), start)
	rows := p.Conflict(ip(100), macC, start)
	if len(rows) != 1 || rows[0].State != Declined || rows[0].MAC != macC {
		t.Fatalf("rows %+v", rows)
	}
	if v := p.Decide(discover(macA), start); v.Addr != ip(101) {
		t.Errorf("offered %s after the conflict", v.Addr)
	}
	if got := p.Release(ip(100), start); len(got) != 1 || got[0].State != Released {
		t.Errorf("clearing the quarantine gave %+v", got)
	}
}

func TestPoolForgetsNoLeaseWhenItsClockIsWrong(t *testing.T) {
	// A box without a battery starts in 1970 with leases of 2026.
	l := Lease{Addr: ip(100), State: Active, Last: start, Until: start.Add(time.Hour)}
	boot := time.Unix(0, 0)
	got := l.loaded(boot)
	if left := got.Until.Sub(boot); left != time.Hour {
		t.Errorf("%s left after loading in 1970, want an hour", left)
	}
	if left := l.loaded(start.Add(20 * time.Minute)).Until.Sub(start); left != time.Hour {
		t.Errorf("a right clock moved the end to %s", left)
	}
	// The clock is set: what is left stays.
	p := NewPool(testScope(3, time.Hour), []Lease{got})
	rows := p.Restamp(boot.Add(10 * time.Minute))
	if len(rows) != 1 || rows[0].Until.Sub(boot) != time.Hour || rows[0].Until.Sub(rows[0].Last) != time.Hour {
		t.Errorf("restamped %+v", rows)
	}
}

// world is honest clients and the pool they talk to, the disk included.
type world struct {
	t     *testing.T
	rnd   *rand.Rand
	scope Scope
	pool  *Pool
	disk  map[netip.Addr]Lease
	now   time.Time
	macs  []firewall.MAC
	holds map[firewall.MAC]hold
}

// hold is what a client believes.
type hold struct {
	addr  netip.Addr
	until time.Time
}

// say lets the pool decide and the disk remember; a lost write gets no answer.
func (w *world) say(m Message) Verdict {
	v := w.pool.Decide(m, w.now)
	if len(v.Write) == 0 {
		return v
	}
	if w.rnd.IntN(20) == 0 { // the disk is full
		return Verdict{Why: "not stored"}
	}
	for _, l := range v.Write {
		w.disk[l.Addr] = l
		w.pool.Stored(l)
	}
	return v
}

func (w *world) heed(mac firewall.MAC, v Verdict) {
	switch v.Answer {
	case Ack:
		w.holds[mac] = hold{v.Addr, w.now.Add(v.Lease)}
	case Nak:
		delete(w.holds, mac)
	}
}

// check: no two clients hold one address, nobody holds what he may not.
func (w *world) check(op string) {
	w.t.Helper()
	owner := map[netip.Addr]firewall.MAC{}
	for mac, h := range w.holds {
		if !w.now.Before(h.until) {
			delete(w.holds, mac)
			continue
		}
		if other, twice := owner[h.addr]; twice {
			w.t.Fatalf("%s: %s is held by %s and %s", op, h.addr, mac, other)
		}
		owner[h.addr] = mac
		if h.addr == ip(10) && mac != macS || h.addr == w.scope.Server {
			w.t.Fatalf("%s: %s holds %s", op, mac, h.addr)
		}
	}
}

func (w *world) step() string {
	mac := w.macs[w.rnd.IntN(len(w.macs))]
	h, has := w.holds[mac]
	switch op := w.rnd.IntN(10); {
	case op < 3: // join, sometimes with a wish, sometimes without an end
		m := discover(mac)
		if w.rnd.IntN(2) == 0 {
			m.Requested = ip(byte(98 + w.rnd.IntN(8)))
		}
		o := w.say(m)
		if o.Answer == Offer && w.rnd.IntN(4) > 0 {
			delete(w.holds, mac)
			w.heed(mac, w.say(selecting(mac, o.Addr)))
		}
		return "join"
	case op == 3:
		w.heed(mac, w.say(reboot(mac, ip(byte(98+w.rnd.IntN(8))))))
		return "reboot"
	case op == 4 && has:
		w.heed(mac, w.say(renewing(mac, h.addr)))
		return "renew"
	case op == 5 && has:
		w.heed(mac, w.say(rebinding(mac, h.addr)))
		return "rebind"
	case op == 6 && has:
		delete(w.holds, mac)
		w.say(releasing(mac, h.addr))
		return "release"
	case op == 7 && has:
		delete(w.holds, mac)
		w.say(declining(mac, h.addr))
		return "decline"
	case op == 8: // kill -9 and start again with what the disk has
		var rows []Lease
		for _, l := range w.disk {
			rows = append(rows, l.loaded(w.now))
		}
		w.pool = NewPool(w.scope, rows)
		return "kill"
	}
	w.now = w.now.Add(time.Duration(w.rnd.IntN(8000)) * time.Millisecond)
	return "wait"
}

func TestPoolNeverGivesOneAddressToTwo(t *testing.T) {
	for seed := range uint64(300) {
		s := testScope(4, 20*time.Second)
		w := &world{
			t: t, rnd: rand.New(rand.NewPCG(seed, 1)), scope: s, pool: NewPool(s, nil), disk: map[netip.Addr]Lease{},
			now: start, macs: []firewall.MAC{macA, macB, macC, macS, "02:00:00:00:00:0d", "02:00:00:00:00:0e"},
			holds: map[firewall.MAC]hold{},
		}
		acks := 0
		for i := range 600 {
			op := w.step()
			w.check(fmt.Sprintf("seed %d step %d %s", seed, i, op))
			acks += len(w.holds)
		}
		if acks == 0 {
			t.Fatalf("seed %d: nobody ever held an address", seed)
		}
	}
}

func TestPoolSurvivesRestartAndExpiry(t *testing.T) {
	// C23: pool of 3, lease 20 s, in every order of the clients.
	names := []firewall.MAC{macA, macB, macC, "02:00:00:00:00:0d", "02:00:00:00:00:0e"}
	for seed := range uint64(1000) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		a, b, c, d, e := names[0], names[1], names[2], names[3], names[4]
		s := testScope(3, 20*time.Second)
		p := NewPool(s, nil)
		addrA, addrB := bound(t, p, a, start), bound(t, p, b, start)
		p = NewPool(s, p.Rows()) // kill -9: every row was on disk before its ACK
		addrC := bound(t, p, c, start)
		if addrC == addrA || addrC == addrB {
			t.Fatalf("C got %s, which is held", addrC)
		}
		if v := p.Decide(discover(d), start); v.Answer != Silent {
			t.Fatalf("D got %s %s from a full pool", v.Answer, v.Addr)
		}
		p.Decide(releasing(a, addrA), start.Add(time.Second))
		if got := bound(t, p, d, start.Add(time.Second)); got != addrA {
			t.Fatalf("D got %s, want A's %s", got, addrA)
		}
		if got := bound(t, p, e, start.Add(26*time.Second)); got != addrB && got != addrC && got != addrA {
			t.Fatalf("E got %s", got)
		}
	}
}
