package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/quarantine"
)

// quarantine-survives (C17): who is shut out stays so over applies, a restart and
// a reboot, for as long as was said, and not a moment longer than somebody wants.
func TestQuarantineSurvives(t *testing.T) {
	t.Parallel()
	const forever, timed, offender, to = far1, far2, "203.0.113.9", wanAddr + ":8081"
	s, a := athome(t, limited("TEN", 8081, 81, firewall.Limit{New: 10, Window: 10, Over: firewall.LockOut, LockFor: 600})...)
	b := s.second()
	s.echo(s.lab.LAN1, 81)
	a.post("/rules/new", rule("descr", "another revision", "dst", "203.0.113.1"))
	a.apply()
	a.post("/tables/add", fields("address", forever, "reason", "scans us", "duration", ""))
	a.post("/tables/add", fields("address", timed, "reason", "too curious", "duration", "10m"))
	stop := s.offend(s.lab.Inet, offender, to, 20)
	ends := map[string]time.Time{}
	for source, kind := range map[string]quarantine.Kind{forever: quarantine.Quarantine, timed: quarantine.LockOut, offender: quarantine.LockOut} {
		s.until(source+" is listed", func() bool {
			e, ok := s.listed(source)
			ends[source] = e.Until
			return ok && e.Kind == kind
		})
	}
	stop()
	still := func(when string) {
		t.Helper()
		for source, end := range ends {
			e, ok := s.listed(source)
			if left, there := s.inKernel(source); !ok || !there || e.Until.IsZero() != end.IsZero() || left.IsZero() != end.IsZero() || apart(e.Until, end) || apart(left, end) {
				t.Errorf("%s %s is listed until %v (%v), and until %v in the kernel (%v); it was until %v", when, source, e.Until, ok, left, there, end)
			}
			s.cutOffFrom(s.lab.Inet, source, to)
		}
	}
	still("at first")
	n := s.status().Revision.Number
	for range 50 { // from one side to the other
		s.verb("restore", num(n-1))
		n++
	}
	if now := s.status().Revision.Number; now != n {
		t.Errorf("revision %d runs after 50 applies, want %d", now, n)
	}
	still("after 50 applies")
	s.kill()
	s.serve()
	still("after a restart")
	if err := s.lab.Box.Reboot(s.ctx); err != nil {
		t.Fatal(err)
	}
	s.serve()
	still("after a reboot")

	// Two people see the same entry; the second finds that it is as she wants it.
	for _, p := range []*person{a, b} {
		if said := text(p.get("/tables?set=quarantine").body); !strings.Contains(said, forever) || !strings.Contains(said, "scans us") {
			t.Errorf("the page does not list %s with its reason:\n%s", forever, said)
		}
	}
	release := fields("op", "release:0:"+forever+"/32", "at", "set=quarantine")
	a.post("/tables", release)
	t.Logf("released, and connected %v later", s.connects(s.lab.Inet, forever, to))
	if said := text(b.post("/tables", release).body); !strings.Contains(said, "free already") {
		t.Errorf("the second release says:\n%s", said)
	}
	s.free(forever)
	delete(ends, forever)
	still("after the release of another")
}

// apart is true when two moments differ by more than 5 s.
func apart(a, b time.Time) bool { return a.Sub(b).Abs() > 5*time.Second }

// inKernel is until when the kernel itself drops what comes from a source: the
// zero time without an end.
func (s *story) inKernel(source string) (until time.Time, there bool) {
	s.Helper()
	out := s.runs(s.lab.Box, "nft", "list", "set", "inet", "gatehouse", "blocked4")
	m := regexp.MustCompile(`[ \t]` + regexp.QuoteMeta(source) + ` counter packets \d+ bytes \d+(?: timeout \w+ expires (\w+))?`).FindStringSubmatch(out)
	if m == nil {
		return time.Time{}, false
	}
	if m[1] == "" {
		return time.Time{}, true
	}
	var left time.Duration
	for _, part := range regexp.MustCompile(`(\d+)(d|h|ms|m|s)`).FindAllStringSubmatch(m[1], -1) {
		v, err := strconv.Atoi(part[1])
		if err != nil {
			s.Fatal(err)
		}
		left += time.Duration(v) * map[string]time.Duration{"d": 24 * time.Hour, "h": time.Hour, "m": time.Minute, "s": time.Second, "ms": time.Millisecond}[part[2]]
	}
	return time.Now().Add(left), true
}
