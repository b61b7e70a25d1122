package main

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/firewall/netlab"
)

// C14: ICMP of both families by one rule; neighbour discovery where no rule is.
func TestPingAndNeighbours(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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

// C14, T01: what a WAN must not say: redirects, also of connections that are
// known, router advertisements, and neighbour discovery from afar.
func TestWANMayNotRedirect(t *testing.T) {
	t.Parallel()
	s, _ := athome(t)
	s.echo(s.lab.Inet, 7000)
	flow := s.keepAsking(s.lab.LAN1, "udp", lan1Addr+":5060", netlab.Gateway4+":7000", 100*time.Millisecond)
	s.flows(flow, "the call")
	s.watch(s.lab.LAN1, "redirects", "icmp type redirect", "unreachable", "icmp type destination-unreachable")
	s.watch(s.lab.Box, "redirects", "iifname eth0 icmp type redirect")
	s.watch(s.lab.Inet, "advertised", "ip6 saddr "+netlab.BoxWAN6+" icmpv6 type nd-neighbor-advert")

	// The head of a packet of the call as the internet side saw it: its source port stays what it was.
	about := func(kind, code byte) []byte {
		src, dst := netip.MustParseAddr(wanAddr).As4(), netip.MustParseAddr(netlab.Gateway4).As4()
		other := netip.MustParseAddr("203.0.113.9").As4()
		p := append([]byte{kind, code, 0, 0}, other[:]...)
		if kind != 5 {
			p = []byte{kind, code, 0, 0, 0, 0, 0, 0}
		}
		p = append(p, 0x45, 0, 0, 32, 0, 1, 0, 0, 63, 17, 0, 0)
		p = append(append(p, src[:]...), dst[:]...)
		sum(p[8:28], 10)
		p = append(p, 5060>>8, 5060&255, 7000>>8, 7000&255, 0, 12, 0, 0)
		sum(p, 2)
		return p
	}
	s.sendRaw(s.lab.Inet, unix.AF_INET, unix.IPPROTO_ICMP, 64, wanAddr, about(3, 1))
	s.until("an ICMP error of the call comes in", func() bool { return s.count(s.lab.LAN1, "unreachable") > 0 })
	s.sendRaw(s.lab.Inet, unix.AF_INET, unix.IPPROTO_ICMP, 64, wanAddr, about(5, 1))
	s.sendRaw(s.lab.Inet, unix.AF_INET, unix.IPPROTO_ICMP, 64, wanAddr, about(3, 1))
	s.until("the error after the redirect comes in", func() bool { return s.count(s.lab.LAN1, "unreachable") > 1 })
	if s.count(s.lab.Box, "redirects") != 1 {
		t.Error("the redirect never came to the box")
	}
	s.zero(s.lab.LAN1, "redirects")

	// The internet side knows its neighbour for good, so that it asks only what is asked here.
	mac := strings.TrimSpace(s.runs(s.lab.Box, "cat", "/sys/class/net/eth0/address"))
	s.runs(s.lab.Inet, "ip", "-6", "neigh", "replace", netlab.BoxWAN6, "lladdr", mac, "nud", "permanent", "dev", "eth0")
	box := netip.MustParseAddr(netlab.BoxWAN6).As16()
	solicit := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, box[:]...)
	for _, m := range []struct {
		what string
		hops int
		body []byte
	}{
		{"a router advertisement", 255, []byte{134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}},
		{"a redirect", 255, append(append([]byte{137, 0, 0, 0, 0, 0, 0, 0}, box[:]...), box[:]...)},
		{"neighbour discovery from afar", 64, solicit},
	} {
		was, heard := s.hits("default"), s.count(s.lab.Inet, "advertised")
		s.sendRaw(s.lab.Inet, unix.AF_INET6, unix.IPPROTO_ICMPV6, m.hops, netlab.BoxWAN6, m.body)
		s.until(m.what+" is denied", func() bool { return s.hits("default") > was })
		if n := s.count(s.lab.Inet, "advertised"); n != heard {
			t.Errorf("%s was answered", m.what)
		}
	}
	// Asked again and again: the box is silent while it still looks whether its address is free (RFC 4862 section 5.4).
	s.until("a neighbour is answered", func() bool {
		s.sendRaw(s.lab.Inet, unix.AF_INET6, unix.IPPROTO_ICMPV6, 255, netlab.BoxWAN6, solicit)
		return s.count(s.lab.Inet, "advertised") > 0
	})
	s.flows(flow, "the call")
}

// sum puts the internet checksum (RFC 1071) of b at an offset.
func sum(b []byte, at int) {
	n := uint32(0)
	for i := 0; i < len(b); i += 2 {
		n += uint32(b[i])<<8 | uint32(b[i+1])
	}
	n = n>>16 + n&0xffff
	n = ^(n>>16 + n)
	b[at], b[at+1] = byte(n>>8), byte(n)
}

// sendRaw sends one message of a protocol; the kernel fills in ICMPv6 checksums.
func (s *story) sendRaw(h *netlab.Host, family, proto, hops int, to string, body []byte) {
	s.Helper()
	if err := h.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW, proto)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		addr := netip.MustParseAddr(to)
		if addr.Is4() {
			return unix.Sendto(fd, body, 0, &unix.SockaddrInet4{Addr: addr.As4()})
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hops); err != nil {
			return err
		}
		return unix.Sendto(fd, body, 0, &unix.SockaddrInet6{Addr: addr.As16()})
	}); err != nil {
		s.Fatal(err)
	}
}
