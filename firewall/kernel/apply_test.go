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

// filter is a small ruleset: one base chain with the rules, and a set of each kind.
func filter(rules ...ruleset.Rule) ruleset.Ruleset {
	return ruleset.Ruleset{
		Stamp:    "1",
		Counters: []ruleset.Counter{{Name: "c"}},
		Sets: []ruleset.Set{
			{Name: "lockout4", Key: []ruleset.Type{ruleset.IPv4Addr}, Runtime: true, Timeout: true, Size: 1000},
			{Name: "nets4", Origin: "alias/nets", Key: []ruleset.Type{ruleset.IPv4Addr}, Interval: true,
				Elements: []ruleset.Element{{Key: []ruleset.Range{nets("10.7.0.0/16")}}, {Key: []ruleset.Range{one("10.8.0.1")}}}},
		},
		Chains: []ruleset.Chain{{Name: "forward", Hook: &ruleset.Hook{Type: "filter", Name: "forward", Drop: true}, Rules: rules}},
	}
}

func member(set, address string, timeout time.Duration) ruleset.Member {
	return ruleset.Member{Set: set, Element: ruleset.Element{Key: []ruleset.Range{one(address)}, Timeout: timeout}}
}

func refused(t *testing.T, err error) *kernel.Refusal {
	t.Helper()
	var r *kernel.Refusal
	if !errors.As(err, &r) {
		t.Fatalf("error is %v, want a Refusal", err)
	}
	return r
}

func TestApplyTwiceChangesNothing(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		apply(t, k, everything())
		text, code := listings(t)
		apply(t, k, everything())
		againText, againCode := listings(t)
		if d := firstDifference(againText, text) + firstDifference(noHandles(againCode), noHandles(code)); d != "" {
			t.Error(d)
		}
		if stamp, err := k.Stamp(t.Context()); err != nil || stamp != "7 of today" {
			t.Errorf("stamp %q, %v", stamp, err)
		}
	})
}

func TestApplyReplacesEverything(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		small := filter(rule(drop))
		apply(t, k, small)
		want, _ := listings(t)
		apply(t, k, everything())
		apply(t, k, small)
		got, _ := listings(t)
		if d := firstDifference(sorted(got), sorted(want)); d != "" { // what stayed is listed before what came
			t.Error(d)
		}
	})
}

func sorted(blocks string) string {
	list := strings.Split(strings.Trim(blocks, "}\n"), "\n\n")
	list[0] = strings.TrimPrefix(list[0], "table inet gatehouse {\n")
	for i := range list {
		list[i] = strings.Trim(list[i], "\n")
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

func TestBadRuleChangesNothingAndNamesItsOrigin(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		apply(t, k, filter(rule(v4, in(ruleset.IPSaddr, "nets4"), accept)))
		before, _ := listings(t)
		bad := rule(v4, in(ruleset.IPSaddr, "nowhere"), drop)
		bad.Origin = "rule/bad"
		worse := rule(ruleset.Verdict{Kind: ruleset.Goto, Chain: "no_chain"})
		worse.Origin = "forward/worse"
		rs := filter(rule(drop), bad, rule(accept), worse)
		for name, do := range map[string]func() error{
			"dry run": func() error { return k.DryRun(t.Context(), rs) },
			"apply":   func() error { return k.Apply(t.Context(), rs) },
		} {
			err := do()
			r := refused(t, err)
			if r.Part != "rule/bad" || r.Errno != syscall.ENOENT || !strings.Contains(r.Detail, "rule 2 of chain forward") {
				t.Errorf("%s: refusal %+v", name, r)
			}
			if !strings.Contains(err.Error(), "forward/worse") {
				t.Errorf("%s: %v does not name the second bad rule", name, err)
			}
			if after, _ := listings(t); after != before {
				t.Errorf("%s: %s", name, firstDifference(after, before))
			}
		}
	})
}

