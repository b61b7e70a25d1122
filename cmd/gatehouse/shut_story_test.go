package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
	"gatehouse/services/quarantine"
)

// shut-out-until-released (C17): who exceeds a limit is out for everything, is
// listed with the reason, stays out over a restart and over a flush of all rules
// by somebody else, and is let in by one command on the console.
func TestShutOutUntilReleased(t *testing.T) {
	fast := pass("FAST", "GUEST", "any", "203.0.113.9")
	fast.Proto, fast.Descr = firewall.TCP, "Web shop"
	fast.Limit = firewall.Limit{New: 3, Window: 60, Over: firewall.LockOut, LockFor: 900, Strikes: 5, StrikeWindow: 3600}
	wide := pass("WIDE", "GUEST", "any", "203.0.113.8")
	wide.Proto = firewall.TCP
	wide.Limit = firewall.Limit{Open: 3, Over: firewall.Quarantine, LockFor: 900}
	s, _ := athome(t, firewall.AddRule{Rule: fast}, firewall.AddRule{Rule: wide}, firewall.AddRule{Rule: pass("PING", "GUEST", "any", lanAddr)})
	s.echo(s.lab.Inet, 7000)
	guest, server := s.lab.Guest, "203.0.113.9:7000"
	for range 3 {
		if _, err := s.reaches(guest, "tcp", "", server); err != nil {
			t.Fatalf("within the limit: %v", err)
		}
	}
	if !s.refused(guest, "tcp", "", server) {
		t.Fatal("the fourth connection in a minute was let in")
	}
	until := s.shut(guestHost, quarantine.LockOut).Until
	out := s.verb("show", "quarantine")
	if !strings.Contains(out, guestHost) || !strings.Contains(out, "more than 3 new in 1m") {
		t.Errorf("the console shows:\n%s", out)
	}
	s.out(guest, "at once")

	if err := s.box.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-s.box.Done()
	s.serve()
	s.out(guest, "after a restart")
	if e := s.shut(guestHost, quarantine.LockOut); e.Until.Sub(until).Abs() > 5*time.Second || e.Rule != "FAST" || e.Times != 1 {
		t.Errorf("after a restart it is listed as %+v, left at %s before", e, until)
	}
	if _, err := s.lab.Box.Run(s.ctx, "nft", "flush", "ruleset"); err != nil {
		t.Fatal(err)
	}
	s.until("the rules are back", func() bool { return s.status().Healed > 0 })
	s.out(guest, "after a flush by somebody else")
	if e := s.shut(guestHost, quarantine.LockOut); e.Until.Sub(until).Abs() > 5*time.Second {
		t.Errorf("after a flush it leaves at %s, at %s before", e.Until, until)
	}

	if said := s.verb("release", guestHost); !strings.Contains(said, "is released") {
		t.Errorf("the console says %q", said)
	}
	for range 3 { // the meter is empty again
		if _, err := s.reaches(guest, "tcp", "", server); err != nil {
			t.Fatalf("after the release: %v", err)
		}
	}
	if said := s.verb("release", guestHost); !strings.Contains(said, "is not shut out") {
		t.Errorf("the console says %q", said)
	}

	// As many connections as it may have, and one more: out for good.
	var held []*talk
	for range 3 {
		held = append(held, s.talk(guest, "203.0.113.8:7000"))
	}
	if !s.refused(guest, "tcp", "", "203.0.113.8:7000") {
		t.Fatal("the fourth connection at once was let in")
	}
	if e := s.shut(guestHost, quarantine.Quarantine); e.Open != 3 || e.Rule != "WIDE" {
		t.Errorf("it is listed as %+v", e)
	}
	s.out(guest, "at once")
	for _, c := range held {
		_ = c.c.SetDeadline(time.Now().Add(2 * time.Second))
		if _, err := c.c.Write([]byte("still there?\n")); err == nil {
			if line, err := c.r.ReadString('\n'); err == nil {
				t.Errorf("an open connection goes on: %q", line)
			}
		}
	}
	s.verb("release", guestHost)
	if _, err := s.reaches(guest, "tcp", "", server); err != nil { // the fourth of a minute: that meter was cleared, too
		t.Errorf("after the second release: %v", err)
	}
}

// shut is the entry of a source that the console shows, which is there within two seconds.
func (s *story) shut(src string, k quarantine.Kind) (found quarantine.Entry) {
	s.Helper()
	s.until(fmt.Sprintf("%s is listed: %s", src, k), func() bool {
		var all []quarantine.Entry
		if err := json.Unmarshal([]byte(s.verb("show", "quarantine", "--json")), &all); err != nil {
			s.Fatal(err)
		}
		for _, e := range all {
			if e.Source.Addr().String() == src && e.Kind == k {
				found = e
			}
		}
		return found.Source.IsValid()
	})
	return found
}

// out checks that nothing of a host gets in, not even to the box.
func (s *story) out(h *netlab.Host, when string) {
	s.Helper()
	if !s.refused(h, "tcp", "", "203.0.113.9:7000") || !s.refused(h, "tcp", "", "203.0.113.8:7000") {
		s.Errorf("%s: it reaches a server", when)
	}
	if _, err := h.Run(s.ctx, "ping", "-c1", "-W1", lanAddr); err == nil {
		s.Errorf("%s: the box answers it", when)
	}
}
