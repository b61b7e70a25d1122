package wan

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

var (
	t0     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	server = netip.MustParseAddr("10.0.0.1")
	mine   = netip.MustParsePrefix("10.0.0.77/24")
)

// bench drives a machine by hand and remembers what it wanted.
type bench struct {
	*testing.T
	m   *Machine
	now time.Time
}

func newBench(t *testing.T, remembered Lease, set bool) *bench {
	return &bench{T: t, m: NewMachine(rand.New(rand.NewPCG(1, 2)), remembered, set, t0), now: t0}
}

// wait goes on to the machine's next wake-up and returns what it does then.
func (b *bench) wait() []Action {
	b.Helper()
	if b.m.Next().IsZero() {
		b.Fatal("the machine waits for nothing")
	}
	if b.m.Next().After(b.now) {
		b.now = b.m.Next()
	}
	return b.m.Wake(b.now)
}

// sent is the one message of acts.
func (b *bench) sent(acts []Action) Message {
	b.Helper()
	var got []Message
	for _, a := range acts {
		if a.Send != nil {
			got = append(got, *a.Send)
		}
	}
	if len(got) != 1 {
		b.Fatalf("want one message, got %d (state %s)", len(got), b.m.State())
	}
	return got[0]
}

func (b *bench) reply(k Kind, addr netip.Prefix, granted time.Duration) []Action {
	return b.m.Hear(b.now, Reply{Kind: k, XID: b.m.xid, Lease: Lease{Addr: addr, Server: server, Granted: granted}})
}

func (b *bench) bind(granted time.Duration) {
	b.Helper()
	b.m.Link(b.now, true)
	if b.m.State() == Selecting {
		b.reply(Offer, mine, granted)
	}
	acts := b.reply(Ack, mine, granted)
	if b.m.State() == Checking {
		acts = b.m.Checked(b.now, mine.Addr(), false)
	}
	if len(acts) != 1 || acts[0].Use == nil || b.m.State() != Bound {
		b.Fatalf("not bound: %v in %s", acts, b.m.State())
	}
}

func remembered() Lease {
	return Lease{Addr: mine, Server: server, Granted: time.Hour, Since: t0.Add(-time.Minute), Renew: t0.Add(29 * time.Minute),
		Rebind: t0.Add(50 * time.Minute), Until: t0.Add(59 * time.Minute)}
}

func TestMachineGetsALeaseInOneExchange(t *testing.T) {
	b := newBench(t, Lease{}, false)
	d := b.sent(b.m.Link(b.now, true))
	if d.Kind != Discover || d.To.IsValid() || d.CIAddr.IsValid() {
		t.Errorf("first message %+v, want a broadcast DISCOVER", d)
	}
	r := b.sent(b.reply(Offer, mine, time.Hour))
	if r.Kind != Request || r.XID != d.XID || r.Want != mine.Addr() || r.Server != server || r.CIAddr.IsValid() {
		t.Errorf("request %+v must go on with the exchange and name address and server", r)
	}
	acts := b.reply(Ack, mine, time.Hour)
	if len(acts) != 1 || acts[0].Check == nil || acts[0].Check.Addr != mine {
		t.Errorf("ACK gave %+v, want the address checked first", acts)
	}
	acts = b.m.Checked(b.now, mine.Addr(), false)
	if len(acts) != 1 || acts[0].Use == nil || acts[0].Use.Until != t0.Add(time.Hour) || acts[0].Use.Renew != t0.Add(30*time.Minute) {
		t.Errorf("ACK gave %+v", acts)
	}
	if p, u := b.m.Hears(); p || u {
		t.Error("a socket stays open while bound")
	}
}

func TestMachineRetriesWithGrowingPauses(t *testing.T) {
	b := newBench(t, Lease{}, false)
	b.m.Link(b.now, true)
	for i, want := range []time.Duration{4, 8, 16, 32, 64, 64, 64} {
		before := b.now
		if got := b.m.Next().Sub(before); got < (want-1)*time.Second || got > (want+1)*time.Second {
			t.Errorf("pause %d is %s, want %d s give or take one", i+1, got, want)
		}
		if m := b.sent(b.wait()); m.Kind != Discover {
			t.Errorf("retry %d is %+v", i+1, m)
		}
	}
}

func TestMachineRenewsByUnicastThenRebindsThenLosesTheAddress(t *testing.T) {
	b := newBench(t, Lease{}, false)
	b.bind(time.Hour)
	m := b.sent(b.wait())
	if b.m.State() != Renewing || m.To != server || m.CIAddr != mine.Addr() || m.Want.IsValid() || m.Server.IsValid() {
		t.Errorf("at T1 %+v in %s, want a unicast REQUEST with ciaddr only", m, b.m.State())
	}
	if b.now.Sub(t0) != 30*time.Minute {
		t.Errorf("T1 came after %s", b.now.Sub(t0))
	}
	for b.m.State() == Renewing {
		m = b.sent(b.wait())
	}
	if b.m.State() != Rebinding || m.To.IsValid() || m.CIAddr != mine.Addr() {
		t.Errorf("at T2 %+v in %s, want a broadcast REQUEST with ciaddr", m, b.m.State())
	}
	if got := b.now.Sub(t0); got != time.Hour*7/8 {
		t.Errorf("T2 came after %s", got)
	}
	for {
		acts := b.wait()
		if acts[0].Drop == nil {
			continue
		}
		if b.now.Sub(t0) != time.Hour || b.sent(acts).Kind != Discover {
			t.Errorf("the address went after %s with %+v", b.now.Sub(t0), acts)
		}
		return
	}
}

