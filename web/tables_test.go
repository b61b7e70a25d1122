package web

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/quarantine"
	"gatehouse/web/page"
)

// said is the toast that an answer brings.
func said(t *testing.T, a answer) (toast page.Toast) {
	t.Helper()
	for _, c := range a.Cookies() {
		if strings.HasSuffix(c.Name, "toast") {
			b, err := base64.RawURLEncoding.DecodeString(c.Value)
			if err != nil || json.Unmarshal(b, &toast) != nil {
				t.Fatalf("toast %q: %v", c.Value, err)
			}
		}
	}
	return toast
}

// live is a request of the script of the page.
var live = map[string]string{"HX-Request": "true", "HX-Request-Type": "partial"}

func wantText(t *testing.T, a answer, says ...string) {
	t.Helper()
	body := unescape(text(a.body))
	for _, s := range says {
		if !strings.Contains(body, s) {
			t.Errorf("no word of %q: %s", s, body)
		}
	}
}

func wantDeeds(t *testing.T, d *desk, want ...string) {
	t.Helper()
	if did := d.jail.deeds(); !slices.Equal(did, want) {
		t.Errorf("did %q, want %q", did, want)
	}
}

func TestTablesSayWhyAndSinceWhen(t *testing.T) {
	d := jailed(t)
	a := d.get("admin", "/tables")
	wantStatus(t, a, http.StatusOK)
	wantText(t, a, "203.0.113.77 3rd lock-out in 1h: more than 100 new in 10s Web from outside 3 2 min ago until released 18,204 1.2 MB",
		"2001:db8:77:1::/64 104 open, limit 100", "198.51.100.0/24", "by berta", "26 h ago", "81,230,114 5.6 GB",
		"3 entries of at most 65,536", "Your address 192.168.1.20 is exempt", "Quarantine 3", "Lock-outs 2", "Only counted 14", "Aliases 3")
	a = d.get("admin", "/tables?set=lock-outs")
	wantText(t, a, "192.168.1.102 phone 104 open, limit 100 Web servers 1 1 min ago in 4 min", "203.0.113.9 more than 100 new in 10s a rule that is gone")
	if strings.Contains(a.body, "203.0.113.77") {
		t.Error("who is in quarantine stands among the lock-outs")
	}
	a = d.get("admin", "/tables?set=would")
	wantText(t, a, "203.0.113.113 more than 100 new in 10s Guests may browse")
	if strings.Contains(a.body, `value="release:`) || strings.Contains(a.body, "Release all") {
		t.Error("who is not shut out can be released")
	}
	for path, status := range map[string]int{"/tables?set=quarantine": 200, "/tables?set=aliases": 200, "/tables?set=automatic": 200, "/tables?set=nothing": 404,
		"/tables?page=-3&sort=colour&desc=x": 200, "/tables?page=9999": 200, "/tables?set=aliases&name=NOTHING": 404, "/tables?set=aliases&name=MAIL": 404} {
		wantStatus(t, d.get("admin", path), status)
	}
	wantStatus(t, d.get("", "/tables"), http.StatusSeeOther) // to the login
}

func TestEveryPageCountsWhoIsShutOut(t *testing.T) {
	d := jailed(t)
	if body := d.get("admin", "/rules").body; !strings.Contains(unescape(text(body)), "Tables 5 shut out") || !strings.Contains(body, `hx-trigger="quarantine from:body`) {
		t.Error("the menu does not say that 5 are shut out")
	}
	d.jail.mu.Lock()
	d.jail.all = d.jail.all[:2]
	d.jail.mu.Unlock()
	if a := d.ask(visit{account: "admin", headers: live}, "GET", "/tables/badge", nil); !strings.Contains(text(a.body), "2 shut out") {
		t.Errorf("the badge says %q", text(a.body))
	}
	d.jail.mu.Lock()
	d.jail.all = nil
	d.jail.mu.Unlock()
	if a := d.get("admin", "/tables/badge"); text(a.body) != "" || !strings.Contains(a.body, `id="badge"`) {
		t.Errorf("with nobody shut out the badge is %q", a.body)
	}
}

func TestEmptyTablesSayWhatThatMeans(t *testing.T) {
	d := newDesk(t, limited())
	wantText(t, d.get("admin", "/tables"), "Nobody is in quarantine. Sources that exceed a limit show up here. 3 rules with a limit")
	wantText(t, d.get("admin", "/tables?set=lock-outs"), "Nobody is locked out. Sources that exceed a limit show up here.")
	wantText(t, d.get("admin", "/rules?tab=all&q=per+source"), "3 of 9 rules contain") // where the link leads
	d = newDesk(t, home())
	wantText(t, d.get("admin", "/tables"), "No rule has a limit yet.")
	d = jailed(t)
	a := d.get("admin", "/tables?q=192.168.1.102")
	wantText(t, a, "Nothing here matches “192.168.1.102”.", "1 in Lock-outs", "Look everywhere")
	if !strings.Contains(a.body, `href="/tables/find?q=192.168.1.102"`) || !strings.Contains(a.body, `href="/tables?q=192.168.1.102&amp;set=lock-outs"`) {
		t.Error("it does not lead to where the address is")
	}
}

