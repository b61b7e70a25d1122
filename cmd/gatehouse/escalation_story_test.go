package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/quarantine"
)

// What one lock-out means for the next, and for whom, told at one box.
func TestEscalation(t *testing.T) {
	t.Parallel()
	twice := firewall.Limit{New: 10, Window: 10, Over: firewall.LockOut, LockFor: 300, Strikes: 2, StrikeWindow: 3600}
	cut := firewall.Limit{Open: 10, Over: firewall.LockOut, LockFor: 300}
	six := pass("SIX", "WAN", "any", lan1Addr6)
	six.Family, six.Proto = firewall.IPv6, firewall.TCP
	more := append(limited("TWICE", 8081, 81, twice), limited("CUT", 8082, 82, cut)...)
	more = append(more, limited("FREE", 8083, 83, firewall.Limit{})...)
	more = append(more, firewall.AddRule{Rule: six}, firewall.SetLimit{Rule: "SIX", Limit: twice})
	s, owner := athome(t, more...)
	for _, port := range []uint16{81, 82, 83, 84} {
		s.echo(s.lab.LAN1, port)
	}
	t.Run("release forgets, unless told not to", func(t *testing.T) { s.escalates(t, owner) })
	t.Run("C10 what runs is cut", s.cutsWhatRuns)
	t.Run("C16 a prefix is one source", s.onePrefix)
}

// escalates offends until it is quarantine. A release takes the strikes back
// unless it is told to keep them.
func (s *story) escalates(t *testing.T, owner *person) {
	const to = wanAddr + ":8081"
	strike := func(kind quarantine.Kind, times int) quarantine.Entry {
		defer s.offend(s.lab.Inet, far1, to, 15)()
		return s.isShutOut(far1, kind, times)
	}
	if e := strike(quarantine.LockOut, 1); time.Until(e.Until) > 5*time.Minute || time.Until(e.Until) < 3*time.Minute {
		t.Errorf("locked out until %v", e.Until)
	}
	s.verb("release", far1)
	strike(quarantine.LockOut, 1)
	ask := owner.get("/tables/release?at=set%3Dlock-outs").body
	owner.post("/tables", fields("op", "all", "at", hidden(s, ask, "at"), "upto", hidden(s, ask, "upto"), "keep", "1"))
	if e := strike(quarantine.Quarantine, 2); !e.Until.IsZero() {
		t.Errorf("quarantine ends at %v", e.Until)
	}
	s.cutOffFrom(s.lab.Inet, far1, to, wanAddr+":8082", wanAddr+":8083")
	s.verb("release", far1)
	t.Logf("released, and connected %v later", s.connects(s.lab.Inet, far1, to))
}

// cutsWhatRuns (C10): the flows of a source that is locked out end at once, those
// by other rules too, and nobody else's do.
func (s *story) cutsWhatRuns(t *testing.T) {
	const every = 2 * time.Millisecond
	free := wanAddr + ":8083"
	flow := s.keepAsking(s.lab.Inet, "tcp", far2+":0", free, every)
	control := s.keepAsking(s.lab.Inet, "tcp", far1+":0", free, every)
	s.flows(flow, "the offender's other flow")
	s.flows(control, "the control flow")
	stop := s.offend(s.lab.Inet, far2, wanAddr+":8082", 10)
	s.until("ten are open", func() bool { return s.hits("CUT") >= 10 })
	offence := time.Now()
	stopExcess := s.offend(s.lab.Inet, far2, wanAddr+":8082", 1)
	last := s.dies(flow, "the offender's other flow")
	took := last.Sub(offence)
	t.Logf("the last answer came %v after the offence; the control flow waited %v at most", took.Round(100*time.Microsecond), control.longest())
	if slack := 10 * (100*time.Millisecond + control.longest()); took > slack {
		t.Errorf("the offender's other flow went on for %v, which is more than %v", took, slack)
	}
	s.isShutOut(far2, quarantine.LockOut, 1)
	s.flows(control, "the control flow")
	stopExcess()
	stop()
	if out := s.runs(s.lab.Box, "conntrack", "-L", "-s", far2); strings.Contains(out, "src=") {
		t.Errorf("the kernel still knows its flows:\n%s", out)
	}
}

// onePrefix (C16): a host that changes its address within its prefix is one source.
func (s *story) onePrefix(t *testing.T) {
	const to, beside = "[" + lan1Addr6 + "]:84", "2001:db8:bad:1::1"
	addrs, hosts := []string{}, []string{beside + "/128"}
	for i := range 200 {
		a := fmt.Sprintf("2001:db8:bad::%x", 0x100+i)
		addrs, hosts = append(addrs, a), append(hosts, a+"/128")
	}
	if err := s.lab.Inet.AddAddr("lo", hosts...); err != nil {
		t.Fatal(err)
	}
	var stops []func()
	for _, a := range addrs {
		stops = append(stops, s.offend(s.lab.Inet, a, to, 2))
	}
	s.isShutOut("2001:db8:bad::/64", quarantine.LockOut, 1)
	for _, stop := range stops {
		stop()
	}
	for _, e := range s.shutOut() {
		if e.Source.Addr().Is6() && e.Source.String() != "2001:db8:bad::/64" {
			t.Errorf("%s is listed, too", e.Source)
		}
	}
	s.cutOffFrom(s.lab.Inet, addrs[199], to)
	if _, err := s.reaches(s.lab.Inet, "tcp", as(beside).String(), to); err != nil {
		t.Errorf("the prefix beside it is not served: %v", err)
	}
	s.verb("release", "2001:db8:bad::/64")
	s.connects(s.lab.Inet, addrs[0], to)
	if _, err := s.reaches(s.lab.Inet, "tcp", as(addrs[199]).String(), to); err != nil {
		t.Errorf("after the release %s is not served: %v", addrs[199], err)
	}
}
