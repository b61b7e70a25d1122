package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"gatehouse/firewall"
)

// forwardForm is a good new forward, with changes.
func forwardForm(pairs ...string) url.Values {
	v := values("hash", "", "on", "1", "descr", "SSH", "in", "WAN", "proto", "tcp", "from", "", "dst", "WAN address", "dport", "2222",
		"to", "192.168.1.10", "to_port", "22", "rule", "linked", "reflect", "1", "then", "save")
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

func TestForwardBringsItsRuleAndTakesItAway(t *testing.T) {
	d := newDesk(t, home())
	wantStatus(t, d.ask(by("admin"), "POST", "/forwards/new", forwardForm()), http.StatusSeeOther)
	c := d.config("admin")
	f := c.Forwards[len(c.Forwards)-1]
	rule, ok := c.Rule(f.Rule)
	if want := "pass tcp from any to 192.168.1.10 port 22 on WAN, IPv4 only"; !ok || rule.String() != want {
		t.Fatalf("linked rule is %q, want %q", rule, want)
	}
	path := "/forwards/" + string(f.ID)
	hash := c.Hash(firewall.Ref{Kind: "forward", Key: string(f.ID)})
	wantStatus(t, d.ask(by("admin"), "POST", path, forwardForm("hash", hash, "rule_hash", c.Hash(firewall.Ref{Kind: "rule", Key: string(f.Rule)}), "rule", "none")), http.StatusSeeOther)
	if _, there := d.config("admin").Rule(f.Rule); there {
		t.Error("the rule stays without its forward's link")
	}
}

// C05: a restriction that is empty, or typed and not switched on, is never any.
func TestC05RestrictionIsNeverLost(t *testing.T) {
	for _, c := range []struct {
		name, only, from, not string
		says                  string // empty: saved
		want                  string
	}{
		{name: "nobody restricts", want: "any"},
		{name: "switched on, empty", only: "1", says: "Name at least one source"},
		{name: "switched on, blanks", only: "1", from: " , ", says: "Name at least one"},
		{name: "typed, not switched on", from: "203.0.113.7", says: "Tick “Only from these sources”"},
		{name: "not, not switched on", not: "1", says: "Tick “Only from these sources”"},
		{name: "one source", only: "1", from: "203.0.113.7", want: "203.0.113.7"},
		{name: "all but one", only: "1", from: "203.0.113.7", not: "1", want: "not 203.0.113.7"},
		{name: "an alias without entries", only: "1", from: "NOBODY", want: "NOBODY"},
		{name: "no such alias", only: "1", from: "NOSUCH", says: "There is no alias or interface"},
		{name: "half of it wrong", only: "1", from: "203.0.113.7, 10.0.0.300", says: "`10.0.0.300` is not an IP address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, home())
			form := forwardForm("from", c.from)
			if c.only != "" {
				form.Set("only", c.only)
			}
			if c.not != "" {
				form.Set("from_not", c.not)
			}
			a := d.ask(by("admin"), "POST", "/forwards/new", form)
			if c.says != "" {
				wantStatus(t, a, http.StatusUnprocessableEntity)
				if !strings.Contains(unescape(text(a.body)), c.says) {
					t.Errorf("no word of %q: %s", c.says, text(a.body))
				}
				if len(d.w.View("admin").Items) > 0 {
					t.Error("it was saved")
				}
				return
			}
			wantStatus(t, a, http.StatusSeeOther)
			cfg := d.config("admin")
			f := cfg.Forwards[len(cfg.Forwards)-1]
			rule, _ := cfg.Rule(f.Rule)
			if f.From.String() != c.want || rule.Src.String() != c.want {
				t.Errorf("from %s, its rule from %s, want %s", f.From, rule.Src, c.want)
			}
			if c.from == "NOBODY" && !strings.Contains(text(d.get("admin", "/forwards").body), "this matches nobody") {
				t.Error("no warning that nobody matches")
			}
		})
	}
}

