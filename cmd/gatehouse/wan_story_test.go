package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
)

// dynamic is the home network with a WAN that asks the provider for its address.
func dynamic() []firewall.Change {
	return append(home(), firewall.UpdateInterface{Name: "WAN", Interface: firewall.Interface{Name: "WAN", Device: "eth0", Role: firewall.WAN, On: true,
		V4: firewall.V4{Mode: firewall.DHCP}, V6: firewall.V6{Mode: firewall.None}, BlockPrivate: true}})
}

// online starts a box with such a WAN and settles the hosts inside.
func online(t *testing.T, d netlab.DHCP) *story {
	t.Helper()
	s := begin(t)
	s.provide(d)
	s.seed(dynamic()...)
	s.serve()
	s.settle()
	return s
}

// wan waits until the WAN port has an address that fits, or none for "", and gives it.
func (s *story) wan(pattern string) string {
	s.Helper()
	fits := regexp.MustCompile("^" + pattern + "$")
	ctx, stop := context.WithTimeout(s.ctx, 5*time.Minute)
	defer stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		addrs, err := s.lab.Box.Addrs("eth0")
		if err != nil {
			s.Fatal(err)
		}
		addrs = slices.DeleteFunc(addrs, func(p netip.Prefix) bool { return !p.Addr().Is4() })
		if pattern == "" && len(addrs) == 0 {
			return ""
		}
		for _, p := range addrs {
			if pattern != "" && fits.MatchString(p.Addr().String()) {
				return p.Addr().String()
			}
		}
		select {
		case <-ctx.Done():
			s.Fatalf("the WAN has %v, wanted %q\n%s", addrs, pattern, s.isp.Output())
		case <-tick.C:
		}
	}
}

// isp waits for the next line of the provider's DHCP server.
func (s *story) provider(pattern string) {
	s.Helper()
	ctx, stop := context.WithTimeout(s.ctx, 5*time.Minute)
	defer stop()
	if _, err := s.isp.Next(ctx, pattern); err != nil {
		s.Fatalf("the provider never saw %q: %v\n%s", pattern, err, s.isp.Output())
	}
}

// A lease is asked for, renewed at T1, asked for again after the cable was out,
// and another address is taken over with the flows inside going on.
func TestWANFollowsTheProvidersDHCP(t *testing.T) {
	t.Parallel()
	s := online(t, netlab.DHCP{Renew: 6 * time.Second})
	first := s.wan(`203\.0\.113\.1\d\d`)
	s.provider(`DHCPACK`)
	if out, err := s.lab.LAN1.Run(s.ctx, "curl", "-sS", "--max-time", "60", "http://"+netlab.Web4+"/"); err != nil || !strings.Contains(out, first) {
		t.Fatalf("the internet did not see %s: %v\n%s", first, err, out)
	}
	s.provider(`DHCPREQUEST`) // renewing
	s.provider(`DHCPACK`)

	s.provide(netlab.DHCP{}) // from the next renewal on T1 is a minute away
	s.provider(`DHCPACK`)
	if err := s.lab.Box.Unplug("eth0"); err != nil {
		t.Fatal(err)
	}
	s.hear(`event=down device=eth0`)
	pulled := time.Now()
	if err := s.lab.Box.Plug("eth0"); err != nil {
		t.Fatal(err)
	}
	s.provider(`DHCPREQUEST`) // INIT-REBOOT: no DISCOVER before it
	s.provider(`DHCPACK`)
	t.Logf("cable back to lease confirmed: %s", time.Since(pulled).Round(10*time.Millisecond))
	if now := s.wan(`203\.0\.113\.1\d\d`); now != first {
		t.Errorf("after the flap the box has %s, had %s", now, first)
	}

	flow := s.asks(s.lab.LAN1, netlab.Gateway4)
	if got := flow.sees(first); got == "" {
		t.Fatal("the flow never started")
	}
	// Another range: the renewal is refused and the new address taken.
	s.provide(netlab.DHCP{First: "203.0.113.200", Last: "203.0.113.210"})
	if err := s.lab.Box.Unplug("eth0"); err != nil {
		t.Fatal(err)
	}
	if err := s.lab.Box.Plug("eth0"); err != nil {
		t.Fatal(err)
	}
	second := s.wan(`203\.0\.113\.2\d\d`)
	moved := time.Now()
	if got := flow.sees(second); got == "" {
		t.Fatalf("the flow did not resume from %s", second)
	}
	t.Logf("new address to the old flow going on: %s", time.Since(moved).Round(10*time.Millisecond))
}

// A provider whose server sits in 10/8 works although private sources are blocked.
func TestWANWorksBehindAServerInPrivateSpace(t *testing.T) {
	t.Parallel()
	s := online(t, netlab.DHCP{Server: "10.64.0.1", Renew: 6 * time.Second})
	addr := s.wan(`203\.0\.113\.1\d\d`)
	s.provider(`DHCPACK`)
	s.provider(`DHCPACK`) // the renewal, by unicast through the gateway
	if out, err := s.lab.LAN1.Run(s.ctx, "curl", "-sS", "--max-time", "60", "http://"+netlab.Web4+"/"); err != nil || !strings.Contains(out, addr) {
		t.Fatalf("the internet did not see %s: %v\n%s", addr, err, out)
	}
}

// The address stays while the server is gone and the lease lasts, and goes with the lease.
func TestWANKeepsItsAddressUntilTheLeaseEnds(t *testing.T) {
	s := online(t, netlab.DHCP{})
	s.wan(`203\.0\.113\.1\d\d`)
	s.isp.Stop(s.ctx)
	if out, err := s.lab.LAN1.Run(s.ctx, "curl", "-sS", "--max-time", "60", "http://"+netlab.Web4+"/"); err != nil {
		t.Fatalf("the address went with the server: %v\n%s", err, out)
	}
	t.Parallel() // the two minutes of the lease run while the other stories begin
	s.wan("")
	if out := s.verb("status"); strings.Contains(out, "203.0.113.1") {
		t.Errorf("status still shows the address:\n%s", out)
	}
	s.provide(netlab.DHCP{First: "203.0.113.160", Last: "203.0.113.170"})
	s.wan(`203\.0\.113\.1[67]\d`)
}

// asker is one UDP conversation with an echo server, a line every 300 ms.
type asker struct {
	s    *story
	conn net.Conn
}

const askPort = 7000

func (s *story) asks(h *netlab.Host, to string) *asker {
	s.Helper()
	if _, err := s.lab.Inet.Echo(askPort); err != nil {
		s.Fatal(err)
	}
	c, err := h.Dial(s.ctx, "udp", netip.AddrPortFrom(netip.MustParseAddr(to), askPort))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return &asker{s, c}
}

// sees talks until the far side sees this source, and gives its answer; "" when it never does.
func (f *asker) sees(source string) string {
	deadline := time.Now().Add(patience)
	in := bufio.NewReader(f.conn)
	for time.Now().Before(deadline) {
		_, _ = io.WriteString(f.conn, "still here\n") // an ICMP error of the moment is not the end
		_ = f.conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if line, err := in.ReadString('\n'); err == nil && strings.Contains(line, source+":") {
			return line
		}
	}
	return ""
}
