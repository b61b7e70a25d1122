package kernel_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"
)

// patches is members that do not overlap, over 32 addresses at the beginning, in
// the middle and at the end of all addresses; marks says which are covered.
func patches(g *rand.Rand) (members []ruleset.Element, marks [96]bool) {
	address := func(i int) ruleset.Value {
		base := []byte{0, 0, 0, 0}
		if i >= 32 {
			base = []byte{10, 0, 0, 224}
		}
		if i >= 64 {
			base = []byte{255, 255, 255, 224}
		}
		base[3] += byte(i % 32)
		return ruleset.Value(base)
	}
	for i := 0; i < 96; {
		n := min(1+g.IntN(6), 32-i%32)
		if g.IntN(2) == 0 {
			members = append(members, ruleset.Element{Key: []ruleset.Range{{Lo: address(i), Hi: address(i + n - 1)}}})
			for j := range n {
				marks[i+j] = true
			}
		}
		i += n
	}
	g.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return members, marks
}

// covered is which addresses of patches the members cover, and how many they are in all.
func covered(members []ruleset.Member) (marks [96]bool, all int) {
	for _, m := range members {
		lo, hi := []byte(m.Key[0].Lo), []byte(m.Key[0].Hi)
		base := 0
		switch {
		case lo[0] == 10:
			base = 32 - 224
		case lo[0] == 255:
			base = 64 - 224
		}
		for i := int(lo[3]); i <= int(hi[3]); i++ {
			marks[base+i] = true
			all++
		}
	}
	return marks, all
}

func TestFillOfIntervalsEndsAsWanted(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		rs := filter(rule(drop))
		key := []ruleset.Type{ruleset.IPv4Addr}
		rs.Sets = []ruleset.Set{{Name: "plain", Key: key, Interval: true, Runtime: true}, {Name: "fixed", Key: key, Interval: true},
			{Name: "timed", Key: key, Interval: true, Timeout: true, Counter: true, Runtime: true}}
		g := rand.New(rand.NewPCG(3, 4))
		for i := range 150 {
			members, want := patches(g)
			if err := k.Fill(t.Context(), "plain", members); i > 0 && err != nil {
				t.Fatalf("fill %d: %v", i, err)
			}
			rs.Sets[1].Elements = members
			apply(t, k, rs) // which verifies
			if i == 0 {
				continue
			}
			for _, set := range []string{"plain", "fixed"} {
				checkCovered(t, k, set, want)
			}
			for j := range members {
				members[j].Timeout = time.Duration(g.IntN(3)) * time.Hour
			}
			if err := k.Fill(t.Context(), "timed", members); err != nil {
				t.Fatalf("fill %d: %v", i, err)
			}
			checkMembers(t, k, "timed", members...)
		}
	})
}

func checkCovered(t *testing.T, k *kernel.Kernel, set string, want [96]bool) {
	t.Helper()
	members, err := k.Members(t.Context(), set)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range want {
		if m {
			n++
		}
	}
	if got, all := covered(members); got != want || all != n {
		t.Fatalf("%s covers\n%v, want\n%v (%d addresses, want %d)", set, got, want, all, n)
	}
}

// What stays is not touched: a network that is blocked until released goes on
// counting when others come and go around it.
func TestFillLeavesWhatStays(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		apply(t, k, blocked(100))
		ctx := t.Context()
		net := func(r ruleset.Range) ruleset.Element { return ruleset.Element{Key: []ruleset.Range{r}} }
		stays := net(nets("10.2.0.0/16"))
		stays.Packets, stays.Bytes = 7, 420
		if err := k.Fill(ctx, "blocked_nets4", []ruleset.Element{stays, net(nets("10.1.0.0/16")), net(nets("10.4.0.0/16"))}); err != nil {
			t.Fatal(err)
		}
		stays.Packets, stays.Bytes = 0, 0
		short := net(nets("10.3.0.0/16"))
		short.Timeout = 200 * time.Millisecond
		if err := k.Fill(ctx, "blocked_nets4", []ruleset.Element{stays, short, net(nets("10.4.0.0/15"))}); err != nil {
			t.Fatal(err)
		}
		if err := k.Fill(ctx, "blocked_nets4", []ruleset.Element{stays}); err != nil { // whether short is over or not
			t.Fatal(err)
		}
		got, err := k.Members(ctx, "blocked_nets4")
		if err != nil || len(got) != 1 || !slices.Equal(got[0].Key, stays.Key) || got[0].Packets != 7 || got[0].Bytes != 420 {
			t.Errorf("left %s, %v", fmt.Sprint(got), err)
		}
	})
}
