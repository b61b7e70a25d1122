package kernel_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatehouse/firewall/ruleset"
)

// hosts is n members of a set, from 10.0.0.0 or fd00:0:0:0:: on.
func hosts(set string, n int, timeout time.Duration) (members []ruleset.Member) {
	for i := range n {
		v := ruleset.Value(binary.BigEndian.AppendUint32(nil, 0x0a000000+uint32(i)))
		if strings.HasSuffix(set, "6") {
			v = ruleset.Value("\xfd\x00\x00\x00") + v + "\x00\x00\x00\x00\x00\x00\x00\x00"
		}
		members = append(members, ruleset.Member{Set: set, Element: ruleset.Element{Key: []ruleset.Range{ruleset.One(v)}, Timeout: timeout}})
	}
	return members
}

func elements(members []ruleset.Member) (list []ruleset.Element) {
	for _, m := range members {
		list = append(list, m.Element)
	}
	return list
}

// blocked is the sets of shut-out sources as the compiler defines them, of a size.
func blocked(size uint32) ruleset.Ruleset {
	rs := filter(rule(drop))
	for name, key := range map[string]ruleset.Type{"blocked4": ruleset.IPv4Addr, "blocked6": ruleset.IPv6Addr} {
		rs.Sets = append(rs.Sets, ruleset.Set{Name: name, Key: []ruleset.Type{key}, Runtime: true, Timeout: true, Dynamic: true, Counter: true, Size: size})
	}
	rs.Sets = append(rs.Sets, ruleset.Set{Name: "blocked_nets4", Key: []ruleset.Type{ruleset.IPv4Addr}, Runtime: true, Interval: true, Timeout: true, Counter: true})
	return rs
}

func TestMembersOfAFullSetCanBeRemovedAndRenewed(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		apply(t, k, blocked(8))
		ctx := t.Context()
		for _, set := range []string{"blocked4", "blocked6"} {
			all := hosts(set, 12, 0)
			if err := k.Add(ctx, all[:8]...); err != nil {
				t.Fatal(err)
			}
			if err := k.Add(ctx, all[8]); !errors.Is(err, syscall.ENFILE) {
				t.Errorf("%s: a ninth member: %v", set, err)
			}
			if err := k.Add(ctx, append(all[8:9:9], all[0])...); !errors.Is(err, syscall.ENFILE) {
				t.Errorf("%s: a ninth member beside an old one: %v", set, err)
			}
			if err := k.Remove(ctx, all[9:]...); err != nil { // none is there
				t.Errorf("%s: remove what is not there: %v", set, err)
			}
			checkMembers(t, k, set, elements(all[:8])...)
			timed := hosts(set, 3, time.Hour)
			if err := k.Add(ctx, timed...); err != nil {
				t.Errorf("%s: renew: %v", set, err)
			}
			checkMembers(t, k, set, append(elements(timed), elements(all[3:8])...)...)
			if err := k.Remove(ctx, all[7], all[10], all[6], all[10], all[6]); err != nil {
				t.Errorf("%s: remove some: %v", set, err)
			}
			checkMembers(t, k, set, append(elements(timed), elements(all[3:6])...)...)
		}
	})
}

// A meter's elements hold a limit that their rule gives. Taking out one that is
// not there must not put it in, not even for a moment: without its limit it counts as over it.
func TestRemoveFromAMeterPutsNothingIn(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		client, _ := lab(t)
		nft(t, `table inet gatehouse {
	set m_1 { type ipv4_addr; flags dynamic; size 2; }
	chain forward { type filter hook forward priority 0; policy accept; meta l4proto udp add @m_1 { ip saddr ct count over 9 } drop; }
}`)
		send(t, client.dial(t, "10.2.0.2:9"), "x")
		seen := ruleset.Element{Key: []ruleset.Range{one("10.1.0.2")}}
		await(t, "the meter", nil, func() bool {
			m, err := k.Members(t.Context(), "m_1")
			return err == nil && len(m) == 1
		})
		generation := strings.TrimSpace(run(t, "nft", "list", "ruleset"))
		if err := k.Remove(t.Context(), member("m_1", "10.1.0.9", 0), member("m_1", "10.1.0.8", 0), member("m_1", "10.1.0.7", 0)); err != nil {
			t.Error(err)
		}
		if after := strings.TrimSpace(run(t, "nft", "list", "ruleset")); after != generation {
			t.Errorf("it was\n%s\nand is\n%s", generation, after)
		}
		checkMembers(t, k, "m_1", seen)
		if err := k.Remove(t.Context(), member("m_1", "10.1.0.9", 0), member("m_1", "10.1.0.2", 0)); err != nil {
			t.Error(err)
		}
		checkMembers(t, k, "m_1")
	})
}

