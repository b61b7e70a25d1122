package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// law says which of our packages a room may import. A name that ends in /* means every package below it. A room that
// is not in here must not exist.
var law = map[string][]string{
	"firewall":          {},
	"firewall/ruleset":  {},
	"firewall/compile":  {"firewall", "firewall/ruleset"},
	"firewall/simulate": {"firewall"},
	"firewall/kernel":   {"firewall", "firewall/ruleset"},
	"firewall/netlab":   {},

	"services/events":     {},
	"services/commit":     inService,
	"services/dhcp":       inService,
	"services/link":       append([]string{"services/link/*"}, inService...),
	"services/link/wan":   inService,
	"services/logs":       inService,
	"services/quarantine": inService,
	"services/states":     inService,
	"services/stats":      inService,

	"store":  {},
	"assets": {},

	// The router knows every page; a page knows none of its neighbours.
	"web":            append([]string{"web/*"}, inWeb...),
	"web/auth":       inWeb,
	"web/page":       {"firewall", "assets"},
	"web/draft":      inWeb,
	"web/api":        inWeb,
	"web/login":      inWeb,
	"web/setup":      inWeb,
	"web/dashboard":  inWeb,
	"web/rules":      inWeb,
	"web/forwards":   inWeb,
	"web/aliases":    inWeb,
	"web/dhcp":       inWeb,
	"web/leases":     inWeb,
	"web/interfaces": inWeb,
	"web/revisions":  inWeb,
	"web/changes":    inWeb,
	"web/tables":     inWeb,

	"cmd/gatehouse": {"firewall", "firewall/ruleset", "firewall/compile", "firewall/simulate", "firewall/kernel", "services/*", "store", "assets", "web", "web/*"},
	"cmd/gatelab":   {"firewall", "firewall/*", "services/*", "store", "assets", "web", "web/*"},
}

var (
	inService = []string{"firewall", "firewall/ruleset", "firewall/compile", "firewall/simulate", "services/events"}
	// Services for their value types only; web/auth for who is signed in.
	inWeb = []string{"firewall", "firewall/simulate", "assets", "web/page", "web/draft", "web/auth", "services/*"}
)

// doors says who alone may import a package from outside, or a dangerous one of the standard library. The longest
// prefix counts. Whatever is not of the standard library and has no door must not be imported at all.
var doors = map[string][]string{
	"go.etcd.io/bbolt":               {"store"},
	"github.com/google/nftables":     {"firewall/kernel"},
	"github.com/mdlayher/netlink":    {"firewall/kernel"},
	"github.com/florianl/go-nflog":   {"firewall/kernel"},
	"github.com/ti-mo":               {"firewall/kernel"},
	"github.com/vishvananda/netlink": {"services/link", "firewall/netlab"},
	"github.com/vishvananda/netns":   {"firewall/netlab"},
	"github.com/insomniacslk/dhcp":   {"services/dhcp", "services/link", "services/link/wan"},
	"github.com/mdlayher/packet":     {"services/dhcp", "services/link", "services/link/wan"},
	"golang.org/x/net/bpf":           {"services/dhcp", "services/link", "services/link/wan"},
	"github.com/go-chi/chi":          {"web"},
	"github.com/a-h/templ":           {"web", "web/*"},
	"golang.org/x/crypto/argon2":     {"web/auth"},
	"golang.org/x/term":              {"cmd/*"},
	"golang.org/x/sys/unix":          atKernel,
	"syscall":                        atKernel,
	"os/exec":                        {"firewall/netlab", "cmd/gatelab"},
}

var atKernel = []string{"firewall/kernel", "services/link", "services/link/wan", "services/dhcp", "firewall/netlab", "store", "cmd/*"}

// forTests are doors that are open to every _test.go file, beside those of its own room.
var forTests = []string{
	"os/exec", "syscall", "golang.org/x/sys/unix", "github.com/vishvananda/netlink", "github.com/insomniacslk/dhcp",
	"github.com/rogpeppe/go-internal", "golang.org/x/tools/txtar", "pgregory.net/rapid", "github.com/google/go-cmp", "github.com/chromedp", "golang.org/x/net/html",
}

