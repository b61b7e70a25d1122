package firewall

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestSourceIsAnAddressOrAPrefix(t *testing.T) {
	for _, c := range []struct {
		s          Sources
		addr, want string
	}{
		{Sources{}, "198.51.100.7", "198.51.100.7/32"},
		{Sources{}, "2001:db8:bad::9", "2001:db8:bad::/64"}, // C16
		{Sources{Prefix6: 128}, "2001:db8:bad::9", "2001:db8:bad::9/128"},
		{Sources{Prefix6: 48}, "2001:db8:bad:1::9", "2001:db8:bad::/48"},
	} {
		if got := c.s.Of(netip.MustParseAddr(c.addr)); got.String() != c.want {
			t.Errorf("%+v: the source of %s is %s, want %s", c.s, c.addr, got, c.want)
		}
	}
}

// The number of a limited rule is in every connection's mark: it must not move
// when another rule gets or loses a limit.
func TestLimitNumbersAreUniqueAndStable(t *testing.T) {
	var c Config
	for i := range maxLimited {
		c.Rules = append(c.Rules, Rule{ID: ID(fmt.Sprintf("01J%023d", i*7919)), Limit: Limit{Open: 1}})
	}
	all, moved := c.LimitNumbers(), 0
	seen := map[uint32]bool{}
	for id, n := range all {
		if n < 1 || n > limitNumbers || seen[n] {
			t.Fatalf("%s has the number %d", id, n)
		}
		seen[n] = true
	}
	c.Rules = c.Rules[:200]
	few := c.LimitNumbers()
	c.Rules[100].Limit = Limit{}
	for id, n := range c.LimitNumbers() {
		if few[id] != n {
			moved++
		}
	}
	if moved > 3 {
		t.Errorf("%d of 199 numbers moved when one limit went", moved)
	}
}

func TestWarningsTellWhomALimitExempts(t *testing.T) {
	lockOut := Limit{Open: 20, Over: LockOut, LockFor: 300}
	for _, c := range []struct {
		name  string
		rule  func(*Rule)
		never string // what the alias holds; "-" = it is not named
		want  string
	}{
		{"outside, nobody", func(r *Rule) { r.In = "WAN" }, "-", ""},
		{"LAN, nobody", func(*Rule) {}, "-", "Nobody is exempt from this limit: a host inside that is shut out cannot open these pages either."},
		{"floating, nobody", func(r *Rule) { r.In = "" }, "-", "Nobody is exempt from this limit: a host inside that is shut out cannot open these pages either."},
		{"only the excess", func(r *Rule) { r.Limit.Over = DropExcess }, "", ""},
		{"no limit", func(r *Rule) { r.Limit = Limit{} }, "", ""},
		{"empty", func(*Rule) {}, "", "The alias N is empty: it exempts nobody from this limit."},
		{"counted only", func(r *Rule) { r.Limit.DryRun = true }, "", "The alias N is empty: it exempts nobody from this limit."},
		{"one host", func(*Rule) {}, "192.168.1.5", ""},
		{"everybody", func(*Rule) {}, "0.0.0.0/0", "The alias N holds 0.0.0.0/0: everybody is exempt, and nobody is ever shut out."},
		{"everybody in two", func(*Rule) {}, "0.0.0.0/1, 128.0.0.0/1, 2001:db8::/32", "The alias N holds 0.0.0.0/0: everybody is exempt, and nobody is ever shut out."},
		{"everybody by IPv6", func(*Rule) {}, "::/0", "The alias N holds ::/0: everybody is exempt, and nobody is ever shut out."},
	} {
		cfg := Config{Interfaces: []Interface{{Name: "LAN", Role: LAN, On: true}, {Name: "WAN", Role: WAN, On: true}}, Aliases: []Alias{{Name: "N", Kind: Addresses}}}
		r := Rule{ID: "01R", On: true, Action: Pass, In: "LAN", Proto: TCP, Src: Anyone(), Dst: Anyone(), Limit: lockOut}
		c.rule(&r)
		if c.never != "-" && r.Limit.On() {
			r.Limit.Never = "N"
		}
		for _, s := range strings.FieldsFunc(c.never, func(r rune) bool { return r == ',' || r == '-' }) {
			cfg.Aliases[0].Addrs = append(cfg.Aliases[0].Addrs, Entry{End: mustEnd(s)})
		}
		cfg.Rules = []Rule{r}
		var got []string
		for _, p := range cfg.Warnings() {
			got = append(got, strings.TrimPrefix(p.Field+": "+p.Text, "rule/01R.never: "))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestLimitPrefixComesBack(t *testing.T) {
	for _, what := range []string{OverNew, OverOpen, MeterFull} {
		if got, id, ok := ParseLimitPrefix(LimitPrefix(what, "01J")); got != what || id != "01J" || !ok {
			t.Errorf("%q: %q %q %v", what, got, id, ok)
		}
	}
	for _, s := range []string{"", "block rule/01J", "new auto/x", "new"} {
		if _, _, ok := ParseLimitPrefix(s); ok {
			t.Errorf("%q is taken for a limit's", s)
		}
	}
}

// The kernel gives back no more than was asked for, and always something.
func TestRateIsTheSmallestUnitThatIsWhole(t *testing.T) {
	const day, week = 24 * time.Hour, 7 * 24 * time.Hour
	for _, c := range []struct {
		n, window int
		rate      uint64
		unit      time.Duration
	}{
		{10, 5, 2, time.Second}, {100, 10, 10, time.Second}, {7, 5, 84, time.Minute}, {1, 60, 1, time.Minute}, {1, 86400, 1, day},
		{1, 7200, 12, day}, {5, 7000, 432, week}, {3, 7, 259_200, week}, {1, 86399, 7, week}, {1_000_000, 1, 1_000_000, time.Second}, {0, 0, 0, time.Second},
	} {
		if n, unit := (Limit{New: c.n, Window: c.window}).Rate(); n != c.rate || unit != c.unit {
			t.Errorf("%d in %d s: %d per %s, want %d per %s", c.n, c.window, n, unit, c.rate, c.unit)
		}
	}
	for n := 1; n <= 1_000_000; n = n*3 + 1 {
		for window := 1; window <= 86400; window = window*2 + 1 {
			rate, unit := Limit{New: n, Window: window}.Rate()
			asked, got := uint64(n)*uint64(unit/time.Second), rate*uint64(window)
			if rate == 0 || got > asked || unit < week && got != asked || asked-got >= uint64(window) {
				t.Fatalf("%d in %d s: %d per %s", n, window, rate, unit)
			}
		}
	}
}
