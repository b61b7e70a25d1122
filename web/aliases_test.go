package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/services/commit"
)

// aliasForm is a good new alias, with changes.
func aliasForm(pairs ...string) url.Values {
	v := values("hash", "", "name", "OFFICES", "kind", "addresses", "descr", "", "items", "203.0.113.7", "mode", "add", "file", "", "then", "save")
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

func aliasRef(name string) firewall.Ref { return firewall.Ref{Kind: "alias", Key: name} }

// hashOf is the hash that an open editor of the alias holds.
func (d *desk) aliasHash(name string) string { return d.config("admin").Hash(aliasRef(name)) }

// says is what a page says, as a person reads it.
func says(a answer) string { return unescape(text(a.body)) }

func wantWords(t *testing.T, a answer, words ...string) {
	t.Helper()
	body := says(a)
	for _, w := range words {
		if !strings.Contains(body, w) {
			t.Errorf("no word of %q: %s", w, body)
		}
	}
}

func TestAliasListShowsWhatAliasesAreFor(t *testing.T) {
	d := newDesk(t, home())
	a := d.get("admin", "/aliases")
	wantStatus(t, a, http.StatusOK)
	wantWords(t, a, "WEB_SERVERS addresses 2 2 IPv4 addresses Rule “Web servers”", "BAD_NETS addresses 1 256 IPv4 addresses Rule “Known bad networks”",
		"NOBODY addresses 0 nobody", "MAIL ports 2 2 ports Rule “No mail from printers”", "Aliases")
	if !strings.Contains(a.body, `href="/aliases" aria-current="page"`) && !strings.Contains(a.body, `aria-current="page"`) {
		t.Error("the menu does not say where we are")
	}
	for q, want := range map[string]string{"bad": "BAD_NETS", "198.51.100.77": "BAD_NETS", "submission": "MAIL", "192.168.1.1": "WEB_SERVERS", "587": "MAIL"} {
		body := d.get("admin", "/aliases?q="+q).body
		for _, name := range []string{"WEB_SERVERS", "BAD_NETS", "NOBODY", "MAIL"} {
			// An address finds what it falls under, not what it is the beginning of.
			if got := strings.Contains(body, `id="a-`+name+`"`); got != (name == want) && q != "192.168.1.1" {
				t.Errorf("%s: %s is shown: %v", q, name, got)
			}
		}
	}
	wantWords(t, d.get("admin", "/aliases?q=192.168.1.1"), "No alias holds “192.168.1.1”")
	part := d.ask(visit{account: "admin", headers: map[string]string{"HX-Request": "true", "HX-Request-Type": "partial"}}, "GET", "/aliases?q=mail", nil)
	if strings.Contains(part.body, "<header") || !strings.Contains(part.body, `id="a-MAIL"`) {
		t.Errorf("the search wants the list alone: %s", text(part.body))
	}
	fresh := firewall.Factory()
	fresh.System.Host = "fw1"
	empty := newDesk(t, fresh)
	wantWords(t, empty.get("admin", "/aliases"), "There is no alias yet.")
}

// C02: overlapping entries are kept and noted, and one of them can go.
func TestC02AliasEditorKeepsOverlappingEntries(t *testing.T) {
	d := newDesk(t, home())
	form := aliasForm("name", "OVERLAP", "items", "198.51.100.0/24, 198.51.100.7, 198.51.100.200-198.51.101.10")
	wantWords(t, d.ask(by("admin"), "POST", "/aliases/new/check", form), "3 entries, 1 redundant 267 IPv4 addresses", "Redundant, and kept: `198.51.100.7` is inside `198.51.100.0/24`.")
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new", form), http.StatusSeeOther)
	a, _ := d.config("admin").Alias("OVERLAP")
	if got := a.Lines(); got != "198.51.100.0/24\n198.51.100.7\n198.51.100.200-198.51.101.10\n" {
		t.Errorf("saved %q", got)
	}
	page := d.get("admin", "/aliases/OVERLAP")
	wantWords(t, page, "198.51.100.0/24 198.51.100.7 198.51.100.200-198.51.101.10", "3 entries, 1 redundant")
	form = aliasForm("name", "OVERLAP", "hash", d.aliasHash("OVERLAP"), "items", "198.51.100.7\r\n198.51.100.200-198.51.101.10\r\n")
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/OVERLAP", form), http.StatusSeeOther)
	if a, _ = d.config("admin").Alias("OVERLAP"); a.Lines() != "198.51.100.7\n198.51.100.200-198.51.101.10\n" {
		t.Errorf("saved %q", a.Lines())
	}
	six := aliasForm("name", "OVERLAP6", "items", "2001:db8:1::/64\n2001:db8:1::9")
	wantWords(t, d.ask(by("admin"), "POST", "/aliases/new/check", six), "2 entries, 1 redundant 2^64 IPv6 addresses", "`2001:db8:1::9` is inside `2001:db8:1::/64`")
}

// C03: ranges that are not on bit borders are kept as typed, and counted.
func TestC03AliasEditorKeepsRanges(t *testing.T) {
	d := newDesk(t, home())
	form := aliasForm("name", "RANGES", "items", "198.18.220.0-198.18.222.200\n198.18.234.124\n198.18.224.0/20\n198.18.230.0/24\n 192.0.2.10 - 192.0.2.12 ")
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new", form), http.StatusSeeOther)
	a, _ := d.config("admin").Alias("RANGES")
	if got := strings.Fields(a.Lines()); !slices.Equal(got, []string{"198.18.220.0-198.18.222.200", "198.18.234.124", "198.18.224.0/20", "198.18.230.0/24", "192.0.2.10-192.0.2.12"}) {
		t.Errorf("saved %v", got)
	}
	wantWords(t, d.get("admin", "/aliases/RANGES"), "5 entries, 2 redundant 4,812 IPv4 addresses") // 713 + 4,096 + 3
	wantWords(t, d.get("admin", "/aliases"), "RANGES new addresses 5 4,812 IPv4 addresses")
}

func TestAliasEditorRefusesBadLinesUntilTheyAreMendedOrSkipped(t *testing.T) {
	d := newDesk(t, home())
	var lines []string
	for i := range 412 {
		lines = append(lines, fmt.Sprintf("10.0.%d.%d", i/200, i%200))
	}
	lines[16] = "10.0.0.300"
	lines = append(lines, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.2.200")
	form := aliasForm("items", strings.Join(lines, "\r\n"))
	wantWords(t, d.ask(by("admin"), "POST", "/aliases/new/check", form), "412 entries, 3 duplicates removed, 1 problem: line 17 `10.0.0.300`", "Skip bad lines")
	a := d.ask(by("admin"), "POST", "/aliases/new", form)
	wantSays(t, a, "items", "Line 17: `10.0.0.300` is not an IP address.")
	if !strings.Contains(a.body, "10.0.0.300\r\n10.0.0.17") {
		t.Error("what was typed is gone")
	}
	if len(d.w.View("admin").Items) > 0 {
		t.Error("it was saved")
	}
	form.Set("skip", "1")
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new", form), http.StatusSeeOther)
	if a, _ := d.config("admin").Alias("OFFICES"); len(a.Addrs) != 412 {
		t.Errorf("%d entries", len(a.Addrs))
	}
	many := aliasForm("name", "MANY", "items", strings.Repeat("10.0.0.300\n", 25))
	wantSays(t, d.ask(by("admin"), "POST", "/aliases/new", many), "items", "And 15 problems more. Mend them, or tick “Skip bad lines”.")
}

func TestAliasEditorTellsBadFields(t *testing.T) {
	for _, bad := range []struct{ field, typed, says string }{
		{"name", "", "start with a letter"}, {"name", "1A", "start with a letter"}, {"name", "a-b", "start with a letter"}, {"name", strings.Repeat("A", 32), "at most 31"},
		{"name", "tcp", "`tcp` is a reserved or protocol name"}, {"name", "ssh", "is a service name"}, {"name", "new", "reserved name"},
		{"name", "Lan", "LAN is already an interface"}, {"name", "MAIL", "MAIL is already an alias"}, {"name", "mail", "MAIL is already an alias"},
		{"kind", "hosts", "Choose addresses or ports"}, {"descr", "a\nb", "line break"}, {"descr", strings.Repeat("x", 201), "at most 200 characters"},
		{"items", "NOPE", "there is no alias `NOPE`"}, {"items", "MAIL", "MAIL holds ports, not addresses."}, {"items", "443", "addresses cannot contain ports"},
		{"items", "OFFICES", "OFFICES contains OFFICES."}, {"items", "www.example.com", "is a host name; write its address"}, {"items", "LAN net", "there is no alias `LAN`"},
		{"items", "10.0.0.9-10.0.0.1", "the range ends (10.0.0.1) before it starts (10.0.0.9)"}, {"items", "10.0.0.1 # " + strings.Repeat("x", 201), "the note has 201 characters"},
		{"file", "list.txt", "The file was not read yet."},
	} {
		d := newDesk(t, home())
		wantSays(t, d.ask(by("admin"), "POST", "/aliases/new", aliasForm(bad.field, bad.typed)), bad.field, bad.says)
		if len(d.w.View("admin").Items) > 0 {
			t.Errorf("%s %q was saved", bad.field, bad.typed)
		}
	}
	d := newDesk(t, home())
	// All at once, whatever is wrong with the name.
	a := d.ask(by("admin"), "POST", "/aliases/new", aliasForm("name", "MAIL", "descr", "a\nb", "items", "NOPE\nMAIL"))
	for _, s := range []string{"name", "descr", "items"} {
		wantSays(t, a, s, "Not saved: 3 problems")
	}
	wantSays(t, d.ask(by("admin"), "POST", "/aliases/new", aliasForm("kind", "ports", "items", "192.168.1.1")), "items", "ports cannot contain addresses")
	wantSays(t, d.ask(by("admin"), "POST", "/aliases/new", aliasForm("kind", "ports", "items", "BAD_NETS")), "items", "BAD_NETS holds addresses, not ports.")
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new", aliasForm("url", "x")), http.StatusBadRequest)
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/NOPE", aliasForm()), http.StatusNotFound)
	wantStatus(t, d.get("admin", "/aliases/NOPE"), http.StatusNotFound)
	wantStatus(t, d.get("admin", "/aliases/NOPE/delete"), http.StatusNotFound)
}

// Loops are told at the one that is edited, with the whole way.
func TestAliasLoopNamesItsWay(t *testing.T) {
	d := newDesk(t, home())
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new", aliasForm("name", "OUTER", "items", "WEB_SERVERS")), http.StatusSeeOther)
	form := aliasForm("name", "WEB_SERVERS", "hash", d.aliasHash("WEB_SERVERS"), "items", "OUTER")
	wantSays(t, d.ask(by("admin"), "POST", "/aliases/WEB_SERVERS", form), "items", "WEB_SERVERS contains OUTER, which contains WEB_SERVERS.")
}

func TestAliasKindOfOneInUseTellsTheUsers(t *testing.T) {
	d := newDesk(t, home())
	if strings.Contains(d.get("admin", "/aliases/MAIL").body, "<select") {
		t.Error("the kind of an alias in use can be chosen")
	}
	form := aliasForm("name", "MAIL", "hash", d.aliasHash("MAIL"), "kind", "addresses", "items", "10.0.0.1")
	a := d.ask(by("admin"), "POST", "/aliases/MAIL", form)
	wantStatus(t, a, http.StatusUnprocessableEntity)
	wantWords(t, a, "Rule “No mail from printers”: MAIL holds addresses, not ports.")
}

func TestAliasRenameFollowsEveryUseAndSaysHowMany(t *testing.T) {
	d := newDesk(t, home())
	c := d.config("admin")
	r, _ := c.Rule(ruleID(1))
	r.Limit = firewall.Limit{Open: 10, Over: firewall.DropExcess, Never: "BAD_NETS"}
	if err := d.w.Save(t.Context(), commit.Who{Account: "admin", Door: "cli"}, commit.AnyHash, firewall.UpdateRule{Rule: r}); err != nil {
		t.Fatal(err)
	}
	form := aliasForm("name", "EVIL", "hash", d.aliasHash("BAD_NETS"), "items", "198.51.100.0/24")
	a := d.ask(by("admin"), "POST", "/aliases/BAD_NETS", form)
	wantStatus(t, a, http.StatusSeeOther)
	if to := a.Header.Get("Location"); to != "/aliases#a-EVIL" {
		t.Errorf("leads to %s", to)
	}
	if said := d.toast(a); !strings.Contains(said, "The new name was put into 2 rules.") {
		t.Errorf("says %q", said)
	}
	c = d.config("admin")
	bad, _ := c.Rule(ruleID(0))
	limited, _ := c.Rule(ruleID(1))
	if bad.Src.String() != "EVIL" || limited.Limit.Never != "EVIL" {
		t.Errorf("rules name %s and %s", bad.Src, limited.Limit.Never)
	}
	wantWords(t, d.get("admin", "/aliases"), "EVIL changed BAD_NETS until Apply", "never locked out")
	// Two names that differ in case only are one, and the name of another is taken.
	for _, name := range []string{"mail", "MAIL"} {
		form := aliasForm("name", name, "hash", d.aliasHash("EVIL"), "items", "198.51.100.0/24")
		wantSays(t, d.ask(by("admin"), "POST", "/aliases/EVIL", form), "name", "MAIL is already an alias.")
	}
}

// What is shown is what is saved.
func TestUntouchedAliasEditorKeepsTheAlias(t *testing.T) {
	d := newDesk(t, home())
	for _, a := range d.config("admin").Aliases {
		form := aliasForm("name", string(a.Name), "kind", string(a.Kind), "hash", d.aliasHash(string(a.Name)), "items", strings.ReplaceAll(a.Lines(), "\n", "\r\n"))
		wantStatus(t, d.ask(by("admin"), "POST", "/aliases/"+string(a.Name), form), http.StatusSeeOther)
	}
	if v := d.w.View("admin"); len(v.Items) != 0 || v.Config.Stamp() != v.Head.Stamp() {
		t.Errorf("an untouched form changed something: %v", v.Items)
	}
}

func TestAliasConflictShowsBothVersions(t *testing.T) {
	d := newDesk(t, home())
	mine := aliasForm("name", "BAD_NETS", "hash", d.aliasHash("BAD_NETS"), "items", "198.51.100.0/24\n192.0.2.0/24", "descr", "mine")
	theirs := aliasForm("name", "BAD_NETS", "hash", d.aliasHash("BAD_NETS"), "items", "203.0.113.9")
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/BAD_NETS", theirs), http.StatusSeeOther)
	a := d.ask(by("admin"), "POST", "/aliases/BAD_NETS", mine)
	wantStatus(t, a, http.StatusConflict)
	wantWords(t, a, "Alias BAD_NETS was changed", "Description mine", "Entries only here: 203.0.113.9 only here: 198.51.100.0/24, 192.0.2.0/24", "Save mine instead")
	mine.Set("hash", d.aliasHash("BAD_NETS"))
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/BAD_NETS", mine), http.StatusSeeOther)
	// The same alias renamed meanwhile, or deleted: there is nothing to replace.
	mine.Set("hash", "older")
	renamed := aliasForm("name", "EVIL", "hash", d.aliasHash("BAD_NETS"), "items", "192.0.2.0/24")
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/BAD_NETS", renamed), http.StatusSeeOther)
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/BAD_NETS", mine), http.StatusNotFound)
}
