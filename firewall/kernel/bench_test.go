package kernel_test

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// actions is a ruleset of n rules, each with an action chain and a counter of its own.
func actions(n int) ruleset.Ruleset {
	rs := ruleset.Ruleset{Stamp: fmt.Sprint(n)}
	forward := ruleset.Chain{Name: "forward", Hook: &ruleset.Hook{Type: "filter", Name: "forward", Drop: true}}
	for i := range n {
		c, a := fmt.Sprintf("r_%d", i), fmt.Sprintf("a_%d", i)
		source := ruleset.One(ruleset.Value([]byte{10, 0, byte(i >> 8), byte(i)}))
		forward.Rules = append(forward.Rules, rule(v4, tcp, is(ruleset.IPSaddr, source), is(ruleset.TCPDport, port(443)), ruleset.Verdict{Kind: ruleset.Goto, Chain: a}))
		rs.Counters = append(rs.Counters, ruleset.Counter{Name: c})
		rs.Chains = append(rs.Chains, ruleset.Chain{Name: a, Rules: []ruleset.Rule{
			rule(ruleset.Label{Rule: uint32(i), Revision: 1}, ruleset.Count{Name: c}, accept)}})
	}
	rs.Chains = append(rs.Chains, forward)
	return rs
}

// alone runs the benchmark in a network namespace of its own.
func alone(b *testing.B, measure func(k *kernel.Kernel)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			b.Error(err)
			return
		}
		k, err := kernel.Open(slog.New(slog.DiscardHandler))
		if err != nil {
			b.Error(err)
			return
		}
		defer k.Close()
		measure(k)
	}()
	<-done
}

func benchmark(b *testing.B, measure func(b *testing.B, apply, verify, add func() error)) {
	alone(b, func(k *kernel.Kernel) {
		rs := actions(1000)
		rs.Sets = []ruleset.Set{{Name: "hosts", Key: []ruleset.Type{ruleset.IPv4Addr}, Runtime: true}}
		ctx := b.Context()
		if err := k.Apply(ctx, rs); err != nil {
			b.Error(err)
			return
		}
		measure(b, func() error { return k.Apply(ctx, rs) }, func() error { return k.Verify(ctx, rs) },
			func() error { return k.Add(ctx, member("hosts", "10.0.0.1", 0)) })
	})
}

// BenchmarkApply is a second apply of 1,000 rules with 1,000 action chains and counters, read back.
func BenchmarkApply(b *testing.B) {
	benchmark(b, func(b *testing.B, apply, _, _ func() error) {
		for b.Loop() {
			if err := apply(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkVerify is the reading back alone.
func BenchmarkVerify(b *testing.B) {
	benchmark(b, func(b *testing.B, _, verify, _ func() error) {
		for b.Loop() {
			if err := verify(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAdd puts one member into a set beside 1,000 rules.
func BenchmarkAdd(b *testing.B) {
	benchmark(b, func(b *testing.B, _, _, add func() error) {
		for b.Loop() {
			if err := add(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkMembers reads a full set of blocked sources with their counts.
func BenchmarkMembers(b *testing.B) {
	full(b, func(k *kernel.Kernel, n int) error {
		got, err := k.Members(b.Context(), "blocked4")
		if err == nil && len(got) != n {
			err = fmt.Errorf("%d members", len(got))
		}
		return err
	})
}

// BenchmarkRenew gives all members of a full set of blocked sources another timeout.
func BenchmarkRenew(b *testing.B) {
	full(b, func(k *kernel.Kernel, n int) error { return k.Add(b.Context(), hosts("blocked4", n, time.Hour)...) })
}

// BenchmarkRemoveAdd empties a full set of blocked sources and fills it again.
func BenchmarkRemoveAdd(b *testing.B) {
	full(b, func(k *kernel.Kernel, n int) error {
		all := hosts("blocked4", n, 0)
		return errors.Join(k.Remove(b.Context(), all...), k.Add(b.Context(), all...))
	})
}

// BenchmarkReleaseOne takes one member out of a full set that is not there.
func BenchmarkReleaseOne(b *testing.B) {
	full(b, func(k *kernel.Kernel, _ int) error { return k.Remove(b.Context(), member("blocked4", "192.0.2.1", 0)) })
}

func full(b *testing.B, do func(k *kernel.Kernel, n int) error) {
	const n = 65536
	alone(b, func(k *kernel.Kernel) {
		if err := k.Apply(b.Context(), blocked(n)); err != nil {
			b.Error(err)
			return
		}
		if err := k.Add(b.Context(), hosts("blocked4", n, 0)...); err != nil {
			b.Error(err)
			return
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := do(k, n); err != nil {
				b.Fatal(err)
			}
		}
	})
}
