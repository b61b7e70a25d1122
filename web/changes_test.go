package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/changes"
)

// edited is a desk on which an account has switched a rule off in its draft.
func edited(t *testing.T, account string) *desk {
	t.Helper()
	d := newDesk(t, home())
	d.toggle(account, ruleID(1))
	return d
}

func (d *desk) toggle(account string, id firewall.ID) {
	d.t.Helper()
	r, _ := d.config(account).Rule(id)
	r.On = !r.On
	if err := d.w.Save(d.t.Context(), commit.Who{Account: account, Door: "web"}, commit.AnyHash, firewall.UpdateRule{Rule: r}); err != nil {
		d.t.Fatal(err)
	}
}

// apply presses Apply as the bar shows it.
func (d *desk) apply(account string, more ...string) answer {
	d.t.Helper()
	return d.post(account, "/apply", append([]string{"draft", changes.Version(d.w.View(account))}, more...)...)
}

// late is somebody on a connection that was accepted well after the apply.
func late(account string) visit {
	return visit{account: account, since: time.Now().Add(10 * time.Second)}
}

func TestReviewTellsEverythingBeforeApply(t *testing.T) {
	d := edited(t, "admin")
	a := d.get("admin", "/review")
	wantStatus(t, a, http.StatusOK)
	for _, says := range []string{"1 pending change", "Change rule: Web servers", "You keep reaching these pages from your address 192.168.1.20", "An undo cannot bring them back", "The compiled rules", "Apply and test"} {
		if !strings.Contains(text(a.body), says) {
			t.Errorf("no word of %q: %s", says, text(a.body))
		}
	}
	if !strings.Contains(a.body, "<del>-") {
		t.Error("no difference of the rules")
	}
}

func TestApplyClosesItsConnectionAndWaitsForConfirm(t *testing.T) {
	d := edited(t, "admin")
	a := d.apply("admin")
	wantStatus(t, a, http.StatusOK)
	if a.Header.Get("Connection") != "close" {
		t.Error("the connection stays, so the next request proves nothing")
	}
	v := d.w.View("admin")
	if v.Trial == nil || d.applied != 1 || len(v.Items) != 0 {
		t.Fatalf("trial %v, %d applies, %d items", v.Trial, d.applied, len(v.Items))
	}
	for _, form := range []string{`action="/confirm"`, `action="/undo"`, `action="/extend"`, `data-auto="1"`} {
		if !strings.Contains(a.body, form) {
			t.Errorf("no %s", form)
		}
	}
}

func poll(t *testing.T, a answer) (state string, left int) {
	t.Helper()
	var got struct {
		State string `json:"state"`
		Left  int    `json:"left"`
	}
	if err := json.Unmarshal([]byte(a.body), &got); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	if a.Header.Get("Connection") != "close" {
		t.Error("a poll keeps its connection")
	}
	return got.State, got.Left
}

func TestPollConfirmsOnlyOnANewConnection(t *testing.T) {
	d := edited(t, "admin")
	wantStatus(t, d.apply("admin"), http.StatusOK)
	n := fmt.Sprint(d.w.View("admin").Trial.Revision)
	old := visit{account: "admin", since: time.Now().Add(-time.Minute)}
	form := values("revision", n, "token", "", "poll", "1")
	a := d.ask(old, "POST", "/confirm", form)
	wantStatus(t, a, http.StatusConflict)
	if state, left := poll(t, a); state != "testing" || left < 1 || left > 60 {
		t.Errorf("%s, %d s left", state, left)
	}
	if d.w.View("admin").Trial == nil {
		t.Fatal("an old connection confirmed it")
	}
	if state, _ := poll(t, d.ask(late("admin"), "POST", "/confirm", form)); state != "confirmed" {
		t.Errorf("on a new connection: %s", state)
	}
	if v := d.w.View("admin"); v.Trial != nil || v.Undo == nil || v.Revision.State != commit.Confirmed {
		t.Error("it is not confirmed, or cannot be undone")
	}
	wantStatus(t, d.ask(late("admin"), "POST", "/undo", values("revision", n)), http.StatusSeeOther)
	if state, _ := poll(t, d.ask(late("admin"), "POST", "/confirm", form)); state != "reverted" {
		t.Errorf("after the undo: %s", state)
	}
	if v := d.w.View("admin"); len(v.Items) != 1 {
		t.Error("the changes are not the draft again")
	}
}