// Release acts at once and can be taken back; nothing of it is a change of the configuration.
func TestReleaseIsOneClickAndCanBeUndone(t *testing.T) {
	d := jailed(t)
	a := d.post("admin", "/tables", "op", "release:0:203.0.113.77/32", "at", "set=quarantine&sort=packets&desc=1&q=203")
	wantStatus(t, a, http.StatusSeeOther)
	if to := a.Header.Get("Location"); to != "/tables?desc=1&q=203&set=quarantine&sort=packets" {
		t.Errorf("leads to %s", to)
	}
	toast := said(t, a)
	if toast.Text != "Released 203.0.113.77." || !strings.HasPrefix(toast.Undo, "/tables/undo?") {
		t.Errorf("the toast is %+v", toast)
	}
	wantDeeds(t, d, "released 203.0.113.77/32")
	if _, still := d.jail.Get(netip.MustParsePrefix("203.0.113.77/32")); still {
		t.Error("it is still shut out")
	}
	a = d.post("admin", toast.Undo, "undo", toast.With)
	wantStatus(t, a, http.StatusSeeOther)
	if to := a.Header.Get("Location"); to != "/tables?desc=1&q=203&set=quarantine&sort=packets" || said(t, a).Text != "Shut out again, as before." {
		t.Errorf("leads to %s and says %q", to, said(t, a).Text)
	}
	a = d.post("admin", toast.Undo, "undo", toast.With) // too late
	wantStatus(t, a, http.StatusConflict)
	wantText(t, a, "A release can be taken back for 10 seconds.")
	wantDeeds(t, d, "released 203.0.113.77/32", "undone 203.0.113.77/32")
	if v := d.w.View("admin"); len(v.Items) > 0 {
		t.Errorf("in the draft: %v", v.Items)
	}
}

// What is asked for is so: two administrators do not get in each other's way.
func TestReleaseOfWhoIsFreeIsDone(t *testing.T) {
	d := jailed(t)
	for i, name := range []string{"admin", "berta"} {
		a := d.post(name, "/tables", "op", "release:0:203.0.113.77/32", "at", "set=quarantine")
		wantStatus(t, a, http.StatusSeeOther)
		want := []string{"Released 203.0.113.77.", "203.0.113.77 was free already."}[i]
		if toast := said(t, a); toast.Text != want || (toast.Undo != "") != (i == 0) {
			t.Errorf("%s is told %+v", name, toast)
		}
	}
	a := d.ask(visit{account: "berta", headers: live}, "POST", "/tables", values("op", "release:1:203.0.113.77/32", "at", "set=quarantine"))
	wantStatus(t, a, http.StatusOK)
	if !strings.Contains(a.body, `id="ghost"`) || !strings.Contains(text(a.body), "203.0.113.77 was free already.") {
		t.Error("the row does not say so in place")
	}
	wantDeeds(t, d, "released 203.0.113.77/32")
}

func TestTablesRefuseWhatTheyDoNotKnow(t *testing.T) {
	d := jailed(t)
	for _, op := range []string{"", "release", "release:0", "release:x:203.0.113.77/32", "release:-1:203.0.113.77/32", "release:0:203.0.113.77", "release:0:203.0.113.77/24", "release:0:nobody",
		"undo", "undo:", "format:0:203.0.113.77/32", "all", "never:0:", "undo:X:nobody", "menu"} {
		if a := d.post("admin", "/tables", "op", op, "at", "set=quarantine"); a.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s", op, a.Status)
		}
	}
	wantStatus(t, d.post("admin", "/tables", "op", "all", "upto", "soon", "at", "set=quarantine"), http.StatusBadRequest)
	wantStatus(t, d.post("admin", "/tables", "op", "selected", "sel", "nobody", "at", "set=quarantine"), http.StatusBadRequest)
	wantStatus(t, d.post("admin", "/tables", "op", "release:0:203.0.113.77/32", "at", "set=nothing"), http.StatusNotFound)
	wantStatus(t, d.post("admin", "/tables", "op", "release:0:203.0.113.77/32", "at", "%zz"), http.StatusBadRequest)
	wantStatus(t, d.post("admin", "/tables", "op", "release:0:203.0.113.77/32", "force", "1"), http.StatusBadRequest)
	wantStatus(t, d.post("admin", "/tables/undo", "undo", ""), http.StatusBadRequest)
	wantStatus(t, d.post("", "/tables", "op", "release:0:203.0.113.77/32"), http.StatusUnauthorized)
	wantStatus(t, d.get("admin", "/tables/keep?source=nobody"), http.StatusBadRequest)
	wantStatus(t, d.ask(visit{account: "admin", headers: map[string]string{"Sec-Fetch-Site": "cross-site"}}, "POST", "/tables", values("op", "release:0:203.0.113.77/32")), http.StatusForbidden)
	wantDeeds(t, d)
	d.jail.refuse = fmt.Errorf("netlink: %s", "no such device")
	a := d.post("admin", "/tables", "op", "release:0:203.0.113.77/32", "at", "")
	wantStatus(t, a, http.StatusInternalServerError)
	if strings.Contains(a.body, "netlink") {
		t.Error("the error of the kernel is shown")
	}
}