func TestForwardTellsBadFields(t *testing.T) {
	for _, bad := range []struct{ field, typed, says string }{
		{"dport", "", "Write a port"}, {"dport", "0", "port must be 1–65535"}, {"dport", "65536", "port must be 1–65535"},
		{"dport", "8010-8000", "the range ends (8000) before it starts (8010)"}, {"dport", "80,443", "another forward"}, {"dport", "MAIL", "not a port"},
		{"to", "nas", "address of a host inside"}, {"to", "192.168.1.1", "this box itself"}, {"to", "192.168.1.255", "broadcast"}, {"to", "::1", "host inside"},
		{"to_port", "x", "not a port"}, {"to_port", "70000", "1–65535"}, {"in", "DMZ", "no interface DMZ"}, {"proto", "icmp", "TCP or UDP"},
		{"dst", "LAN net", "Choose WAN address"}, {"rule", "maybe", "Choose what lets"}, {"descr", "a\nb", "line break"},
		{"dport", "443", "already forwarded by “Web from outside”"},
	} {
		d := newDesk(t, home())
		a := d.ask(by("admin"), "POST", "/forwards/new", forwardForm(bad.field, bad.typed))
		wantStatus(t, a, http.StatusUnprocessableEntity)
		if !strings.Contains(unescape(text(a.body)), bad.says) || !strings.Contains(a.body, `href="#f-`+bad.field+`"`) {
			t.Errorf("%s %q: no word of %q, or no link to it: %s", bad.field, bad.typed, bad.says, text(a.body))
		}
		if len(d.w.View("admin").Items) > 0 {
			t.Errorf("%s %q was saved", bad.field, bad.typed)
		}
	}
}

// C06 at the form: unequal widths and ends above 65535 are refused.
func TestC06RangesShiftOneToOneOrAreRefused(t *testing.T) {
	for _, c := range []struct{ dport, toPort, says, want string }{
		{"8000-8010", "9000-9010", "", "9000"}, {"8000-8010", "9000", "", "9000"}, {"8000-8010", "", "", "8000"}, {"ssh", "", "", "22"},
		{"8000-8010", "9000-9009", "10 ports", ""}, {"8000-8010", "65530", "end at 65540", ""}, {"2222", "22-23", "2 ports", ""},
	} {
		d := newDesk(t, home())
		a := d.ask(by("admin"), "POST", "/forwards/new", forwardForm("dport", c.dport, "to_port", c.toPort))
		if c.says != "" {
			wantStatus(t, a, http.StatusUnprocessableEntity)
			if !strings.Contains(text(a.body), c.says) {
				t.Errorf("%s to %s: no word of %q: %s", c.dport, c.toPort, c.says, text(a.body))
			}
			continue
		}
		wantStatus(t, a, http.StatusSeeOther)
		fs := d.config("admin").Forwards
		f := fs[len(fs)-1]
		if got := fmt.Sprint(f.ToPort); got != c.want {
			t.Errorf("%s to %q starts at %s, want %s", c.dport, c.toPort, got, c.want)
		}
		if body := d.get("admin", "/forwards/"+string(f.ID)).body; strings.Contains(c.dport, "-") && !strings.Contains(text(body), "comes out at") {
			t.Error("the editor does not say where the range comes out")
		}
	}
}

func TestForwardButtonsCarryTheHash(t *testing.T) {
	d := newDesk(t, home())
	const id = "01JFORWARD0000000000000001"
	old := d.get("admin", "/forwards").body
	wantStatus(t, d.post("admin", "/forwards", "op", opOf(t, old, "toggle", id)), http.StatusSeeOther)
	if f, _ := d.config("admin").Forward(id); f.On {
		t.Error("still on")
	}
	a := d.post("admin", "/forwards", "op", opOf(t, old, "toggle", id))
	wantStatus(t, a, http.StatusConflict)
	if !strings.Contains(text(a.body), "Active no yes") {
		t.Error(text(a.body))
	}
	wantStatus(t, d.post("admin", "/forwards", "op", opOf(t, d.get("admin", "/forwards").body, "delete", id)), http.StatusSeeOther)
	if c := d.config("admin"); len(c.Forwards) != 0 {
		t.Error("still there")
	}
	wantStatus(t, d.post("admin", "/forwards", "op", opOf(t, d.get("admin", "/forwards").body, "undo", id)), http.StatusSeeOther)
	if v := d.w.View("admin"); v.Config.Stamp() != v.Head.Stamp() {
		t.Error("undo does not bring it back")
	}
}

func TestUntouchedForwardEditorKeepsTheForward(t *testing.T) {
	d := newDesk(t, home())
	const id = "01JFORWARD0000000000000001"
	before := d.config("admin").Stamp()
	hash := d.config("admin").Hash(firewall.Ref{Kind: "forward", Key: id})
	wantStatus(t, d.ask(by("admin"), "POST", "/forwards/"+id, forwardForm("hash", hash, "descr", "Web from outside", "dport", "443", "to_port", "8443")), http.StatusSeeOther)
	if v := d.w.View("admin"); v.Config.Stamp() != before || len(v.Items) != 0 {
		t.Errorf("an untouched form changed something: %v", v.Items)
	}
}
