package main

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall/netlab"
)

// default-deny (G18, T01, T02): nothing from the internet side reaches the box
// or a net inside, and the box does not even say no.
func TestDefaultDeny(t *testing.T) {
	t.Parallel()
	s, owner := athome(t)
	s.routed()
	const port, idle = "9999", "9000-9019"
	servers := []*netlab.Echo{s.echo(s.lab.LAN1, 9999), s.echo(s.lab.Guest, 9999), s.echo(s.lab.LAN1, 80), s.echo(s.lab.LAN1, 22)}
	for _, h := range []*netlab.Host{s.lab.LAN1, s.lab.Guest} {
		s.watch(h, "probes", "meta l4proto { tcp, udp } th dport { 22, 80, 9000-9019, 9999 }",
			"pings", "icmp type echo-request", "pings6", "icmpv6 type echo-request")
	}
	s.watch(s.lab.Inet, "resets", "ip saddr "+wanAddr+" meta l4proto tcp", "resets6", "ip6 saddr "+netlab.BoxWAN6+" meta l4proto tcp",
		"errors", "ip saddr "+wanAddr+" meta l4proto icmp",
		"errors6", "ip6 saddr "+netlab.BoxWAN6+" icmpv6 type != { nd-neighbor-solicit, nd-neighbor-advert }",
		"inside", "iifname eth0 ip saddr 192.168.0.0/16", "inside6", "iifname eth0 ip6 saddr "+netlab.InsideNet6)

	t.Run("full scan of the WAN address", func(t *testing.T) {
		for family, to := range map[string]string{"--privileged": wanAddr, "-6": netlab.BoxWAN6} {
			start := time.Now()
			s.scan(t, 65535, family, "-sS", "-p-", "--min-rate", "20000", to)
			t.Logf("%s: 65,535 TCP ports filtered, 0 open, 0 closed; %v", to, time.Since(start).Round(time.Second))
			s.scan(t, 1000, family, "-sU", "--top-ports", "1000", "--min-rate", "5000", to)
		}
	})
	t.Run("addresses inside, sent straight to the box", func(t *testing.T) {
		ports := "22,53,67,80,443," + port + "," + idle
		s.scan(t, 5*26, "-sS", "-p", ports, "--min-rate", "200", lanAddr, lan1Addr, lan2Addr, guestAddr, guestHost)
		s.scan(t, 4*26, "-6", "-sS", "-p", ports, "--min-rate", "200", "2001:db8:100:1::1", lan1Addr6, "2001:db8:100:2::1", guestHost6)
		s.scan(t, 2, "-sU", "-p", port, lan1Addr, guestHost)
		s.scan(t, 2, "-6", "-sU", "-p", port, lan1Addr6, guestHost6)
		for _, to := range []string{wanAddr, lanAddr, lan1Addr, guestHost, netlab.BoxWAN6, lan1Addr6, guestHost6} {
			if out, err := s.lab.Inet.Run(s.ctx, "ping", "-c", "3", "-i", "0.2", "-W", "1", to); err == nil {
				t.Errorf("%s answers a ping from the internet:\n%s", to, out)
			}
		}
	})
	t.Run("a source from inside on the WAN", func(t *testing.T) {
		was := s.hits("spoofed")
		for src, to := range map[string]string{lan2Addr: lan1Addr, guestHost: lan1Addr, wanAddr: wanAddr, "127.0.0.1": lan1Addr, "10.9.9.9": lan1Addr} {
			// It fails when nothing is answered, as it should be.
			if out, err := s.lab.Inet.Run(s.ctx, "hping3", "-S", "-c", "20", "-i", "u2000", "-p", port, "-a", src, to); err == nil || !strings.Contains(out, "20 packets transmitted") {
				t.Errorf("the flood of %s: %v\n%s", src, err, out)
			}
		}
		s.runs(s.lab.Inet, "nmap", "-6", "-Pn", "-n", "-sS", "-e", "eth0", "-S", lan2Addr6, "-p", idle, "--max-retries", "0", lan1Addr6)
		// 10.9.9.9 has a way back through the WAN, and the kernel itself drops 127.0.0.1.
		if now := s.hits("spoofed"); now-was < 80 {
			t.Errorf("%d packets were counted as spoofed, want 80", now-was)
		}
	})
	for i, e := range servers {
		if _, _, total := e.Connections(); total != 0 {
			t.Errorf("server %d: %d connections came through", i, total)
		}
	}
	s.zero(s.lab.LAN1, "probes", "pings", "pings6")
	s.zero(s.lab.Guest, "probes", "pings", "pings6")
	s.zero(s.lab.Inet, "resets", "resets6", "errors", "errors6", "inside", "inside6")

	t.Run("the same probes arrive when a rule lets them", func(t *testing.T) {
		owner.runNow("/rules/new", rule("in", "WAN", "dst", lan1Addr+", "+lan1Addr6, "dport", port))
		for _, to := range []string{lan1Addr + ":" + port, "[" + lan1Addr6 + "]:" + port} {
			if _, err := s.reaches(s.lab.Inet, "tcp", "", to); err != nil {
				t.Errorf("%s: %v", to, err)
			}
		}
		if s.count(s.lab.LAN1, "probes") == 0 {
			t.Error("the counter at lan1 sees nothing")
		}
	})
}

// scan runs nmap on the internet side and wants n ports, every one silent.
func (s *story) scan(t *testing.T, n int, args ...string) {
	t.Helper()
	out, err := s.lab.Inet.Run(s.ctx, "nmap", append([]string{"-Pn", "-n", "-oX", "-", "--max-retries", "1"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	type state struct {
		Name   string `xml:"state,attr"`
		Reason string `xml:"reason,attr"`
	}
	var report struct {
		Many []struct {
			state
			Count int `xml:"count,attr"`
			Why   []struct {
				Reason string `xml:"reason,attr"`
			} `xml:"extrareasons"`
		} `xml:"host>ports>extraports"`
		Single []struct {
			ID    int   `xml:"portid,attr"`
			State state `xml:"state"`
		} `xml:"host>ports>port"`
	}
	// What nmap warns of stands before the document.
	if err := xml.Unmarshal([]byte(out[max(0, strings.Index(out, "<?xml")):]), &report); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	silent := 0
	for _, m := range report.Many {
		if !strings.HasSuffix(m.Name, "filtered") || len(m.Why) != 1 || m.Why[0].Reason != "no-response" {
			t.Errorf("%v: %d ports are %s: %v", args, m.Count, m.Name, m.Why)
			continue
		}
		silent += m.Count
	}
	for _, p := range report.Single {
		if !strings.HasSuffix(p.State.Name, "filtered") || p.State.Reason != "no-response" {
			t.Errorf("%v: port %d is %s: %s", args, p.ID, p.State.Name, p.State.Reason)
			continue
		}
		silent++
	}
	if silent != n {
		t.Errorf("%v: %d of %d ports are silent:\n%s", args, silent, n, out)
	}
}

// zero wants counters of watch at nothing.
func (s *story) zero(h *netlab.Host, names ...string) {
	s.Helper()
	for _, name := range names {
		if n := s.count(h, name); n != 0 {
			s.Errorf("%s saw %d packets it should never see: %s", h.Name, n, name)
		}
	}
}
