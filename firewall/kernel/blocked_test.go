package kernel_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
)

// shutOutByHand puts a source or a network into its set.
func (s *street) shutOutByHand(set, what string) {
	s.t.Helper()
	key := nets
	if !strings.Contains(what, "/") {
		key = one
	}
	e := ruleset.Element{Key: []ruleset.Range{key(what)}}
	if err := s.k.Add(s.t.Context(), ruleset.Member{Set: set, Element: e}); err != nil {
		s.t.Fatal(err)
	}
}

// What comes from a source that is shut out is dropped by whatever port it
// comes, also one that is switched off or not ours, before anything else looks
// at it. Nothing needs a limit for that.
func TestBlockedSourceIsDroppedOnEveryPort(t *testing.T) {
	for name, c := range map[string]struct {
		set, what, from string
		off             bool // by prerouting: the port has no ingress chain
	}{
		"a source":                 {compile.BlockedSet(false), attacker4, attacker4, false},
		"a source, port off":       {compile.BlockedSet(false), attacker4, attacker4, true},
		"a network":                {compile.BlockedNets(false), "198.51.100.0/24", attacker4, false},
		"a network, port off":      {compile.BlockedNets(false), "198.51.100.0/24", attacker4, true},
		"an IPv6 source":           {compile.BlockedSet(true), source6, attacker6, false},
		"an IPv6 source, port off": {compile.BlockedSet(true), source6, attacker6, true},
		"an IPv6 network":          {compile.BlockedNets(true), "2001:db8:bad::/48", attacker6, false},
		"IPv6 network, port off":   {compile.BlockedNets(true), "2001:db8:bad::/48", attacker6, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(firewall.Limit{})
			cfg.Interfaces[0].On = !c.off
			limitedBy(t, cfg, func(s *street) {
				s.shutOutByHand(c.set, c.what)
				vc, err := net.InterfaceByName("vc")
				if err != nil {
					t.Fatal(err)
				}
				s.inet.do(t, func() error { // a port that is off answers for no neighbour
					return ipAll("-6 neigh replace 2001:db8:1::1 dev eth0 nud permanent lladdr " + vc.HardwareAddr.String())
				})
				s.call(c.from, 3)
				await(t, "three dropped packets", nil, func() bool { return s.count(compile.AutoCounter("blocked")) >= 3 })
				members, err := s.k.Members(t.Context(), c.set)
				if err != nil || len(members) != 1 || members[0].Packets < 3 || members[0].Bytes < 3*40 {
					t.Errorf("the set counts %+v, %v", members, err)
				}
				if n := s.count(compile.AutoCounter("default")) + s.count(compile.AutoCounter("spoofed")) + s.got(); n != 0 {
					t.Errorf("%d packets came further", n)
				}
				if c.off {
					return
				}
				s.connects("10.1.0.2")
			})
		})
	}
}

// A host inside that is shut out can still ask for its address and find its
// neighbours, and nothing else.
func TestBlockedHostInsideKeepsItsAddress(t *testing.T) {
	limitedBy(t, config(firewall.Limit{}), func(s *street) {
		s.shutOutByHand(compile.BlockedSet(false), server4)
		s.shutOutByHand(compile.BlockedSet(true), "2001:db8:2::")
		asked, err := net.ListenPacket("udp4", "10.2.0.1:67") // on the thread of the box
		if err != nil {
			t.Fatal(err)
		}
		defer asked.Close()
		var client *net.UDPConn
		s.host.do(t, func() (err error) {
			client, err = net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(server4), Port: 68}, &net.UDPAddr{IP: net.ParseIP("10.2.0.1"), Port: 67})
			return err
		})
		defer client.Close()
		send(t, client, "renew")
		if _, _, err := asked.ReadFrom(make([]byte, 100)); err != nil {
			t.Errorf("the request: %v", err)
		}
		if n := s.count(compile.AutoCounter("blocked")); n != 0 {
			t.Errorf("%d packets of the request were dropped", n)
		}
		known := func() (text string) {
			s.host.do(t, func() error {
				out, err := exec.Command("ip", "-6", "neigh", "show", "2001:db8:2::1").Output()
				text = string(out)
				return err
			})
			return text
		}
		s.host.do(t, func() error { return ipAll("-6 neigh flush all") })
		s.host.do(t, func() error {
			if ping("2001:db8:2::1") != 0 {
				return fmt.Errorf("a ping came through")
			}
			return nil
		})
		await(t, "the neighbour", nil, func() bool { return strings.Contains(known(), "lladdr") })
		before := s.count(compile.AutoCounter("blocked"))
		s.host.do(t, func() error {
			c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(server4), Port: 69}, &net.UDPAddr{IP: net.ParseIP("10.2.0.1"), Port: 67})
			if err == nil {
				_, err = c.Write([]byte("other"))
				_ = c.Close()
			}
			return err
		})
		await(t, "the drop of another request", nil, func() bool { return s.count(compile.AutoCounter("blocked")) > before })
	})
}

// The box goes on talking to itself though its own prefix is shut out.
func TestBoxTalksToItselfInABlockedPrefix(t *testing.T) {
	limitedBy(t, config(firewall.Limit{}), func(s *street) {
		s.shutOutByHand(compile.BlockedSet(true), "2001:db8:2::")
		if ping("2001:db8:2::1") != 1 {
			t.Error("the box does not hear itself")
		}
	})
}

// A limit of a forward is its rule's: the client is told apart by its own
// address, and shut out before it is translated.
func TestLimitOfAForward(t *testing.T) {
	c := config(firewall.Limit{Open: 9, New: 3, Window: 3600, Over: firewall.LockOut, LockFor: 60})
	ports, _ := firewall.ParsePorts("80")
	c.Rules[0].Family, c.Rules[0].Dst, c.Rules[0].DstPorts = firewall.IPv4, firewall.Ends{Of: []firewall.End{entry(server4).End}}, ports
	c.Rules[0].Forward = "01F"
	c.Forwards = []firewall.Forward{{ID: "01F", On: true, In: "WAN", Proto: firewall.TCP, From: firewall.Anyone(), Dst: entry("WAN address").End,
		Ports: firewall.PortRange{From: 8080, To: 8080}, To: ip(server4), ToPort: 80, Rule: theRule}}
	limitedBy(t, c, func(s *street) {
		wan := ruleset.Element{Key: []ruleset.Range{one("10.1.0.1")}}
		if err := s.k.Fill(t.Context(), compile.AddrSet("WAN", false), []ruleset.Element{wan}); err != nil {
			t.Fatal(err)
		}
		s.callTo(attacker4, netip.MustParseAddrPort("10.1.0.1:8080"), 5)
		await(t, "the excess", nil, func() bool { return s.over() >= 1 })
		s.passed(3)
		s.shutOut(attacker4)
	})
}