func TestReleaseAllReleasesWhatTheQuestionNamed(t *testing.T) {
	d := jailed(t)
	a := d.get("admin", "/tables/release?at=set%3Dquarantine%26q%3D203.0.113")
	wantText(t, a, "Release 1 address from quarantine?", "Keep them blocked", "Release 1 address")
	a = d.get("admin", "/tables/release?at=set%3Dquarantine")
	wantText(t, a, "Release 3 addresses from quarantine?", "Release all 3 addresses")
	_, upto, _ := strings.Cut(a.body, `name="upto" value="`)
	upto, _, _ = strings.Cut(upto, `"`)
	late := quarantine.Entry{Source: netip.MustParsePrefix("203.0.113.250/32"), Kind: quarantine.Quarantine, Rule: ruleID(1), What: firewall.OverNew, Limit: limit, Times: 1, Since: time.Now().Add(time.Second)}
	d.jail.put(late)
	a = d.post("admin", "/tables", "op", "all", "upto", upto, "keep", "1", "at", "set=quarantine&page=2")
	wantStatus(t, a, http.StatusSeeOther)
	if toast := said(t, a); toast.Text != "Released 3 sources." || toast.Undo == "" {
		t.Errorf("the toast is %+v", toast)
	}
	if l := d.jail.List(quarantine.Query{Set: quarantine.InQuarantine}); l.Total != 1 || l.Entries[0].Source != late.Source {
		t.Errorf("left are %v: who came after the question was not in it", l.Entries)
	}
	if n := d.jail.Counts(); n.LockOuts != 2 {
		t.Error("another list was released too")
	}
	wantDeeds(t, d, "released 203.0.113.77/32 strikes kept", "released 198.51.100.0/24 strikes kept", "released 2001:db8:77:1::/64 strikes kept")
	a = d.post("admin", "/tables", "op", "all", "upto", upto, "at", "set=quarantine")
	if toast := said(t, a); toast.Text != "They were free already." {
		t.Errorf("the second one is told %+v", toast)
	}
	for _, path := range []string{"/tables/release?at=set%3Dwould", "/tables/release?at=set%3Daliases"} {
		wantStatus(t, d.get("admin", path), http.StatusNotFound)
	}
	d.jail.all = nil
	wantStatus(t, d.get("admin", "/tables/release?at=set%3Dlock-outs"), http.StatusSeeOther)
}

func TestReleaseSelected(t *testing.T) {
	d := jailed(t)
	a := d.ask(by("admin"), "POST", "/tables", values("op", "selected", "at", "set=quarantine"))
	wantStatus(t, a, http.StatusUnprocessableEntity)
	wantText(t, a, "Tick the sources that you want to release.")
	a = d.ask(by("admin"), "POST", "/tables", values("op", "selected", "sel", "203.0.113.77/32", "sel", "2001:db8:77:1::/64", "sel", "203.0.113.251/32", "at", "set=quarantine"))
	wantStatus(t, a, http.StatusSeeOther)
	if toast := said(t, a); toast.Text != "Released 2 sources." {
		t.Errorf("the toast is %+v", toast)
	}
	wantDeeds(t, d, "released 203.0.113.77/32", "released 2001:db8:77:1::/64")
}

// Never again is now for a day, and from the next Apply on by the alias.
func TestReleaseAndNeverAgainWritesTheAlias(t *testing.T) {
	d := jailed(t)
	a := d.post("admin", "/tables", "op", "never:0:203.0.113.77/32", "at", "set=quarantine")
	wantStatus(t, a, http.StatusSeeOther)
	wantDeeds(t, d, "released 203.0.113.77/32 exempt 24h0m0s")
	toast := said(t, a)
	if want := "Released 203.0.113.77. It is exempt for 24 hours, and after the next Apply as long as it is in NEVER_QUARANTINE."; toast.Text != want {
		t.Errorf("says %q", toast.Text)
	}
	c := d.config("admin")
	alias, ok := c.Alias(firewall.NeverQuarantine)
	if !ok || len(alias.Addrs) != 1 || alias.Addrs[0].End.String() != "203.0.113.77" {
		t.Fatalf("the draft has %+v", alias)
	}
	if r, _ := c.Rule("01JFORWARDRULE000000000001"); r.Limit.Never != firewall.NeverQuarantine || r.Limit.Open != 100 {
		t.Errorf("the limit that caught it is %+v", r.Limit)
	}
	if ps := c.Validate(); len(ps) > 0 {
		t.Errorf("the draft is not valid: %v", ps)
	}
	// Undo takes both back.
	a = d.post("admin", toast.Undo, "undo", toast.With)
	wantStatus(t, a, http.StatusSeeOther)
	if text := said(t, a).Text; text != "Shut out again, as before. Your draft is as it was." || len(d.w.View("admin").Items) > 0 {
		t.Errorf("says %q, the draft holds %v", text, d.w.View("admin").Items)
	}
	// An IPv6 source goes in as its prefix, beside what is there.
	wantStatus(t, d.post("admin", "/tables", "op", "never:0:203.0.113.77/32", "at", ""), http.StatusSeeOther)
	a = d.post("admin", "/tables", "op", "never:1:2001:db8:77:1::/64", "at", "")
	alias, _ = d.config("admin").Alias(firewall.NeverQuarantine)
	if len(alias.Addrs) != 2 || alias.Addrs[1].End.String() != "2001:db8:77:1::/64" {
		t.Fatalf("the draft has %+v", alias)
	}
	// This Undo leaves the draft alone: the first source is in the same alias.
	toast = said(t, a)
	wantStatus(t, d.post("admin", toast.Undo, "undo", toast.With), http.StatusSeeOther)
	if alias, _ = d.config("admin").Alias(firewall.NeverQuarantine); len(alias.Addrs) != 2 {
		t.Errorf("the Undo took %+v out of the draft", alias)
	}
	// Once more for one that is in it.
	toast = said(t, d.post("admin", "/tables", "op", "never:1:2001:db8:77:1::/64", "at", ""))
	if !strings.Contains(toast.Text, "your draft has it in NEVER_QUARANTINE already") {
		t.Errorf("says %q", toast.Text)
	}
}

// A limit that exempts another alias is told of: the exemption would be a lie.
func TestNeverAgainSaysWhenTheRuleExemptsAnotherAlias(t *testing.T) {
	c := limited()
	for i := range c.Rules {
		if c.Rules[i].Limit.On() {
			c.Rules[i].Limit.Never = "BAD_NETS"
		}
	}
	d := jailed(t)
	d.install(c)
	toast := said(t, d.post("admin", "/tables", "op", "never:0:203.0.113.77/32", "at", ""))
	if !strings.Contains(toast.Text, "The rule exempts BAD_NETS, not NEVER_QUARANTINE: write it there too.") {
		t.Errorf("says %q", toast.Text)
	}
	if r, _ := d.config("admin").Rule("01JFORWARDRULE000000000001"); r.Limit.Never != "BAD_NETS" {
		t.Errorf("the limit exempts %s now", r.Limit.Never)
	}
	if body := d.get("admin", "/tables?menu="+url.QueryEscape("198.51.100.0/24")).body; strings.Contains(body, "never again</button>") || !strings.Contains(body, "Keep for…") {
		t.Error("what was added by hand can be exempted from a rule")
	}
}

