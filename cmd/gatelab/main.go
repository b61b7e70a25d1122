// Command gatelab is for people who try, test or measure Gatehouse. It works in throw-away namespaces and is never part
// of the product.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"gatehouse/firewall/netlab"
)

const usage = `usage: go run ./cmd/gatelab VERB
  try [--listen 127.0.0.1:8443]   run Gatehouse in a lab and open its web page to this machine's browser
  test                            install what the tests need and run all of them
  bench [NAME...]                 measure; without a name everything
  guest PACKAGE... [-test.run X]  run these packages' tests under Debian's kernel, in an emulated machine
`

func main() {
	guestMain()
	netlab.Main()
	insideMain()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gatelab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	verbs := map[string]func(ctx context.Context, root string, args []string, out io.Writer) error{
		"try": try, "test": test, "bench": bench, "guest": guest,
	}
	if len(args) == 0 || verbs[args[0]] == nil {
		fmt.Fprint(out, usage)
		return errors.New("say try, test, bench or guest")
	}
	if os.Geteuid() != 0 {
		return errors.New("needs root: it makes network namespaces")
	}
	root, err := repository(ctx)
	if err != nil {
		return err
	}
	return verbs[args[0]](ctx, root, args[1:], out)
}

// repository finds the folder of go.mod, in which all Go commands run.
func repository(ctx context.Context) (string, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	if _, err := os.Stat(filepath.Join(root, "cmd", "gatehouse")); err != nil {
		return "", fmt.Errorf("run it inside the repository: %w", err)
	}
	return root, nil
}

// build makes the product as it is shipped and returns its path.
func build(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "gatehouse")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/gatehouse")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gatehouse: %w\n%s", err, text)
	}
	return path, nil
}
