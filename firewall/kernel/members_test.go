package kernel_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"
)

func TestMembersComeAndGo(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		ctx := t.Context()
		rs := filter()
		rs.Sets = append(rs.Sets,
			ruleset.Set{Name: "nets", Key: []ruleset.Type{ruleset.IPv4Addr}, Interval: true, Runtime: true},
			ruleset.Set{Name: "timed", Key: []ruleset.Type{ruleset.IPv6Addr}, Interval: true, Timeout: true, Runtime: true},
			ruleset.Set{Name: "boxes", Key: []ruleset.Type{ruleset.IPv4Addr, ruleset.InetService}, Interval: true, Runtime: true},
			ruleset.Set{Name: "m", Key: []ruleset.Type{ruleset.InetService}, Data: []ruleset.Type{ruleset.IPv4Addr, ruleset.InetService}, Runtime: true})
		apply(t, k, rs)
		el := func(key ...ruleset.Range) ruleset.Element { return ruleset.Element{Key: key} }
		timed := func(e ruleset.Element) ruleset.Element { e.Timeout = time.Hour; return e }
		to := ruleset.Element{Key: []ruleset.Range{port(80)}, Data: []ruleset.Value{addr("10.0.0.1"), ruleset.Port(8080)}}
		for set, members := range map[string][]ruleset.Element{
			"lockout4": {el(one("10.0.0.1")), el(one("10.0.0.2")), el(one("10.0.0.3"))},
			"nets":     {el(nets("0.0.0.0/8")), el(span("10.0.0.1", "10.0.0.2")), el(one("10.0.0.3")), el(nets("224.0.0.0/3"))},
			"timed":    {timed(el(nets("fd00::/64"))), timed(el(one("fe80::1"))), el(nets("ff00::/8"))},
			"boxes":    {el(nets("10.0.0.0/8"), ports(1, 99)), el(one("11.0.0.1"), port(5))},
			"m":        {to},
		} {
			if err := k.Fill(ctx, set, members); err != nil {
				t.Fatalf("fill %s: %v", set, err)
			}
			checkMembers(t, k, set, members...)
			first := ruleset.Member{Set: set, Element: members[0]}
			for range 2 { // taking what is gone, putting what is there
				if err := k.Remove(ctx, first); err != nil {
					t.Fatalf("remove from %s: %v", set, err)
				}
				checkMembers(t, k, set, members[1:]...)
			}
			for range 2 {
				if err := k.Add(ctx, first); err != nil {
					t.Fatalf("add to %s: %v", set, err)
				}
				checkMembers(t, k, set, members...)
			}
			if err := k.Fill(ctx, set, members[:1]); err != nil {
				t.Fatalf("fill %s: %v", set, err)
			}
			checkMembers(t, k, set, members[:1]...)
			if err := k.Fill(ctx, set, nil); err != nil {
				t.Fatalf("empty %s: %v", set, err)
			}
			checkMembers(t, k, set)
		}
		if err := k.Add(ctx, member("nowhere", "10.0.0.1", 0)); !errors.Is(err, syscall.ENOENT) || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("adding to no set: %v", err)
		}
	})
}

func checkMembers(t *testing.T, k *kernel.Kernel, set string, want ...ruleset.Element) {
	t.Helper()
	members, err := k.Members(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	text := func(e ruleset.Element) string { return fmt.Sprintf("%x %x %v", e.Key, e.Data, e.Timeout) }
	var have, wanted []string
	for _, m := range members {
		have = append(have, text(m.Element))
	}
	for _, e := range want {
		wanted = append(wanted, text(e))
	}
	slices.Sort(have)
	slices.Sort(wanted)
	if !slices.Equal(have, wanted) {
		t.Errorf("set %s holds\n%s\nwant\n%s", set, strings.Join(have, "\n"), strings.Join(wanted, "\n"))
	}
}

func TestAddRenewsATimeout(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		apply(t, k, filter())
		for _, d := range []time.Duration{time.Hour, 3 * time.Hour} {
			if err := k.Add(t.Context(), member("lockout4", "10.0.0.1", d)); err != nil {
				t.Fatal(err)
			}
			checkMember(t, k, "10.0.0.1", d, d)
		}
	})
}