func TestMachineShortLeaseIsAskedForMoreThanOnce(t *testing.T) {
	b := newBench(t, Lease{}, false)
	b.bind(2 * time.Minute)
	asked := map[State]int{}
	for b.m.State() == Bound || b.m.State() == Renewing || b.m.State() == Rebinding {
		b.wait()
		asked[b.m.State()]++
	}
	if asked[Renewing] < 3 || asked[Rebinding] < 2 {
		t.Errorf("asked %v: one lost packet must not cost the address", asked)
	}
}

func TestMachineRenewalKeepsSinceAndMovesUntil(t *testing.T) {
	b := newBench(t, Lease{}, false)
	b.bind(time.Hour)
	b.wait()
	acts := b.reply(Ack, mine, time.Hour)
	if len(acts) != 1 || acts[0].Use == nil || acts[0].Use.Since != t0 || acts[0].Use.Until != t0.Add(90*time.Minute) {
		t.Errorf("renewal gave %+v", acts)
	}
}

func TestMachineFlapAsksForTheSameAddressAtOnce(t *testing.T) {
	b := newBench(t, Lease{}, false)
	b.bind(time.Hour)
	b.now = b.now.Add(time.Minute)
	if acts := b.m.Link(b.now, false); len(acts) != 0 {
		t.Errorf("link down did %+v: the address stays", acts)
	}
	b.now = b.now.Add(time.Minute)
	m := b.sent(b.m.Link(b.now, true))
	if b.m.State() != Rebooting || m.Kind != Request || m.Want != mine.Addr() || m.Server.IsValid() || m.CIAddr.IsValid() {
		t.Errorf("after the flap %+v in %s, want INIT-REBOOT", m, b.m.State())
	}
	b.wait()
	b.wait()
	if l, ok := b.m.Held(); b.m.State() != Selecting || !ok || l.Addr != mine {
		t.Errorf("a silent server: %s, held %v; want DISCOVER with the address kept", b.m.State(), ok)
	}
	other := netip.MustParsePrefix("10.0.0.99/24")
	b.reply(Offer, other, time.Hour)
	b.reply(Ack, other, time.Hour)
	if acts := b.wait(); acts[0].Use == nil || acts[0].Use.Addr != other { // a check that never came back
		t.Errorf("new address: %+v", acts)
	}
}

func TestMachineLinkDownPastTheEndLosesTheAddress(t *testing.T) {
	b := newBench(t, Lease{}, false)
	b.bind(time.Minute)
	b.m.Link(b.now, false)
	acts := b.wait()
	if len(acts) != 1 || acts[0].Drop == nil || b.now.Sub(t0) != time.Minute {
		t.Errorf("after %s: %+v", b.now.Sub(t0), acts)
	}
	if m := b.sent(b.m.Link(b.now, true)); m.Kind != Discover || m.Want != mine.Addr() {
		t.Errorf("then %+v, want a DISCOVER that asks for the old address", m)
	}
}

func TestMachineNakStartsAgainAndNeverSpins(t *testing.T) {
	b := newBench(t, remembered(), true)
	b.m.Link(b.now, true)
	acts := b.reply(Nak, netip.Prefix{}, 0)
	if acts[0].Drop == nil || b.sent(acts).Want.IsValid() {
		t.Errorf("NAK did %+v: want the address gone and a DISCOVER without a wish", acts)
	}
	var pauses []time.Duration
	for range 5 {
		b.reply(Offer, mine, time.Hour)
		if acts := b.reply(Nak, netip.Prefix{}, 0); len(acts) != 0 {
			t.Errorf("a repeated NAK sends at once: %+v", acts)
		}
		pauses = append(pauses, b.m.Next().Sub(b.now))
		b.wait()
	}
	if pauses[0] < 3*time.Second || pauses[4] < 60*time.Second {
		t.Errorf("pauses %v do not grow", pauses)
	}
}

func TestMachineNakOfAStrangerWhileRenewingIsIgnored(t *testing.T) {
	b := newBench(t, Lease{}, false)
	b.bind(time.Hour)
	b.wait()
	nak := Reply{Kind: Nak, XID: b.m.xid, Lease: Lease{Server: netip.MustParseAddr("10.0.0.66")}}
	if acts := b.m.Hear(b.now, nak); len(acts) != 0 {
		t.Errorf("did %+v", acts)
	}
	if acts := b.reply(Nak, netip.Prefix{}, 0); len(acts) == 0 || acts[0].Drop == nil {
		t.Errorf("the server's own NAK did %+v", acts)
	}
}

