package dhcp

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"gatehouse/firewall"
)

func inPool(a netip.Addr) bool { return !a.Less(ip(100)) && !ip(199).Less(a) }

func nas(mac firewall.MAC, a netip.Addr) firewall.StaticLease {
	return firewall.StaticLease{ID: "N", MAC: mac, Addr: a, Host: "nas"}
}

func TestServerGivesDhclientItsWholeLife(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("c1", macA)
	s := l.serve(50*time.Millisecond, l.config(8, nas(macS, ip(10))))
	s.do(command{Resolvers: []netip.Addr{netip.MustParseAddr("198.51.100.53")}})

	c := l.dhclient("c1", `send host-name "laptop";`)
	got := c.await("BOUND")
	if !inPool(got.addr) || got.lease != "8" || got.dns != "198.51.100.53" || got.router != "192.168.25.1" || got.domain != "home.arpa" {
		t.Fatalf("bound to %+v", got)
	}
	if row := s.lease(got.addr); row.State != Active || row.MAC != macA || row.Host != "laptop" || row.First.IsZero() {
		t.Errorf("the row is %+v", row)
	}
	if r := c.await("RENEW"); r.addr != got.addr { // by itself, at T1
		t.Errorf("renewed %s, want %s", r.addr, got.addr)
	}

	c.settle(got.addr)
	c.kill()
	c = l.dhclient("c1", `send host-name "laptop";`)
	if r := c.await("REBOOT"); r.addr != got.addr {
		t.Errorf("after a reboot: %s, want %s", r.addr, got.addr)
	}
	requests := slices.DeleteFunc(s.do(command{}).Recent, func(e Exchange) bool { return e.Type == "DISCOVER" })
	if last := requests[len(requests)-1]; last.Answer != Ack {
		t.Errorf("the reboot was answered by %s (%s)", last.Answer, last.Why)
	}

	// The server forgets everything: an administrator deletes the row.
	c.kill()
	if r := s.do(command{Delete: got.addr}); r.Err != "" {
		t.Fatal(r.Err)
	}
	c = l.dhclient("c1", "")
	if r := c.await("REBOOT"); r.addr != got.addr {
		t.Errorf("after the server lost its rows: %s, want %s", r.addr, got.addr)
	}
	if row := s.lease(got.addr); row.State != Active || row.MAC != macA {
		t.Errorf("the forgotten client was not adopted: %+v", row)
	}

	// dhclient -r of the running client.
	r := l.dhclient("c1", "", "-r")
	_ = r.cmd.Wait()
	s.awaitState(got.addr, Released)
}

func TestServerAnswersARebindingClientPastTheKernel(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("c1", macA)
	s := l.serve(0, l.config(60))
	c := l.udhcpc("c1")
	got := c.await("bound")
	c.signal(syscall.SIGKILL)
	// The kernel of the box has a wrong idea of where the client is.
	l.in("box", "ip neigh replace "+got.addr.String()+" lladdr 02:de:ad:00:00:01 dev lan0 nud permanent")
	send, answers := l.rawClient("c1")
	pkt := raw(t, macA, map[byte][]byte{53: {3}, 61: {1, 2, 0, 0, 0, 0, 10}})
	copy(pkt[12:], got.addr.AsSlice())
	send(pkt)
	select {
	case b := <-answers:
		p, err := dhcpv4.FromBytes(b)
		if err != nil || p.MessageType() != dhcpv4.MessageTypeAck || !p.YourIPAddr.Equal(got.addr.AsSlice()) || !p.ClientIPAddr.Equal(got.addr.AsSlice()) {
			t.Errorf("answered by %v (%v)", p, err)
		}
	case <-time.After(patience):
		t.Fatalf("no answer; the server says %+v", s.do(command{}).Recent)
	}
}

func TestServerGivesUdhcpcItsWholeLife(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("c1", macA)
	s := l.serve(50*time.Millisecond, l.config(60))
	c := l.udhcpc("c1", "-x", "hostname:phone")
	got := c.await("bound")
	if !inPool(got.addr) || got.lease != "60" || got.router != "192.168.25.1" || got.dns != "" {
		t.Fatalf("bound to %+v", got)
	}
	c.signal(syscall.SIGUSR1)
	if r := c.await("renew", "bound"); r.addr != got.addr {
		t.Errorf("renewed %s, want %s", r.addr, got.addr)
	}
	c.kill()
	c = l.udhcpc("c1", "-r", got.addr.String(), "-x", "hostname:phone")
	if r := c.await("bound"); r.addr != got.addr {
		t.Errorf("came back to %s, want %s", r.addr, got.addr)
	}
	c.signal(syscall.SIGUSR2)
	s.awaitState(got.addr, Released)
	c.kill()
	// The broadcast flag asks for another way back.
	c = l.udhcpc("c1", "-B")
	if r := c.await("bound"); r.addr != got.addr {
		t.Errorf("with the broadcast flag: %s, want %s", r.addr, got.addr)
	}
}

