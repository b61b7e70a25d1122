package api_test

import (
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/quarantine"
	"gatehouse/web/api"
)

func TestShutOutComesInParts(t *testing.T) {
	h := api.New(api.Deps{ShutOut: func(from int) api.ShutOut {
		if from != 7 {
			t.Errorf("asked from %d", from)
		}
		return api.ShutOut{{Source: netip.MustParsePrefix("203.0.113.7/32")}}
	}})
	for path, want := range map[string]int{"/quarantine?from=7": 200, "/quarantine?from=-1": 409, "/quarantine?from=x": 409} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		var list api.ShutOut
		if err := json.Unmarshal(w.Body.Bytes(), &list); want == 200 && (err != nil || len(list) != 1) {
			t.Errorf("%s: %v %s", path, err, w.Body)
		}
	}
}

func TestShutOutIsShownInWords(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 10, 0, 0, time.UTC)
	entry := func(src string, until time.Time) quarantine.Entry {
		return quarantine.Entry{Source: netip.MustParsePrefix(src), Since: now.Add(-time.Hour), Until: until}
	}
	open, fast, hand := entry("203.0.113.7/32", now.Add(90*time.Second)), entry("2001:db8:bad::/64", time.Time{}), entry("10.1.0.0/16", time.Time{})
	open.Rule, open.What, open.Open, open.Limit.Open = "01J", firewall.OverOpen, 12, 10
	fast.Rule, fast.What, fast.Limit.New, fast.Limit.Window, fast.Packets = "01J", firewall.OverNew, 100, 10, 1204
	hand.By, hand.Reason = "anna", "scans\x1b[2Jus"
	text := api.ShutOut{open, fast, hand}.Text(now)
	for _, want := range []string{"203.0.113.7 ", "in 1m30s", "12 open, limit 10", "2001:db8:bad::/64", "when released", "1204", "more than 100 new in 10s", "10.1.0.0/16", "scans\ufffd[2Jus"} {
		if !strings.Contains(text, want) {
			t.Errorf("the list does not say %q:\n%s", want, text)
		}
	}
	if text := (api.ShutOut{}).Text(now); !strings.Contains(text, "Nobody") {
		t.Errorf("an empty list says %q", text)
	}
}
