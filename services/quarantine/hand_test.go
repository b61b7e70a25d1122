package quarantine

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/firewall"
)

func TestAddByHand(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		for _, c := range []struct {
			src, as string
			lasts   time.Duration
			kind    Kind
		}{
			{"203.0.113.7", "203.0.113.7/32", time.Hour, LockOut},
			{"203.0.113.8", "203.0.113.8/32", 0, Quarantine},
			{"::ffff:203.0.113.9", "203.0.113.9/32", 0, Quarantine},
			{"192.168.1.77", "192.168.1.77/32", 0, Quarantine}, // somebody inside
			{"10.1.2.3/16", "10.1.0.0/16", 0, Quarantine},
			{"2001:db8:bad::5", "2001:db8:bad::/64", 0, Quarantine},
			{"2001:db8:c000::/36", "2001:db8:c000::/36", 0, Quarantine},
		} {
			b.kernel.connect(netip.MustParsePrefix(c.as).Addr().String(), 0, 1)
			if err := b.Add(t.Context(), anna, prefix(c.src), "  noise ", c.lasts); err != nil {
				t.Errorf("%s: %v", c.src, err)
				continue
			}
			e := b.want(c.as, c.kind)
			if e.Reason != "noise" || e.By != "anna" || e.Rule != "" || e.Times != 0 || e.Source != prefix(c.as) || b.Meant(prefix(c.src)) != prefix(c.as) {
				t.Errorf("%s is listed as %+v", c.src, e)
			}
			if c.lasts > 0 {
				b.left(c.as, c.lasts)
			}
			if a := b.Acts(1)[0]; a.What != Added || a.Who != anna || a.Source != prefix(c.as) || a.Reason != "noise" {
				t.Errorf("the audit says %+v", a)
			}
		}
		if len(b.kernel.flows) != 0 {
			t.Errorf("%d connections go on", len(b.kernel.flows))
		}
		b.over("198.18.0.1", fast)
		b.want("198.18.0.1", LockOut)
		if err := b.Add(t.Context(), anna, prefix("198.18.0.1"), "and stay out", 0); err != nil {
			t.Fatal(err)
		}
		b.want("198.18.0.1", Quarantine)
		if h := b.Holding(netip.MustParseAddr("10.1.200.200")); len(h) != 1 || h[0].Source != prefix("10.1.0.0/16") {
			t.Errorf("holding %+v", h)
		}
	})
}

func TestAddRefusesWhatMustNotBeShutOut(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		if err := b.Add(t.Context(), anna, prefix("10.1.0.0/16"), "", 0); err != nil {
			t.Fatal(err)
		}
		for src, want := range map[string]string{
			"192.168.1.20":        "That is the address you are using.",
			"::ffff:192.168.1.20": "That is the address you are using.",
			"192.168.1.1":         "That is this box.",
			"203.0.113.2":         "That is this box.",
			"2001:db8:1::99":      "2001:db8:1::/64 contains this box, 2001:db8:1::1.",
			"203.0.113.1":         "That is a gateway of this box.",
			"9.9.9.9":             "That is a name server of this box.",
			"192.168.1.16/28":     "192.168.1.16/28 contains the address you are using, 192.168.1.20.",
			"9.0.0.0/8":           "9.0.0.0/8 contains a name server of this box, 9.9.9.9.",
			"10.0.0.0/8":          "10.1.0.0/16 is shut out already; release it first.",
			"10.1.3.0/24":         "10.1.0.0/16 is shut out already; release it first.",
			"10.1.0.0/16":         "10.1.0.0/16 is shut out already; release it first.",
			"224.0.0.9":           "No host has the address 224.0.0.9.",
			"0.0.0.0":             "No host has the address 0.0.0.0.",
			"127.0.0.1":           "No host has the address 127.0.0.1.",
			"255.255.255.255":     "No host has the address 255.255.255.255.",
			"fe80::5":             "fe80::5 can be a host on any link: shut out another address of it.",
			"::1":                 "No host has the address",
			"ff02::1":             "No host has the address",
			"0.0.0.0/0":           "contains this box, 192.168.1.1.; 0.0.0.0/0 contains", // all of them
			"203.0.113.0/24":      "203.0.113.0/24 contains a gateway of this box, 203.0.113.1.",
		} {
			err := b.Add(t.Context(), anna, prefix(src), "", 0)
			var ps firewall.Problems
			if !errors.As(err, &ps) || !strings.Contains(strings.ReplaceAll(err.Error(), "address: ", ""), want) {
				t.Errorf("%s: %v, want %q", src, err, want)
			}
			for _, p := range ps {
				if p.Field != "address" {
					t.Errorf("%s: field %s", src, p.Field)
				}
			}
		}
		err := b.Add(t.Context(), anna, netip.Prefix{}, "a\nb", time.Second)
		if err == nil || strings.Count(err.Error(), ";") != 2 || !strings.Contains(err.Error(), "address:") || !strings.Contains(err.Error(), "reason:") || !strings.Contains(err.Error(), "duration:") {
			t.Errorf("all problems at once: %v", err)
		}
		if err := b.Add(t.Context(), anna, prefix("203.0.113.7"), strings.Repeat("x", 201), 0); err == nil {
			t.Error("a reason of 201 characters is taken")
		}
		if c := b.Counts(); c != (Counts{Quarantine: 1}) {
			t.Errorf("counts %+v", c)
		}
		b.kernel.broken = errors.New("no memory")
		if err := b.Add(t.Context(), anna, prefix("203.0.113.7"), "", 0); err == nil {
			t.Error("the kernel refuses, and nobody is told")
		}
		b.kernel.broken = nil
		b.want("203.0.113.7", "")
	})
}