// What the draft refuses releases nobody.
func TestNeverAgainIsNotHalfDone(t *testing.T) {
	c := limited()
	c.Aliases = append(c.Aliases, firewall.Alias{Name: firewall.NeverQuarantine, Kind: firewall.PortList})
	d := jailed(t)
	d.install(c)
	a := d.post("admin", "/tables", "op", "never:0:203.0.113.77/32", "at", "")
	wantStatus(t, a, http.StatusUnprocessableEntity)
	wantDeeds(t, d)
	a = d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", "never:0:203.0.113.77/32", "at", ""))
	wantStatus(t, a, http.StatusUnprocessableEntity)
	wantText(t, a, "Nothing was done.")
	d = jailed(t)
	d.jail.refuse = fmt.Errorf("netlink")
	wantStatus(t, d.post("admin", "/tables", "op", "never:0:203.0.113.77/32", "at", ""), http.StatusInternalServerError)
	if v := d.w.View("admin"); len(v.Items) > 0 {
		t.Errorf("it is not released, and the draft holds %v", v.Items)
	}
}

func TestAddByHand(t *testing.T) {
	d := jailed(t)
	for _, ok := range []struct{ address, duration, deed, toast, to string }{
		{"203.0.113.66", "", "added 203.0.113.66/32 spam", "203.0.113.66 is shut out until somebody releases it.", "/tables?set=quarantine"},
		{"203.0.113.67", "2h", "added 203.0.113.67/32 spam", "203.0.113.67 is shut out for 2h.", "/tables?set=lock-outs"},
		{"198.18.0.5/15", "", "added 198.18.0.0/15 spam", "198.18.0.0/15 is shut out until somebody releases it. 198.18.0.5/15 was taken as 198.18.0.0/15.", "/tables?set=quarantine"},
		{" 2001:db8:5::7 ", "1d", "added 2001:db8:5::/64 spam", "2001:db8:5::/64 is shut out for 1d. 2001:db8:5::7 is one source with all of 2001:db8:5::/64.", "/tables?set=lock-outs"},
	} {
		d.jail.did = nil
		a := d.post("admin", "/tables/add", "address", ok.address, "reason", "spam", "duration", ok.duration)
		wantStatus(t, a, http.StatusSeeOther)
		if toast := said(t, a); toast.Text != ok.toast || a.Header.Get("Location") != ok.to {
			t.Errorf("%s: says %q and leads to %s", ok.address, toast.Text, a.Header.Get("Location"))
		}
		wantDeeds(t, d, ok.deed)
	}
	d.jail.did = nil
	for _, bad := range []struct{ field, typed, says string }{
		{"address", "", "Write an address or a network."}, {"address", "203.0.113.256", "`203.0.113.256` is not an IP address."}, {"address", "203.0.113.0/33", "`203.0.113.0/33` is not a network"},
		{"address", "mail.example.com", "is not an IP address"}, {"address", "192.168.1.20", "That is the address you are using."}, {"address", "192.168.1.1", "That is this box."},
		{"address", "203.0.113.1", "That is a gateway of this box."}, {"address", "0.0.0.0/0", "That is the address you are using."}, {"address", "fe80::1%eth0", "is not an IP address"},
		{"duration", "soon", "Write for example 30s, 5m or 2h."}, {"duration", "9", "at least 10 seconds"}, {"duration", "0", "at least 10 seconds"}, {"duration", "3000d", "10 seconds to 1 year"},
		{"reason", strings.Repeat("ä", 201), "Use at most 200 characters."}, {"reason", "a\nb", "Remove the line break"},
	} {
		form := values("address", "203.0.113.68", "reason", "spam", "duration", "1h")
		form.Set(bad.field, bad.typed)
		a := d.ask(by("admin"), "POST", "/tables/add", form)
		wantSays(t, a, bad.field, bad.says)
		for _, kept := range form {
			if !strings.Contains(unescape(a.body), kept[0]) {
				t.Errorf("%s %q: %q is gone from the form", bad.field, bad.typed, kept[0])
			}
		}
	}
	a := d.post("admin", "/tables/add", "address", "x", "reason", "a\tb", "duration", "soon")
	wantText(t, a, "3 problems")
	wantDeeds(t, d)
	wantStatus(t, d.post("admin", "/tables/add", "address", "203.0.113.68", "reason", "", "duration", "", "more", "1"), http.StatusBadRequest)
	if body := d.get("admin", "/tables/add?address=203.0.113.9&reason=%3Cb%3E").body; !strings.Contains(body, `value="203.0.113.9"`) || strings.Contains(body, "<b>") {
		t.Error("the form is not filled in, or with markup")
	}
}