func TestAddChangesTheTimeoutAndKeepsTheCount(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		apply(t, k, blocked(100))
		ctx := t.Context()
		for set, key := range map[string]ruleset.Range{"blocked4": one("10.0.0.1"), "blocked6": nets("fd00::/128"), "blocked_nets4": nets("10.0.0.0/8")} {
			m := ruleset.Member{Set: set, Element: ruleset.Element{Key: []ruleset.Range{key}, Packets: 5, Bytes: 300}}
			other := ruleset.Member{Set: set, Element: ruleset.Element{Key: []ruleset.Range{one("192.0.2.1")}}}
			if set == "blocked6" {
				other.Key = []ruleset.Range{one("2001:db8::1")}
			}
			if err := k.Add(ctx, m, other); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				timeout, left time.Duration
				packets, want uint64 // given, and in the kernel then
			}{
				{0, 0, 0, 5}, {time.Hour, 0, 0, 5}, {3 * time.Hour, 0, 7, 7}, {time.Hour, 10 * time.Minute, 0, 7},
				{0, 0, 0, 7}, {0, 0, 9, 9}, {time.Minute, 0, 1, 9},
			} {
				m.Timeout, m.Left, m.Packets, m.Bytes = c.timeout, c.left, c.packets, c.packets*60
				if err := k.Add(ctx, m); err != nil {
					t.Fatalf("%s: %v", set, err)
				}
				got, err := k.Members(ctx, set)
				i := slices.IndexFunc(got, func(o ruleset.Member) bool { return fmt.Sprint(o.Key) == fmt.Sprint(m.Key) })
				if err != nil || len(got) != 2 || i < 0 {
					t.Fatalf("%s holds %v, %v", set, got, err)
				}
				left := c.left
				if left == 0 {
					left = c.timeout
				}
				if g := got[i]; g.Timeout != c.timeout || g.Left > left || g.Left < left-30*time.Second || g.Packets != c.want || g.Bytes != c.want*60 {
					t.Errorf("%s: after %+v: %+v", set, c, g.Element)
				}
			}
		}
	})
}

func TestAddOfAnOverlappingMemberIsRefused(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		apply(t, k, blocked(100))
		in := func(r ruleset.Range) ruleset.Member {
			return ruleset.Member{Set: "blocked_nets4", Element: ruleset.Element{Key: []ruleset.Range{r}}}
		}
		if err := k.Add(t.Context(), in(nets("10.0.0.0/8"))); err != nil {
			t.Fatal(err)
		}
		for _, r := range []ruleset.Range{nets("10.1.0.0/16"), nets("10.0.0.0/7"), span("9.0.0.0", "10.0.0.1"), span("10.255.255.255", "11.0.0.0")} {
			if err := k.Add(t.Context(), in(one("192.0.2.1")), in(r)); !errors.Is(err, syscall.EEXIST) {
				t.Errorf("add %v: %v", r, err)
			}
			if err := k.Remove(t.Context(), in(r)); err != nil {
				t.Errorf("remove %v: %v", r, err)
			}
			checkMembers(t, k, "blocked_nets4", in(nets("10.0.0.0/8")).Element)
		}
	})
}

// As many members as a set of blocked sources holds go in, are renewed, and go
// out again in one call each, whichever of them are there.
func TestManyMembersComeAndGoAtOnce(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		const most, some = 65536, 2500
		apply(t, k, blocked(most))
		all, timed, few := hosts("blocked4", most, 0), hosts("blocked4", most, time.Hour), hosts("blocked6", some, 0)
		ctx := t.Context()
		for _, step := range []struct {
			what, set string
			do        func() error
			want      int
		}{
			{"add all", "blocked4", func() error { return k.Add(ctx, all...) }, most},
			{"renew all", "blocked4", func() error { return k.Add(ctx, timed...) }, most},
			{"remove all", "blocked4", func() error { return k.Remove(ctx, all...) }, 0},
			{"add some", "blocked6", func() error { return k.Add(ctx, few...) }, some},
			{"remove every second", "blocked6", func() error { return k.Remove(ctx, everySecond(few)...) }, some / 2},
			{"add those of which half are there", "blocked6", func() error { return k.Add(ctx, few...) }, some},
			{"remove every second again", "blocked6", func() error { return k.Remove(ctx, everySecond(few)...) }, some / 2},
			{"remove those of which half are there", "blocked6", func() error { return k.Remove(ctx, few...) }, 0},
			{"remove those of which none is there", "blocked6", func() error { return k.Remove(ctx, few...) }, 0},
		} {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			if got, err := k.Members(ctx, step.set); len(got) != step.want || err != nil {
				t.Errorf("%s: then there are %d, %v, want %d", step.what, len(got), err, step.want)
			}
		}
	})
}

// A large set can be read while members come and go without end, and whole.
func TestMembersAreReadBesideChanges(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		const n = 20000
		apply(t, k, blocked(n+1))
		if err := k.Add(t.Context(), hosts("blocked4", n, 0)...); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var changing sync.WaitGroup
		var changes atomic.Int64
		changing.Go(func() {
			one := member("blocked4", "192.0.2.1", 0)
			for ctx.Err() == nil {
				if err := errors.Join(k.Add(ctx, one), k.Remove(ctx, one)); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				changes.Add(1)
			}
		})
		for range 10 {
			got, err := k.Members(ctx, "blocked4")
			if err != nil || len(got) != n && len(got) != n+1 {
				t.Errorf("%d members, %v", len(got), err)
			}
		}
		stop()
		changing.Wait()
		if changes.Load() == 0 {
			t.Error("nothing changed meanwhile")
		}
	})
}

func everySecond(members []ruleset.Member) (some []ruleset.Member) {
	for i := 0; i < len(members); i += 2 {
		some = append(some, members[i])
	}
	return some
}
