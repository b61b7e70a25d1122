package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"gatehouse/firewall"
)

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