func TestKeepForAnotherTime(t *testing.T) {
	d := jailed(t)
	a := d.get("admin", "/tables/keep?source=192.168.1.102%2F32&at=set%3Dlock-outs%26page%3D2")
	wantText(t, a, "Keep 192.168.1.102", "As it is, 192.168.1.102 leaves in 4 min")
	a = d.post("admin", "/tables/keep", "source", "192.168.1.102/32", "at", "set=lock-outs&page=2", "duration", "1h")
	wantStatus(t, a, http.StatusSeeOther)
	if to := a.Header.Get("Location"); to != "/tables?page=2&set=lock-outs" || said(t, a).Text != "192.168.1.102 stays shut out for 1h." {
		t.Errorf("leads to %s and says %q", to, said(t, a).Text)
	}
	a = d.post("admin", "/tables/keep", "source", "192.168.1.102/32", "at", "find=192.168.1.102", "duration", "")
	if to := a.Header.Get("Location"); to != "/tables/find?q=192.168.1.102" || said(t, a).Text != "192.168.1.102 stays shut out until somebody releases it." {
		t.Errorf("leads to %s and says %q", to, said(t, a).Text)
	}
	wantDeeds(t, d, "kept 192.168.1.102/32 1h0m0s", "kept 192.168.1.102/32 0s")
	wantSays(t, d.post("admin", "/tables/keep", "source", "192.168.1.102/32", "at", "set=lock-outs", "duration", "1"), "duration", "at least 10 seconds")
	for _, a := range []answer{d.post("admin", "/tables/keep", "source", "203.0.113.251/32", "at", "", "duration", "1h"), d.get("admin", "/tables/keep?source=203.0.113.251%2F32")} {
		wantStatus(t, a, http.StatusNotFound)
		wantText(t, a, "203.0.113.251 is not shut out any more.")
	}
}

// One field says where an address is, everywhere.
func TestFindLooksEverywhere(t *testing.T) {
	c := limited()
	end := func(s string) firewall.End { e, _ := firewall.ParseEnd(s); return e }
	c.Aliases = append(c.Aliases, firewall.Alias{Name: "INNER", Kind: firewall.Addresses, Addrs: []firewall.Entry{{End: end("192.168.1.96/28"), Note: "<i>printers</i>"}}},
		firewall.Alias{Name: "OUTER", Kind: firewall.Addresses, Addrs: []firewall.Entry{{End: end("INNER")}}})
	c.Rules[3].Src = firewall.Ends{Of: []firewall.End{end("192.168.1.50-192.168.1.110")}}
	c.Rules[0].Src = firewall.Ends{Of: []firewall.End{end("OUTER")}}
	d := jailed(t)
	d.install(c)
	a := d.get("admin", "/tables/find?q=192.168.1.102")
	wantStatus(t, a, http.StatusOK)
	wantText(t, a, "192.168.1.102 locked out 104 open, limit 100", "Release and never again", "INNER 192.168.1.96/28 (<i>printers</i>)", "OUTER by alias INNER",
		"Known bad networks source, by alias OUTER", "No mail from printers source, 192.168.1.50-192.168.1.110", "Allow LAN to any source, LAN net", "Guests stay out destination, LAN net",
		"1 rule for any source", "lease of phone a4:83:e7:00:10:22 , active", "UDP 192.168.1.102:5353 → 9.9.9.9:53")
	a = d.get("admin", "/tables/find?q=192.168.1.10")
	wantText(t, a, "192.168.1.10 is not shut out.", "WEB_SERVERS 192.168.1.10", "Web servers source, LAN net; destination, by alias WEB_SERVERS", "Web from outside leads to it", "always goes to nas", "TCP 203.0.113.77:40001 → 203.0.113.24:443 → 192.168.1.10:8443")
	wantText(t, d.get("admin", "/tables/find?q=192.168.1.1"), "Its own address on LAN.", "192.168.1.1 this box", "Names source, LAN net; destination, this box")
	wantText(t, d.get("admin", "/tables/find?q=198.51.100.9"), "198.51.100.0/24 quarantine", "BAD_NETS 198.51.100.0/24")
	wantText(t, d.get("admin", "/tables/find?q=203.0.113.105"), "203.0.113.105 is not shut out.", "It would be shut out, but the rule Guests may browse is only counting")
	wantText(t, d.get("admin", "/tables/find?q="+url.QueryEscape("2001:db8:77:1::/64")), "104 open, limit 100", "Since 14 min ago")
	wantText(t, d.get("admin", "/tables/find?q=2001:db8:77:1:a::b"), "104 open, limit 100")
	wantText(t, d.get("admin", "/tables/find?q=phone"), "192.168.1.102 phone")
	for _, q := range []string{"", "nobody", "203.0.113.300", "203.0.113.0/40", "<b>"} {
		a := d.get("admin", "/tables/find?q="+url.QueryEscape(q))
		wantStatus(t, a, http.StatusUnprocessableEntity)
		if strings.Contains(a.body, "<b>") {
			t.Error("what was typed is markup")
		}
	}
	// Release from there leads back there.
	a = d.post("admin", "/tables", "op", "release:0:192.168.1.102/32", "at", "find=192.168.1.102")
	if to := a.Header.Get("Location"); to != "/tables/find?q=192.168.1.102" {
		t.Errorf("leads to %s", to)
	}
	wantText(t, d.get("admin", "/tables/find?q=192.168.1.102"), "192.168.1.102 is not shut out.")
}

// Reasons, notes and names come from people and from the network: whatever they say is text.
func TestHostileReasonsAreText(t *testing.T) {
	c := limited()
	c.Aliases[0].Descr = `"><script>alert(1)</script>`
	c.Aliases[0].Addrs[0].Note = "<script>alert(2)</script>\u202e"
	c.Rules[1].Descr = "</a><script>alert(3)</script>"
	d := jailed(t)
	d.install(c)
	d.network.rows[2].Host = "<script>alert(4)</script>"
	for _, path := range []string{"/tables", "/tables?set=lock-outs", "/tables?q=" + url.QueryEscape("<script>alert(5)"), "/tables?set=aliases", "/tables?set=aliases&name=WEB_SERVERS", "/tables?set=automatic",
		"/tables/find?q=192.168.1.102", "/tables/find?q=192.168.1.10", "/tables/find?q=198.51.100.7", "/tables/find?q=script", "/tables/add?reason=" + url.QueryEscape("<script>alert(6)"),
		"/tables?menu=" + url.QueryEscape("<script>alert(7)"), "/tables?sort=" + url.QueryEscape("<script>alert(8)")} {
		body := d.get("admin", path).body
		for _, bad := range []string{"<script>alert", "<img src=x", "\u202e", "<b>scans"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s holds %q", path, bad)
			}
		}
	}
	wantText(t, d.get("admin", "/tables"), `"><img src=x onerror=alert(1)>`, "<b>scans</b> our mail")
}