func TestServerNaksTheWrongNetwork(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("c1", macA)
	s := l.serve(0, l.config(3600))
	c := l.dhclient("c1", "")
	c.settle(c.await("BOUND").addr)
	c.kill()
	l.in("box", "ip addr del 192.168.25.1/24 dev lan0 && ip addr add 192.168.30.1/24 dev lan0")
	cfg := addScope(firewall.Config{}, "LAN", "lan0", firewall.LAN, "192.168.30.1/24", "192.168.30.100", "192.168.30.199")
	if r := s.do(command{Config: &cfg}); r.Err != "" {
		t.Fatal(r.Err)
	}
	c = l.dhclient("c1", "")
	if got := c.await("BOUND"); !netip.MustParsePrefix("192.168.30.0/24").Contains(got.addr) {
		t.Errorf("bound to %s, want one of 192.168.30.0/24", got.addr)
	}
	naks := 0
	for _, e := range s.do(command{}).Recent {
		if e.Answer == Nak {
			naks++
		}
	}
	if naks != 1 {
		t.Errorf("%d NAKs, want one", naks)
	}
}

func TestServerNaksARunningClientWhenThePoolMoves(t *testing.T) {
	t.Parallel()
	l := newLab(t) // C22 with a client that is RENEWING
	l.join("c1", macA)
	cfg := l.config(60)
	cfg.Scopes[0].From, cfg.Scopes[0].To = ip(75), ip(85)
	s := l.serve(0, cfg)
	c := l.udhcpc("c1")
	if got := c.await("bound"); got.addr != ip(75) {
		t.Fatalf("bound to %s", got.addr)
	}
	moved := l.config(60)
	s.do(command{Config: &moved})
	c.signal(syscall.SIGUSR1)
	c.await("nak")
	if got := c.await("bound"); !inPool(got.addr) {
		t.Errorf("then bound to %s, want one of .100-.199", got.addr)
	}
}

func TestServerGivesStaticLeases(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("c1", macS)
	l.join("c2", macA)
	s := l.serve(0, l.config(3600, nas(macS, ip(10)), firewall.StaticLease{ID: "2", MAC: macA, Addr: ip(150)}))
	if row := s.lease(ip(10)); row.State != Static || row.Host != "nas" {
		t.Errorf("before the client came: %+v", row)
	}
	// Client identifiers of their own choice: the MAC counts.
	if got := l.dhclient("c1", `send dhcp-client-identifier "something";`).await("BOUND"); got.addr != ip(10) {
		t.Errorf("dhclient got %s, want .10", got.addr)
	}
	if got := l.udhcpc("c2", "-x", "hostname:me").await("bound"); got.addr != ip(150) {
		t.Errorf("udhcpc got %s, want .150", got.addr)
	}
	if row := s.lease(ip(10)); row.State != Active || row.MAC != macS || row.Host != "nas" {
		t.Errorf("with the client here: %+v", row)
	}
}

func TestServerQuarantinesWhatAClientDeclines(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("squat", macC)
	l.join("c1", macA)
	l.in("squat", "ip addr add 192.168.25.100/24 dev eth0")
	s := l.serve(0, l.config(3600)) // the server itself does not ask
	c := l.udhcpc("c1", "-a300", "-A", "1")
	if got := c.await("bound"); got.addr != ip(101) {
		t.Errorf("bound to %s, want .101", got.addr)
	}
	row := s.lease(ip(100))
	if left := time.Until(row.Until); row.State != Declined || left < 50*time.Minute || left > time.Hour {
		t.Errorf("the declined address is %s for %s", row.State, left)
	}
	if r := s.do(command{Release: ip(100)}); r.Err != "" || s.lease(ip(100)).State != Released {
		t.Errorf("clearing the quarantine: %q, now %s", r.Err, s.lease(ip(100)).State)
	}
}

func TestServerAsksBeforeItOffers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.join("squat", macC)
	l.join("c1", macA)
	l.in("squat", "ip addr add 192.168.25.100/24 dev eth0")
	s := l.serve(300*time.Millisecond, l.config(3600))
	if got := l.udhcpc("c1").await("bound"); got.addr != ip(101) { // without -a
		t.Errorf("bound to %s, want .101", got.addr)
	}
	if row := s.lease(ip(100)); row.State != Declined || row.MAC != macC {
		t.Errorf("the address of the squatter is %s by %s", row.State, row.MAC)
	}
	if e := s.do(command{}).Events; !slices.ContainsFunc(e, func(e Event) bool { return e.Kind == Conflict && e.Addr == ip(100) }) {
		t.Errorf("no conflict among the events %v", e)
	}
}
