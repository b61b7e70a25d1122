package compile_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
)

var update = flag.Bool("update", false, "write the nft text that Compile gives into the golden files")

// Each file of testdata is a configuration and the ruleset that a person reviewed for it.
func TestCompileGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := firewall.Decode(a.Files[0].Data)
			if err != nil {
				t.Fatal(err)
			}
			if ps := cfg.Validate(); ps != nil {
				t.Fatalf("not valid: %v", ps)
			}
			got := compile.Compile(cfg).String()
			if again := compile.Compile(cfg).String(); again != got {
				t.Fatal("the same configuration gave two rulesets")
			}
			if *update {
				a.Files = append(a.Files[:1], txtar.File{Name: "want.nft", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(a.Files) < 2 || string(a.Files[1].Data) != got {
				t.Errorf("compiled to:\n%s", got)
			}
		})
	}
}