func TestUnencodablePartIsRefusedWithItsOrigin(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		rs := filter(rule(is(ruleset.IPSaddr), accept))
		if r := refused(t, k.Apply(t.Context(), rs)); r.Part != "rule/test" {
			t.Errorf("refusal %+v", r)
		}
		rs = filter()
		rs.Sets[1].Elements[0].Key = []ruleset.Range{port(80)}
		if r := refused(t, k.DryRun(t.Context(), rs)); r.Part != "alias/nets" {
			t.Errorf("refusal %+v", r)
		}
	})
}

func TestLoopOfChainsIsRefused(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		apply(t, k, filter(rule(drop)))
		before, _ := listings(t)
		to := func(chain string) ruleset.Rule { return rule(ruleset.Verdict{Kind: ruleset.Jump, Chain: chain}) }
		rs := filter(to("a"))
		rs.Chains = append(rs.Chains, ruleset.Chain{Name: "a", Rules: []ruleset.Rule{to("b")}}, ruleset.Chain{Name: "b", Rules: []ruleset.Rule{to("a")}})
		for name, err := range map[string]error{"dry run": k.DryRun(t.Context(), rs), "apply": k.Apply(t.Context(), rs)} {
			if !errors.Is(err, syscall.ELOOP) && !errors.Is(err, syscall.EMLINK) {
				t.Errorf("%s of a loop: %v", name, err)
			}
		}
		if after, _ := listings(t); after != before {
			t.Error(firstDifference(after, before))
		}
	})
}

func TestDryRunChangesNothing(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		if err := k.DryRun(t.Context(), everything()); err != nil {
			t.Fatal(err)
		}
		if got := run(t, "nft", "list", "ruleset"); got != "" {
			t.Errorf("dry run left %s", got)
		}
		apply(t, k, filter(rule(drop)))
		before, _ := listings(t)
		if err := k.DryRun(t.Context(), everything()); err != nil {
			t.Fatal(err)
		}
		if after, _ := listings(t); after != before {
			t.Error(firstDifference(after, before))
		}
	})
}

func TestLargeRulesetsAreStoredWhole(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		rs := filter()
		host := func(i int) ruleset.Range {
			return ruleset.One(ruleset.Value([]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
		}
		for _, s := range []ruleset.Set{{Name: "hosts"}, {Name: "ranges", Interval: true}} {
			s.Key = []ruleset.Type{ruleset.IPv4Addr}
			for i := range 5000 {
				s.Elements = append(s.Elements, ruleset.Element{Key: []ruleset.Range{host(i * 2)}})
			}
			rs.Sets = append(rs.Sets, s)
		}
		for i := range 3000 {
			rs.Chains[0].Rules = append(rs.Chains[0].Rules, rule(v4, is(ruleset.IPSaddr, host(i)), accept))
		}
		apply(t, k, rs)
		for _, set := range []string{"hosts", "ranges"} {
			members, err := k.Members(t.Context(), set)
			if err != nil || len(members) != 5000 {
				t.Errorf("set %s holds %d members, %v", set, len(members), err)
			}
		}
		if n := strings.Count(run(t, "nft", "list", "chain", "inet", "gatehouse", "forward"), "accept"); n != 3000 {
			t.Errorf("%d rules", n)
		}
	})
}

func TestRuntimeMembersTimeoutsAndCountersSurviveAnApply(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		apply(t, k, filter(rule(ruleset.Count{Name: "c"}, accept)))
		left := member("lockout4", "10.0.0.1", time.Hour)
		left.Left = 10 * time.Minute
		if err := k.Add(t.Context(), left, member("lockout4", "10.0.0.2", 2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		rs := filter(rule(drop))
		rs.Sets[0].Elements = []ruleset.Element{{Key: []ruleset.Range{one("10.0.0.3")}}} // only for a new set
		apply(t, k, rs)
		checkMember(t, k, "10.0.0.1", time.Hour, 10*time.Minute)
		checkMember(t, k, "10.0.0.2", 2*time.Hour, 2*time.Hour)
		rs.Sets[0].Size = 2000 // a set of another size is another set, with the same members
		apply(t, k, rs)
		checkMember(t, k, "10.0.0.1", time.Hour, 10*time.Minute)
		checkMember(t, k, "10.0.0.2", 2*time.Hour, 2*time.Hour)
		if text := run(t, "nft", "list", "set", "inet", "gatehouse", "lockout4"); !strings.Contains(text, "size 2000") || strings.Contains(text, "10.0.0.3") {
			t.Error(text)
		}
	})
}

