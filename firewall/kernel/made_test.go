package kernel_test

import (
	"errors"
	"testing"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

func TestMadeTellsAnotherMakingOfASet(t *testing.T) {
	inside(t, func(t *testing.T) {
		k, ctx := open(t), t.Context()
		if _, err := k.Made(ctx, "lockout4"); !errors.Is(err, unix.ENOENT) {
			t.Fatalf("without a table: %v, want ENOENT", err)
		}
		rs := filter()
		apply(t, k, rs)
		made := func() string {
			t.Helper()
			m, err := k.Made(ctx, "lockout4")
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		first := made()
		if err := k.Add(ctx, ruleset.Member{Set: "lockout4", Element: ruleset.Element{Key: []ruleset.Range{one("10.0.0.1")}}}); err != nil {
			t.Fatal(err)
		}
		rs.Stamp = "another"
		apply(t, k, rs)
		if now := made(); now != first {
			t.Errorf("an apply makes set %s of %s, but it is the same", now, first)
		}
		nft(t, "delete table inet gatehouse")
		apply(t, k, rs)
		if now := made(); now == first {
			t.Errorf("the set is still %s in a new table", now)
		}
	})
}