// What a spreadsheet would take for a formula is text.
func TestExportHoldsNoFormula(t *testing.T) {
	d := jailed(t)
	for i, reason := range []string{"=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(A1)", "\tx", `a "quoted", line`} {
		d.jail.put(quarantine.Entry{Source: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(i)}), 32), Kind: quarantine.Quarantine, Reason: reason, By: "=berta", Since: time.Now()})
	}
	a := d.get("admin", "/tables/quarantine.csv?q=198.18&name=..%2Fx&sort=address")
	wantStatus(t, a, http.StatusOK)
	if h := a.Header; h.Get("Content-Disposition") != `attachment; filename="gatehouse-quarantine.csv"` || h.Get("Content-Type") != "text/csv; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers %v", h)
	}
	lines := strings.Split(strings.TrimSpace(a.body), "\r\n")
	if len(lines) != 7 || lines[0] != "source,kind,why,rule,times,since,until,packets,bytes,last packet,by" {
		t.Fatalf("%d lines: %s", len(lines), a.body)
	}
	for i, want := range []string{"198.18.0.0,quarantine,'=1+1,", "198.18.0.1,quarantine,'+cmd", "198.18.0.2,quarantine,'-2,", "198.18.0.3,quarantine,'@SUM", "198.18.0.4,quarantine,\uFFFDx", `198.18.0.5,quarantine,"a ""quoted"", line",`} {
		if !strings.HasPrefix(lines[i+1], want) || !strings.HasSuffix(lines[i+1], ",'=berta") {
			t.Errorf("line %d is %s", i+1, lines[i+1])
		}
	}
	if a := d.get("admin", "/tables/lock-outs.csv"); strings.Count(a.body, "\n") != 3 || !strings.Contains(a.body, "192.168.1.102,locked out,") {
		t.Errorf("the lock-outs are %s", a.body)
	}
	for _, path := range []string{"/tables/aliases.csv", "/tables/nothing.csv", "/tables/.csv"} {
		wantStatus(t, d.get("admin", path), http.StatusNotFound)
	}
}

func TestSettingsOfSources(t *testing.T) {
	d := newDesk(t, limited())
	body := d.get("admin", "/tables/settings").body
	if !strings.Contains(body, `value="64"`) || !strings.Contains(body, `value="65536"`) {
		t.Error("what is usual is not shown")
	}
	hash := func() string { return d.config("admin").Hash(firewall.Ref{Kind: "sources"}) }
	a := d.post("admin", "/tables/settings", "hash", hash(), "prefix6", "64", "meter", "65,536", "then", "save")
	wantStatus(t, a, http.StatusSeeOther)
	if v := d.w.View("admin"); len(v.Items) > 0 {
		t.Fatalf("an untouched form changed something: %v", v.Items)
	}
	first := hash()
	a = d.post("admin", "/tables/settings", "hash", first, "prefix6", "/56", "meter", "100 000", "then", "save")
	wantStatus(t, a, http.StatusSeeOther)
	if s := d.config("admin").Sources; s != (firewall.Sources{Prefix6: 56, Meter: 100_000}) {
		t.Errorf("saved %+v", s)
	}
	a = d.post("admin", "/tables/settings", "hash", first, "prefix6", "60", "meter", "65536", "then", "save")
	wantStatus(t, a, http.StatusConflict)
	wantText(t, a, "How sources are told apart was changed by someone else", "IPv6 prefix 56 60", "Sources per limit 100000 65536")
	for _, bad := range []struct{ field, typed, says string }{
		{"prefix6", "47", "48 to 128"}, {"prefix6", "129", "48 to 128"}, {"prefix6", "", "48 to 128"}, {"prefix6", "x", "48 to 128"}, {"prefix6", "0", "48 to 128"},
		{"meter", "3", "from 4 to 1 000 000"}, {"meter", "1000001", "from 4 to 1 000 000"}, {"meter", "many", "from 4 to 1 000 000"}, {"meter", "-5", "from 4 to 1 000 000"},
	} {
		form := values("hash", hash(), "prefix6", "64", "meter", "65536", "then", "save")
		form.Set(bad.field, bad.typed)
		wantSays(t, d.ask(by("admin"), "POST", "/tables/settings", form), bad.field, bad.says)
	}
	wantText(t, d.post("admin", "/tables/settings", "hash", hash(), "prefix6", "x", "meter", "3", "then", "save"), "2 problems")
	// The draft of one account, of nobody else.
	if s := d.config("berta").Sources; s != (firewall.Sources{}) {
		t.Errorf("berta sees %+v", s)
	}
}

