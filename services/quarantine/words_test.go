package quarantine

import (
	"net/netip"
	"testing"

	"gatehouse/firewall"
)

func TestWhyIsShortAndExact(t *testing.T) {
	ladder := firewall.Limit{Open: 100, New: 10, Window: 5, Over: firewall.LockOut, LockFor: 300, Strikes: 3, StrikeWindow: 3600}
	for want, e := range map[string]Entry{
		"more than 10 new in 5s":                     {Kind: LockOut, Rule: "01J", What: firewall.OverNew, Limit: ladder, Times: 1},
		"104 open, limit 100":                        {Kind: LockOut, Rule: "01J", What: firewall.OverOpen, Open: 104, Limit: ladder, Times: 2},
		"more than 100 open":                         {Kind: LockOut, Rule: "01J", What: firewall.OverOpen, Limit: ladder},
		"3rd lock-out in 1h: more than 10 new in 5s": {Kind: Quarantine, Rule: "01J", What: firewall.OverNew, Limit: ladder, Times: 3},
		"more than 7 new in 1m":                      {Kind: Quarantine, Rule: "01J", What: firewall.OverNew, Limit: firewall.Limit{New: 7, Window: 60, Over: firewall.Quarantine}, Times: 2},
		"scans our mail":                             {Kind: Quarantine, Reason: "scans our mail", By: "berta"},
		"added by hand, without a reason":            {Kind: Quarantine, By: "berta"},
	} {
		if got := e.Why(); got != want {
			t.Errorf("says %q, want %q", got, want)
		}
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 112: "112th", 102: "102nd"} {
		if got := Ordinal(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
	for src, want := range map[string]string{"203.0.113.7/32": "203.0.113.7", "2001:db8::/64": "2001:db8::/64", "2001:db8::7/128": "2001:db8::7", "198.51.100.0/24": "198.51.100.0/24"} {
		if got := (Entry{Source: netip.MustParsePrefix(src)}).Name(); got != want {
			t.Errorf("%s is called %s", src, got)
		}
	}
}
