package main

import (
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
)

// established-cut (C10): what the new policy denies ends, whatever the edit was,
// and nothing else does.
func TestDeniedFlowIsCut(t *testing.T) {
	t.Parallel()
	s, owner := athome(t, firewall.DeleteRule{ID: "LANANY"},
		firewall.AddRule{Rule: pass("ONE", "LAN", lan1Addr, "any")}, firewall.AddRule{Rule: pass("TWO", "LAN", lan2Addr, "any")})
	s.echo(s.lab.Inet, 7000)
	victim := s.keepAsking(s.lab.LAN1, "udp", lan1Addr+":5060", netlab.Gateway4+":7000", 50*time.Millisecond)
	control := s.keepAsking(s.lab.LAN2, "udp", lan2Addr+":5060", netlab.Gateway4+":7000", 50*time.Millisecond)
	download := s.keepAsking(s.lab.LAN2, "tcp", "", netlab.Gateway4+":7000", 100*time.Millisecond)
	s.flows(victim, "the call")

	block := rule("action", "block", "proto", "any", "src", lan1Addr, "before", "ONE", "descr", "no more calls")
	var id string
	for _, edit := range []struct {
		what string
		deny func()
		undo func()
	}{
		{"a new block rule", func() { owner.runNow("/rules/new", block); id = s.ruleCalled("no more calls") }, func() { owner.click("toggle", "LAN", id) }},
		{"a block rule switched on", func() { owner.click("toggle", "LAN", id) }, func() { owner.click("end", "LAN", id) }},
		{"a block rule moved up", func() { owner.click("top", "LAN", id) }, func() { owner.click("delete", "LAN", id) }},
		{"a pass rule switched off", func() { owner.click("toggle", "LAN", "ONE") }, func() { owner.click("toggle", "LAN", "ONE") }},
		{"a pass rule deleted", func() { owner.click("delete", "LAN", "ONE") }, nil},
	} {
		s.flows(victim, "the call before "+edit.what)
		clicked := time.Now()
		edit.deny()
		last := s.dies(victim, "the call after "+edit.what)
		t.Logf("%s: the last answer came %v after the click, everything included", edit.what, last.Sub(clicked).Round(time.Millisecond))
		s.flows(control, "the other call")
		s.flows(download, "the other host's download")
		if edit.undo != nil {
			edit.undo()
		}
	}
	s.await(control, "all but the last packets of the other call are answered", func() bool {
		sent, answered, _ := control.now()
		return answered >= sent-2
	})
}

// ruleCalled is the id of the running rule with a description.
func (s *story) ruleCalled(descr string) string {
	s.Helper()
	for _, r := range s.confirmed().Rules {
		if r.Descr == descr {
			return string(r.ID)
		}
	}
	s.Fatalf("no rule %q", descr)
	return ""
}
