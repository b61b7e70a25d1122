package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// job is one test binary for the guest to run.
type job struct {
	Package string   // as go list names it
	Binary  string   // in the guest
	Dir     string   // in the guest, where testdata is
	Args    []string // -test.v ...
}

// guest runs the tests of packages under the kernel that Debian's users have, in
// an emulated machine of its own: no KVM, no network to anywhere. What does not
// depend on the kernel need not be run there: it is ten to thirty times slower.
func guest(ctx context.Context, root string, args []string, out io.Writer) error {
	i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") })
	if i < 0 {
		i = len(args)
	}
	packages, flags := args[:i], append([]string{"-test.timeout=30m"}, args[i:]...) // the later one of a flag counts
	if len(packages) == 0 {
		return errors.New("say which packages' tests the guest shall run: guest ./firewall/kernel -test.run Members")
	}
	if err := install(ctx, append(forTrial(), forGuest()...), out); err != nil {
		return err
	}
	linux, err := debianKernel(ctx, out)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gatelab-guest-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	a := &archive{}
	jobs, err := pack(ctx, a, root, dir, packages, flags)
	if err != nil {
		return err
	}
	if err := linux.pack(a); err != nil {
		return err
	}
	initrd := filepath.Join(dir, "initrd")
	if err := os.WriteFile(initrd, a.bytes(), 0o600); err != nil {
		return err
	}
	fmt.Fprintf(out, "guest: Linux %s, %d packages, %d MB\n", linux.release, len(jobs), len(a.bytes())>>20)
	return emulate(ctx, linux.image, initrd, dir, out)
}

// pack builds what runs in the guest and puts it into the archive: this program
// as its init, the product, the test binaries, and the testdata that they read.
func pack(ctx context.Context, a *archive, root, dir string, packages, flags []string) ([]job, error) {
	self := filepath.Join(dir, "init")
	if err := goStatic(ctx, root, "build", "-o", self, "./cmd/gatelab"); err != nil {
		return nil, err
	}
	box, err := build(ctx, root, dir)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(a.file("/init", self), a.file(productFile, box)); err != nil {
		return nil, err
	}
	var list bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", "{{.ImportPath}}\t{{.Dir}}"}, packages...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, &list, &list
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("list the packages: %w\n%s", err, list.String())
	}
	var jobs []job
	for line := range strings.Lines(list.String()) {
		path, source, _ := strings.Cut(strings.TrimSpace(line), "\t")
		rel, err := filepath.Rel(root, source)
		if err != nil {
			return nil, err
		}
		binary := filepath.Join(dir, strconv.Itoa(len(jobs))+".test")
		if err := goStatic(ctx, root, "test", "-c", "-o", binary, path); err != nil {
			return nil, err
		}
		j := job{Package: path, Binary: "/tests/" + filepath.Base(binary), Dir: "/gatehouse/" + rel, Args: flags}
		if err := a.file(j.Binary, binary); err != nil {
			return nil, fmt.Errorf("%s has no tests: %w", path, err)
		}
		a.dir(j.Dir)
		jobs = append(jobs, j)
	}
	if err := a.testdata(root); err != nil {
		return nil, err
	}
	text, err := json.Marshal(jobs)
	if err == nil {
		a.add(jobsFile, modeFile, text)
	}
	return jobs, err
}

// goStatic runs go build or go test -c for a machine that has no C library.
func goStatic(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return nil
}

// The guest's serial ports: what the kernel says, what the tests say, and how
// they ended.
const (
	consolePort = "/dev/ttyS0"
	outputPort  = "/dev/ttyS1"
	statusPort  = "/dev/ttyS2"
)

// emulate boots the guest and passes on what its tests say until they have ended.
func emulate(ctx context.Context, kernel, initrd, dir string, out io.Writer) error {
	console, status := filepath.Join(dir, "console"), filepath.Join(dir, "status")
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none",
		"-accel", "tcg,thread=multi", "-machine", "pc", "-cpu", "max", "-smp", "2", "-m", "2048",
		"-kernel", kernel, "-initrd", initrd,
		"-append", "console=ttyS0 loglevel=5 panic=-1 mitigations=off nokaslr random.trust_cpu=on "+guestKey+"=init",
		"-serial", "file:"+console, "-serial", "stdio", "-serial", "file:"+status)
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &complaints
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text, _ := os.ReadFile(status) // without it the guest died
	code, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	switch {
	case bad != nil || err != nil:
		said, _ := os.ReadFile(console)
		return fmt.Errorf("the guest died: %v %s; its console's last lines:\n%s", err, complaints.String(), tail(string(said), 40))
	case code != 0:
		return fmt.Errorf("tests failed in the guest: exit status %d", code)
	}
	return nil
}

// tail is the last lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