func TestMachineTakesOnlyTheAnswerItAskedFor(t *testing.T) {
	b := newBench(t, Lease{}, false)
	b.m.Link(b.now, true)
	if acts := b.reply(Ack, mine, time.Hour); len(acts) != 0 {
		t.Error("an ACK without a request was taken")
	}
	if acts := b.m.Hear(b.now, Reply{Kind: Offer, XID: b.m.xid + 1, Lease: Lease{Addr: mine, Server: server}}); len(acts) != 0 {
		t.Error("an offer of another exchange was taken")
	}
	b.reply(Offer, mine, time.Hour)
	if acts := b.reply(Ack, netip.MustParsePrefix("10.0.0.5/24"), time.Hour); len(acts) != 0 {
		t.Error("an ACK for another address than the offer was taken")
	}
	if acts := b.reply(Ack, mine, 0); len(acts) != 0 {
		t.Error("a lease of no time was taken")
	}
}

func TestMachineAfterRestart(t *testing.T) {
	for name, c := range map[string]struct {
		l     Lease
		set   bool
		state State
		held  bool
	}{
		"address still set":     {remembered(), true, Rebooting, true},
		"after a reboot":        {remembered(), false, Rebooting, false},
		"lease over":            {Lease{Addr: mine, Server: server, Until: t0.Add(-time.Second)}, true, Selecting, false},
		"nothing is remembered": {Lease{}, false, Selecting, false},
	} {
		b := newBench(t, c.l, c.set)
		b.m.Link(b.now, true)
		if _, held := b.m.Held(); b.m.State() != c.state || held != c.held {
			t.Errorf("%s: %s, held %v", name, b.m.State(), held)
		}
	}
}

func TestMachineDeclinesAnAddressInUseButNotForEver(t *testing.T) {
	b := newBench(t, Lease{}, false)
	b.m.Link(b.now, true)
	for range 2 {
		b.reply(Offer, mine, time.Hour)
		b.reply(Ack, mine, time.Hour)
		m := b.sent(b.m.Checked(b.now, mine.Addr(), true))
		if m.Kind != Decline || m.Want != mine.Addr() || m.Server != server || m.CIAddr.IsValid() {
			t.Errorf("sent %+v", m)
		}
		if _, held := b.m.Held(); held || b.m.Next().Sub(b.now) != 10*time.Second {
			t.Errorf("held %v, asks again after %s", held, b.m.Next().Sub(b.now))
		}
		if m := b.sent(b.wait()); m.Kind != Discover || m.Want.IsValid() {
			t.Errorf("then sent %+v", m)
		}
	}
	b.reply(Offer, mine, time.Hour)
	if acts := b.reply(Ack, mine, time.Hour); len(acts) != 1 || acts[0].Use == nil {
		t.Errorf("a network that answers for every address leaves us without one: %+v", acts)
	}
}

func TestMachineReleaseTellsTheServerAndRests(t *testing.T) {
	b := newBench(t, Lease{}, false)
	b.bind(time.Hour)
	acts := b.m.Release(b.now)
	if m := b.sent(acts); m.Kind != Release || m.To != server || m.CIAddr != mine.Addr() {
		t.Errorf("sent %+v", m)
	}
	if acts[1].Drop == nil || !b.m.Next().IsZero() {
		t.Errorf("did %+v, next %s", acts, b.m.Next())
	}
	if m := b.sent(b.m.Renew(b.now)); m.Kind != Discover {
		t.Errorf("renew sent %+v", m)
	}
}

// Whatever comes in whatever order, the machine never sends more than one
// message per event and never waits for a moment that is long gone.
func TestMachineNeverSpins(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	b := newBench(t, Lease{}, false)
	for range 20000 {
		var acts []Action
		switch r.IntN(8) {
		case 0:
			acts = b.m.Link(b.now, r.IntN(4) > 0)
		case 1:
			acts = b.reply(Offer, mine, time.Duration(r.IntN(200))*time.Second)
		case 2:
			acts = b.reply(Ack, mine, time.Duration(r.IntN(200))*time.Second)
		case 3:
			acts = b.reply(Nak, netip.Prefix{}, 0)
		case 4:
			b.now = b.now.Add(time.Duration(r.IntN(100)) * time.Second)
			acts = b.m.Wake(b.now)
		case 5:
			acts = b.m.Renew(b.now)
			acts = append(acts, b.m.Checked(b.now, mine.Addr(), r.IntN(2) == 0)...)
		default:
			if !b.m.Next().IsZero() {
				acts = b.wait()
				if next := b.m.Next(); !next.IsZero() && next.Before(b.now) {
					t.Fatalf("after a wake-up in %s the next is %s ago", b.m.State(), b.now.Sub(next))
				}
			}
		}
		sends := 0
		for _, a := range acts {
			if a.Send != nil {
				sends++
			}
		}
		if sends > 1 {
			t.Fatalf("%d messages at once in %s", sends, b.m.State())
		}
	}
}
