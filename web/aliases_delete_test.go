package web

import (
	"net/http"
	"strings"
	"testing"
)

func TestUnusedAliasIsDeletedAndBroughtBack(t *testing.T) {
	d := newDesk(t, home())
	old := d.get("admin", "/aliases").body
	a := d.post("admin", "/aliases", "op", opOf(t, old, "delete", "NOBODY"))
	wantStatus(t, a, http.StatusSeeOther)
	if said := d.toast(a); !strings.Contains(said, "Deleted: NOBODY.") || !strings.Contains(said, "alias/NOBODY") {
		t.Errorf("the toast says %q, or has no Undo", said)
	}
	if _, there := d.config("admin").Alias("NOBODY"); there {
		t.Error("still there")
	}
	wantStatus(t, d.post("admin", "/aliases", "op", opOf(t, old, "delete", "NOBODY")), http.StatusNotFound)
	wantWords(t, d.get("admin", "/aliases"), "NOBODY deleted")
	wantStatus(t, d.post("admin", "/aliases", "op", opOf(t, d.get("admin", "/aliases").body, "undo", "NOBODY")), http.StatusSeeOther)
	if v := d.w.View("admin"); v.Config.Stamp() != v.Head.Stamp() {
		t.Error("undo does not bring it back")
	}
	// A page that was open while somebody changed it deletes nothing.
	form := aliasForm("name", "NOBODY", "hash", d.aliasHash("NOBODY"), "items", "10.0.0.1")
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/NOBODY", form), http.StatusSeeOther)
	a = d.post("admin", "/aliases", "op", opOf(t, old, "delete", "NOBODY"))
	wantStatus(t, a, http.StatusConflict)
	wantWords(t, a, "deleted")
	for _, op := range []string{"", "delete", "explode:NOBODY", "delete:"} {
		wantStatus(t, d.post("admin", "/aliases", "op", op), http.StatusBadRequest)
	}
}

// A deletion that would leave rules without their alias names them, and offers another in its place.
func TestUsedAliasIsReplaced(t *testing.T) {
	d := newDesk(t, home())
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new", aliasForm("name", "GROUP", "items", "BAD_NETS\n10.9.9.9")), http.StatusSeeOther)
	a := d.get("admin", "/aliases/BAD_NETS/delete")
	wantStatus(t, a, http.StatusOK)
	wantWords(t, a, "Used by 1 rule, 1 other alias", "Rule “Known bad networks”", "Alias GROUP", "WEB_SERVERS (2 entries)", "NOBODY (0 entries)")
	for _, not := range []string{`value="MAIL"`, `value="GROUP"`, `value="BAD_NETS"`} { // another kind; around it; itself
		if strings.Contains(a.body, not) {
			t.Errorf("offers %s", not)
		}
	}
	hash := d.aliasHash("BAD_NETS")
	for by, says := range map[string]string{"": "Choose the alias", "MAIL": "MAIL holds ports, not addresses", "GROUP": "GROUP contains BAD_NETS and cannot take its place", "NOPE": "The alias NOPE is not there"} {
		wantSays(t, d.post("admin", "/aliases/BAD_NETS/delete", "hash", hash, "by", by), "by", says)
	}
	wantSays(t, d.post("admin", "/aliases/BAD_NETS/delete", "hash", hash, "by", "BAD_NETS"), "by", "cannot take its own place")
	before := d.config("admin")
	a = d.post("admin", "/aliases/BAD_NETS/delete", "hash", hash, "by", "WEB_SERVERS")
	wantStatus(t, a, http.StatusSeeOther)
	said := d.toast(a)
	if !strings.Contains(said, "WEB_SERVERS took the place of BAD_NETS in 1 rule, 1 other alias; BAD_NETS is deleted.") || !strings.Contains(said, "alias/BAD_NETS") {
		t.Errorf("the toast says %q, or has no Undo", said)
	}
	c := d.config("admin")
	r, _ := c.Rule(ruleID(0))
	g, _ := c.Alias("GROUP")
	if r.Src.String() != "WEB_SERVERS" || g.Lines() != "WEB_SERVERS\n10.9.9.9\n" {
		t.Errorf("the rule names %s, the group %q", r.Src, g.Lines())
	}
	if n := len(d.w.View("admin").Items); n != 2 { // the group, and this
		t.Errorf("%d changes in the draft", n)
	}
	wantStatus(t, d.post("admin", "/discard", "undo", "alias/BAD_NETS"), http.StatusSeeOther)
	if got := d.config("admin"); got.Stamp() != before.Stamp() {
		t.Error("one undo does not bring everything back")
	}
	// The button of a page from before somebody used the alias asks as well.
	old := d.get("admin", "/aliases").body
	op := opOf(t, old, "delete", "NOBODY")
	form := forwardForm("only", "1", "from", "NOBODY")
	wantStatus(t, d.ask(by("admin"), "POST", "/forwards/new", form), http.StatusSeeOther)
	a = d.post("admin", "/aliases", "op", op)
	wantStatus(t, a, http.StatusUnprocessableEntity)
	wantWords(t, a, "Forward “SSH”: There is no alias or interface `NOBODY`.", "Replace it everywhere")
	wantStatus(t, d.post("admin", "/aliases/NOBODY/delete", "hash", "old", "by", "WEB_SERVERS"), http.StatusConflict)
}

