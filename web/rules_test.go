package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
)

// ruleForm is a good new rule, with changes.
func ruleForm(pairs ...string) url.Values {
	v := values("hash", "", "before", "", "after", "", "on", "1", "descr", "Test", "section", "", "action", "pass", "in", "LAN", "family", "both",
		"proto", "tcp", "number", "", "src", "any", "dst", "192.168.1.10", "dport", "443", "sport", "", "then", "save")
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

func TestNewRuleGoesToTheDraftOnly(t *testing.T) {
	d := newDesk(t, home())
	a := d.ask(by("admin"), "POST", "/rules/new", ruleForm("before", string(ruleID(2))))
	wantStatus(t, a, http.StatusSeeOther)
	v := d.w.View("admin")
	if len(v.Config.Rules) != len(v.Head.Rules)+1 || v.Objects != 1 || d.applied != 0 {
		t.Fatalf("%d rules of %d, %d objects, %d applies", len(v.Config.Rules), len(v.Head.Rules), v.Objects, d.applied)
	}
	if got := v.Config.Rules[2]; got.Descr != "Test" || v.Config.Rules[3].ID != ruleID(2) {
		t.Errorf("the new rule is not above the one it was added above: %s", got)
	}
	if page := d.get("admin", a.Header.Get("Location")); !strings.Contains(text(page.body), "Test new") {
		t.Errorf("the list does not mark it new: %s", text(page.body))
	}
	if page := d.get("berta", "/rules?tab=LAN"); strings.Contains(text(page.body), "Test new") {
		t.Error("another account sees the draft")
	}
}

// C01 and its neighbours: nothing saved, the field and what was typed are shown.
func TestC01BackwardsRangeIsRefusedAtItsField(t *testing.T) {
	for _, bad := range []struct{ field, typed, says string }{
		{"dport", "86-81", "the range ends (81) before it starts (86)"},
		{"dport", "86–81", "port must be 1–65535"}, // a dash that is none
		{"sport", "7200:7100", "the range ends (7100) before it starts (7200)"},
		{"dport", "0", "port must be 1–65535"},
		{"dport", "65536", "port must be 1–65535"},
		{"dport", "80-", "port must be 1–65535"},
		{"dport", "1100a0-12000", "port must be 1–65535"},
		{"dport", "99999999999999999999", "port must be 1–65535"},
		{"dport", "443, 86-81", "the range ends (81) before it starts (86)"},
		{"dport", "nosuchservice", "There is no alias `nosuchservice`"},
		{"dport", "BAD_NETS", "holds addresses, not ports"},
		{"src", "10.0.0.256", "is not an IP address"},
		{"src", "10.0.0.9-10.0.0.5", "the range ends (10.0.0.5) before it starts (10.0.0.9)"},
		{"src", "", "or choose any"},
		{"dst", "any, 10.0.0.1", "already covers the rest"},
		{"dst", "MAIL", "holds ports, not addresses"},
		{"src", "this box", "can only be a destination"},
		{"proto", "icmpv7", "Choose a protocol"},
		{"in", "DMZ", "There is no interface DMZ"},
		{"action", "allow", "Choose pass, block or reject"},
		{"family", "v5", "Choose IPv4, IPv6 or both"},
	} {
		t.Run(bad.field+" "+bad.typed, func(t *testing.T) {
			d := newDesk(t, home())
			before, _ := d.w.Running()
			a := d.ask(by("admin"), "POST", "/rules/new", ruleForm(bad.field, bad.typed))
			wantStatus(t, a, http.StatusUnprocessableEntity)
			said := strings.ToLower(unescape(text(a.body)))
			if strings.Count(said, strings.ToLower(bad.says)) < 2 {
				t.Errorf("want %q in the summary and beside the field: %s", bad.says, said)
			}
			if !strings.Contains(a.body, `href="#f-`+bad.field) {
				t.Errorf("the summary does not lead to the field")
			}
			if bad.typed != "" && bad.field != "in" && bad.field != "action" && bad.field != "family" && bad.field != "proto" && !strings.Contains(unescape(a.body), `value="`+bad.typed+`"`) {
				t.Errorf("what was typed is gone")
			}
			after, _ := d.w.Running()
			if v := d.w.View("admin"); len(v.Items) != 0 || before.Stamp() != after.Stamp() || d.applied != 0 {
				t.Error("something was saved")
			}
		})
	}
}

func TestAllProblemsAreToldAtOnce(t *testing.T) {
	d := newDesk(t, home())
	a := d.ask(by("admin"), "POST", "/rules/new", ruleForm("src", "10.0.0.256, 10.0.0.300", "dport", "0", "in", "DMZ", "descr", strings.Repeat("x", 201)))
	wantStatus(t, a, http.StatusUnprocessableEntity)
	for _, says := range []string{"10.0.0.256", "10.0.0.300", "1–65535", "no interface DMZ", "at most 200 characters", "5 problems"} {
		if !strings.Contains(text(a.body), says) {
			t.Errorf("no word of %q: %s", says, text(a.body))
		}
	}
}

// C19: a description is kept exactly or refused with its reason.
func TestC19DescriptionIsKeptExactlyOrRefused(t *testing.T) {
	for _, c := range []struct {
		descr string
		says  string // empty: kept
	}{
		{descr: `He said "no"`}, {descr: strings.Repeat("é", 65)}, {descr: `'; drop`}, {descr: "{}"}, {descr: "$(id)"}, {descr: "\u200fright to left"},
		{descr: "🚪 gate"}, {descr: "  two blanks  "}, {descr: `<script>alert(1)</script>`}, {descr: `" onfocus="alert(1)`}, {descr: strings.Repeat("é", 200)},
		{strings.Repeat("x", 4000), "at most 200 characters"}, {"two\nlines", "Remove the line break"}, {"bell\a", "control character"}, {"bad \xff byte", "not valid UTF-8"},
	} {
		d := newDesk(t, home())
		a := d.ask(by("admin"), "POST", "/rules/new", ruleForm("descr", c.descr, "section", c.descr))
		if c.says != "" {
			wantStatus(t, a, http.StatusUnprocessableEntity)
			if !strings.Contains(text(a.body), c.says) {
				t.Errorf("%.20q: no word of %q", c.descr, c.says)
			}
			if len(d.w.View("admin").Items) > 0 {
				t.Errorf("%.20q was saved", c.descr)
			}
			continue
		}
		wantStatus(t, a, http.StatusSeeOther)
		rules := d.config("admin").Rules
		got := rules[len(rules)-1]
		if got.Descr != c.descr || got.Section != c.descr {
			t.Errorf("saved %q and %q, want %q", got.Descr, got.Section, c.descr)
		}
		for _, path := range []string{"/rules?tab=LAN", "/rules/" + string(got.ID), "/rules?tab=all", "/review", "/rules?tab=LAN&q=" + url.QueryEscape(c.descr)} {
			body := d.get("admin", path).body
			if !strings.Contains(unescape(body), c.descr) {
				t.Errorf("%s does not show %q", path, c.descr)
			}
			if strings.ContainsAny(c.descr, `<"`) && strings.Contains(body, c.descr) {
				t.Errorf("%s shows %q as it is, not escaped", path, c.descr)
			}
		}
	}
}

// Markup in any field comes back as text.
func TestMarkupComesBackAsText(t *testing.T) {
	evil := `"><img src=x onerror=alert(1)>`
	d := newDesk(t, home())
	for _, field := range []string{"descr", "section", "action", "in", "family", "proto", "number", "src", "dst", "sport", "dport", "icmp", "hash", "before", "after", "then"} {
		if a := d.ask(by("admin"), "POST", "/rules/new", ruleForm("src", "nonsense!", field, evil)); strings.Contains(a.body, "<img src=x") {
			t.Errorf("rule field %s is not escaped", field)
		}
	}
	for _, field := range []string{"descr", "in", "proto", "from", "dst", "dport", "to", "to_port", "rule", "hash"} {
		if a := d.ask(by("admin"), "POST", "/forwards/new", forwardForm("only", "1", "from", "", field, evil)); strings.Contains(a.body, "<img src=x") {
			t.Errorf("forward field %s is not escaped", field)
		}
	}
	for _, path := range []string{"/rules?tab=", "/rules?q=", "/rules?menu=", "/rules/new?in=", "/rules/new?before=", "/rules/", "/forwards/"} {
		if a := d.get("admin", path+url.QueryEscape(evil)); strings.Contains(a.body, "<img src=x") {
			t.Errorf("%s is not escaped", path)
		}
	}
}

func TestUnknownFieldIsRefused(t *testing.T) {
	d := newDesk(t, home())
	for path, form := range map[string]url.Values{
		"/rules/new": ruleForm("colour", "red"), "/rules": values("op", "toggle:"+string(ruleID(1))+":x", "tab", "LAN", "q", "", "colour", "red"),
		"/forwards/new": forwardForm("colour", "red"), "/forwards": values("op", "x:y", "colour", "red"),
		"/discard": values("ref", "rule/1", "colour", "red"), "/apply": values("draft", "", "colour", "red"), "/confirm": values("revision", "1", "token", "", "colour", "red"),
	} {
		a := d.ask(by("admin"), "POST", path, form)
		wantStatus(t, a, http.StatusBadRequest)
		if !strings.Contains(text(a.body), "colour") {
			t.Errorf("%s does not name the field", path)
		}
	}
	if len(d.w.View("admin").Items) > 0 {
		t.Error("something was saved")
	}
}

// opOf is the value of a row's button as a page shows it.
func opOf(t *testing.T, body, verb string, id firewall.ID) string {
	t.Helper()
	prefix := `value="` + verb + ":" + string(id)
	_, rest, ok := strings.Cut(body, prefix)
	if !ok {
		t.Fatalf("no %s button for %s", verb, id)
	}
	tail, _, _ := strings.Cut(rest, `"`)
	return verb + ":" + string(id) + tail
}

// C09: a page that was open meanwhile acts on the very rule it shows, or not at all.
func TestC09OldPageNeverActsOnANeighbour(t *testing.T) {
	d := newDesk(t, home())
	old := d.get("admin", "/rules?tab=LAN").body // the other tab of the same person
	menu := d.get("admin", "/rules?tab=LAN&menu="+string(ruleID(5))).body
	wantStatus(t, d.post("admin", "/rules", "op", opOf(t, old, "toggle", ruleID(1)), "tab", "LAN", "q", ""), http.StatusSeeOther)
	wantStatus(t, d.post("admin", "/rules", "op", opOf(t, d.get("admin", "/rules?tab=LAN&menu="+string(ruleID(2))).body, "delete", ruleID(2)), "tab", "LAN", "q", ""), http.StatusSeeOther)

	wantStatus(t, d.post("admin", "/rules", "op", opOf(t, old, "toggle", ruleID(3)), "tab", "LAN", "q", ""), http.StatusSeeOther)
	c := d.config("admin")
	for i, on := range map[int]bool{1: false, 3: false, 5: true} {
		if r, _ := c.Rule(ruleID(i)); r.On != on {
			t.Errorf("rule %q is on: %v", r.Descr, r.On)
		}
	}
	a := d.post("admin", "/rules", "op", opOf(t, old, "toggle", ruleID(1)), "tab", "LAN", "q", "")
	wantStatus(t, a, http.StatusConflict) // it was switched meanwhile
	if !strings.Contains(text(a.body), "Active no yes") {
		t.Errorf("the two versions are not told: %s", text(a.body))
	}
	wantStatus(t, d.post("admin", "/rules", "op", opOf(t, old, "toggle", ruleID(2)), "tab", "LAN", "q", ""), http.StatusNotFound)

	up := opOf(t, menu, "up", ruleID(5)) // past rule 4, which goes now
	wantStatus(t, d.post("admin", "/rules", "op", opOf(t, d.get("admin", "/rules?tab=LAN&menu="+string(ruleID(4))).body, "delete", ruleID(4)), "tab", "LAN", "q", ""), http.StatusSeeOther)
	before := d.config("admin").Stamp()
	wantStatus(t, d.post("admin", "/rules", "op", up, "tab", "LAN", "q", ""), http.StatusConflict)
	if d.config("admin").Stamp() != before {
		t.Error("the refused move changed something")
	}
}

func TestMoveJoinsTheNeighboursSection(t *testing.T) {
	d := newDesk(t, home())
	order := func() (list []string) {
		for _, r := range d.config("admin").Rules {
			if r.In == "LAN" {
				list = append(list, r.Section+"/"+r.Descr)
			}
		}
		return list
	}
	press := func(verb string, id firewall.ID) {
		t.Helper()
		body := d.get("admin", "/rules?tab=LAN&menu="+string(id)).body
		// The page also holds the script's empty menu; the row's own is the one with the id.
		wantStatus(t, d.post("admin", "/rules", "op", opOf(t, body, verb, id), "tab", "LAN", "q", ""), http.StatusSeeOther)
	}
	for _, step := range []struct {
		verb string
		id   int
		want string
	}{
		{"up", 4, "Servers/Web servers, Servers/Names, Servers/No mail from printers, Servers/No QUIC, Internet/Allow LAN to any"},
		{"up", 4, "Servers/Web servers, Servers/Names, Servers/No QUIC, Servers/No mail from printers, Internet/Allow LAN to any"},
		{"down", 3, "Servers/Web servers, Servers/Names, Servers/No QUIC, Internet/No mail from printers, Internet/Allow LAN to any"},
		{"top", 5, "Servers/Allow LAN to any, Servers/Web servers, Servers/Names, Servers/No QUIC, Internet/No mail from printers"},
		{"end", 2, "Servers/Allow LAN to any, Servers/Web servers, Servers/No QUIC, Internet/No mail from printers, Internet/Names"},
	} {
		press(step.verb, ruleID(step.id))
		if got := strings.Join(order(), ", "); got != step.want {
			t.Fatalf("after %s of %d:\n got %s\nwant %s", step.verb, step.id, got, step.want)
		}
	}
	for _, r := range d.config("admin").Rules {
		if r.In == "GUEST" && r.Section != "" {
			t.Error("a rule of another list was changed")
		}
	}
}

func TestDeletedRuleComesBackByUndo(t *testing.T) {
	d := newDesk(t, home())
	body := d.get("admin", "/rules?tab=LAN&menu="+string(ruleID(3))).body
	a := d.post("admin", "/rules", "op", opOf(t, body, "delete", ruleID(3)), "tab", "LAN", "q", "")
	wantStatus(t, a, http.StatusSeeOther)
	if len(a.Cookies()) != 1 {
		t.Fatal("no toast")
	}
	body = d.get("admin", "/rules?tab=LAN").body
	if !strings.Contains(text(body), "No mail from printers deleted Undo") {
		t.Errorf("the deleted rule is not shown: %s", text(body))
	}
	wantStatus(t, d.post("admin", "/discard", "undo", "rule/"+string(ruleID(3))), http.StatusSeeOther)
	if v := d.w.View("admin"); len(v.Items) != 0 || v.Config.Stamp() != v.Head.Stamp() {
		t.Errorf("left over: %v", v.Items)
	}
}

func TestStaleEditorShowsBothVersionsAndLetsChoose(t *testing.T) {
	d := newDesk(t, home())
	path := "/rules/" + string(ruleID(1))
	r, _ := d.config("admin").Rule(ruleID(1))
	shown := d.config("admin").Hash(firewall.Ref{Kind: "rule", Key: string(ruleID(1))})
	other := r
	other.DstPorts = firewall.Ports{{Range: firewall.PortRange{From: 8080, To: 8080}}}
	if err := d.w.Save(t.Context(), commit.Who{Account: "admin"}, shown, firewall.UpdateRule{Rule: other}); err != nil {
		t.Fatal(err)
	}
	form := ruleForm("hash", shown, "descr", "Mine", "dst", "WEB_SERVERS", "src", "LAN net", "family", "v4", "section", "Servers", "dport", "9443")
	form.Del("before")
	form.Del("after")
	a := d.ask(by("admin"), "POST", path, form)
	wantStatus(t, a, http.StatusConflict)
	said := text(a.body)
	if !strings.Contains(said, "Destination port 8080 9443") || !strings.Contains(said, "Description Web servers Mine") || !strings.Contains(a.body, `value="9443"`) {
		t.Fatalf("not both versions: %s", said)
	}
	if r, _ := d.config("admin").Rule(ruleID(1)); r.DstPorts.String() != "8080" {
		t.Error("the other's version was overwritten")
	}
	_, rest, _ := strings.Cut(a.body, `name="hash" value="`)
	fresh, _, _ := strings.Cut(rest, `"`)
	form.Set("hash", fresh)
	wantStatus(t, d.ask(by("admin"), "POST", path, form), http.StatusSeeOther) // save mine instead
	if r, _ := d.config("admin").Rule(ruleID(1)); r.Descr != "Mine" || r.DstPorts.String() != "9443" {
		t.Errorf("saved %s", r)
	}
}

func TestGoneRuleIsSaidPlainly(t *testing.T) {
	d := newDesk(t, home())
	for _, path := range []string{"/rules/01JNOSUCH", "/forwards/01JNOSUCH"} {
		a := d.get("admin", path)
		wantStatus(t, a, http.StatusNotFound)
		if !strings.Contains(text(a.body), "is not there") {
			t.Error(text(a.body))
		}
	}
	form := ruleForm()
	form.Del("before")
	form.Del("after")
	wantStatus(t, d.ask(by("admin"), "POST", "/rules/01JNOSUCH", form), http.StatusNotFound)
}

func TestLinkedRuleIsLockedButForItsOwnFields(t *testing.T) {
	d := newDesk(t, home())
	const id = "01JFORWARDRULE000000000001"
	a := d.get("admin", "/rules/"+id)
	if !strings.Contains(a.body, `href="/forwards/01JFORWARD0000000000000001"`) || !strings.Contains(a.body, "<fieldset class=\"stack\" disabled") {
		t.Error("the editor does not lead to the forward, or is not locked")
	}
	hash := d.config("admin").Hash(firewall.Ref{Kind: "rule", Key: id})
	wantStatus(t, d.post("admin", "/rules/"+id, "hash", hash, "on", "1", "descr", "x", "section", "", "dport", "22", "then", "save"), http.StatusBadRequest)
	wantStatus(t, d.post("admin", "/rules/"+id, "hash", hash, "log", "1", "descr", "Web, logged", "section", "Public", "then", "save"), http.StatusSeeOther)
	r, _ := d.config("admin").Rule(id)
	if r.On || !r.Log || r.Descr != "Web, logged" || r.Section != "Public" || r.DstPorts.String() != "8443" {
		t.Errorf("saved %s, %q in %q", r, r.Descr, r.Section)
	}
	a = d.post("admin", "/rules", "op", "delete:"+id+":"+d.config("admin").Hash(firewall.Ref{Kind: "rule", Key: id}), "tab", "WAN", "q", "")
	wantStatus(t, a, http.StatusUnprocessableEntity)
	if !strings.Contains(text(a.body), "delete the forward") {
		t.Error(text(a.body))
	}
}

func TestEmptyListsSayWhatTheyMean(t *testing.T) {
	c := home()
	c.Rules, c.Forwards = nil, nil
	d := newDesk(t, c)
	for path, says := range map[string]string{
		"/rules?tab=LAN": "Nothing may enter from LAN.", "/rules?tab=any": "No floating rules.", "/rules?tab=LAN&q=ssh": "No rule here contains “ssh”.",
		"/rules?tab=all": "Default: everything else is blocked.", "/forwards": "Nothing is forwarded.", "/review": "Nothing is waiting.",
	} {
		if a := d.get("admin", path); !strings.Contains(text(a.body), says) {
			t.Errorf("%s does not say %q", path, says)
		}
	}
	a := d.get("admin", "/rules/new?in=LAN&allow=all")
	if !strings.Contains(a.body, `value="Allow LAN to any"`) || !strings.Contains(a.body, `value="LAN net"`) {
		t.Error("the shortcut fills nothing in")
	}
}

func TestAllTabShowsTheOrderOfEvaluation(t *testing.T) {
	d := newDesk(t, home())
	said := text(d.get("admin", "/rules?tab=all").body)
	at := -1
	for _, part := range []string{"LAN (", "Floating: every interface", "Known bad networks", "Web from outside", "Web servers", "Allow LAN to any", "Guests stay out", "Default: everything else is blocked"} {
		next := strings.Index(said[at+1:], part)
		if next < 0 {
			t.Fatalf("%q does not come after what comes before it: %s", part, said)
		}
		at += 1 + next
	}
}

func TestManyRulesAreServedWhole(t *testing.T) {
	c := home()
	for i := range 2095 {
		r := c.Rules[1]
		r.ID, r.Descr, r.Section = ruleID(100+i), "Branch", "Section "+string(rune('A'+i/50))
		c.Rules = append(c.Rules, r)
	}
	d := newDesk(t, c)
	start := time.Now()
	a := d.ask(visit{account: "admin", headers: map[string]string{"Accept-Encoding": "gzip"}}, "GET", "/rules?tab=LAN", nil)
	t.Logf("2,100 rules in %v, %d KiB compressed", time.Since(start), len(a.body)/1024)
	wantStatus(t, a, http.StatusOK)
	if len(a.body) > 70<<10 {
		t.Errorf("%d bytes compressed", len(a.body))
	}
	if n := strings.Count(d.get("admin", "/rules?tab=LAN").body, `id="r-`); n != 2100 {
		t.Errorf("%d rows", n)
	}
}
