package web

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
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

// A heading sorts by its column, and the other way round when it does already.
func TestTablesSortByEveryColumn(t *testing.T) {
	d := jailed(t)
	order := func(path string) (got []string) {
		for _, part := range strings.Split(d.get("admin", path).body, `<tr id="e-`)[1:] {
			src, _, _ := strings.Cut(part, `"`)
			got = append(got, src)
		}
		return got
	}
	six, one, net := "2001:db8:77:1::/64", "203.0.113.77/32", "198.51.100.0/24"
	for query, want := range map[string][]string{"": {one, six, net}, "&sort=since": {net, six, one}, "&sort=packets&desc=1": {net, one, six}, "&sort=packets": {six, one, net},
		"&sort=times&desc=1": {one, six, net}, "&sort=address": {net, one, six}, "&sort=nonsense": {one, six, net}} {
		if got := order("/tables?set=quarantine" + query); !slices.Equal(got, want) {
			t.Errorf("%q gives %v, want %v", query, got, want)
		}
	}
	body := d.get("admin", "/tables?sort=packets&desc=1&q=0").body
	for _, part := range []string{`aria-sort="descending"><a href="/tables?q=0&amp;set=quarantine&amp;sort=packets">Dropped</a>`, `<a href="/tables?q=0&amp;set=quarantine">Since</a>`,
		`<a href="/tables?q=0&amp;set=quarantine&amp;sort=address">Address</a>`} {
		if !strings.Contains(body, part) {
			t.Errorf("no heading %s", part)
		}
	}
	if n := strings.Count(body, "aria-sort"); n != 1 {
		t.Errorf("%d columns say that they sort", n)
	}
}