func TestLastAliasOfItsKindCannotBeReplaced(t *testing.T) {
	d := newDesk(t, home())
	wantWords(t, d.get("admin", "/aliases/MAIL/delete"), "There is no other alias of ports that could take its place.")
	wantWords(t, d.get("admin", "/aliases/NOBODY/delete"), "Nobody uses NOBODY.")
}

func TestAliasCopyAndLinksFillTheEditor(t *testing.T) {
	d := newDesk(t, home())
	a := d.get("admin", "/aliases/new?copy=MAIL")
	wantWords(t, a, "25 587 # submission")
	if !strings.Contains(a.body, `value="MAIL_2"`) || !strings.Contains(a.body, `<option value="ports" selected`) {
		t.Error("the copy has another name and the same kind")
	}
	a = d.get("admin", "/aliases/new?name=NEVER_QUARANTINE&items=192.168.1.20&descr=us")
	if !strings.Contains(a.body, `value="NEVER_QUARANTINE"`) || !strings.Contains(a.body, `value="us"`) || !strings.Contains(says(a), "192.168.1.20") {
		t.Error("a link does not fill the editor")
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new", aliasForm("name", "NEVER_QUARANTINE", "items", "192.168.1.20")), http.StatusSeeOther)
	wantWords(t, d.get("admin", "/aliases"), "NEVER_QUARANTINE new addresses 1 1 IPv4 address")
	// Rules and forwards suggest it.
	for _, path := range []string{"/rules/new?in=LAN", "/forwards/new"} {
		if !strings.Contains(d.get("admin", path).body, `<option value="NEVER_QUARANTINE">`) {
			t.Errorf("%s does not suggest it", path)
		}
	}
}

// T20: whatever stands in an alias is text, on every page that shows it.
func TestHostileAliasIsText(t *testing.T) {
	d := newDesk(t, home())
	evil := `"><script>alert(1)</script><img src=x onerror=alert(1)>`
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new", aliasForm("descr", evil, "items", "10.0.0.1 # "+evil+"\n10.0.0.1/33 # </textarea>"+evil, "skip", "1")), http.StatusSeeOther)
	bad := aliasForm("name", "B", "items", evil+"\n</textarea>"+evil+"\nip,"+evil)
	wrong := d.ask(by("admin"), "POST", "/aliases/new", bad)
	wantStatus(t, wrong, http.StatusUnprocessableEntity)
	pages := map[string]answer{"wrong": wrong, "check": d.ask(by("admin"), "POST", "/aliases/new/check", bad)}
	for _, path := range []string{"/aliases", "/aliases/OFFICES", "/aliases/OFFICES/delete", "/aliases/new?copy=OFFICES", "/aliases?q=%3Cscript%3E", "/aliases/new?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&items=%3C/textarea%3E%3Cscript%3Ealert(1)%3C/script%3E", "/review"} {
		pages[path] = d.get("admin", path)
	}
	a, _ := d.config("admin").Alias("OFFICES")
	theirs := aliasForm("hash", d.aliasHash("OFFICES"), "items", "10.0.0.2 # "+evil)
	theirs.Set("hash", "old")
	pages["conflict"] = d.ask(by("admin"), "POST", "/aliases/OFFICES", theirs)
	for name, p := range pages {
		if strings.Contains(p.body, "<script>alert") || strings.Contains(p.body, "<img src=x") {
			t.Errorf("%s holds markup of the alias", name)
		}
	}
	if len(a.Addrs) != 1 || a.Addrs[0].Note != evil || a.Descr != evil {
		t.Errorf("saved %+v", a)
	}
}
