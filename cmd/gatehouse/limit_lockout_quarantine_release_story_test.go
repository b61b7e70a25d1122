package main

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gatehouse/firewall/netlab"
	"gatehouse/services/quarantine"
)

// The field test of the design in its three forms. What counts is what the server
// saw: of ab it only matters whether it went on.
func TestLimitLockOutQuarantineRelease(t *testing.T) {
	t.Parallel()
	s, owner := athome(t)
	ladder := []string{"over", "lock-out", "lock_for", "10s", "strikes", "3", "strike_window", "1h"}
	made := func(port, descr string, limit ...string) {
		owner.post("/forwards/new", forward(append([]string{"dport", "80" + port, "to", lan1Addr, "to_port", port, "descr", descr}, limit...)...))
	}
	made("81", "only the excess", "limit_open", "100", "over", "drop")
	made("82", "many at once", append(ladder, "limit_open", "100", "lock_for", "5m")...)
	made("83", "many in a time", append(ladder, "limit_new", "100", "limit_window", "10s")...)
	owner.post("/rules/new", rule("in", "WAN", "family", "v6", "dst", lan1Addr6, "dport", "84", "limit_new", "20", "limit_window", "10s",
		"over", "lock-out", "lock_for", "5m", "strikes", "0"))
	owner.post("/rules/new", rule("in", "GUEST", "dport", "7000", "limit_open", "20", "over", "quarantine", "lock_for", "5m", "strikes", "0"))
	owner.apply()
	s.echo(s.lab.Inet, 7000)

	t.Run("100 open, only the excess is dropped", func(t *testing.T) {
		w := s.site(s.lab.LAN1, 81, 20*time.Millisecond)
		s.abAgainst(t, w, "203.0.113.7", ":8081", true)
		if v := w.met("203.0.113.7"); v.most > 100 || v.most < 90 || v.answered < 10000 {
			t.Errorf("the server saw %+v, want 100 open at most, and all answered", v)
		}
		if all := s.shutOut(); len(all) > 0 {
			t.Errorf("somebody is shut out: %+v", all)
		}
	})
	t.Run("100 open, lock out", func(t *testing.T) {
		w := s.site(s.lab.LAN1, 82, 100*time.Millisecond)
		s.abAgainst(t, w, "203.0.113.8", ":8082", false)
		if v := w.met("203.0.113.8"); v.most > 100 || v.total < 90 {
			t.Errorf("the server saw %+v, want 100 open at most", v)
		}
		e := s.isShutOut("203.0.113.8", quarantine.LockOut, 1)
		if e.What != "open" || e.Open < 100 || e.Limit.Open != 100 {
			t.Errorf("the reason is %+v", e)
		}
		s.cutOffFrom(s.lab.Inet, "203.0.113.8", wanAddr+":8081", wanAddr+":8082", wanAddr+":8083")
	})
	w := s.site(s.lab.LAN1, 83, 20*time.Millisecond)
	offender := func(t *testing.T, kind quarantine.Kind, times int) {
		before := w.met("203.0.113.9").answered
		s.abAgainst(t, w, "203.0.113.9", ":8083", false)
		if n := w.met("203.0.113.9").answered - before; n > 100 || n == 0 {
			t.Errorf("%d requests were answered, want 100 at most", n)
		}
		if e := s.isShutOut("203.0.113.9", kind, times); e.What != "new" || e.Limit.New != 100 || e.Limit.Window != 10 || e.Until.IsZero() != (kind == quarantine.Quarantine) {
			t.Errorf("the reason is %+v", e)
		}
	}
	t.Run("100 new in 10s, lock out", func(t *testing.T) { offender(t, quarantine.LockOut, 1) })
	t.Run("IPv6", s.sixOffends)
	s.free("203.0.113.9")
	t.Run("100 new in 10s, once more", func(t *testing.T) { offender(t, quarantine.LockOut, 2) })
	t.Run("a guest", s.guestOffends)
	s.free("203.0.113.9")
	t.Run("100 new in 10s, the third time", func(t *testing.T) { offender(t, quarantine.Quarantine, 3) })
	t.Run("released in the browser", s.releasedInBrowser)
}

// abAgainst runs the field test from a source, with an honest client beside it
// that must not feel it, and wants that ab goes to its end or is given up.
func (s *story) abAgainst(t *testing.T, w *site, from, to string, finishes bool) {
	t.Helper()
	stop := s.beside(s.lab.Inet, far1, wanAddr+to)
	start := time.Now()
	out, err := s.ab(s.lab.Inet, from, 10000, 500, wanAddr+to)
	t.Logf("ab ended after %v; the server saw %+v", time.Since(start).Round(10*time.Millisecond), w.met(from))
	if finishes != (err == nil) {
		t.Errorf("ab goes to its end: %v, want %v; it said:\n%s", err == nil, finishes, out)
	}
	if asked, answered := stop(); answered*100 < asked*95 || asked == 0 {
		t.Errorf("the client beside it was answered %d of %d times", answered, asked)
	}
}

func (s *story) sixOffends(t *testing.T) {
	w := s.site(s.lab.LAN1, 84, 0)
	const to = "[" + lan1Addr6 + "]:84"
	stop := s.offend(s.lab.Inet, far6, to, 40)
	defer stop()
	s.isShutOut("2001:db8:99::/64", quarantine.LockOut, 1)
	if v := w.met(far6); v.total > 20 {
		t.Errorf("%d connections came through, want 20 at most", v.total)
	}
	s.cutOffFrom(s.lab.Inet, netlab.Web6, to) // another address of the same prefix
	s.verb("release", "2001:db8:99::/64")
	t.Logf("released, and connected %v later", s.connects(s.lab.Inet, far6, to))
}

// A guest that is shut out keeps its address meanwhile, so that a release works at once.
func (s *story) guestOffends(t *testing.T) {
	const to = netlab.Gateway4 + ":7000"
	dhcp, err := s.lab.Guest.Udhcpc(s.ctx, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	guest := s.client(dhcp, "bound")
	stop := s.offend(s.lab.Guest, guest, to, 30)
	defer stop()
	if e := s.isShutOut(guest, quarantine.Quarantine, 1); !e.Until.IsZero() || e.What != "open" || e.Open != 20 {
		t.Errorf("the guest's entry is %+v", e)
	}
	s.cutOffFrom(s.lab.Guest, guest, to, guestAddr+":443", lan1Addr+":83")
	if err := dhcp.Renew(); err != nil {
		t.Fatal(err)
	}
	if got := s.client(dhcp, "renew"); got != guest {
		t.Errorf("the guest has %s now, had %s", got, guest)
	}
	stop()
	s.verb("release", guest)
	t.Logf("released, and connected %v later", s.connects(s.lab.Guest, guest, to))
}

// releasedInBrowser finds out why one customer is not served, and lets him go.
func (s *story) releasedInBrowser(t *testing.T) {
	p := s.chrome(s.lab.LAN1)
	p.open("/login")
	p.fill("[name=name]", ownerName)
	p.fill("[name=password]", ownerPassword)
	p.click("main button[type=submit]")
	p.open("/tables")
	p.sees("203.0.113.9")
	p.sees("more than 100 new in 10s")
	p.sees("many in a time")
	p.do(chromedp.Click(chromedp.CSS(`button[aria-label="Release 203.0.113.9"]`)))
	p.sees("Released 203.0.113.9.")
	t.Logf("released, and connected %v later", s.connects(s.lab.Inet, "203.0.113.9", wanAddr+":8083"))
	s.free("203.0.113.9")
	p.quiet()
}
