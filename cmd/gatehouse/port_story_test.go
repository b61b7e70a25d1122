package main

import (
	"strings"
	"testing"
	"time"
)

// port-comes-later (C12): a configured port that is not there at the start, or is
// pulled out, costs nothing else. When it comes its traffic is filtered at once,
// early too, and nobody takes it for a foreign change.
func TestC12PortComesLater(t *testing.T) {
	s := begin(t)
	s.seed(home()...)
	box := s.lab.Box
	s.runs(box, "ip", "link", "set", "eth2", "name", "spare0")
	s.serve()
	s.settle()
	s.echo(s.lab.Inet, 7000)
	if chain := ingress(s, "GUEST"); chain != "" {
		t.Errorf("there is a chain for an absent port: %s", chain)
	}
	flowing := s.keepAsking(s.lab.LAN2, "tcp", "", "203.0.113.9:7000", 20*time.Millisecond)
	s.flows(flowing, "the download")

	appears := func(how string, args ...string) {
		t.Helper()
		s.runs(box, "ip", args...)
		began := time.Now()
		s.until(how+": its chain is there", func() bool { return strings.Contains(ingress(s, "GUEST"), `device "eth2"`) })
		t.Logf("%s: chain after %v", how, time.Since(began).Round(time.Millisecond))
		s.flows(flowing, "the download")
	}
	appears("renamed", "link", "set", "spare0", "name", "eth2")
	s.until("the port has its address", func() bool { return strings.Contains(s.runs(box, "ip", "addr", "show", "eth2"), guestAddr) })
	s.runs(box, "ip", "link", "set", "eth2", "down")
	s.runs(box, "ip", "link", "set", "eth2", "name", "spare0")
	s.flows(flowing, "the download")
	appears("renamed back", "link", "set", "spare0", "name", "eth2")
	s.runs(box, "ip", "link", "del", "eth2")
	s.flows(flowing, "the download")
	appears("made anew", "link", "add", "eth2", "type", "veth", "peer", "name", "far2")

	if out := s.box.Output(); strings.Contains(out, "foreign change") || strings.Contains(out, "not ours") {
		t.Errorf("it was taken for a foreign change:\n%s", out)
	}
	t.Logf("the longest gap of the download was %v", flowing.longest())
}

// ingress is the ingress chain of an interface, "" when there is none.
func ingress(s *story, name string) string {
	s.Helper()
	_, chain, found := strings.Cut(s.rules(), "chain ingress_"+name+" {")
	if !found {
		return ""
	}
	chain, _, _ = strings.Cut(chain, "}")
	return chain
}
