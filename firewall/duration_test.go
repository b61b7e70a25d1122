package firewall

import (
	"testing"

	"pgregory.net/rapid"
)

func TestSecondsAreReadAsPeopleWriteThem(t *testing.T) {
	for s, want := range map[string]int{"90": 90, "90s": 90, " 5m ": 300, "2h": 7200, "2H": 7200, "1h30m": 5400, "1 h 30 m": 5400, "1d": 86400, "7d": 604800, "0": 0, "1m30s": 90} {
		if got, err := ParseSeconds(s); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", " ", "h", "2x", "1h30", "30m1h", "1h1h", "-5", "1.5h", "99999999999999999999", "99999d", "2h now", "2²"} {
		if got, err := ParseSeconds(s); err == nil {
			t.Errorf("%q is read as %d", s, got)
		}
	}
}

func TestSecondsSurviveBeingShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, maxSeconds).Draw(t, "seconds")
		if got, err := ParseSeconds(Seconds(n)); err != nil || got != n {
			t.Fatalf("%d is shown as %q, which is read as %d (%v)", n, Seconds(n), got, err)
		}
	})
}