// What an element counted comes along when its set is made anew, from a rule or
// by hand, and is read back.
func TestCountsOfElementsSurviveAnApply(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		rs := filter(rule(drop))
		rs.Sets = append(rs.Sets,
			ruleset.Set{Name: "hosts", Key: []ruleset.Type{ruleset.IPv4Addr}, Runtime: true, Timeout: true, Counter: true, Size: 1000},
			ruleset.Set{Name: "nets", Key: []ruleset.Type{ruleset.IPv4Addr}, Runtime: true, Interval: true, Timeout: true, Counter: true})
		host := ruleset.Element{Key: []ruleset.Range{one("10.0.0.1")}, Timeout: time.Hour, Packets: 3, Bytes: 180}
		net := ruleset.Element{Key: []ruleset.Range{nets("10.2.0.0/16")}, Packets: 1 << 40, Bytes: 1 << 50}
		apply(t, k, rs)
		if err := k.Add(t.Context(), ruleset.Member{Set: "hosts", Element: host}, ruleset.Member{Set: "nets", Element: net}); err != nil {
			t.Fatal(err)
		}
		for _, size := range []uint32{1000, 1000, 2000} {
			rs.Sets[2].Size, rs.Sets[3].Size = size, size
			apply(t, k, rs)
			for set, want := range map[string]ruleset.Element{"hosts": host, "nets": net} {
				got, err := k.Members(t.Context(), set)
				if err != nil || len(got) != 1 {
					t.Fatalf("%s holds %+v, %v", set, got, err)
				}
				want.Left = got[0].Left
				if fmt.Sprint(got[0].Element) != fmt.Sprint(want) {
					t.Errorf("%s holds %+v, want %+v", set, got[0].Element, want)
				}
			}
		}
	})
}

// checkMember finds the address in lockout4, with at most left and at least a minute less of its timeout to go.
func checkMember(t *testing.T, k *kernel.Kernel, address string, timeout, left time.Duration) {
	t.Helper()
	members, err := k.Members(t.Context(), "lockout4")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(members, func(m ruleset.Member) bool { return m.Key[0] == one(address) })
	if i < 0 {
		t.Fatalf("%s is gone", address)
	}
	if m := members[i]; m.Timeout != timeout || m.Left > left || m.Left < left-time.Minute {
		t.Errorf("%s: timeout %v, left %v, want %v, %v", address, m.Timeout, m.Left, timeout, left)
	}
}

func TestForeignTablesAreUntouched(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		nft(t, `
table inet theirs {
	set s { type ipv4_addr; elements = { 10.0.0.1 }
	}
	chain forward {
		type filter hook forward priority 5; policy drop;
		ip saddr @s accept comment "mine"
	}
}
table ip gatehouse {
	chain c {
		drop
	}
}`)
		before := run(t, "nft", "-a", "list", "table", "inet", "theirs") + run(t, "nft", "-a", "list", "table", "ip", "gatehouse")
		apply(t, k, everything())
		apply(t, k, filter())
		if after := run(t, "nft", "-a", "list", "table", "inet", "theirs") + run(t, "nft", "-a", "list", "table", "ip", "gatehouse"); after != before {
			t.Error(firstDifference(after, before))
		}
	})
}

