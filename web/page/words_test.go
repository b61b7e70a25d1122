package page

import (
	"strings"
	"testing"
	"time"
)

func TestNumbersAndTimesReadAsPeopleWriteThem(t *testing.T) {
	for n, want := range map[int]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 65536: "65,536", 1234567: "1,234,567", -1234: "-1,234", -999: "-999"} {
		if got := Number(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
	if got := Number(uint64(18446744073709551615)); got != "18,446,744,073,709,551,615" {
		t.Error(got)
	}
	now := time.Now()
	for d, want := range map[time.Duration]string{-time.Hour: "now", 0: "now", 40 * time.Second: "40 s ago", 61 * time.Second: "1 min ago", 3599 * time.Second: "59 min ago",
		26 * time.Hour: "26 h ago", 48 * time.Hour: "2 days ago", 400 * 24 * time.Hour: "400 days ago"} {
		if got := Ago(now.Add(-d), now); got != want {
			t.Errorf("%v is %s", d, got)
		}
	}
}

func TestHarmlessTextCannotFoolTheEye(t *testing.T) {
	for in, want := range map[string]string{"scans our mail": "scans our mail", "a\nb\x1b[31m": "a\uFFFDb\uFFFD[31m", "\u202eevil\u2066": "\uFFFDevil\uFFFD", "ünï <b>": "ünï <b>", "\xff": "\uFFFD"} {
		if got := Harmless(in); got != want {
			t.Errorf("%q is shown as %q", in, got)
		}
	}
	if got := Harmless(strings.Repeat("ä", 300)); got != strings.Repeat("ä", 200)+"…" {
		t.Errorf("a long text has %d bytes", len(got))
	}
}
