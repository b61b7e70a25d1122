package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/firewall/netlab"
)

func TestMain(m *testing.M) {
	netlab.Main()
	os.Exit(m.Run())
}

// scratch is a module with one passing, one failing and one skipped test and a package that does not build.
func scratch(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	files["go.mod"] = "module scratch\n\ngo 1.26.0\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func suite(t *testing.T, files map[string]string) (out string, err error) {
	var b bytes.Buffer
	y := newTally(&b)
	if err := goTest(t.Context(), scratch(t, files), []string{"./..."}, y); err != nil {
		t.Fatal(err)
	}
	err = y.end()
	return b.String(), err
}

func TestSuiteCountsEveryKindOfEnd(t *testing.T) {
	head := "package p\n\nimport \"testing\"\n\n"
	for _, c := range []struct {
		name, code, last string
		ok               bool
		says             string
	}{
		{"all pass", "func TestA(t *testing.T) { t.Run(\"b\", func(t *testing.T) {}) }\n", "2 passed, 0 failed", true, ""},
		{"one fails", "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.Error(\"reason\") }\n", "1 passed, 1 failed", false, "reason"},
		{"a skip is no pass", "func TestA(t *testing.T) {}\nfunc TestB(t *testing.T) { t.Skip(\"no kernel\") }\n", "1 passed, 1 failed", false, "no kernel"},
		{"does not build", "func TestA(t *testing.T) { nonsense() }\n", "0 passed, 1 failed", false, "undefined: nonsense"},
		{"panics", "func TestA(t *testing.T) { panic(\"bang\") }\n", "0 passed, 1 failed", false, "bang"},
		{"TestMain gives up", "func TestMain(m *testing.M) { panic(\"early\") }\n", "0 passed, 1 failed", false, "early"},
		{"no test at all", "", "0 passed, 0 failed", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			code := head + c.code
			if c.code == "" {
				code = "package p\n"
			}
			out, err := suite(t, map[string]string{"p.go": "package p\n", "p_test.go": code})
			lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
			if lines[len(lines)-1] != c.last || (err == nil) != c.ok || !strings.Contains(out, c.says) {
				t.Errorf("error %v, want none: %v; last line wanted %q; output:\n%s", err, c.ok, c.last, out)
			}
		})
	}
}

func TestGofmtCheckNamesTheFile(t *testing.T) {
	dir := scratch(t, map[string]string{"good.go": "package p\n", "bad.go": "package  p\n", ".git/bad.go": "nonsense"})
	err := gofmt(t.Context(), dir)
	if err == nil || !strings.Contains(err.Error(), "bad.go") || strings.Contains(err.Error(), "good.go") || strings.Contains(err.Error(), ".git") {
		t.Errorf("got %v", err)
	}
}

func TestBenchNamesWhatThereIs(t *testing.T) {
	err := bench(context.Background(), "", []string{"nonsense"}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "idle") {
		t.Errorf("got %v", err)
	}
}
