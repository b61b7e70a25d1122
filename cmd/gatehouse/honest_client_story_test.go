package main

import (
	"testing"

	"gatehouse/firewall"
	"gatehouse/services/quarantine"
)

// honest-client-never-punished: one that stays below the limit, at full speed. The
// kernel forgets connections that ended once a jiffy at most (every 4 ms at 250
// Hz), so when more than the 20 that are left begin in one, the rest is refused and
// sent again. On a quiet machine that is about one in a hundred; here it is only
// told, for it depends on what else the processors do. `gatelab bench limits` measures it.
func TestHonestClientIsNeverPunished(t *testing.T) {
	t.Parallel()
	const honest, thief, runs, n = far1, far2, 3, 20000
	s, _ := athome(t, limited("HUNDRED", 8080, 80, firewall.Limit{Open: 100, Over: firewall.Quarantine, LockFor: 300})...)
	w := s.site(s.lab.LAN1, 80, 0)
	for i := range runs {
		was := s.hits("over_HUNDRED")
		if out, err := s.ab(s.lab.Inet, honest, n, 80, outside); err != nil {
			t.Fatalf("run %d: %v\n%s", i+1, err, out)
		}
		refused := s.hits("over_HUNDRED") - was
		t.Logf("run %d: %d SYNs of %d refused, %d connections at a time", i+1, refused, n, w.met(honest).most)
		if refused > n/20 {
			t.Errorf("run %d: more than 1 in 20 refused", i+1)
		}
	}
	if got := w.met(honest); got.answered < runs*n || got.most < 40 {
		t.Errorf("the server saw %+v", got)
	}
	// The limit is there: who goes beyond it is judged after all that came before.
	s.offend(s.lab.Inet, thief, outside, 120)
	s.isShutOut(thief, quarantine.Quarantine, 1)
	if _, punished := s.listed(honest); punished {
		t.Error("the honest client is shut out")
	}
}