func TestKeepCountsOnlyOnANewConnection(t *testing.T) {
	d := edited(t, "admin")
	wantStatus(t, d.apply("admin"), http.StatusOK)
	n := fmt.Sprint(d.w.View("admin").Trial.Revision)
	a := d.ask(visit{account: "admin", since: time.Now().Add(-time.Minute)}, "POST", "/confirm", values("revision", n, "token", ""))
	wantStatus(t, a, http.StatusConflict)
	if a.Header.Get("Connection") != "close" || !strings.Contains(a.body, `action="/confirm"`) || d.w.View("admin").Trial == nil {
		t.Error("the old connection stays, there is no second try, or it was confirmed")
	}
	wantStatus(t, d.ask(late("admin"), "POST", "/confirm", values("revision", n, "token", "")), http.StatusSeeOther)
	if v := d.w.View("admin"); v.Revision.State != commit.Confirmed || v.Revision.Auto {
		t.Errorf("%+v", v.Revision)
	}
}

// moveLAN gives the LAN another address in the draft: then only a click counts.
func (d *desk) moveLAN(account string) {
	d.t.Helper()
	lan, _ := d.config(account).Interface("LAN")
	lan.V4.Addr = netip.MustParsePrefix("192.168.77.1/24")
	scope := firewall.PutScope{Scope: firewall.Scope{In: "LAN"}}
	var del []firewall.Change
	for _, s := range d.config(account).Scopes[0].Statics {
		del = append(del, firewall.DeleteStatic{ID: s.ID})
	}
	all := append([]firewall.Change{scope}, append(del, firewall.UpdateInterface{Name: "LAN", Interface: lan})...)
	if err := d.w.Save(d.t.Context(), commit.Who{Account: account, Door: "web"}, commit.AnyHash, all...); err != nil {
		d.t.Fatal(err)
	}
}

func TestNewAddressIsConfirmedByItsLinkWithoutLogin(t *testing.T) {
	d := newDesk(t, home())
	d.moveLAN("admin")
	if a := d.get("admin", "/review"); !strings.Contains(text(a.body), "must be kept by a click within 3:00") {
		t.Errorf("the review does not say so: %s", text(a.body))
	}
	a := d.apply("admin")
	wantStatus(t, a, http.StatusOK)
	_, rest, ok := strings.Cut(a.body, `https://192.168.77.1/confirm#c=`)
	if !ok {
		t.Fatalf("no link to the new address: %s", text(a.body))
	}
	token, _, _ := strings.Cut(rest, `"`)
	n := fmt.Sprint(d.w.View("admin").Trial.Revision)
	if a := d.ask(late("admin"), "POST", "/confirm", values("revision", n, "token", "", "poll", "1")); a.StatusCode != http.StatusOK {
		t.Errorf("poll: %s", a.Status)
	} else if state, left := poll(t, a); state != "testing" || left < 100 {
		t.Errorf("poll: %s, %d s", state, left)
	}
	if ask := d.ask(late(""), "GET", "/confirm", nil); ask.StatusCode != http.StatusOK || strings.Contains(ask.body, token) || strings.Contains(ask.body, "admin") {
		t.Errorf("the page at the new address is closed, or says too much: %s", text(ask.body))
	}
	wrong := d.ask(late(""), "POST", "/confirm", values("revision", "", "token", "GUESSED"))
	wantStatus(t, wrong, http.StatusForbidden)
	if strings.Contains(wrong.body, "admin") {
		t.Error("a stranger learns who is testing")
	}
	wantStatus(t, d.ask(late(""), "POST", "/confirm", values("revision", "", "token", token)), http.StatusOK)
	if v := d.w.View("admin"); v.Trial != nil || v.Revision.State != commit.Confirmed {
		t.Error("not confirmed")
	}
	wantStatus(t, d.ask(late(""), "POST", "/confirm", values("revision", "", "token", token)), http.StatusForbidden)
}