func TestKeep(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", fast)
		b.over("203.0.113.8", harsh)
		b.after(2 * time.Second)
		if err := b.Keep(t.Context(), anna, prefix("203.0.113.7"), 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := b.Keep(t.Context(), anna, prefix("203.0.113.8"), time.Hour); err != nil {
			t.Fatal(err)
		}
		if e := b.want("203.0.113.7", LockOut); e.Rule != fast {
			t.Errorf("the reason is lost: %+v", e)
		}
		b.left("203.0.113.7", 2*time.Hour)
		b.want("203.0.113.8", LockOut)
		if err := b.Keep(t.Context(), anna, prefix("203.0.113.7"), 0); err != nil {
			t.Fatal(err)
		}
		b.want("203.0.113.7", Quarantine)
		if a := b.Acts(2); a[0].What != Kept || a[0].Reason != "until it is released" || a[1].Reason != "for 1h" {
			t.Errorf("the audit says %+v", a)
		}
		b.after(time.Hour + time.Second)
		b.want("203.0.113.8", "")
		if err := b.Keep(t.Context(), anna, prefix("203.0.113.8"), 0); !errors.Is(err, ErrGone) {
			t.Errorf("of what is gone: %v", err)
		}
		if err := b.Keep(t.Context(), anna, prefix("203.0.113.7"), time.Second); err == nil {
			t.Error("a second is taken")
		}
	})
}

func TestExemptSetsFollowTheBox(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		why := func(a, want string) {
			t.Helper()
			if e, _ := b.Exempt(netip.MustParseAddr(a)); e.Why != want {
				t.Errorf("%s is exempt as %q, want %q", a, e.Why, want)
			}
		}
		why("192.168.1.1", "box")
		why("203.0.113.1", "gateway")
		why("9.9.9.9", "resolver")
		why("192.168.1.20", "")
		why("2001:db8:1::1", "") // its prefix is the whole LAN
		b.holds(exempt4, 4)
		b.holds(exempt6, 0)
		admin := netip.MustParseAddr("192.168.1.20")
		seen := func(seen time.Time, signedIn bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			clear(b.admins)
			if signedIn {
				b.admins[admin], b.admins[netip.MustParseAddr("2001:db8:1::20")] = seen, seen
			}
		}
		b.after(5 * time.Second)
		seen(time.Now(), true)
		b.Look() // a login
		b.after(time.Second)
		why("192.168.1.20", "admin")
		b.holds(exempt4, 5)
		b.holds(exempt6, 1)
		why("2001:db8:1::77", "admin") // of the same prefix
		b.after(time.Minute)
		seen(time.Time{}, false) // signed out
		b.after(13 * time.Minute)
		why("192.168.1.20", "admin")
		b.after(2 * time.Minute)
		why("192.168.1.20", "")
		b.holds(exempt4, 4)
		b.holds(exempt6, 0)
		told := len(b.kernel.told)
		b.after(5 * time.Minute)
		if len(b.kernel.told) != told {
			t.Error("sets that hold what they should are filled again")
		}
		if l := b.Exemptions(); len(l) != 4 {
			t.Errorf("exemptions %+v", l)
		}
		b.kernel.fresh(b.Members())
		b.holds(exempt4, 4) // from the first packet on
	})
}

func TestExemptionReleasesNobody(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("192.168.1.20", fast)
		synctest.Wait()
		b.mu.Lock()
		b.admins[netip.MustParseAddr("192.168.1.20")] = time.Now()
		b.mu.Unlock()
		b.Look()
		b.after(time.Minute)
		b.want("192.168.1.20", LockOut)
	})
}

func TestRefillPutsBackWhatSomebodyTookOutOfTheExemptSets(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.kernel.mu.Lock()
		clear(b.kernel.sets[exempt4])
		b.kernel.mu.Unlock()
		if err := b.Refill(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.holds(exempt4, 4)
	})
}