func TestAliasTabListsWhatRuns(t *testing.T) {
	c := limited()
	var big []firewall.Entry
	for i := range 450 {
		big = append(big, firewall.Entry{End: firewall.End{Kind: firewall.EndAddr, Addr: netip.AddrFrom4([4]byte{10, 1, byte(i / 256), byte(i)})}, Note: fmt.Sprintf("host %d", i)})
	}
	c.Aliases = append(c.Aliases, firewall.Alias{Name: "BIG", Kind: firewall.Addresses, Descr: "Many hosts", Addrs: big})
	d := newDesk(t, c)
	a := d.get("admin", "/tables?set=aliases")
	wantText(t, a, "WEB_SERVERS 2", "BIG 450 Many hosts", "NOBODY 0")
	if strings.Contains(a.body, "MAIL") || !strings.Contains(a.body, `href="/aliases/BIG"`) {
		t.Error("shows ports, or no way to the editor")
	}
	if err := d.w.Save(t.Context(), commit.Who{Account: "admin"}, commit.AnyHash, firewall.DeleteAlias{Name: "NOBODY"}); err != nil {
		t.Fatal(err)
	}
	wantText(t, d.get("admin", "/tables?set=aliases"), "NOBODY 0") // what runs, not the draft
	a = d.get("admin", "/tables?set=aliases&name=BIG&page=3")
	wantText(t, a, "450 lines", "401–450 of 450", "10.1.1.193 host 449")
	if strings.Contains(a.body, "host 399<") || strings.Contains(a.body, `rel="next"`) {
		t.Error("the page holds more than it should")
	}
	wantText(t, d.get("admin", "/tables?set=aliases&name=BIG&q=host+44"), "11 lines of 450")
	wantText(t, d.get("admin", "/tables?set=aliases&name=BAD_NETS&q=198.51.100.77"), "1 line of 1", "198.51.100.0/24")
	wantText(t, d.get("admin", "/tables?set=aliases&name=BIG&q=nothing"), "No line matches “nothing”.")
	wantText(t, d.get("admin", "/tables?set=aliases&name=NOBODY"), "This alias is empty.")
}

func TestAutomaticTabShowsTheBoxsOwnSets(t *testing.T) {
	d := jailed(t)
	wantText(t, d.get("admin", "/tables?set=automatic"), "Web from outside new connections 55,050 of 65,536 IPv4 sources", "412 of 65,536 IPv6 sources", "192.168.1.20 an administrator was signed in there within 15 minutes 14 min",
		"203.0.113.60 released and never again 20 h 30 min", "LAN 192.168.1.1, fe80::1 192.168.1.0/24", "10.0.0.0/8", "198.18.0.0/15", "203.0.113.200 7 min")
	d = newDesk(t, home())
	wantText(t, d.get("admin", "/tables?set=automatic"), "No rule that runs has a limit.", "Nobody has to wait for the next try.")
}

func TestRulesThatOnlyCountAndFullMetersAreTold(t *testing.T) {
	d := jailed(t)
	a := d.get("admin", "/tables")
	wantText(t, a, "The rule Guests may browse is only counting: 14 sources would be here", "A meter of Web from outside is nearly full: 55,050 of 65,536 IPv4 sources.")
	if !strings.Contains(a.body, `href="/tables?q=`+string(ruleID(7))+`&amp;set=would"`) {
		t.Error("no way to those 14")
	}
	wantText(t, d.get("admin", "/tables?set=would&q="+string(ruleID(7))), "203.0.113.100", "203.0.113.113", "Only counted 14")
	d.jail.full = []quarantine.Alarm{{Rule: ruleID(1), What: firewall.OverNew, Used: 65_536, Size: 65_536, Time: time.Now()}, {Used: 60_000, Size: 65_536}}
	wantText(t, d.get("admin", "/tables"), "A meter of Web servers had no room for more than its 65,536 IPv4 sources.", "The list of those that are shut out is nearly full: 60,000 of 65,536 IPv4 sources.")
}

// While a row is in use, or the page is paused, only the line above changes.
func TestRowsInUseAreNotMoved(t *testing.T) {
	d := jailed(t)
	page := d.get("admin", "/tables").body
	_, path, _ := strings.Cut(page, `data-hold hx-get="`)
	path, _, _ = strings.Cut(path, `"`)
	path = unescape(path)
	if !strings.HasPrefix(path, "/tables?seen=") {
		t.Fatalf("refetches %q", path)
	}
	ask := func(path string) answer { return d.ask(visit{account: "admin", headers: live}, "GET", path, nil) }
	if a := ask(path); a.Header.Get("HX-Reswap") != "" || !strings.Contains(a.body, `id="e-203.0.113.77/32"`) {
		t.Error("the rows are not refetched")
	}
	for i := range 3 {
		d.jail.put(quarantine.Entry{Source: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(i)}), 32), Kind: quarantine.Quarantine, Rule: ruleID(1), What: firewall.OverNew, Limit: limit, Times: 1, Since: time.Now()})
	}
	if _, err := d.jail.Release(t.Context(), quarantine.Who{}, []netip.Prefix{netip.MustParsePrefix("203.0.113.77/32")}, quarantine.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, held := range []string{path + "&hold=1", path + "&live=off"} {
		a := ask(held)
		if a.Header.Get("HX-Reswap") != "none" || strings.Contains(a.body, "<tr") || strings.Contains(a.body, `id="tables"`) {
			t.Errorf("%s brings rows", held)
		}
		wantText(t, a, "3 new, 1 gone", "Show")
		if !strings.Contains(a.body, `hx-target="#line"`) || !strings.Contains(a.body, `id="n-quarantine" hx-swap-oob="true">5</span>`) {
			t.Errorf("%s does not bring the line and the numbers: %s", held, a.body)
		}
	}
	if a := ask("/tables?set=quarantine&fresh=1"); a.Header.Get("HX-Reswap") != "" || !strings.Contains(a.body, `id="e-198.18.0.0/32"`) {
		t.Error("Show does not show")
	}
	if body := d.get("admin", "/tables?live=off").body; !strings.Contains(body, "Paused") || !strings.Contains(body, "Go on") || !strings.Contains(body, `id="e-198.18.0.0/32"`) {
		t.Error("a paused page does not open with its rows")
	}
}

