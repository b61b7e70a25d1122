package web

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"gatehouse/firewall"
	"gatehouse/services/commit"
)

// branched is a desk with aliases in every state: new, renamed, deleted, used by many.
func branched(t *testing.T) *desk {
	d := newDesk(t, home())
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new", aliasForm("name", "BRANCHES", "descr", "Our other offices and the people who work from home",
		"items", "198.18.220.0-198.18.222.200 # Graz\n198.18.224.0/20 # Linz\n198.18.230.0/24\n2001:db8:1234:5678::/64 # all of Vienna\n2001:db8:1234:5678:9abc:def0:1234:5678 # the printer there\nWEB_SERVERS")), http.StatusSeeOther)
	c := d.config("admin")
	for i := range 5 {
		r, _ := c.Rule(ruleID(i + 1))
		r.Src = firewall.Ends{Of: []firewall.End{{Kind: firewall.EndAlias, Name: "BRANCHES"}}}
		r.Family = firewall.Both
		if err := d.w.Save(t.Context(), commit.Who{Account: "admin", Door: "web"}, commit.AnyHash, firewall.UpdateRule{Rule: r}); err != nil {
			t.Fatal(err)
		}
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/MAIL", aliasForm("name", "MAIL_PORTS", "kind", "ports", "hash", d.aliasHash("MAIL"), "items", "25\n587 # submission")), http.StatusSeeOther)
	if err := d.w.Save(t.Context(), commit.Who{Account: "admin", Door: "web"}, commit.AnyHash, firewall.DeleteAlias{Name: "NOBODY"}); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAliasPagesFitEveryWindowWithoutViolation(t *testing.T) {
	d := branched(t)
	list := filepath.Join(t.TempDir(), "blocklist.csv")
	if err := os.WriteFile(list, []byte("ip,comment\n198.51.100.0/24,noise\n198.51.100.7,in it\n203.0.113.300,typo\n2001:db8:bad::/48,more of it\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := d.serveTLS()
	ctx, console := browser(t)
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1360, 390, 320} {
			if scheme == "dark" && width == 320 {
				continue // colours do not make it wider
			}
			size(t, ctx, width, 900, scheme)
			name := scheme + "-" + map[int64]string{1360: "wide", 390: "390", 320: "320"}[width]
			look := func(what, path string) {
				goTo(t, ctx, base+path)
				checkWidth(t, ctx, what+" "+name)
				shoot(t, ctx, what+"-"+name)
			}
			look("aliases", "/aliases")
			look("alias", "/aliases/BRANCHES")
			look("alias-new", "/aliases/new")
			look("alias-none", "/aliases?q=nothing-like-it")
			look("alias-delete", "/aliases/BAD_NETS/delete")
			press := func(what, button string) {
				if _, err := chromedp.RunResponse(ctx, chromedp.Click(button)); err != nil {
					t.Fatal(what, err)
				}
				checkWidth(t, ctx, what+" "+name)
				shoot(t, ctx, what+"-"+name)
			}
			goTo(t, ctx, base+"/aliases/BAD_NETS")
			run(t, ctx, chromedp.Evaluate[any](`document.querySelector("#f-items").value = "198.51.100.0/24\n10.0.0.300\nNOPE"; document.querySelector("#f-name").value = "tcp"`))
			press("alias-wrong", "button[value=save]")
			goTo(t, ctx, base+"/aliases/BAD_NETS")
			run(t, ctx, chromedp.Evaluate[any](`document.querySelector("form.editor details").open = true`))
			if err := chromedp.Do(ctx, chromedp.SetUploadFiles("#f-file", []string{list})); err != nil {
				t.Fatal(err)
			}
			press("alias-import", "button[formenctype]")
		}
	}
	for _, line := range console() {
		if !strings.Contains(line, "422") { // meant, and said there too
			t.Errorf("the console says: %s", line)
		}
	}
}

// While a list is typed the page says what it reads, keeps the focus, and Enter in the name saves.
func TestAliasIsReadWhileItIsTypedAndSavedByKeyboard(t *testing.T) {
	d := newDesk(t, home())
	base := d.serveTLS()
	ctx, console := browser(t)
	goTo(t, ctx, base+"/aliases/new")
	focus := func() string { return run(t, ctx, chromedp.Evaluate[string](`document.activeElement.id`)) }
	if focus() != "f-name" {
		t.Fatalf("the focus is in %q", focus())
	}
	type step struct{ keys, at string }
	for _, s := range []step{{"OFFICES", "f-name"}, {"\t", "f-kind"}, {"\t", "f-descr"}, {"\t", "f-items"}} {
		if err := chromedp.Do(ctx, chromedp.KeyEvent(s.keys)); err != nil {
			t.Fatal(err)
		}
		if focus() != s.at {
			t.Fatalf("after %q the focus is in %q, want %s", s.keys, focus(), s.at)
		}
	}
	said := func(words string) {
		t.Helper()
		if _, err := chromedp.Run(ctx, chromedp.Poll[bool](fmt.Sprintf(`document.querySelector("#items-said").innerText.includes(%q)`, words))); err != nil {
			t.Fatalf("it never says %q: %v: %s", words, err, run(t, ctx, chromedp.Evaluate[string](`document.querySelector("#items-said").innerText`)))
		}
	}
	if err := chromedp.Do(ctx, chromedp.KeyEvent("198.51.100.7\r10.0.0.300\r198.51.100.7")); err != nil {
		t.Fatal(err)
	}
	said("1 entry, 1 duplicate removed, 1 problem: line 2")
	if focus() != "f-items" {
		t.Errorf("the focus went to %q", focus())
	}
	run(t, ctx, chromedp.Evaluate[any](`document.querySelector("#f-items").select()`))
	if err := chromedp.Do(ctx, chromedp.KeyEvent("198.51.100.0/24\r198.51.100.7")); err != nil {
		t.Fatal(err)
	}
	said("2 entries, 1 redundant")
	run(t, ctx, chromedp.Evaluate[any](`document.querySelector("#f-name").focus()`))
	resp, err := chromedp.RunResponse(ctx, chromedp.KeyEvent("\r"))
	if err != nil || resp.Status != http.StatusOK || !strings.Contains(resp.URL, "/aliases#a-OFFICES") && !strings.HasSuffix(resp.URL, "/aliases") {
		t.Fatalf("after Enter: %+v, %v", resp, err)
	}
	if a, _ := d.config("admin").Alias("OFFICES"); a.Lines() != "198.51.100.0/24\n198.51.100.7\n" {
		t.Errorf("saved %q", a.Lines())
	}
	if lines := console(); len(lines) > 0 {
		t.Errorf("the console says: %q", lines)
	}
}
