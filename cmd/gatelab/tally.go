package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// tally counts checks and tests and prints what a person needs: a line for each package, and all that a failed test said.
type tally struct {
	out            io.Writer
	passed, failed int
	said           map[string]*strings.Builder // by package and test, until the test ends
	packages       map[string]*count
}

type count struct{ passed, failed, skipped int }

func newTally(out io.Writer) *tally {
	return &tally{out: out, said: map[string]*strings.Builder{}, packages: map[string]*count{}}
}

// check counts one result that is not a Go test.
func (t *tally) check(name string, err error, took time.Duration) {
	if err != nil {
		t.failed++
		fmt.Fprintf(t.out, "FAIL  %7.1fs  %s\n%s\n", took.Seconds(), name, indent(err.Error()))
		return
	}
	t.passed++
	fmt.Fprintf(t.out, "ok    %7.1fs  %s\n", took.Seconds(), name)
}

// read takes the output of `go test -json` to its end.
func (t *tally) read(r io.Reader) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var e event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			// Not every version of go says everything in JSON.
			fmt.Fprintf(t.out, "      %s\n", s.Text())
			continue
		}
		t.event(e)
	}
	return s.Err()
}

func (t *tally) event(e event) {
	if e.Package == "" {
		e.Package = e.ImportPath // of a build
	}
	c := t.packages[e.Package]
	if c == nil {
		c = &count{}
		t.packages[e.Package] = c
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		if t.said[key] == nil {
			t.said[key] = &strings.Builder{}
		}
		t.said[key].WriteString(e.Output)
	case "build-fail":
		t.tell("FAIL  build of "+e.ImportPath, key)
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.packageEnds(e, c, key)
			return
		}
		switch e.Action {
		case "pass":
			c.passed++
			delete(t.said, key)
		case "skip":
			c.skipped++
			t.tell("SKIP  "+key+" (counts as failed)", key)
		case "fail":
			c.failed++
			t.tell("FAIL  "+key, key)
		}
	}
}

func (t *tally) packageEnds(e event, c *count, key string) {
	// A package that does not build, panics in TestMain or runs out of time fails without a test that does.
	if e.Action == "fail" && c.failed == 0 {
		c.failed++
		t.tell("FAIL  "+e.Package, key)
	}
	delete(t.said, key)
	t.passed += c.passed
	t.failed += c.failed + c.skipped
	switch {
	case c.failed+c.skipped > 0:
		fmt.Fprintf(t.out, "FAIL  %7.1fs  %s  %d passed, %d failed, %d skipped\n", e.Elapsed, e.Package, c.passed, c.failed, c.skipped)
	case c.passed > 0:
		fmt.Fprintf(t.out, "ok    %7.1fs  %s  %d passed\n", e.Elapsed, e.Package, c.passed)
	}
	delete(t.packages, e.Package)
}

// tell prints a headline and what was said under key.
func (t *tally) tell(headline, key string) {
	fmt.Fprintln(t.out, headline)
	if b := t.said[key]; b != nil {
		fmt.Fprintln(t.out, indent(b.String()))
	}
	delete(t.said, key)
}

// end prints the last line, alone, and says whether all is well.
func (t *tally) end() error {
	for name, c := range t.packages { // a package without a last word was killed
		if c.passed+c.failed+c.skipped > 0 {
			t.failed++
			fmt.Fprintf(t.out, "FAIL  %s did not finish\n", name)
		}
	}
	fmt.Fprintf(t.out, "%d passed, %d failed\n", t.passed, t.failed)
	if t.failed > 0 || t.passed == 0 {
		return errors.New("the suite failed")
	}
	return nil
}

func indent(s string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n      ")
}
