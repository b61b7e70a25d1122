package firewall

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// listed is an alias with one entry per word of a text.
func listed(name string, kind AliasKind, words string) Alias {
	a := Alias{Name: Name(name), Kind: kind}
	for _, w := range strings.Fields(words) {
		if kind == PortList {
			p, err := ParsePortEnd(w)
			if err != nil {
				panic(err)
			}
			a.Ports = append(a.Ports, PortEntry{End: p})
			continue
		}
		e, err := ParseEnd(w)
		if err != nil {
			panic(err)
		}
		a.Addrs = append(a.Addrs, Entry{End: e})
	}
	return a
}

// C02, C03: what lies in another entry is known, and stays.
func TestRedundantC02C03(t *testing.T) {
	for _, c := range []struct {
		kind AliasKind
		list string
		want string
	}{
		{Addresses, "198.51.100.0/24 198.51.100.7 198.51.100.200-198.51.101.10", "198.51.100.7 in 198.51.100.0/24"},
		{Addresses, "2001:db8:1::/64 2001:db8:1::9", "2001:db8:1::9 in 2001:db8:1::/64"},
		{Addresses, "198.18.220.0-198.18.222.200 198.18.234.124 198.18.224.0/20 198.18.230.0/24 192.0.2.10-192.0.2.12",
			"198.18.234.124 in 198.18.224.0/20, 198.18.230.0/24 in 198.18.224.0/20"},
		{Addresses, "10.0.0.9 10.0.0.1-10.0.0.9 10.0.0.1", "10.0.0.9 in 10.0.0.1-10.0.0.9, 10.0.0.1 in 10.0.0.1-10.0.0.9"},
		{Addresses, "10.0.0.0/32 10.0.0.0", "10.0.0.0 in 10.0.0.0/32"},
		{Addresses, "10.0.0.0/25 10.0.0.128/25 10.0.0.0/24", "10.0.0.0/25 in 10.0.0.0/24, 10.0.0.128/25 in 10.0.0.0/24"},
		{Addresses, "0.0.0.0/0 ::1", ""}, {Addresses, "::/0 10.0.0.1", ""}, {Addresses, "WEB 10.0.0.1", ""}, {Addresses, "", ""},
		{Addresses, "10.0.0.1-10.0.0.5 10.0.0.5-10.0.0.9", ""},
		{PortList, "8000-8010 8005 8010-8011 443 WEB_PORTS", "8005 in 8000-8010"},
	} {
		a := listed("A", c.kind, c.list)
		var got []string
		for _, r := range a.Redundant() {
			words := strings.Fields(c.list)
			got = append(got, words[r.Entry]+" in "+words[r.In])
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, want %q", c.list, got, c.want)
		}
	}
}

func TestAliasUsesNameEveryPlace(t *testing.T) {
	c := sample()
	for name, want := range map[Name]string{
		"WEB":   "rule/01A.src rule/01B.dst rule/01B.never forward/01F.from",
		"MORE":  "alias/WEB.items",
		"PORTS": "rule/01B.dport", "OTHERS": "alias/PORTS.items", "SPARE": "", "NONE": "", "": "",
	} {
		var got []string
		for _, u := range c.AliasUses()[name] {
			got = append(got, u.Ref.String()+"."+u.Field)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", name, got, want)
		}
	}
	// The rule of a forward says what the forward says; its limit is its own.
	c.Rules[4].Limit.Never = "SPARE"
	if u := c.AliasUses()["SPARE"]; len(u) != 1 || u[0] != (Use{Ref{"rule", "01R"}, "never"}) {
		t.Errorf("the limit of a linked rule: %v", u)
	}
}

