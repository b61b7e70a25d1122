package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"gatehouse/firewall/netlab"
)

// benches are the measurements by name, one file each. A bench prints its figures, one "name: value unit (wanted)" a line,
// and fails when a figure could not be measured or is worse than wanted.
func benches() map[string]func(ctx context.Context, b *measurement) error {
	return map[string]func(ctx context.Context, b *measurement) error{
		"apply":      apply,
		"idle":       idle,
		"limits":     limits,
		"pages":      pages,
		"throughput": throughput,
	}
}

// measurement is what a bench gets.
type measurement struct {
	Root   string      // of the repository
	Dir    string      // for its files, removed afterwards
	Binary string      // the product as it is shipped
	Lab    *netlab.Lab // with three ports on the box, which is unconfigured
	Out    io.Writer
	failed []string
}

// figure prints one figure and remembers it if it is worse than the most allowed.
func (m *measurement) figure(name string, value, most float64, unit string) {
	verdict := "ok"
	if value > most {
		verdict = "TOO MUCH"
		m.failed = append(m.failed, name)
	}
	fmt.Fprintf(m.Out, "%s: %.2f %s (at most %g) %s\n", name, value, unit, most, verdict)
}

// least prints one ratio and remembers it if it is below what is wanted.
func (m *measurement) least(name string, value, least float64) {
	verdict := "ok"
	if value < least {
		verdict = "TOO LITTLE"
		m.failed = append(m.failed, name)
	}
	fmt.Fprintf(m.Out, "%s: %.3f (at least %g) %s\n", name, value, least, verdict)
}

// bench runs the named measurements, or all, one after the other, each in a lab of its own.
func bench(ctx context.Context, root string, args []string, out io.Writer) error {
	all := benches()
	if len(args) == 0 {
		args = slices.Sorted(maps.Keys(all))
	}
	for _, name := range args {
		if all[name] == nil {
			return fmt.Errorf("no bench %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		}
	}
	if err := install(ctx, forAll(), out); err != nil {
		return err
	}
	var failed []string
	for _, name := range args {
		fmt.Fprintf(out, "== %s\n", name)
		bad, err := measure(ctx, root, out, all[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		failed = append(failed, bad...)
	}
	if len(failed) > 0 {
		return fmt.Errorf("worse than wanted: %s", strings.Join(failed, ", "))
	}
	return nil
}

func measure(ctx context.Context, root string, out io.Writer, run func(context.Context, *measurement) error) ([]string, error) {
	lab, err := netlab.New(ctx, netlab.Options{})
	if err != nil {
		return nil, err
	}
	defer lab.Close() // a folder that stays is swept by the next run
	binary, err := build(ctx, root, lab.Dir)
	if err != nil {
		return nil, err
	}
	m := &measurement{Root: root, Dir: lab.Dir, Binary: binary, Lab: lab, Out: out}
	err = run(ctx, m)
	return m.failed, err
}
