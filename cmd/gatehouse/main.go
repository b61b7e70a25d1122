// Command gatehouse is the product: `gatehouse serve` is the daemon, every
// other verb speaks to it over its unix socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	_ "time/tzdata" // an empty image has no zones, and the wizard asks for one
)

// verb is one word of the command line.
type verb struct {
	name, args, says string
	run              func(ctx context.Context, args []string, out io.Writer) error
}

func verbs() []verb {
	return []verb{
		{"serve", "[--state DIR] [--socket PATH] [--ports LIST]", "run the firewall until stopped", serveVerb},
		{"status", "", "what runs: revision, interfaces, problems", status},
		{"confirm", "", "keep the revision that is being tested", confirm},
		{"undo", "", "go back to the last confirmed revision", undo},
		{"passwd", "NAME", "set the password of an administrator (read from the terminal or standard input)", passwd},
		{"admin", "add NAME", "add an administrator", admin},
		{"restore", "N", "make revision N run again, also out of SAFE MODE", restore},
		{"setup-code", "", "show the setup code; --new makes another and, in SAFE MODE, lets you start over", setupCode},
		{"show", "quarantine", "who is locked out or in quarantine, why and until when; --json", show},
		{"release", "ADDRESS...", "let sources go that are locked out or in quarantine", release},
		{"unit", "", "print a systemd unit for this binary", unit},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gatehouse:", err)
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// run finds the verb and runs it.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		usage(out)
		return flag.ErrHelp
	}
	i := slices.IndexFunc(verbs(), func(v verb) bool { return v.name == args[0] })
	if i < 0 {
		usage(out)
		return fmt.Errorf("there is no verb %q", args[0])
	}
	return verbs()[i].run(ctx, args[1:], out)
}

func usage(out io.Writer) {
	fmt.Fprintln(out, "usage: gatehouse VERB [ARGUMENTS]")
	for _, v := range verbs() {
		fmt.Fprintf(out, "  %-28s %s\n", strings.TrimSpace(v.name+" "+v.args), v.says)
	}
}
