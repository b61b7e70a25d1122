package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gatehouse/firewall/netlab"
)

// check is one line of the report beside the tests. Its error is what a person has to mend.
type check struct {
	name string
	run  func(ctx context.Context, root string) error
}

func checks() []check {
	tool := []string{"tool", "-modfile=.ci/tools.mod"}
	return []check{
		{"every file is as gofmt writes it", gofmt},
		{"generated templates are up to date", templates},
		{"everything builds", command("go", "build", "./...")},
		{"go vet", command("go", "vet", "./...")},
		{"staticcheck", command("go", slices.Concat(tool, []string{"staticcheck", "./..."})...)},
	}
}

// test is the whole suite: what is missing is installed, leftovers are removed, then come the checks and all tests. Its
// last line is "N passed, N failed"; a skipped test is a failed one, for nobody sees what it would have said.
func test(ctx context.Context, root string, args []string, out io.Writer) error {
	if len(args) > 0 {
		return fmt.Errorf("test takes no %q: use go test for a part", args[0])
	}
	began := time.Now()
	if err := install(ctx, forAll(), out); err != nil {
		return err
	}
	if err := netlab.Sweep(); err != nil {
		return err
	}
	t := newTally(out)
	for _, c := range checks() {
		start := time.Now()
		err := c.run(ctx, root)
		t.check(c.name, err, time.Since(start))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	race, plain, err := split(ctx, root)
	if err != nil {
		return err
	}
	for _, part := range [][]string{append([]string{"-race"}, race...), plain} {
		if err := goTest(ctx, root, part, t); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "time: %v\n", time.Since(began).Round(time.Second))
	return t.end()
}

// split sorts the packages. Those under cmd tell stories with the real binary, which is built without the race detector
// as it is shipped: there it would only slow the teller.
func split(ctx context.Context, root string) (race, plain []string, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "./...")
	cmd.Dir = root
	text, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the packages: %w", err)
	}
	for _, p := range strings.Fields(string(text)) {
		if strings.HasPrefix(p, "gatehouse/cmd/") {
			plain = append(plain, p)
		} else {
			race = append(race, p)
		}
	}
	return race, plain, nil
}

// goTest runs the tests of packages, two at a time, and has the tally read along.
func goTest(ctx context.Context, root string, packages []string, t *tally) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-count=1", "-p=2", "-timeout=20m"}, packages...)...)
	cmd.Dir = root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	before := t.failed
	readErr := t.read(stdout)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && t.failed == before { // it failed without a test that failed
		t.check("go test "+strings.Join(packages, " "), fmt.Errorf("%w\n%s", err, stderr.String()), 0)
	}
	return readErr
}

// command is a check that a program ends well; what it prints is the error.
func command(name string, args ...string) func(context.Context, string) error {
	return func(ctx context.Context, root string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = root
		text, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w\n%s", err, text)
		}
		return nil
	}
}

func gofmt(_ context.Context, root string) error {
	var wrong []string
	err := sources(root, ".go", func(path string, text []byte) {
		if good, err := format.Source(text); err != nil || !bytes.Equal(good, text) {
			wrong = append(wrong, path)
		}
	})
	if err == nil && len(wrong) > 0 {
		err = errors.New(strings.Join(wrong, "\n"))
	}
	return err
}

// templates generates again and compares with what was there. It needs no git, and leaves the new text in place.
func templates(ctx context.Context, root string) error {
	read := func() (map[string]string, error) {
		m := map[string]string{}
		err := sources(root, "_templ.go", func(path string, text []byte) { m[path] = string(text) })
		return m, err
	}
	before, err := read()
	if err != nil {
		return err
	}
	if err := command("go", "tool", "-modfile=.ci/tools.mod", "templ", "generate", "-path", "web")(ctx, root); err != nil {
		return err
	}
	after, err := read()
	if err != nil {
		return err
	}
	var stale []string
	for _, path := range slices.Sorted(maps.Keys(after)) {
		if before[path] != after[path] {
			stale = append(stale, path)
		}
	}
	for path := range before {
		if _, err := os.Stat(strings.TrimSuffix(path, "_templ.go") + ".templ"); err != nil {
			stale = append(stale, path+" (its .templ is gone)")
		}
	}
	if len(stale) > 0 {
		return errors.New("commit them:\n" + strings.Join(stale, "\n"))
	}
	return nil
}

// sources gives fn every file of the repository whose name ends so; folders with a dot are not part of it.
func sources(root, suffix string, fn func(path string, text []byte)) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			fn(path, text)
		}
		return err
	})
}
