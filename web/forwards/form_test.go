package forwards

import (
	"net/netip"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"gatehouse/firewall"
)

func anyForward(t *rapid.T) firewall.Forward {
	a, b := rapid.Uint16Range(1, 40000).Draw(t, "a"), rapid.Uint16Range(1, 40000).Draw(t, "b")
	f := firewall.Forward{ID: "01JTEST", On: rapid.Bool().Draw(t, "on"), Reflect: rapid.Bool().Draw(t, "reflect"),
		Descr: rapid.StringOfN(rapid.RuneFrom([]rune(`aé "'<>&;😀`)), 0, 50, -1).Draw(t, "descr"), In: "WAN",
		Proto: rapid.SampledFrom([]firewall.Proto{firewall.TCP, firewall.UDP, firewall.TCPUDP}).Draw(t, "proto"),
		Ports: firewall.PortRange{From: min(a, b), To: max(a, b)}, ToPort: rapid.Uint16Range(1, 25000).Draw(t, "to"), To: netip.MustParseAddr("192.168.1.10"),
		Rule: rapid.SampledFrom([]firewall.ID{"", "01JRULE"}).Draw(t, "rule")}
	ends := func(texts ...string) firewall.End {
		e, err := firewall.ParseEnd(rapid.SampledFrom(texts).Draw(t, "end"))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	f.Dst = ends("WAN address", "203.0.113.2")
	switch rapid.IntRange(0, 2).Draw(t, "from") {
	case 0:
		f.From = firewall.Anyone()
	case 1:
		f.From = firewall.Ends{Not: true, Of: []firewall.End{ends("OFFICE", "203.0.113.0/24")}}
	default:
		f.From = firewall.Ends{Of: []firewall.End{ends("OFFICE", "203.0.113.7"), ends("198.51.100.1-198.51.100.9", "LAN net")}}
	}
	return f
}

// What an untouched editor sends back is the very same forward.
func TestFieldsAndForwardUndoEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyForward(t)
		limit := firewall.Limit{}
		if want.Rule != "" && rapid.Bool().Draw(t, "limited") {
			limit = firewall.Limit{Open: rapid.IntRange(0, 1_000_000).Draw(t, "open"), New: rapid.IntRange(1, 1_000_000).Draw(t, "new"), Window: rapid.IntRange(1, 86400).Draw(t, "window"),
				Over:    rapid.SampledFrom([]firewall.Over{firewall.DropExcess, firewall.LockOut, firewall.Quarantine}).Draw(t, "over"),
				LockFor: rapid.IntRange(0, 86400).Draw(t, "lock for"), Strikes: rapid.IntRange(0, 100).Draw(t, "strikes"),
				StrikeWindow: rapid.IntRange(0, 30*86400).Draw(t, "strike window"), Never: "OFFICE", DryRun: rapid.Bool().Draw(t, "dry run")}
		}
		c := firewall.Config{Rules: []firewall.Rule{{ID: want.Rule, Forward: want.ID, Limit: limit}}, Forwards: []firewall.Forward{want}}
		f := show(c, want)
		got, ps := f.forward(want, "01JFRESH")
		gotLimit, wrong := f.limit(c, limit)
		if len(wrong) > 0 || gotLimit != limit {
			t.Fatalf("got  %#v\nwant %#v: %v", gotLimit, limit, wrong)
		}
		if len(ps) > 0 {
			t.Fatalf("problems: %v", ps)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %#v\nwant %#v", got, want)
		}
	})
}

// The page says where a range comes out exactly when the compiler will do so.
func TestShiftIsToldOnlyWhenItWorks(t *testing.T) {
	for _, c := range []struct{ out, in, want string }{
		{"8000-8010", "9000", "8000-8010 comes out at 9000-9010, one to one."}, {"8000-8010", "", "8000-8010 comes out at 8000-8010, one to one."},
		{"443", "8443", ""}, {"8000-8010", "65530", ""}, {"", "", ""}, {"x", "1", ""}, {"8000-8010", "x", ""},
	} {
		if got := (form{Dport: c.out, ToPort: c.in}).becomes(); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.out, c.in, got, c.want)
		}
	}
}
