package firewall

import (
	"fmt"
	"net/netip"
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
