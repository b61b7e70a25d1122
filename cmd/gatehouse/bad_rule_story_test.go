package main

import (
	"html"
	"strings"
	"testing"

	"gatehouse/firewall"
)

// before is everything that a bad form must not move.
type before struct {
	revision  uint64
	revisions string
	rules     string
}

func (s *story) before(p *person) before {
	s.Helper()
	return before{s.status().Revision.Number, text(p.get("/revisions").body), s.rules()}
}

func TestBadRuleChangesNothing(t *testing.T) {
	t.Parallel()
	s, owner := athome(t, web8080(), firewall.AddRule{Rule: pass("RULE1", "LAN", "any", "203.0.113.1")},
		firewall.AddAlias{Alias: firewall.Alias{Name: "NOBODY", Kind: firewall.Addresses}})
	if _, err := s.lab.LAN1.Echo(80); err != nil {
		t.Fatal(err)
	}
	s.open("before")
	running := s.talk(s.lab.Inet, outside)
	was := s.before(owner)
	unchanged := func(when string) {
		t.Helper()
		running.ping(when)
		if is := s.before(owner); is != was {
			t.Errorf("%s something changed:\n%+v\nbefore:\n%+v", when, is, was)
		}
	}

	for _, c := range []struct {
		field, typed, says string
	}{ // C01, and ends that are none
		{"dport", "86-81", "the range ends (81) before it starts (86)"},
		{"dport", "86–81", "port must be 1–65535"},
		{"sport", "7200:7100", "the range ends (7100) before it starts (7200)"},
		{"dport", "0", "port must be 1–65535"},
		{"dport", "65536", "port must be 1–65535"},
		{"dport", "80-", "port must be 1–65535"},
		{"dport", "1100a0-12000", "port must be 1–65535"},
		{"src", "", "any"},
		{"dst", " , ", "any"},
		{"src", "NO_SUCH_ALIAS", "NO_SUCH_ALIAS"},
		{"dst", "192.168.1.300", "192.168.1.300"},
		{"dport", "NO_SUCH_PORTS", "NO_SUCH_PORTS"},
		{"action", "allow", "Choose pass, block or reject."},
		{"in", "LAN9", "LAN9"},
		{"family", "ipx", "Choose IPv4, IPv6 or both."},
	} {
		r := owner.wrong(c.says, "/rules/new", rule(c.field, c.typed))
		if c.typed != "" && c.field != "action" && c.field != "in" && c.field != "family" &&
			!strings.Contains(html.UnescapeString(r.body), `value="`+c.typed+`"`) {
			t.Errorf("%s=%q is not in the form that came back", c.field, c.typed)
		}
		edit := owner.get("/rules/RULE1").body
		owner.wrong(c.says, "/rules/RULE1", rule(c.field, c.typed, "hash", hidden(s, edit, "hash")))
	}
	unchanged("after bad rules")
	s.open("after bad rules")

	all := owner.wants(422, "the range ends (81) before it starts (86)", "/rules/new", rule("dport", "86-81", "sport", "0", "src", "NOWHERE", "then", "apply"))
	for _, word := range []string{"port must be 1–65535", "NOWHERE"} {
		if !strings.Contains(text(all.body), word) {
			t.Errorf("one of several problems is not told: %q", word)
		}
	}
	owner.wants(400, "a field that this page does not know: colour", "/rules/new", rule("colour", "green"))
	forward := fields("on", "1", "in", "WAN", "proto", "tcp", "dst", "WAN address", "dport", "2222", "to", lan1Addr, "to_port", "22", "rule", "linked",
		"only", "1", "from", "", "hash", "")
	owner.wrong("Name at least one source", "/forwards/new", forward)
	unchanged("after a bad forward")

	form := rule("descr", "by another site").Encode()
	for _, c := range []struct {
		status int
		says   string
		body   string
		header map[string]string
	}{
		{403, "This request was made by another web site", form, map[string]string{"Origin": "https://evil.example"}},
		{403, "This request was made by another web site", form, map[string]string{"Sec-Fetch-Site": "cross-site"}},
		{421, "does not answer to the name", form, map[string]string{"Host": "evil.example"}},
		{413, "This takes at most", "descr=" + strings.Repeat("x", 3<<20), map[string]string{"Origin": owner.base}},
		{400, "could not be read", "%zz=1", map[string]string{"Origin": owner.base}},
		{400, "could not be read", "{}", map[string]string{"Origin": owner.base, "Content-Type": "application/json"}},
	} {
		if r := owner.send("POST", "/rules/new", c.body, c.header); r.status != c.status || !strings.Contains(text(r.body), c.says) {
			t.Errorf("%v: %d, want %d and %q; it says:\n%s", c.header, r.status, c.status, c.says, text(r.body))
		}
	}
	unchanged("after requests of strangers")
	s.open("after all of it")
}