// pure rooms give the same output for the same input, so they can know no clock, disk, net, other goroutine or log.
var (
	pure      = []string{"firewall", "firewall/ruleset", "firewall/compile", "firewall/simulate"}
	impure    = []string{"context", "os", "net", "sync", "log", "math/rand", "syscall", "io/ioutil", "unsafe"}
	pureParts = []string{"net/netip"}
	clock     = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
)

type listed struct {
	ImportPath, Dir                    string
	Standard                           bool
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
}

func goList(t *testing.T, args ...string) (pkgs []listed) {
	t.Helper()
	// -e: a package that does not build fails its own tests, not these.
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-json"}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func TestImportsKeepTheLaw(t *testing.T) {
	outside := map[string]bool{}
	for _, p := range goList(t, "-deps", "-test", "./...") {
		if !p.Standard {
			outside[p.ImportPath] = true
		}
	}
	rooms := goList(t, "./...")
	if len(rooms) < 10 {
		t.Fatalf("found only %d packages", len(rooms))
	}
	for _, p := range rooms {
		room := strings.TrimPrefix(p.ImportPath, "gatehouse/")
		allowed, known := law[room]
		if !known {
			t.Errorf("%s is not in the law: say in this table what it may import", room)
			continue
		}
		for _, imp := range p.Imports {
			if ours, ok := strings.CutPrefix(imp, "gatehouse/"); ok {
				if !matches(allowed, ours) {
					t.Errorf("%s must not import %s", room, ours)
				}
			} else if who, has := door(imp); has && !matches(who, room) {
				t.Errorf("%s must not import %s: its door is %v", room, imp, who)
			} else if !has && outside[imp] {
				t.Errorf("%s imports %s, which has no door", room, imp)
			}
			if slices.Contains(pure, room) && !under(pureParts, imp) && under(impure, imp) {
				t.Errorf("%s is pure and must not import %s", room, imp)
			}
		}
		for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
			// Tests may know any room of ours: compile and simulate are tested against the kernel.
			if strings.HasPrefix(imp, "gatehouse/") || under(forTests, imp) {
				continue
			}
			if who, has := door(imp); has && !matches(who, room) || !has && outside[imp] {
				t.Errorf("a test of %s must not import %s", room, imp)
			}
		}
		if slices.Contains(pure, room) {
			readsNoClock(t, p)
		}
	}
}

func TestProductStartsNoPrograms(t *testing.T) {
	for _, p := range goList(t, "-deps", "./cmd/gatehouse") {
		if p.ImportPath == "os/exec" || p.ImportPath == "gatehouse/firewall/netlab" {
			t.Errorf("the product holds %s", p.ImportPath)
		}
		if slices.Contains(p.Imports, "os/exec") {
			t.Errorf("%s brings os/exec in", p.ImportPath)
		}
	}
}

// readsNoClock looks for the functions of package time that depend on when they are called.
func readsNoClock(t *testing.T, p listed) {
	for _, name := range p.GoFiles {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(clock, sel.Sel.Name) {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s: a pure room must not call time.%s", fset.Position(n.Pos()), sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// door finds the row of doors with the longest prefix of imp.
func door(imp string) (who []string, has bool) {
	best := ""
	for prefix, rooms := range doors {
		if under([]string{prefix}, imp) && len(prefix) > len(best) {
			best, who, has = prefix, rooms, true
		}
	}
	return who, has
}

// under reports whether imp is one of paths or below one.
func under(paths []string, imp string) bool {
	return slices.ContainsFunc(paths, func(p string) bool { return imp == p || strings.HasPrefix(imp, p+"/") })
}

// matches reports whether room is one of names; name/* stands for all below name.
func matches(names []string, room string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		all, wild := strings.CutSuffix(n, "*")
		return n == room || wild && strings.HasPrefix(room, all)
	})
}
