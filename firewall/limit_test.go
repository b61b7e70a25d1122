package firewall

import (
	"fmt"
	"net/netip"
	"testing"
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
