package kernel_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
)

// What the compiler writes for its reviewed configurations reaches the kernel
// as that text: the goldens say what runs.
func TestCompiledRulesetsReachTheKernelAsTheirText(t *testing.T) {
	files, err := filepath.Glob("../compile/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no configurations: %v", err)
	}
	rulesets := map[string]ruleset.Ruleset{"lockdown": compile.Lockdown()}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := firewall.Decode(a.Files[0].Data)
		if err != nil {
			t.Fatal(err)
		}
		rulesets[filepath.Base(file)] = compile.Compile(cfg)
	}
	for name, rs := range rulesets {
		t.Run(name, func(t *testing.T) {
			rs := withoutLabels(rs)
			var text, code, textByNft, codeByNft string
			inside(t, func(t *testing.T) {
				devices(t, rs)
				apply(t, open(t), rs)
				text, code = listings(t)
			})
			inside(t, func(t *testing.T) {
				devices(t, rs)
				nft(t, rs.String())
				textByNft, codeByNft = listings(t)
			})
			if d := firstDifference(text, textByNft) + firstDifference(code, codeByNft); d != "" {
				t.Error(d)
			}
		})
	}
}

// withoutLabels leaves out what has no text.
func withoutLabels(rs ruleset.Ruleset) ruleset.Ruleset {
	var chains []ruleset.Chain
	for _, c := range rs.Chains {
		rules := make([]ruleset.Rule, len(c.Rules))
		for i, r := range c.Rules {
			rules[i] = ruleset.Rule{Origin: r.Origin, Comment: r.Comment}
			for _, s := range r.Stmts {
				if _, ok := s.(ruleset.Label); !ok {
					rules[i].Stmts = append(rules[i].Stmts, s)
				}
			}
		}
		c.Rules = rules
		chains = append(chains, c)
	}
	rs.Chains = chains
	return rs
}

// devices makes the devices of the ingress chains.
func devices(t *testing.T, rs ruleset.Ruleset) {
	t.Helper()
	for _, c := range rs.Chains {
		if c.Hook != nil && c.Hook.Device != "" {
			run(t, "ip", "link", "add", c.Hook.Device, "type", "veth")
		}
	}
}
