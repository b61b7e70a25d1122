package main

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall/netlab"
)

// C14: ICMP of both families by one rule; neighbour discovery where no rule is.
func TestPingAndNeighbours(t *testing.T) {
	s, owner := athome(t)
	boxGuest6 := "2001:db8:100:2::1"
	ping := func(h *netlab.Host, to string) bool {
		_, err := h.Run(s.ctx, "ping", "-n", "-c", "3", "-i", "0.2", "-W", "2", to)
		return err == nil
	}
	s.watch(s.lab.Guest, "times", "icmp type timestamp-reply")
	timestamp := func() bool {
		was := s.count(s.lab.Guest, "times")
		_, _ = s.lab.Guest.Run(s.ctx, "hping3", "-1", "-C", "13", "-c", "3", "-i", "u200000", guestAddr)
		return s.count(s.lab.Guest, "times") > was
	}
	for _, to := range []string{guestAddr, boxGuest6} {
		if ping(s.lab.Guest, to) {
			t.Errorf("without a rule %s answers the guest", to)
		}
	}
	owner.runNow("/rules/new", rule("in", "GUEST", "proto", "icmp", "icmp", "echo-request", "src", "GUEST net", "dst", "GUEST address"))
	for _, to := range []string{guestAddr, boxGuest6} {
		if !ping(s.lab.Guest, to) {
			t.Errorf("%s does not answer the guest", to)
		}
	}
	if ping(s.lab.Guest, lanAddr) || ping(s.lab.Guest, lan1Addr) || ping(s.lab.Guest, lan1Addr6) {
		t.Error("the rule lets the guest further than the box's own address")
	}
	if timestamp() {
		t.Error("another ICMP type is answered, too")
	}
	owner.runNow("/rules/new", rule("in", "GUEST", "proto", "icmp", "src", "GUEST net", "dst", "GUEST address"))
	if !timestamp() {
		t.Error("the probe of other types does not work: nothing was shown")
	}

	// The WAN has no rule at all.
	for _, to := range []string{wanAddr, netlab.BoxWAN6} {
		if ping(s.lab.Inet, to) {
			t.Errorf("%s answers a ping from the internet", to)
		}
	}
	if out := s.runs(s.lab.Inet, "ip", "-6", "neigh", "show", netlab.BoxWAN6); !strings.Contains(out, "lladdr") {
		t.Errorf("the internet side does not find its neighbour: %q", out)
	}
	if !ping(s.lab.LAN1, netlab.Web6) || !ping(s.lab.LAN1, netlab.Web4) {
		t.Error("the LAN does not reach the internet")
	}
	if out := s.runs(s.lab.Box, "ip", "-6", "neigh", "show", netlab.Gateway6); !strings.Contains(out, "lladdr") {
		t.Errorf("the box does not find its gateway: %q", out)
	}
}

// C14: what a known connection must hear from a router on the way comes in
// through a WAN without rules: packet too big, and fragmentation needed.
func TestPacketTooBigComesThrough(t *testing.T) {
	s, _ := athome(t)
	const far4, far6 = "198.18.7.7", "2001:db8:7::7"
	hop, err := s.lab.AddHost(s.ctx, "hop", 0)
	if err != nil {
		t.Fatal(err)
	}
	s.runs(hop, "sh", "-ec", strings.Join([]string{
		"ip addr add 203.0.113.50/24 dev eth0", "ip addr add " + far4 + "/32 dev lo", "ip route add default via " + netlab.Gateway4,
		"ip addr add 2001:db8:1::50/64 dev eth0 nodad", "ip addr add " + far6 + "/128 dev lo nodad", "ip route add default via " + netlab.Gateway6}, "\n"))
	// The way from inet to the far host is a narrow one. The box's own way is
	// wide, so that it has no reason to clamp.
	s.runs(s.lab.Inet, "sh", "-ec", "ip route add "+far4+" via 203.0.113.50 mtu 1280\nip route add "+far6+" via 2001:db8:1::50 mtu 1280")
	s.watch(s.lab.LAN1, "needed", "icmp type destination-unreachable icmp code 4", "big", "icmpv6 type packet-too-big")
	s.echo(hop, 7000)
	line := strings.Repeat("x", 8000)
	for _, to := range []string{far4, far6} {
		c, err := s.lab.LAN1.Dial(s.ctx, "tcp", netip.AddrPortFrom(netip.MustParseAddr(to), 7000))
		if err != nil {
			t.Errorf("%s: %v", to, err)
			continue
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprintln(c, line)
		if got := readUntil(c, "got="+line); got != nil {
			t.Errorf("8,000 bytes to %s never arrived: %v", to, got)
		}
		c.Close()
	}
	for _, name := range []string{"needed", "big"} {
		if s.count(s.lab.LAN1, name) == 0 {
			t.Errorf("lan1 heard no %q: the way was not narrow, or the box keeps it", name)
		}
	}
}

func readUntil(c net.Conn, word string) error {
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil || strings.Contains(line, word) {
			return err
		}
	}
}
