package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"gatehouse/firewall"
)

// meter-full (C15): more sources than a limit can remember, forged or not, neither
// lift it nor shut anybody out.
func TestMeterFull(t *testing.T) {
	t.Parallel()
	more := append(limited("ONE", 8081, 81, firewall.Limit{New: 1, Window: 3600, Over: firewall.DropExcess}),
		limited("FEW", 8082, 82, firewall.Limit{Open: 20, Over: firewall.LockOut, LockFor: 300})...)
	s, owner := athome(t, append(more, firewall.SetSources{Sources: firewall.Sources{Meter: 4}})...)

	t.Run("C15 more sources than fit", s.moreThanFit)
	t.Run("C15 forged sources", func(t *testing.T) { s.forgedFill(t, owner) })
	if said := text(owner.get("/rules?tab=WAN").body); !strings.Contains(said, "FEW") {
		t.Errorf("the pages do not answer the LAN:\n%s", said)
	}
}

func (s *story) moreThanFit(t *testing.T) {
	w := s.site(s.lab.LAN1, 81, 0)
	var crowd []string
	for i := range 8 {
		crowd = append(crowd, fmt.Sprintf("198.51.100.%d", 20+i))
		if err := s.lab.Inet.AddAddr("lo", crowd[i]+"/32"); err != nil {
			t.Fatal(err)
		}
		if i < 4 { // those that fit
			if err := s.fetch(s.lab.Inet, crowd[i], wanAddr+":8081"); err != nil {
				t.Errorf("source %d is not served: %v", i+1, err)
			}
		}
	}
	var wait sync.WaitGroup
	for _, from := range crowd {
		for range 3 {
			wait.Go(func() { _ = s.fetch(s.lab.Inet, from, wanAddr+":8081") })
		}
	}
	wait.Wait()
	others := 0
	for i, from := range crowd {
		if n := w.met(from).total; i >= 4 {
			others += n
		} else if n != 1 {
			t.Errorf("source %d connected %d times, want once", i+1, n)
		}
	}
	if others != 1 { // of all who did not fit together
		t.Errorf("those that did not fit connected %d times, want once", others)
	}
}

func (s *story) forgedFill(t *testing.T, owner *person) {
	w := s.site(s.lab.LAN1, 82, 0)
	flood, err := s.lab.Inet.Start(s.ctx, "hping3", "-q", "-S", "--rand-source", "-i", "u500", "-p", "8082", wanAddr)
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Kill()
	s.until("the meter is full", func() bool { return strings.Contains(text(owner.get("/").body), "A meter of FEW is nearly full") })
	for _, honest := range []string{far1, "203.0.113.9"} {
		if err := s.fetch(s.lab.Inet, honest, wanAddr+":8082"); err != nil {
			t.Errorf("%s is not served: %v", honest, err)
		}
	}
	s.offend(s.lab.Inet, far2, wanAddr+":8082", 100)
	s.until("most are refused", func() bool {
		_, shut := s.listed(far2) // if there was room for it by chance
		return shut || s.hits("over_FEW") >= 60
	})
	if v := w.met(far2); v.total > 40 { // as one source, in ten seconds: twice as many at most
		t.Errorf("a source that did not fit has %+v", v)
	}
	for _, e := range s.shutOut() {
		if e.Name() != far2 {
			t.Errorf("%s is shut out: %s", e.Name(), e.Why())
		}
	}
}