func TestBadRuleNobodyIsNeverAnybody(t *testing.T) { // C05 b and c
	t.Parallel()
	s, owner := athome(t, firewall.AddAlias{Alias: firewall.Alias{Name: "NOBODY", Kind: firewall.Addresses}})
	if _, err := s.lab.LAN1.Echo(22); err != nil {
		t.Fatal(err)
	}
	form := fields("on", "1", "in", "WAN", "proto", "tcp", "dst", "WAN address", "dport", "2222", "to", lan1Addr, "to_port", "22", "rule", "linked",
		"only", "1", "from", "NOBODY", "hash", "")
	owner.post("/forwards/new", form)
	if review := text(owner.get("/review").body); !strings.Contains(review, "NOBODY") {
		t.Errorf("the review does not warn of the empty alias:\n%s", review)
	}
	owner.apply()
	seven, eight := "203.0.113.7:0", "203.0.113.8:0"
	for _, from := range []string{seven, eight} {
		if !s.refused(s.lab.Inet, "tcp", from, wanAddr+":2222") {
			t.Errorf("an alias without entries lets %s in", from)
		}
	}
	m := linkTo(s, owner.get("/forwards").body, "/forwards/")
	edit := owner.get(m).body
	form.Set("from", "203.0.113.7")
	form.Set("hash", hidden(s, edit, "hash"))
	owner.post(m, form)
	owner.apply()
	if line, err := s.reaches(s.lab.Inet, "tcp", seven, wanAddr+":2222"); err != nil {
		t.Errorf("the only permitted source is kept out: %q %v", line, err)
	}
	if !s.refused(s.lab.Inet, "tcp", eight, wanAddr+":2222") {
		t.Error("another source than the permitted one gets in")
	}
}

func TestBadRuleFreeTextIsKeptExactly(t *testing.T) { // C19
	t.Parallel()
	s, owner := athome(t, web8080())
	texts := []string{`He said "no"`, strings.Repeat("é", 65), strings.Repeat("x", 200), `'; drop`, `{}`, `$(id)`, "a\u200fb", "🚦 lights", `\" }; flush ruleset; #`,
		"<b>bold</b> &amp;", "tab\there"}
	refusedTexts := []string{strings.Repeat("x", 4000), "two\nlines"}
	want := map[string]string{}
	for i, d := range texts {
		port := []string{"7001", "7002", "7003", "7004", "7005", "7006", "7007", "7008", "7009", "7010", "7011"}[i]
		r := owner.try("/rules/new", rule("in", "GUEST", "dst", "203.0.113.1", "dport", port, "descr", d))
		if r.status >= 400 {
			if !strings.Contains(text(r.body), "escription") {
				t.Errorf("%q is refused without a word about it: %d\n%s", d, r.status, text(r.body))
			}
			t.Logf("refused: %q", d)
			continue
		}
		want[port] = d
	}
	for _, d := range refusedTexts {
		r := owner.try("/rules/new", rule("in", "GUEST", "dst", "203.0.113.1", "dport", "7999", "descr", d))
		switch {
		case r.status == 422 && strings.Contains(html.UnescapeString(r.body), d):
		case r.status < 400:
			want["7999"] = d
		default:
			t.Errorf("%.20q…: %d, or what was typed is lost", d, r.status)
		}
	}
	if len(want) < 9 {
		t.Errorf("only %d of the descriptions were taken", len(want))
	}
	owner.apply()
	page := html.UnescapeString(owner.get("/rules?tab=GUEST").body)
	for port, d := range want {
		if !strings.Contains(page, d) {
			t.Errorf("the list does not show %q as it was typed", d)
		}
		id := ""
		for _, r := range s.confirmed().Rules {
			if r.DstPorts.String() == port {
				id = string(r.ID)
				if r.Descr != d {
					t.Errorf("stored %q, typed %q", r.Descr, d)
				}
			}
		}
		if got := html.UnescapeString(owner.get("/rules/" + id).body); !strings.Contains(got, d) {
			t.Errorf("the editor does not show %q as it was typed", d)
		}
		var n uint16
		for _, c := range port {
			n = n*10 + uint16(c-'0')
		}
		if _, err := s.lab.Inet.Echo(n); err != nil {
			t.Fatal(err)
		}
		if line, err := s.reaches(s.lab.Guest, "tcp", "", "203.0.113.1:"+port); err != nil {
			t.Errorf("the rule called %q does not work: %q %v", d, line, err)
		}
	}
	if _, err := s.lab.Inet.Echo(7500); err != nil {
		t.Fatal(err)
	}
	if !s.refused(s.lab.Guest, "tcp", "", "203.0.113.1:7500") {
		t.Error("the guest reaches what no rule permits")
	}
}
