package main

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
)

// port-forward (C05, C06, C07): made in the form, by people, on real packets.
func TestForwardPorts(t *testing.T) {
	t.Parallel()
	s, owner := athome(t, firewall.AddAlias{Alias: firewall.Alias{Name: "NOBODY", Kind: firewall.Addresses}})
	for port := uint16(9000); port <= 9010; port++ {
		s.echo(s.lab.LAN1, port)
	}
	s.echo(s.lab.LAN1, 22)
	s.echo(s.lab.LAN1, 8443)

	t.Run("C06 a range is shifted one to one", func(t *testing.T) {
		owner.wrong("ports", "/forwards/new", forward("proto", "tcp+udp", "dport", "8000-8010", "to", lan1Addr, "to_port", "9000-9009"))
		owner.wrong("end at 65540", "/forwards/new", forward("proto", "tcp+udp", "dport", "8000-8010", "to", lan1Addr, "to_port", "65530"))
		if !s.refused(s.lab.Inet, "tcp", "", wanAddr+":8003") {
			t.Fatal("the forward is there before it was made")
		}
		owner.runNow("/forwards/new", forward("proto", "tcp+udp", "dport", "8000-8010", "to", lan1Addr, "to_port", "9000", "descr", "range"))
		var done sync.WaitGroup
		for out := 8000; out <= 8010; out++ {
			for _, network := range []string{"tcp", "udp"} {
				done.Go(func() {
					from := fmt.Sprintf("203.0.113.8:%d", 20000+out)
					peer, port := s.greeting(s.lab.Inet, network, from, fmt.Sprintf("%s:%d", wanAddr, out))
					if port != out+1000 || peer.String() != from {
						t.Errorf("%s %d came out at %d, and the server saw %s, want %s", network, out, port, peer, from)
					}
				})
			}
		}
		done.Wait()
		for _, to := range []string{":7999", ":8011", ":9003"} {
			if !s.refused(s.lab.Inet, "tcp", "", wanAddr+to) {
				t.Errorf("%s is open, too", to)
			}
		}
	})
	t.Run("C05 only these sources", func(t *testing.T) { s.onlyFrom(t, owner) })
	t.Run("C05 an empty alias", func(t *testing.T) { s.fromNobody(t, owner) })
	t.Run("C07 reflection", func(t *testing.T) { s.reflection(t, owner) })
}

func (s *story) onlyFrom(t *testing.T, owner *person) {
	owner.wrong("source", "/forwards/new", forward("dport", "2222", "to", lan1Addr, "to_port", "22", "only", "1", "from", ""))
	owner.wrong("Only from", "/forwards/new", forward("dport", "2222", "to", lan1Addr, "to_port", "22", "from", "203.0.113.7"))
	owner.runNow("/forwards/new", forward("dport", "2222", "to", lan1Addr, "to_port", "22", "only", "1", "from", "203.0.113.7"))
	peer, port := s.greeting(s.lab.Inet, "tcp", "203.0.113.7:0", wanAddr+":2222")
	if port != 22 || peer.Addr() != netip.MustParseAddr("203.0.113.7") {
		t.Errorf("the one that may: %s at port %d", peer, port)
	}
	for _, from := range []string{"203.0.113.8:0", "198.51.100.11:0", netlab.Gateway4 + ":0"} {
		if !s.refused(s.lab.Inet, "tcp", from, wanAddr+":2222") {
			t.Errorf("%s may use a forward that is for 203.0.113.7 only", from)
		}
	}
}

// C05: an alias with nobody in it lets nobody in, and says so.
func (s *story) fromNobody(t *testing.T, owner *person) {
	owner.runNow("/forwards/new", forward("dport", "2223", "to", lan1Addr, "to_port", "22", "only", "1", "from", "NOBODY", "descr", "for nobody"))
	if page := text(owner.get("/forwards").body); !strings.Contains(page, "NOBODY is empty") {
		t.Errorf("the page does not warn of the empty alias:\n%s", page)
	}
	for _, from := range []string{"203.0.113.7:0", "203.0.113.8:0"} {
		if !s.refused(s.lab.Inet, "tcp", from, wanAddr+":2223") {
			t.Errorf("%s may use a forward that is for nobody", from)
		}
	}
}

func (s *story) reflection(t *testing.T, owner *person) {
	const out = wanAddr + ":443"
	inside := map[string]*netlab.Host{"lan2": s.lab.LAN2, "the server itself": s.lab.LAN1, "guest": s.lab.Guest}
	for name, h := range inside {
		if got := s.answers(h, []int{443, 80}, wanAddr); len(got) > 0 {
			t.Errorf("without a forward %s gets an answer of %v", name, got)
		}
	}
	owner.runNow("/forwards/new", forward("dport", "443", "to", lan1Addr, "to_port", "8443", "descr", "web shop"))
	if peer, port := s.greeting(s.lab.Inet, "tcp", "203.0.113.7:0", out); port != 8443 || peer.Addr().String() != "203.0.113.7" {
		t.Errorf("from the internet: %s at port %d", peer, port)
	}
	for _, h := range []*netlab.Host{s.lab.LAN1, s.lab.LAN2} {
		// Its own network: the answer must come back through the box.
		if peer, port := s.greeting(h, "tcp", "", out); port != 8443 || peer.Addr().String() != lanAddr {
			t.Errorf("%s: the server at %d saw %s, want the LAN address of the box", h.Name, port, peer)
		}
	}
	if !s.refused(s.lab.Guest, "tcp", "", out) {
		t.Error("reflection let a guest in without a rule")
	}
	owner.runNow("/rules/new", rule("in", "GUEST", "src", "GUEST net", "dst", lan1Addr, "dport", "8443", "descr", "guests to the shop"))
	if peer, port := s.greeting(s.lab.Guest, "tcp", "", out); port != 8443 || peer.Addr().String() != guestHost {
		t.Errorf("guest: the server at %d saw %s, want the guest", port, peer)
	}

	// Off: neither the server nor the pages of the box.
	path := editorOf(s, owner.get("/forwards").body, "/forwards/", "web shop")
	owner.runNow(path, forward("hash", hidden(s, owner.get(path).body, "hash"), "dport", "443", "to", lan1Addr, "to_port", "8443",
		"descr", "web shop", "reflect", ""))
	for name, h := range inside {
		if got := s.answers(h, []int{443, 80}, wanAddr); len(got) > 0 {
			t.Errorf("with reflection off %s gets an answer of %v", name, got)
		}
	}
	if _, port := s.greeting(s.lab.Inet, "tcp", "", out); port != 8443 {
		t.Error("with reflection off the internet side is shut out, too")
	}
}