func TestIngressChainWaitsForItsDevice(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		rs := filter()
		rs.Chains = append(rs.Chains, ruleset.Chain{Name: "in_v9", Hook: &ruleset.Hook{Type: "filter", Name: "ingress", Priority: -500, Device: "v9"},
			Rules: []ruleset.Rule{rule(drop)}})
		apply(t, k, rs)
		if strings.Contains(run(t, "nft", "list", "ruleset"), "in_v9") {
			t.Error("chain for an absent device")
		}
		run(t, "ip", "link", "add", "v9", "type", "veth", "peer", "name", "v8")
		if err := k.Verify(t.Context(), rs); err != nil {
			t.Errorf("the chain of the new device is missed: %v", err)
		}
		apply(t, k, rs)
		if !strings.Contains(run(t, "nft", "list", "ruleset"), `hook ingress device "v9" priority -500`) {
			t.Error("no chain for the device")
		}
		nft(t, "flush chain inet gatehouse in_v9")
		if err := k.Verify(t.Context(), rs); err == nil {
			t.Error("the rules of the chain are not missed")
		}
		apply(t, k, rs)
		run(t, "ip", "link", "del", "v9")
		if err := k.Verify(t.Context(), rs); err != nil {
			t.Errorf("without the device: %v", err)
		}
		apply(t, k, rs)
		run(t, "ip", "link", "add", "v9", "type", "veth", "peer", "name", "v8")
		apply(t, k, rs)
		if !strings.Contains(run(t, "nft", "list", "ruleset"), `hook ingress device "v9" priority -500`) {
			t.Error("no chain for the device that came back")
		}
	})
}

func TestVerifyFindsEveryDifference(t *testing.T) {
	rs := filter(rule(v4, in(ruleset.IPSaddr, "nets4"), accept), rule(ruleset.Count{Name: "c"}, drop))
	for name, c := range map[string]struct{ change, what string }{
		"rule deleted":    {"flush chain inet gatehouse forward", "0 rules, want 2"},
		"rule added":      {"add rule inet gatehouse forward accept", "3 rules, want 2"},
		"policy changed":  {"add chain inet gatehouse forward { policy accept; }", "policy accept"},
		"element missing": {"delete element inet gatehouse nets4 { 10.8.0.1 }", "set nets4 lacks 10.8.0.1"},
		"element other": {"delete element inet gatehouse nets4 { 10.8.0.1 }; add element inet gatehouse nets4 { 10.9.0.1 }",
			"set nets4 has 10.9.0.1"},
		"chain added":   {"add chain inet gatehouse more", "chains"},
		"set added":     {"add set inet gatehouse more { type ipv4_addr; }", "sets"},
		"counter added": {"add counter inet gatehouse more", "counters"},
		"set counts": {"flush chain inet gatehouse forward; delete set inet gatehouse lockout4; add set inet gatehouse lockout4 { type ipv4_addr; size 1000; flags timeout; counter; }",
			"set lockout4 is defined"},
		"table asleep": {"add table inet gatehouse { flags dormant; }", "dormant"},
		"table gone":   {"delete table inet gatehouse", "table is missing"},
		"rule replaced": {"flush chain inet gatehouse forward; add rule inet gatehouse forward accept; add rule inet gatehouse forward drop",
			"rule 1 of chain forward"},
		"hook changed": {"delete chain inet gatehouse forward; add chain inet gatehouse forward { type filter hook forward priority 9; policy drop; }",
			"priority 9"},
	} {
		t.Run(name, func(t *testing.T) {
			inside(t, func(t *testing.T) {
				k := open(t)
				apply(t, k, rs)
				nft(t, strings.NewReplacer("; add", "\nadd", "; delete", "\ndelete").Replace(c.change))
				var m *kernel.Mismatch
				if err := k.Verify(t.Context(), rs); !errors.As(err, &m) || !strings.Contains(m.What, c.what) {
					t.Errorf("verify says %v, want %q", err, c.what)
				}
				apply(t, k, rs) // and can be put right
			})
		})
	}
}

func TestStampIsEmptyWithoutATable(t *testing.T) {
	inside(t, func(t *testing.T) {
		if stamp, err := open(t).Stamp(t.Context()); stamp != "" || err != nil {
			t.Errorf("stamp %q, %v", stamp, err)
		}
	})
}