// The answer to a button stays in place: the row says that it is released, with the way back.
func TestReleasedRowKeepsItsPlaceWithUndo(t *testing.T) {
	d := jailed(t)
	a := d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", "release:1:2001:db8:77:1::/64", "at", "set=quarantine"))
	wantStatus(t, a, http.StatusOK)
	first, ghost, last := strings.Index(a.body, `id="e-203.0.113.77/32"`), strings.Index(a.body, `id="ghost"`), strings.Index(a.body, `id="e-198.51.100.0/24"`)
	if first < 0 || ghost < first || last < ghost {
		t.Errorf("the rows stand at %d, %d, %d", first, ghost, last)
	}
	_, undo, _ := strings.Cut(a.body[ghost:], `value="`)
	undo, _, _ = strings.Cut(undo, `"`)
	if !strings.HasPrefix(undo, "undo:") || !strings.HasSuffix(undo, ":2001:db8:77:1::/64") {
		t.Fatalf("Undo is %q", undo)
	}
	for _, part := range []string{`id="toasts"`, `id="badge"`, `hx-target="#bar"`, "4 shut out"} {
		if !strings.Contains(text(a.body)+a.body, part) {
			t.Errorf("the answer does not bring %s", part)
		}
	}
	a = d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", undo, "at", "set=quarantine"))
	if !strings.Contains(a.body, `data-focus>2001:db8:77:1::/64</a>`) || strings.Contains(a.body, `id="ghost"`) {
		t.Error("the row is not back, with the focus")
	}
	a = d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", undo, "at", "set=quarantine"))
	wantStatus(t, a, http.StatusConflict)
	if !strings.Contains(a.body, `role="alert"`) || strings.Contains(a.body, "<header") {
		t.Error("too late is a page in the page")
	}
	a = d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", "menu:203.0.113.77/32", "at", "set=quarantine"))
	wantText(t, a, "Release and never again Keep for… Where else it is")
	a = d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", "menu:203.0.113.77/32", "at", "menu=203.0.113.77%2F32&set=quarantine"))
	if strings.Contains(a.body, "open-menu") {
		t.Error("the second click does not close it")
	}
	if to := d.post("admin", "/tables", "op", "menu:203.0.113.77/32", "at", "set=quarantine").Header.Get("Location"); to != "/tables?menu=203.0.113.77%2F32&set=quarantine#e-203.0.113.77/32" {
		t.Errorf("without script it leads to %s", to)
	}
}

func TestDoneLatelyTellsWho(t *testing.T) {
	d := jailed(t)
	a := d.get("admin", "/tables")
	wantText(t, a, "5 min ago berta released 203.0.113.60 exempt for 1d Shut out again", "3 h ago admin released 1,204 sources", "26 h ago berta added 198.51.100.0/24")
	if strings.Contains(unescape(text(a.body)), "locked out 203.0.113.9") || !strings.Contains(a.body, `href="/tables/add?address=203.0.113.60"`) {
		t.Error("tells of limits, or not the way back")
	}
}

// full is as many sources as the kernel's list holds.
func full(j *jail) {
	now := time.Now()
	var all []quarantine.Entry
	for i := range 65_536 {
		all = append(all, quarantine.Entry{Source: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 32), Kind: quarantine.Quarantine, Rule: ruleID(1), What: firewall.OverNew, Limit: limit,
			Times: 1 + i%5, Since: now.Add(-time.Duration(i) * time.Second), Packets: uint64(i), Bytes: uint64(60 * i), Last: now})
	}
	j.put(all...)
}

// A full list is shown like a short one: 200 rows a page, sorted and searched whole.
func TestTablesShowAFullListPageByPage(t *testing.T) {
	d := newDesk(t, limited())
	full(&d.jail)
	rows := func(a answer) int { return strings.Count(a.body, `<tr id="e-`) }
	began := time.Now()
	a := d.get("admin", "/tables?sort=packets&desc=1")
	took := time.Since(began)
	if rows(a) != 200 || !strings.Contains(a.body, `id="e-198.18.255.255/32"`) || strings.Contains(a.body, `rel="prev"`) {
		t.Errorf("the first page has %d rows", rows(a))
	}
	wantText(t, a, "65,536 entries of at most 65,536", "1–200 of 65,536", "Release all 65,536 addresses…", "Quarantine 65,536")
	began = time.Now()
	d.jail.List(quarantine.Query{Set: quarantine.InQuarantine, Sort: "packets", Desc: true})
	t.Logf("a page of 65,536 took %v, of which the list %v; %d KB", took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), len(a.body)/1000)
	a = d.get("admin", "/tables?page=328&sort=address")
	wantText(t, a, "65,401–65,536 of 65,536")
	if rows(a) != 136 || strings.Contains(a.body, `rel="next"`) {
		t.Errorf("the last page has %d rows", rows(a))
	}
	wantText(t, d.get("admin", "/tables?page=5000"), "65,401–65,536 of 65,536") // what stood there is gone
	wantText(t, d.get("admin", "/tables?q=198.18.7.&page=2"), "201–256 of 256", "Release all 256 found", "256 found in 65,536 entries Clear")
	// Released whole, in one batch.
	upto := fmt.Sprint(time.Now().UnixNano())
	if toast := said(t, d.post("admin", "/tables", "op", "all", "upto", upto, "at", "set=quarantine&q=198.18.7.&page=2")); toast.Text != "Released 256 sources." {
		t.Errorf("says %q", toast.Text)
	}
	if a := d.get("admin", "/tables/quarantine.csv"); strings.Count(a.body, "\n") != 65_536-256+1 {
		t.Errorf("the file has %d lines", strings.Count(a.body, "\n"))
	}
}
