package main

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"
)

// apply-leaks-nothing (T03, G1): a flood that no rule lets in finds no gap in a
// thousand applies, and what the rules do let through never waits.
func TestApplyLeaksNothing(t *testing.T) {
	const ours, theirs = 950, 50
	more := pass("SPARE", "WAN", "203.0.113.7", lan2Addr)
	more.Proto, more.DstPorts = firewall.TCP, firewall.Ports{{Range: firewall.PortRange{From: 80, To: 90}}}
	spare := firewall.AddRule{Rule: more}
	s, owner := athome(t)
	s.routed()
	s.echo(s.lab.Inet, 7000)
	s.watch(s.lab.LAN1, "flood", "udp dport 7777")
	owner.post("/rules/new", rule("in", "WAN", "src", "203.0.113.7", "dst", lan2Addr, "dport", "80-90", "descr", "spare"))
	owner.apply() // revisions 1 and 2 differ by a rule, and every restore of the one before changes sides

	flowing := s.keepAsking(s.lab.LAN2, "tcp", "", "203.0.113.9:7000", 20*time.Millisecond)
	s.flows(flowing, "the download")
	before, err := s.lab.Inet.Counters("eth0")
	if err != nil {
		t.Fatal(err)
	}
	flood, err := s.lab.Inet.Start(s.ctx, "hping3", "--udp", "--flood", "-q", "-p", "7777", lan1Addr)
	if err != nil {
		t.Fatal(err)
	}

	start := time.Now()
	n := s.status().Revision.Number
	for range theirs {
		s.verb("restore", strconv.FormatUint(n-1, 10))
		now := s.status().Revision.Number
		if now != n+1 {
			t.Fatalf("revision %d runs after %d was restored on %d", now, n-1, n)
		}
		n = now
	}
	t.Logf("%d applies by the product: %v each", theirs, (time.Since(start) / theirs).Round(time.Millisecond))
	s.flows(flowing, "the download")

	// The product would put right what somebody else writes, so it leaves for a
	// moment; its rules stay.
	if err := s.box.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.box.Done()
	last := s.confirmed()
	other := config(t, append(home(), spare)...)
	sides := []ruleset.Ruleset{compile.Compile(other), compile.Compile(last)} // ends as it began
	start = time.Now()
	s.asKernel(s.lab.Box, func(k *kernel.Kernel) error {
		for i := range ours {
			if err := k.Apply(s.ctx, sides[i%2]); err != nil {
				return fmt.Errorf("apply %d: %w", i, err)
			}
		}
		return k.Apply(s.ctx, sides[1])
	})
	t.Logf("%d applies by firewall/kernel: %v each", ours, (time.Since(start) / ours).Round(10*time.Microsecond))
	s.serve() // a restart under the flood
	s.flows(flowing, "the download")

	after, err := s.lab.Inet.Counters("eth0")
	if err != nil {
		t.Fatal(err)
	}
	sent, met := after.TxPackets-before.TxPackets, s.hits("default")
	t.Logf("%d packets sent, %d came through; the longest gap of the download was %v", sent, s.count(s.lab.LAN1, "flood"), flowing.longest())
	if sent < 100_000 || met == 0 {
		t.Errorf("no flood: %d packets sent, %d denied", sent, met)
	}
	s.zero(s.lab.LAN1, "flood")

	owner.login(ownerName, ownerPassword)
	owner.runNow("/rules/new", rule("in", "WAN", "proto", "udp", "dst", lan1Addr, "dport", "7777"))
	s.until("with a rule the flood arrives", func() bool { return s.count(s.lab.LAN1, "flood") > 0 })
	flood.Kill()
}
