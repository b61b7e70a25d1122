package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
)

// twoPorts is the home network without its guest net: eth2 is free.
func twoPorts() []firewall.Change {
	return slices.DeleteFunc(home(), func(c firewall.Change) bool {
		switch c := c.(type) {
		case firewall.AddInterface:
			return c.Interface.Name == "GUEST"
		case firewall.PutScope:
			return c.Scope.In == "GUEST"
		}
		return false
	})
}

// atTwoPorts is athome on that network, with a forward to lan1 that is in use.
func atTwoPorts(t *testing.T) (*story, *person) {
	t.Helper()
	s := begin(t)
	s.seed(append(twoPorts(), web8080())...)
	s.serve()
	s.settle()
	if _, err := s.lab.LAN1.Echo(80); err != nil {
		t.Fatal(err)
	}
	owner := s.from(s.lab.LAN1, lanAddr+":443")
	owner.login(ownerName, ownerPassword)
	return s, owner
}

// moveLAN makes the owner's mistake: the local network goes to another port,
// where nobody is. It gives the revision that runs now.
func moveLAN(s *story, owner *person) uint64 {
	s.Helper()
	owner.post("/setup/2", fields("wan", "eth0", "lan", "eth2"))
	return cutOff(s, owner)
}

// cutOff applies the draft although the page warns, and wants that lan1 has
// lost the pages.
func cutOff(s *story, owner *person) uint64 {
	s.Helper()
	review := owner.get("/review").body
	if said := text(review); !strings.Contains(said, "Apply anyway") || !strings.Contains(said, "So it must be kept by a click") {
		s.Errorf("the review does not warn of the cut:\n%s", said)
	}
	was := s.status().Revision.Number
	form := fields("draft", hidden(s, review, "draft"), "anyway", "1")
	answered := make(chan string, 1)
	go func() { // the new rules cut the connection that the answer would come by
		r, err := owner.do("POST", "/apply", form)
		answered <- fmt.Sprintf("%d %v %s", r.status, err, text(r.body))
	}()
	st := s.status()
	s.until("a new revision is being tested", func() bool {
		select {
		case said := <-answered:
			s.Log("the apply was answered: " + said)
		default:
		}
		st = s.status()
		return st.Trial != nil && st.Revision.Number != was
	})
	if got := s.answers(s.lab.LAN1, []int{80, 443}, lanAddr); len(got) > 0 {
		s.Errorf("lan1 still reaches %v: the test proves nothing", got)
	}
	return st.Revision.Number
}

// back wants that everything of the old revision runs again and that the page says why.
func back(s *story, rules, why string) {
	s.Helper()
	// The rules come first, then the ports, then the draft.
	s.until("the rules in the kernel are those of before", func() bool { return same(s.rules(), rules) })
	s.until("lan1 reaches the pages", func() bool { return len(s.answers(s.lab.LAN1, []int{443}, lanAddr)) > 0 })
	if st := s.status(); st.Trial != nil || st.SafeMode != "" || len(st.Problems) > 0 {
		s.Errorf("the box is not as before: %+v", st)
	}
	owner := s.from(s.lab.LAN1, lanAddr+":443")
	owner.login(ownerName, ownerPassword)
	s.open("after the way back")
	for path, words := range map[string]string{"/review": why + " These changes are yours again.", "/revisions": why} {
		s.until(path+" says "+words, func() bool { return strings.Contains(text(owner.get(path).body), words) })
	}
	if said := text(owner.get("/review").body); !strings.Contains(said, "1 pending change") || !strings.Contains(said, "eth2") {
		s.Errorf("the change is not the draft again:\n%s", said)
	}
	c := s.confirmed()
	if in, ok := c.Interface("LAN"); !ok || in.Device != "eth1" {
		s.Errorf("LAN is on %q", in.Device)
	}
}

func TestLockoutRevertsByItself(t *testing.T) {
	s, owner := atTwoPorts(t)
	rules := s.rules()
	n := moveLAN(s, owner)
	deadline := s.status().Trial.Deadline
	t.Parallel() // its three minutes run while the other stories begin
	over, err := time.Parse(time.RFC3339, s.hearWithin(5*time.Minute, `time=(\S+) .*msg="revision taken back"`)[1])
	if err != nil {
		t.Fatal(err)
	}
	if over.Before(deadline.Truncate(time.Millisecond)) { // as exact as the log is
		t.Errorf("taken back %s before the deadline", deadline.Sub(over))
	}
	t.Logf("taken back %s after the deadline", over.Sub(deadline).Round(time.Millisecond))
	back(s, rules, "Revision "+num(n)+" was taken back: nobody confirmed it in time.")
}

func TestLockoutIsOverAfterAKillOrAReboot(t *testing.T) {
	t.Parallel()
	s, owner := atTwoPorts(t)
	rules := s.rules()
	n := moveLAN(s, owner)
	why := "Revision " + num(n) + " was taken back: the box restarted before it was confirmed."
	s.kill()
	s.serve()
	s.hear(`verified: revision 1$`)
	back(s, rules, why)

	// The change is the draft: the same mistake once more, and the plug is pulled.
	owner = s.from(s.lab.LAN1, lanAddr+":443")
	owner.login(ownerName, ownerPassword)
	n = cutOff(s, owner)
	if err := s.lab.Box.Reboot(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.serve()
	s.hear(`verified: revision 1$`)
	back(s, rules, "Revision "+num(n)+" was taken back: the box restarted before it was confirmed.")
}