func TestSomebodyElseWaitsWhileARevisionIsTested(t *testing.T) {
	d := edited(t, "admin")
	d.toggle("berta", ruleID(3))
	wantStatus(t, d.apply("admin"), http.StatusOK)
	a := d.apply("berta")
	wantStatus(t, a, http.StatusConflict)
	if said := text(a.body); !strings.Contains(said, "admin is testing revision 2, ") || !strings.Contains(said, " left") {
		t.Error(said)
	}
	if said := text(d.get("berta", "/review").body); !strings.Contains(said, "dmin is testing revision 2") || strings.Contains(said, "Apply and test") {
		t.Error(said)
	}
	for _, path := range []string{"/confirm", "/undo", "/extend"} {
		wantStatus(t, d.ask(late("berta"), "POST", path, values("revision", "2", "token", "")), http.StatusConflict)
	}
	wantStatus(t, d.post("berta", "/rules", "op", opOf(t, d.get("berta", "/rules?tab=GUEST").body, "toggle", ruleID(7)), "tab", "GUEST", "q", ""), http.StatusSeeOther)
	if d.w.View("admin").Trial == nil || d.w.View("berta").Objects != 2 {
		t.Error("the test ended, or editing has to wait too")
	}
}

func TestShutOutNeedsTheRedButton(t *testing.T) {
	d := edited(t, "admin")
	d.reaches = func(_ firewall.Config, who commit.Who) (bool, string) {
		return false, "The web pages are blocked by “Web servers”."
	}
	a := d.get("admin", "/review")
	for _, says := range []string{"This would shut you out: your address is 192.168.1.20.", "blocked by “Web servers”", "Apply anyway (reverts in 60 s)"} {
		if !strings.Contains(text(a.body), says) {
			t.Errorf("no word of %q: %s", says, text(a.body))
		}
	}
	a = d.apply("admin") // the bar's button
	wantStatus(t, a, http.StatusSeeOther)
	if a.Header.Get("Location") != "/review" || d.applied != 0 {
		t.Error("it was applied without the warning")
	}
	form := ruleForm("then", "apply")
	if a := d.ask(by("admin"), "POST", "/rules/new", form); a.Header.Get("Location") != "/review" || d.applied != 0 {
		t.Error("save and apply shuts out without the warning")
	}
	wantStatus(t, d.apply("admin", "anyway", "1"), http.StatusOK)
	if d.applied != 1 {
		t.Error("not applied")
	}
}

func TestSaveAndApplyDoesBoth(t *testing.T) {
	d := newDesk(t, home())
	a := d.ask(by("admin"), "POST", "/rules/new", ruleForm("then", "apply"))
	wantStatus(t, a, http.StatusOK)
	running, rev := d.w.Running()
	if d.applied != 1 || rev.State != commit.Pending || len(running.Rules) != len(home().Rules)+1 || a.Header.Get("Connection") != "close" {
		t.Errorf("%d applies, %s, %d rules", d.applied, rev.State, len(running.Rules))
	}
}

func TestButtonsOfAnOldPageDoNothing(t *testing.T) {
	d := edited(t, "admin")
	old := changes.Version(d.w.View("admin"))
	d.toggle("admin", ruleID(3))
	for _, path := range []string{"/apply", "/discard"} {
		a := d.post("admin", path, "draft", old)
		wantStatus(t, a, http.StatusConflict)
		wantStatus(t, d.post("admin", path, "draft", ""), http.StatusConflict)
	}
	if d.applied != 0 || d.w.View("admin").Objects != 2 {
		t.Error("something was done")
	}
	wantStatus(t, d.post("admin", "/discard", "draft", changes.Version(d.w.View("admin"))), http.StatusSeeOther)
	if d.w.View("admin").Objects != 0 {
		t.Error("not discarded")
	}
	wantStatus(t, d.apply("admin"), http.StatusConflict) // nothing to apply
}

func TestDiscardRefusesWhatALaterChangeNeeds(t *testing.T) {
	d := newDesk(t, home())
	admin := commit.Who{Account: "admin", Door: "web"}
	alias := firewall.Alias{Name: "PRINTERS", Kind: firewall.Addresses}
	r, _ := d.config("admin").Rule(ruleID(3))
	r.Src = firewall.Ends{Of: []firewall.End{{Kind: firewall.EndAlias, Name: "PRINTERS"}}}
	for _, c := range []firewall.Change{firewall.AddAlias{Alias: alias}, firewall.UpdateRule{Rule: r}} {
		if err := d.w.Save(t.Context(), admin, commit.AnyHash, c); err != nil {
			t.Fatal(err)
		}
	}
	a := d.post("admin", "/discard", "ref", "alias/PRINTERS")
	wantStatus(t, a, http.StatusConflict)
	if !strings.Contains(text(a.body), "No mail from printers") {
		t.Errorf("the one that needs it is not named: %s", text(a.body))
	}
	wantStatus(t, d.post("admin", "/discard", "ref", "rule/"+string(ruleID(3))), http.StatusSeeOther)
	wantStatus(t, d.post("admin", "/discard", "ref", "alias/PRINTERS"), http.StatusSeeOther)
}

