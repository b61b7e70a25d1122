package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

const (
	webForward = "01JFORWARD0000000000000001"
	webRule    = "01JFORWARDRULE000000000001"
)

// limitForm is what a browser sends of an untouched limit, with changes.
func limitForm(form url.Values, pairs ...string) url.Values {
	for i, v := range []string{"", "", "", "lock-out", "5m", "3", "1h", ""} {
		form.Set(page.LimitFields()[i], v)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return form
}

// editForward is the untouched form of the sample's forward as c has it, with changes.
func editForward(c firewall.Config, pairs ...string) url.Values {
	form := forwardForm("hash", c.Hash(firewall.Ref{Kind: "forward", Key: webForward}), "rule_hash", c.Hash(firewall.Ref{Kind: "rule", Key: webRule}),
		"descr", "Web from outside", "dport", "443", "to_port", "8443")
	r, _ := c.Rule(webRule)
	l := page.ShowLimit(c, r.Limit)
	return limitForm(form, append([]string{"limit_open", l.Open, "limit_new", l.New, "limit_window", l.Window, "over", l.Over, "lock_for", l.LockFor,
		"strikes", l.Strikes, "strike_window", l.StrikeWindow, "never", l.Never}, pairs...)...)
}

func limitOf(t *testing.T, d *desk, account string, id firewall.ID) firewall.Limit {
	t.Helper()
	r, ok := d.config(account).Rule(id)
	if !ok {
		t.Fatalf("no rule %s", id)
	}
	return r.Limit
}

// Every text of a limit stands beside its field, in both editors, with what was typed.
func TestLimitProblemsAreToldBesideTheirField(t *testing.T) {
	many := "limit_open"
	for _, bad := range []struct {
		field, typed, says string
		also               []string
		ruleOnly           bool
	}{
		{field: "limit_open", typed: "0", says: "Enter a whole number from 1 to 1 000 000."},
		{field: "limit_open", typed: "1000001", says: "Enter a whole number from 1 to 1 000 000."},
		{field: "limit_new", typed: "ten", says: "Enter a whole number from 1 to 1 000 000.", also: []string{"limit_window", "5s"}},
		{field: "limit_new", typed: "10", says: "Give both numbers or none."},
		{field: "limit_window", typed: "1h30", says: "Write for example 30s, 5m or 2h.", also: []string{"limit_new", "10"}},
		{field: "limit_window", typed: "25h", says: "The time must be 1 second to 1 day.", also: []string{"limit_new", "10"}},
		{field: "limit_window", typed: "0", says: "The time must be 1 second to 1 day.", also: []string{"limit_new", "10"}},
		{field: "over", typed: "nothing", says: "Choose what happens when the limit is exceeded.", also: []string{many, "20"}},
		{field: "over", typed: "lock-out", says: "Lock-out needs TCP: other protocols can only drop the excess.", also: []string{many, "20", "proto", "udp"}},
		{field: "over", typed: "quarantine", says: "Lock-out needs TCP: other protocols can only drop the excess.", also: []string{many, "20", "proto", "tcp+udp"}},
		{field: "lock_for", typed: "5", says: "A lock-out lasts 10 seconds to 1 day.", also: []string{many, "20"}},
		{field: "lock_for", typed: "", says: "A lock-out lasts 10 seconds to 1 day.", also: []string{many, "20"}},
		{field: "lock_for", typed: "long", says: "Write for example 30s, 5m or 2h.", also: []string{many, "20"}},
		{field: "strikes", typed: "101", says: "Enter a whole number from 1 to 100, or 0 for never.", also: []string{many, "20"}},
		{field: "strike_window", typed: "59s", says: "The time must be 1 minute to 30 days.", also: []string{many, "20"}},
		{field: "never", typed: "NONE", says: "There is no alias `NONE`.", also: []string{many, "20"}},
		{field: "never", typed: "MAIL", says: "MAIL holds ports, not addresses.", also: []string{many, "20"}},
		{field: "limit_open", typed: "", says: "Give a number of open or of new connections, or clear the rest of the limit.", also: []string{"over", "quarantine"}},
		{field: "limit_open", typed: "20", says: "Limits work on pass rules.", also: []string{"action", "block"}, ruleOnly: true},
		{field: "limit_open", typed: "20", says: "Limits need the linked pass rule.", also: []string{"rule", "none"}},
		{field: "limit_new", typed: "10", says: "Limits need the linked pass rule.", also: []string{"rule", "none", "limit_window", "5s"}},
	} {
		pairs := append([]string{bad.field, bad.typed}, bad.also...)
		forms := map[string]url.Values{"/rules/new": limitForm(ruleForm(), pairs...), "/forwards/new": limitForm(forwardForm(), pairs...)}
		forms["/rules/new"].Del("rule")
		if bad.ruleOnly {
			delete(forms, "/forwards/new")
		}
		if strings.Contains(bad.says, "linked") {
			delete(forms, "/rules/new")
		}
		for path, form := range forms {
			d := newDesk(t, home())
			a := d.ask(by("admin"), "POST", path, form)
			wantStatus(t, a, http.StatusUnprocessableEntity)
			said := unescape(text(a.body))
			if strings.Count(said, bad.says) != 2 {
				t.Errorf("%s %s=%q: want %q in the summary and beside the field, once each: %s", path, bad.field, bad.typed, bad.says, said)
			}
			if !strings.Contains(a.body, `href="#f-`+bad.field+`"`) || !strings.Contains(a.body, `id="f-`+bad.field+`"`) || !strings.Contains(a.body, `<details class="card" open`) {
				t.Errorf("%s %s=%q: the summary does not lead to an open field", path, bad.field, bad.typed)
			}
			if bad.field != "over" && !strings.Contains(a.body, `name="`+bad.field+`" type="text" value="`+bad.typed+`"`) {
				t.Errorf("%s %s: what was typed is gone", path, bad.field)
			}
			if len(d.w.View("admin").Items) > 0 {
				t.Errorf("%s %s=%q was saved", path, bad.field, bad.typed)
			}
		}
	}
}

func TestAllLimitProblemsAreToldAtOnce(t *testing.T) {
	wrong := []string{"limit_open", "x", "limit_new", "10", "limit_window", "25h", "over", "", "strikes", "x", "never", "NONE", "to", "nas", "src", "10.0.0.256"}
	for path, form := range map[string]url.Values{"/rules/new": limitForm(ruleForm(), wrong...), "/forwards/new": limitForm(forwardForm(), wrong...)} {
		form.Del(map[string]string{"/rules/new": "to", "/forwards/new": "src"}[path])
		d := newDesk(t, home())
		a := d.ask(by("admin"), "POST", path, form)
		wantStatus(t, a, http.StatusUnprocessableEntity)
		for _, says := range []string{"6 problems", "from 1 to 1 000 000", "1 second to 1 day", "Choose what happens", "0 for never", "no alias `NONE`"} {
			if !strings.Contains(unescape(text(a.body)), says) {
				t.Errorf("%s: no word of %q: %s", path, says, text(a.body))
			}
		}
	}
}

func TestRuleGetsALimitAndTheListShowsIt(t *testing.T) {
	d := newDesk(t, home())
	form := limitForm(ruleForm(), "limit_open", "20", "limit_new", "10", "limit_window", "5s", "strikes", "2", "never", "BAD_NETS")
	wantStatus(t, d.ask(by("admin"), "POST", "/rules/new", form), http.StatusSeeOther)
	rules := d.config("admin").Rules
	r := rules[len(rules)-1]
	if want := (firewall.Limit{Open: 20, New: 10, Window: 5, Over: firewall.LockOut, LockFor: 300, Strikes: 2, StrikeWindow: 3600, Never: "BAD_NETS"}); r.Limit != want {
		t.Fatalf("saved %+v, want %+v", r.Limit, want)
	}
	said := text(d.get("admin", "/rules?tab=LAN").body)
	if !strings.Contains(said, "20 open · 10/5s limit: 20 open, 10 new in 5s per source, then locked out for 5m, quarantine after 2 in 1h") {
		t.Errorf("the list does not show it: %s", said)
	}
	if said := text(d.get("admin", "/rules/"+string(r.ID)).body); !strings.Contains(said, "10 at once, then 2 a second; never more than 20 in any 5s.") {
		t.Errorf("the editor does not say what runs: %s", said)
	}
	if body := d.get("admin", "/rules/new?copy="+string(r.ID)).body; !strings.Contains(body, `name="limit_open" type="text" value="20"`) || !strings.Contains(body, `name="never" type="text" value="BAD_NETS"`) {
		t.Error("a copy loses the limit")
	}
	if said := text(d.get("admin", "/review").body); !strings.Contains(said, "at most 20 open, 10 new in 5s per source") {
		t.Errorf("the review does not name it: %s", said)
	}
	c := d.config("admin")
	form = limitForm(ruleForm("hash", c.Hash(firewall.Ref{Kind: "rule", Key: string(r.ID)})), "strikes", "2", "never", "BAD_NETS", "limit_open", "20", "dry_run", "1")
	form.Del("before")
	form.Del("after")
	wantStatus(t, d.ask(by("admin"), "POST", "/rules/"+string(r.ID), form), http.StatusSeeOther)
	if said := text(d.get("admin", "/rules?tab=LAN").body); !strings.Contains(said, "20 open · counts only") {
		t.Errorf("the list does not say that it only counts: %s", said)
	}
	form.Set("hash", d.config("admin").Hash(firewall.Ref{Kind: "rule", Key: string(r.ID)}))
	form.Set("limit_open", "")
	wantStatus(t, d.ask(by("admin"), "POST", "/rules/"+string(r.ID), form), http.StatusSeeOther)
	if l := limitOf(t, d, "admin", r.ID); l != (firewall.Limit{}) {
		t.Errorf("without a number there is still %+v", l)
	}
}

func TestForwardEditsTheLimitOfItsRule(t *testing.T) {
	d := newDesk(t, home())
	wantStatus(t, d.ask(by("admin"), "POST", "/forwards/new", limitForm(forwardForm(), "limit_open", "100")), http.StatusSeeOther)
	fs := d.config("admin").Forwards
	fresh := fs[len(fs)-1]
	want := firewall.Limit{Open: 100, Over: firewall.LockOut, LockFor: 300, Strikes: 3, StrikeWindow: 3600}
	if l := limitOf(t, d, "admin", fresh.Rule); l != want {
		t.Fatalf("a new forward's rule has %+v, want %+v", l, want)
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/forwards/"+webForward, editForward(d.config("admin"), "limit_new", "10", "limit_window", "5s")), http.StatusSeeOther)
	said := text(d.get("admin", "/forwards").body)
	for _, says := range []string{"Web from outside changed", "linked rule 10/5s limit: 10 new in 5s per source", "linked rule 100 open limit: 100 open per source"} {
		if !strings.Contains(said, says) {
			t.Errorf("the list does not say %q: %s", says, said)
		}
	}
	if body := d.get("admin", "/forwards/new?copy="+webForward).body; !strings.Contains(body, `name="limit_new" type="text" value="10"`) {
		t.Error("a copy loses the limit")
	}
	// The rule's own editor may change the limit, too, and nothing that the forward owns.
	hash := d.config("admin").Hash(firewall.Ref{Kind: "rule", Key: webRule})
	body := d.get("admin", "/rules/"+webRule).body
	if _, rest, ok := strings.Cut(body, "</fieldset>"); !ok || !strings.Contains(rest, `name="limit_new" type="text" value="10"`) {
		t.Error("the linked rule's editor does not show the limit outside of what is locked")
	}
	form := limitForm(values("hash", hash, "on", "1", "descr", "Web from outside", "section", "", "then", "save"), "limit_open", "5", "over", "drop")
	wantStatus(t, d.ask(by("admin"), "POST", "/rules/"+webRule, form), http.StatusSeeOther)
	if l := limitOf(t, d, "admin", webRule); l.Open != 5 || l.Over != firewall.DropExcess || l.New != 0 {
		t.Errorf("saved %+v", l)
	}
	form.Set("limit_open", "many")
	form.Set("hash", d.config("admin").Hash(firewall.Ref{Kind: "rule", Key: webRule}))
	a := d.ask(by("admin"), "POST", "/rules/"+webRule, form)
	wantStatus(t, a, http.StatusUnprocessableEntity)
	if !strings.Contains(a.body, `value="many"`) || !strings.Contains(a.body, "8443") {
		t.Error("what was typed, or what the forward decides, is gone")
	}
	// Off again: nothing is left but what was there.
	wantStatus(t, d.ask(by("admin"), "POST", "/forwards/"+webForward, editForward(d.config("admin"), "limit_open", "")), http.StatusSeeOther)
	wantStatus(t, d.post("admin", "/forwards", "op", opOf(t, d.get("admin", "/forwards").body, "delete", fresh.ID)), http.StatusSeeOther)
	if v := d.w.View("admin"); len(v.Items) != 0 || v.Config.Stamp() != v.Head.Stamp() {
		t.Errorf("left over: %v", v.Items)
	}
}

func TestUDPForwardCannotLockOut(t *testing.T) {
	d := newDesk(t, home())
	wantStatus(t, d.ask(by("admin"), "POST", "/forwards/"+webForward, editForward(d.config("admin"), "limit_open", "20")), http.StatusSeeOther)
	a := d.ask(by("admin"), "POST", "/forwards/"+webForward, editForward(d.config("admin"), "proto", "udp"))
	wantStatus(t, a, http.StatusUnprocessableEntity)
	if !strings.Contains(a.body, `id="f-over-error">`) || strings.Count(text(a.body), "Lock-out needs TCP") != 2 {
		t.Errorf("not told beside the choice: %s", text(a.body))
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/forwards/"+webForward, editForward(d.config("admin"), "proto", "udp", "over", "drop")), http.StatusSeeOther)
	if r, _ := d.config("admin").Rule(webRule); r.Proto != firewall.UDP || r.Limit.Over != firewall.DropExcess {
		t.Errorf("saved %s", r)
	}
}

// A forward's form shows the limit of its rule: what somebody did to that since
// is told, not overwritten, whoever it was.
func TestForwardNeverOverwritesALimitUnseen(t *testing.T) {
	for _, who := range []string{"the other tab", "another administrator"} {
		for name, pairs := range map[string][]string{"another limit": {"limit_open", "50"}, "the limit as it was": {"descr", "Mine"}, "no rule": {"rule", "none"}} {
			t.Run(who+", "+name, func(t *testing.T) {
				d := newDesk(t, home())
				form := editForward(d.config("admin"), pairs...)
				account := map[string]string{"the other tab": "admin", "another administrator": "berta"}[who]
				change := firewall.SetLimit{Rule: webRule, Limit: firewall.Limit{Open: 7, Over: firewall.DropExcess}}
				if err := d.w.Save(t.Context(), commit.Who{Account: account}, commit.AnyHash, change); err != nil {
					t.Fatal(err)
				}
				if account == "berta" {
					if _, err := d.w.Apply(t.Context(), commit.Who{Account: account}, commit.Options{}); err != nil {
						t.Fatal(err)
					}
				}
				a := d.ask(by("admin"), "POST", "/forwards/"+webForward, form)
				wantStatus(t, a, http.StatusConflict)
				said := text(a.body)
				if !strings.Contains(said, "Forward “Web from outside” was changed by someone else") && !strings.Contains(said, "Forward “Mine” was changed by someone else") || !strings.Contains(said, "Open connections 7 ") {
					t.Errorf("not both versions: %s", said)
				}
				if l := limitOf(t, d, "admin", webRule); l.Open != 7 {
					t.Fatalf("overwritten by %+v", l)
				}
				// Save mine instead: the form that came back has seen it.
				for _, field := range []string{"hash", "rule_hash"} {
					_, rest, _ := strings.Cut(a.body, `name="`+field+`" value="`)
					fresh, _, _ := strings.Cut(rest, `"`)
					form.Set(field, fresh)
				}
				wantStatus(t, d.ask(by("admin"), "POST", "/forwards/"+webForward, form), http.StatusSeeOther)
				r, there := d.config("admin").Rule(webRule)
				if name == "no rule" && there || name == "another limit" && r.Limit.Open != 50 || name == "the limit as it was" && r.Limit.On() {
					t.Errorf("saved %s", r)
				}
			})
		}
	}
}

// What the forward's form does not show of its rule stays, and is no conflict.
func TestForwardLeavesTheRestOfItsRuleAlone(t *testing.T) {
	d := newDesk(t, home())
	form := editForward(d.config("admin"), "descr", "Mine")
	r, _ := d.config("admin").Rule(webRule)
	r.Log, r.Section = true, "Public"
	if err := d.w.Save(t.Context(), commit.Who{Account: "admin"}, commit.AnyHash, firewall.UpdateRule{Rule: r}); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/forwards/"+webForward, form), http.StatusSeeOther)
	c := d.config("admin")
	f, _ := c.Forward(webForward)
	if r, _ := c.Rule(webRule); f.Descr != "Mine" || !r.Log || r.Section != "Public" {
		t.Errorf("saved %q and %s in %q", f.Descr, r, r.Section)
	}
}

func TestStaleRuleShowsBothLimits(t *testing.T) {
	d := newDesk(t, home())
	path, ref := "/rules/"+string(ruleID(1)), firewall.Ref{Kind: "rule", Key: string(ruleID(1))}
	form := limitForm(ruleForm("hash", d.config("admin").Hash(ref)), "limit_open", "20", "strikes", "0", "dry_run", "1")
	form.Del("before")
	form.Del("after")
	change := firewall.SetLimit{Rule: ruleID(1), Limit: firewall.Limit{New: 10, Window: 5, Over: firewall.DropExcess, Never: "BAD_NETS"}}
	if err := d.w.Save(t.Context(), commit.Who{Account: "admin"}, commit.AnyHash, change); err != nil {
		t.Fatal(err)
	}
	a := d.ask(by("admin"), "POST", path, form)
	wantStatus(t, a, http.StatusConflict)
	for _, says := range []string{"Open connections no limit 20", "New connections 10 in 5s no limit", "When exceeded drop only the excess lock out", "Never lock out BAD_NETS nobody", "Only count no yes"} {
		if !strings.Contains(text(a.body), says) {
			t.Errorf("no word of %q: %s", says, text(a.body))
		}
	}
}

func TestEditorsWarnOfALimitThatExemptsNobody(t *testing.T) {
	d := newDesk(t, home())
	wantStatus(t, d.ask(by("admin"), "POST", "/forwards/"+webForward, editForward(d.config("admin"), "limit_open", "20", "never", "NOBODY")), http.StatusSeeOther)
	for _, path := range []string{"/forwards/" + webForward, "/forwards", "/rules/" + webRule, "/review"} {
		if said := text(d.get("admin", path).body); !strings.Contains(said, "The alias NOBODY is empty: it exempts nobody from this limit.") {
			t.Errorf("%s does not warn: %s", path, said)
		}
	}
}

// Markup in the fields of a limit comes back as text.
func TestMarkupInALimitComesBackAsText(t *testing.T) {
	evil := `"><img src=x onerror=alert(1)>`
	d := newDesk(t, home())
	for _, field := range page.LimitFields() {
		for path, form := range map[string]url.Values{"/rules/new": limitForm(ruleForm(), field, evil), "/forwards/new": limitForm(forwardForm(), field, evil)} {
			if a := d.ask(by("admin"), "POST", path, form); strings.Contains(a.body, "<img src=x") {
				t.Errorf("%s of %s is not escaped", field, path)
			}
		}
	}
	if a := d.ask(by("admin"), "POST", "/forwards/new", forwardForm("rule_hash", evil, "to", "nas")); strings.Contains(a.body, "<img src=x") {
		t.Error("rule_hash is not escaped")
	}
}
