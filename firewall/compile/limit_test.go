package compile_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
)

// box is a valid configuration with one pass rule, which has the limit.
func box(t *testing.T, l firewall.Limit) firewall.Config {
	t.Helper()
	static := func(s string) firewall.V4 { return firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix(s)} }
	c := firewall.Config{Schema: firewall.Schema, System: firewall.System{Host: "fw1", Domain: "home.arpa", Zone: "UTC"}, Admin: firewall.Admin{HTTPS: 443},
		Interfaces: []firewall.Interface{
			{Name: "WAN", Device: "eth0", Role: firewall.WAN, On: true, V4: static("203.0.113.2/24"), V6: firewall.V6{Mode: firewall.None}},
			{Name: "LAN", Device: "eth1", Role: firewall.LAN, On: true, V4: static("192.168.1.1/24"), V6: firewall.V6{Mode: firewall.None}}},
		Rules: []firewall.Rule{{ID: "01A", On: true, Action: firewall.Pass, In: "WAN", Family: firewall.Both, Proto: firewall.TCP,
			Src: firewall.Anyone(), Dst: firewall.Anyone(), Limit: l}}}
	if ps := c.Validate(); ps != nil {
		t.Fatal(ps)
	}
	return c
}

func chain(rs ruleset.Ruleset, name string) (ruleset.Chain, bool) {
	i := slices.IndexFunc(rs.Chains, func(c ruleset.Chain) bool { return c.Name == name })
	if i < 0 {
		return ruleset.Chain{}, false
	}
	return rs.Chains[i], true
}

// Who uses no limit pays for none: established connections meet what they met before there were limits.
func TestConfigurationWithoutLimitsHasNothingOfThem(t *testing.T) {
	limited := box(t, firewall.Limit{Open: 3, New: 7, Window: 9, Over: firewall.LockOut, LockFor: 60})
	off := box(t, limited.Rules[0].Limit)
	off.Rules[0].On = false
	for name, c := range map[string]firewall.Config{"no limit": box(t, firewall.Limit{}), "a rule that is off": off} {
		rs := compile.Compile(c)
		for _, gone := range []string{"metered", "answered", "forged", "begun", "syn", "output", "l_01A"} {
			if _, ok := chain(rs, gone); ok {
				t.Errorf("%s: there is a chain %s", name, gone)
			}
		}
		forward, _ := chain(rs, "forward")
		if text := forward.String(); strings.Contains(text, "mark") || len(forward.Rules) != 4 {
			t.Errorf("%s: %s", name, text)
		}
		if i := slices.IndexFunc(rs.Sets, func(s ruleset.Set) bool { return s.Meter }); i >= 0 {
			t.Errorf("%s: there is the meter %s", name, rs.Sets[i].Name)
		}
		if all := compile.MeterSets(c); len(all) != 0 {
			t.Errorf("%s: meters %v", name, all)
		}
	}
	if _, ok := chain(compile.Compile(limited), "metered"); !ok {
		t.Error("a limit without a chain that counts")
	}
}

// A quarantine by hand works with every ruleset, the one of an emergency too.
func TestEveryRulesetDropsWhoIsShutOut(t *testing.T) {
	for name, rs := range map[string]ruleset.Ruleset{"lockdown": compile.Lockdown(), "a box": compile.Compile(box(t, firewall.Limit{}))} {
		raw, ok := chain(rs, "raw")
		if !ok || raw.Hook == nil || raw.Hook.Name != "prerouting" || raw.Hook.Priority != -300 {
			t.Errorf("%s: %+v", name, raw)
		}
		for _, v6 := range []bool{false, true} {
			for _, set := range []string{compile.BlockedSet(v6), compile.BlockedNets(v6)} {
				if !strings.Contains(raw.String(), "@"+set+" goto a_blocked") {
					t.Errorf("%s does not ask %s:\n%s", name, set, raw)
				}
				i := slices.IndexFunc(rs.Sets, func(s ruleset.Set) bool { return s.Name == set })
				if i < 0 || !rs.Sets[i].Runtime || !rs.Sets[i].Timeout || !rs.Sets[i].Counter {
					t.Errorf("%s: no set %s, or not one that keeps its members", name, set)
				}
			}
		}
		for _, c := range rs.Chains {
			if c.Hook != nil && c.Hook.Name == "ingress" && (c.Hook.Priority != -500 || !slices.EqualFunc(c.Rules, raw.Rules, func(a, b ruleset.Rule) bool { return a.String() == b.String() })) {
				t.Errorf("%s: %s", name, c)
			}
		}
	}
	for device, in := range map[string]string{"eth0": "ingress_WAN", "eth1": "ingress_LAN"} {
		if c, ok := chain(compile.Compile(box(t, firewall.Limit{})), in); !ok || c.Hook.Device != device {
			t.Errorf("%s: %+v", in, c)
		}
	}
}

func TestMeterSetsAreThoseOfTheRuleset(t *testing.T) {
	c := box(t, firewall.Limit{Open: 3, New: 7, Window: 9, Over: firewall.DropExcess})
	second := c.Rules[0]
	second.ID, second.Family, second.Limit = "01B", firewall.IPv6, firewall.Limit{New: 1, Window: 1, Over: firewall.DropExcess}
	c.Rules, c.Sources = append(c.Rules, second), firewall.Sources{Prefix6: 48, Meter: 77}
	sets := map[string]ruleset.Set{}
	for _, s := range compile.Compile(c).Sets {
		sets[s.Name] = s
	}
	all := compile.MeterSets(c)
	if len(all) != 5 {
		t.Errorf("%d meters: %v", len(all), all)
	}
	for _, m := range all {
		s, ok := sets[m.Name]
		if !ok || !s.Meter || !s.Dynamic || !s.Runtime || int(s.Size) != m.Size || m.Size != 77 || (s.Key[0] == ruleset.IPv6Addr) != m.V6 || s.Timeout != (m.What == firewall.OverNew) {
			t.Errorf("%+v is the set %+v", m, s)
		}
	}
}

// An element keeps the limit and the kind of source that it was made with: after
// a change of either it must not be found any more.
func TestMeterIsNamedAfterAllItDependsOn(t *testing.T) {
	first := firewall.Limit{Open: 3, New: 7, Window: 9, Over: firewall.DropExcess}
	names := func(l firewall.Limit, s firewall.Sources) (out []string) {
		c := box(t, l)
		c.Sources = s
		for _, m := range compile.MeterSets(c) {
			out = append(out, m.Name)
		}
		return out
	}
	before := names(first, firewall.Sources{})
	for name, after := range map[string][]string{
		"open":   names(firewall.Limit{Open: 4, New: 7, Window: 9, Over: firewall.DropExcess}, firewall.Sources{})[:1],
		"new":    names(firewall.Limit{New: 8, Window: 9, Over: firewall.DropExcess}, firewall.Sources{}),
		"window": names(firewall.Limit{New: 7, Window: 8, Over: firewall.DropExcess}, firewall.Sources{}),
		"prefix": names(first, firewall.Sources{Prefix6: 56})[2:],
	} {
		for _, n := range after {
			if slices.Contains(before, n) {
				t.Errorf("%s changed, and %s is still the meter", name, n)
			}
		}
	}
	if same := names(firewall.Limit{Open: 3, New: 7, Window: 9, Over: firewall.LockOut, LockFor: 60, DryRun: true}, firewall.Sources{Meter: 99}); !slices.Equal(same, before) {
		t.Errorf("what happens beyond the limit changes the meters: %v, before %v", same, before)
	}
}