func TestRefusalOfTheKernelIsShownBeforeAnythingChanges(t *testing.T) {
	d := edited(t, "admin")
	d.dry = errors.New("no such file or directory")
	if a := d.get("admin", "/review"); !strings.Contains(text(a.body), "The kernel refuses this draft") || strings.Contains(a.body, "Apply and test") {
		t.Error(text(a.body))
	}
	wantStatus(t, d.apply("admin"), http.StatusUnprocessableEntity)
	if d.applied != 0 {
		t.Error("it was applied")
	}
}

func TestDraftThatFitsNoMoreListsWhatDoesNotFit(t *testing.T) {
	d := edited(t, "admin")
	d.toggle("admin", ruleID(3))
	berta := commit.Who{Account: "berta", Door: "web"}
	if err := d.w.Save(t.Context(), berta, commit.AnyHash, firewall.DeleteRule{ID: ruleID(1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.w.Apply(t.Context(), berta, commit.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := d.w.Confirm(t.Context(), berta, "", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	a := d.get("admin", "/review")
	wantStatus(t, a, http.StatusOK)
	if said := text(a.body); strings.Count(said, "Does not fit:") != 1 || strings.Contains(said, "Apply and test") {
		t.Error(said)
	}
	wantStatus(t, d.apply("admin"), http.StatusConflict)
	wantStatus(t, d.post("admin", "/discard", "ref", "rule/"+string(ruleID(1))), http.StatusSeeOther)
	wantStatus(t, d.apply("admin"), http.StatusOK)
}

func TestExtendGivesAMinuteThreeTimes(t *testing.T) {
	d := edited(t, "admin")
	wantStatus(t, d.apply("admin"), http.StatusOK)
	n := fmt.Sprint(d.w.View("admin").Trial.Revision)
	was := d.w.View("admin").Trial.Deadline
	for range 3 {
		wantStatus(t, d.post("admin", "/extend", "revision", n, "token", ""), http.StatusSeeOther)
	}
	if got := d.w.View("admin").Trial.Deadline.Sub(was); got != 3*time.Minute {
		t.Errorf("%v more", got)
	}
	wantStatus(t, d.post("admin", "/extend", "revision", n, "token", ""), http.StatusConflict)
	a := d.get("admin", "/applied")
	if said := text(a.body); !strings.Contains(said, "is running, and not kept yet") || strings.Contains(said, "One minute more") {
		t.Error(said)
	}
	wantStatus(t, d.ask(late("admin"), "POST", "/undo", values("revision", n, "token", "")), http.StatusSeeOther)
	if said := text(d.get("admin", "/applied").body); !strings.Contains(said, "Taken back") {
		t.Error(said)
	}
	if said := text(d.get("admin", "/review").body); !strings.Contains(said, "These changes are yours again") {
		t.Error(said)
	}
}

func TestPagesOfTheDraftNeedASession(t *testing.T) {
	d := edited(t, "admin")
	for _, path := range []string{"/rules", "/rules/new", "/forwards", "/review", "/applied"} {
		wantStatus(t, d.get("", path), http.StatusSeeOther)
	}
	for _, path := range []string{"/rules", "/rules/new", "/forwards", "/discard", "/apply", "/extend"} {
		wantStatus(t, d.post("", path, "draft", "x"), http.StatusUnauthorized)
	}
	if a := d.ask(late(""), "POST", "/undo", values("revision", "1", "token", "")); a.StatusCode == http.StatusSeeOther || a.StatusCode == http.StatusOK {
		t.Errorf("undo by a stranger: %s", a.Status)
	}
	if d.w.View("admin").Objects != 1 {
		t.Error("something was done")
	}
}