// After a replacement no use of the old name is left, nothing stands twice, and all is valid.
func TestReplaceAliasFollowsEveryUse(t *testing.T) {
	c := sample()
	both, _ := ParseEnds("OTHER_WEB, WEB")
	c.Aliases = append(c.Aliases, listed("OTHER_WEB", Addresses, "198.51.100.1"), listed("EVERYONE", Addresses, "WEB 10.9.9.9 OTHER_WEB"))
	c.Rules[1].Dst, c.Rules[4].Limit.Never = both, "WEB"
	was := clone(c)
	got, err := ReplaceAlias{"WEB", "OTHER_WEB"}.Apply(c)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(clone(c), was) {
		t.Error("the configuration it was given was written to")
	}
	if ps := got.Validate(); ps != nil {
		t.Fatal(ps)
	}
	if u := got.AliasUses()["WEB"]; u != nil {
		t.Errorf("still used: %v", u)
	}
	if _, there := got.Alias("WEB"); there {
		t.Error("the old one is still there")
	}
	all, _ := got.Alias("EVERYONE")
	if len(all.Addrs) != 2 || all.Addrs[0].End.Name != "OTHER_WEB" {
		t.Errorf("in the other alias: %v", all.Addrs)
	}
	if r, _ := got.Rule("01B"); r.Dst.List() != "OTHER_WEB" || r.Limit.Never != "OTHER_WEB" {
		t.Errorf("in the rule: %s, never %s", r.Dst.List(), r.Limit.Never)
	}
	if r, _ := got.Rule("01A"); r.Src.String() != "not OTHER_WEB" {
		t.Errorf("not: %s", r.Src)
	}
	if r, _ := got.Rule("01R"); r.Limit.Never != "OTHER_WEB" || r.Src.List() != "OTHER_WEB" {
		t.Errorf("in the rule of the forward: %s, never %s", r.Src, r.Limit.Never)
	}
	ports, err := ReplaceAlias{"OTHERS", "PORTS_2"}.Apply(Config{Aliases: append(was.Aliases, listed("PORTS_2", PortList, "8443"))})
	if a, _ := ports.Alias("PORTS"); err != nil || a.Ports[2].End.Alias != "PORTS_2" {
		t.Errorf("ports: %v, %v", a.Ports, err)
	}
}

// An alias that holds the one to go, however deep, would hold itself.
func TestReplaceAliasMakesNoLoop(t *testing.T) {
	c := Config{Aliases: []Alias{listed("A", Addresses, "10.0.0.1"), listed("B", Addresses, "A"), listed("C", Addresses, "B 10.0.0.2")}}
	for _, by := range []Name{"B", "C"} {
		if _, err := (ReplaceAlias{"A", by}).Apply(c); err == nil || !strings.Contains(err.Error(), string(by)+" contains A") {
			t.Errorf("by %s: %v", by, err)
		}
	}
	if got, err := (ReplaceAlias{"C", "A"}).Apply(c); err != nil || got.Validate().Error() != (Config{Aliases: c.Aliases[:2]}).Validate().Error() {
		t.Errorf("the other way round: %v", err)
	}
}

// A port without a note is written as before there were notes, so that old documents stay the same.
func TestPortEntryOldAndNew(t *testing.T) {
	for doc, want := range map[string]string{`"80"`: `"80"`, `{"end":"80"}`: `"80"`, `{"end":"8000-8010","note":"grafana"}`: `{"end":"8000-8010","note":"grafana"}`, `"WEB"`: `"WEB"`} {
		var e PortEntry
		if err := json.Unmarshal([]byte(doc), &e); err != nil {
			t.Errorf("%s: %v", doc, err)
		}
		if b, err := json.Marshal(e); err != nil || string(b) != want {
			t.Errorf("%s comes back as %s, %v", doc, b, err)
		}
	}
	for _, doc := range []string{`{"end":"80","nota":"x"}`, `{"end":"0"}`, `"80-70"`, `80`, `["80"]`} {
		var e PortEntry
		if err := json.Unmarshal([]byte(doc), &e); err == nil {
			t.Errorf("%s is %v", doc, e)
		}
	}
}

func TestAliasSaysWhatItHolds(t *testing.T) {
	for want, a := range map[string]Alias{
		"A, addresses: none":                            listed("A", Addresses, ""),
		"A, addresses: 10.0.0.1, 10.0.0.0/8":            listed("A", Addresses, "10.0.0.1 10.0.0.0/8"),
		"A, addresses: 10.0.0.1, 10.0.0.0/8 and 2 more": listed("A", Addresses, "10.0.0.1 10.0.0.0/8 B C"),
		"P, ports: 80":                                  listed("P", PortList, "http"),
	} {
		if fmt.Sprint(a) != want {
			t.Errorf("%s, want %s", a, want)
		}
	}
}
