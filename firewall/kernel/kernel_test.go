package kernel_test

import (
	"log/slog"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// inside runs the test on a thread with a network namespace of its own, which
// ends with the thread. Programs that the test starts run there too.
func inside(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done) // also after t.FailNow
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("unshare: %v", err)
			return
		}
		run(t, "ip", "link", "set", "lo", "up")
		test(t)
	}()
	<-done
}

// run runs a program and returns what it wrote.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// nft feeds text to nft -f.
func nft(t *testing.T, text string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft -f: %v\n%s\n%s", err, out, text)
	}
}

func open(t *testing.T) *kernel.Kernel {
	t.Helper()
	k, err := kernel.Open(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func apply(t *testing.T, k *kernel.Kernel, rs ruleset.Ruleset) {
	t.Helper()
	if err := k.Apply(t.Context(), rs); err != nil {
		t.Fatal(err)
	}
}

func addr(s string) ruleset.Value { return ruleset.Addr(netip.MustParseAddr(s)) }
func ip(s string) netip.Addr      { return netip.MustParseAddr(s) }
func one(s string) ruleset.Range  { return ruleset.One(addr(s)) }
func nets(s string) ruleset.Range { return ruleset.Net(netip.MustParsePrefix(s)) }
func span(a, b string) ruleset.Range {
	return ruleset.Range{Lo: addr(a), Hi: addr(b)}
}
func port(n uint16) ruleset.Range     { return ruleset.One(ruleset.Port(n)) }
func ports(a, b uint16) ruleset.Range { return ruleset.Range{Lo: ruleset.Port(a), Hi: ruleset.Port(b)} }
func num(n uint8) ruleset.Range       { return ruleset.One(ruleset.Byte(n)) }
func dev(s string) ruleset.Range      { return ruleset.One(ruleset.Iface(s)) }
func bits(n uint32) ruleset.Range     { return ruleset.One(ruleset.U32(n)) }

func is(f ruleset.Field, in ...ruleset.Range) ruleset.Match { return ruleset.Match{Field: f, In: in} }
func not(f ruleset.Field, in ...ruleset.Range) ruleset.Match {
	return ruleset.Match{Field: f, Not: true, In: in}
}
func in(f ruleset.Field, set string) ruleset.Match { return ruleset.Match{Field: f, Set: set} }

var (
	v4     = is(ruleset.NFProtoField, num(2))
	v6     = is(ruleset.NFProtoField, num(10))
	tcp    = is(ruleset.L4Proto, num(6))
	udp    = is(ruleset.L4Proto, num(17))
	sctp   = is(ruleset.L4Proto, num(132))
	accept = ruleset.Verdict{Kind: ruleset.Accept}
	drop   = ruleset.Verdict{Kind: ruleset.Drop}
	back   = ruleset.Verdict{Kind: ruleset.Return}
)

func rule(stmts ...ruleset.Stmt) ruleset.Rule {
	return ruleset.Rule{Origin: "rule/test", Stmts: stmts}
}
