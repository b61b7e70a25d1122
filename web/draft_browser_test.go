package web

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"gatehouse/firewall"
	"gatehouse/services/commit"
)

// goTo opens a page and waits until htmx has taken hold of it: a click before
// that would be a plain form's, which answers with a page of its own.
func goTo(t *testing.T, ctx context.Context, url string) {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.Navigate(url), chromedp.WaitReady("main"),
		chromedp.WaitNotPresent("#bar:not([data-htmx-powered])")); err != nil {
		t.Fatal(url, err)
	}
}

func TestRulePagesFitEveryWindowWithoutViolation(t *testing.T) {
	d := newDesk(t, home())
	d.hit = map[firewall.ID]uint64{ruleID(0): 37, ruleID(1): 1204, ruleID(2): 81_230, ruleID(5): 2_410_000, ruleID(7): 9}
	admin := commit.Who{Account: "admin", Door: "web"}
	c := d.config("admin")
	web, quic, all := c.Rules[1], c.Rules[4], c.Rules[5]
	web.DstPorts = firewall.Ports{{Range: firewall.PortRange{From: 443, To: 443}}, {Range: firewall.PortRange{From: 8443, To: 8443}}}
	fresh := firewall.Rule{ID: commit.NewID(), On: true, Action: firewall.Pass, In: "LAN", Family: firewall.Both, Proto: firewall.ICMP, ICMP: []string{"echo-request"},
		Src: firewall.Anyone(), Dst: firewall.Ends{Of: []firewall.End{{Kind: firewall.EndSelf}}}, Descr: "Ping the box", Section: "Servers", Log: true}
	for _, ch := range []firewall.Change{firewall.UpdateRule{Rule: web}, firewall.AddRule{Rule: fresh, Place: firewall.Place{After: c.Rules[2].ID}},
		firewall.DeleteRule{ID: quic.ID, Descr: quic.Descr}, firewall.MoveRule{ID: all.ID, Place: firewall.Place{Before: web.ID}}} {
		if err := d.w.Save(t.Context(), admin, commit.AnyHash, ch); err != nil {
			t.Fatal(err)
		}
	}
	base := d.serveTLS()
	ctx, console := browser(t)
	look := func(what, path, name string) {
		goTo(t, ctx, base+path)
		checkWidth(t, ctx, what+" "+name)
		shoot(t, ctx, what+"-"+name)
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1360, 390, 320} {
			if scheme == "dark" && width == 320 {
				continue // colours do not make it wider
			}
			size(t, ctx, width, 900, scheme)
			name := scheme + "-" + map[int64]string{1360: "wide", 390: "390", 320: "320"}[width]
			look("rules", "/rules?tab=LAN", name)
			look("rules-all", "/rules?tab=all", name)
			if scheme == "light" {
				look("rules-menu", "/rules?tab=LAN&menu="+string(ruleID(2)), name)
				look("rules-empty", "/rules?tab=LAN&q=nothing-like-it", name)
				look("rule-linked", "/rules/01JFORWARDRULE000000000001", name)
				look("rule-new", "/rules/new?in=LAN", name)
			}
			look("rule", "/rules/"+string(ruleID(3)), name)
			look("forwards", "/forwards", name)
			look("forward", "/forwards/01JFORWARD0000000000000001", name)
			look("review", "/review", name)
			goTo(t, ctx, base+"/rules/"+string(ruleID(3)))
			run(t, ctx, chromedp.Evaluate[any](`document.querySelector("#f-dport").value = "86-81, 0"; document.querySelector("#f-src").value = "10.0.0.256"`))
			if _, err := chromedp.RunResponse(ctx, chromedp.Click("button[value=save]")); err != nil {
				t.Fatal(err)
			}
			checkWidth(t, ctx, "rule-wrong "+name)
			shoot(t, ctx, "rule-wrong-"+name)
		}
	}
	for _, line := range console() {
		if !strings.Contains(line, "422") { // meant, and said there too
			t.Errorf("the console says: %s", line)
		}
	}
}

func TestRuleIsAddedByKeyboardAlone(t *testing.T) {
	d := newDesk(t, home())
	base := d.serveTLS()
	ctx, console := browser(t)
	goTo(t, ctx, base+"/rules/new?in=LAN")
	// The description has the focus; Tab leads on in the order of the page.
	for _, keys := range []string{"Backups at night", "\t", "Servers", "\t", "\t", "\t", "\t", "\t"} {
		if err := chromedp.Do(ctx, chromedp.KeyEvent(keys)); err != nil {
			t.Fatal(err)
		}
	}
	typeInto := func(id, text string) {
		t.Helper()
		for range 40 { // as many presses as it takes, no more than the page has controls
			if run(t, ctx, chromedp.Evaluate[string](`document.activeElement.id`)) == id {
				run(t, ctx, chromedp.Evaluate[any](`document.activeElement.select()`))
				if err := chromedp.Do(ctx, chromedp.KeyEvent(text)); err != nil {
					t.Fatal(err)
				}
				return
			}
			if err := chromedp.Do(ctx, chromedp.KeyEvent("\t")); err != nil {
				t.Fatal(err)
			}
		}
		t.Fatalf("Tab never reaches %s", id)
	}
	typeInto("f-src", "192.168.1.30")
	typeInto("f-dst", "WEB_SERVERS")
	typeInto("f-dport", "ssh")
	resp, err := chromedp.RunResponse(ctx, chromedp.KeyEvent("\r"))
	if err != nil {
		t.Fatal(err)
	}
	if resp.Status != http.StatusOK {
		t.Fatalf("after Enter: %d %s", resp.Status, resp.URL)
	}
	rules := d.config("admin").Rules
	got := rules[len(rules)-1]
	if want := "pass tcp from 192.168.1.30 to WEB_SERVERS port 22 on LAN"; got.String() != want || got.Descr != "Backups at night" || got.Section != "Servers" {
		t.Errorf("added %q (%q in %q), want %q", got.String(), got.Descr, got.Section, want)
	}
	if lines := console(); len(lines) > 0 {
		t.Errorf("the console says: %q", lines)
	}
}

// A switch changes the draft and the row, without a new page.
func TestSwitchWorksInPlace(t *testing.T) {
	d := newDesk(t, home())
	base := d.serveTLS()
	ctx, console := browser(t)
	goTo(t, ctx, base+"/rules?tab=LAN")
	run(t, ctx, chromedp.Evaluate[any](`document.body.dataset.same = "1"`))
	row := "#r-" + string(ruleID(1))
	if err := chromedp.Do(ctx, chromedp.Click(row+" .switch"), chromedp.WaitVisible(row+".off.changed"), chromedp.WaitVisible(".toast"), chromedp.WaitVisible("#bar .bar-line")); err != nil {
		t.Fatal(err)
	}
	if r, _ := d.config("admin").Rule(ruleID(1)); r.On {
		t.Error("the rule is still on")
	}
	if run(t, ctx, chromedp.Evaluate[string](`document.body.dataset.same || ""`)) != "1" {
		t.Error("the whole page was loaded again")
	}
	// The menu of a row, by the script, moves the very row.
	if err := chromedp.Do(ctx, chromedp.Click("#r-"+string(ruleID(2))+" .more"), chromedp.WaitVisible("#row-menu [data-verb=up]"),
		chromedp.Click("#row-menu [data-verb=up]"), chromedp.WaitVisible("#r-"+string(ruleID(2))+".changed")); err != nil {
		t.Fatal(err)
	}
	rules := d.config("admin").Rules
	if rules[1].ID != ruleID(2) || rules[2].ID != ruleID(1) {
		t.Errorf("order is %s, %s", rules[1].Descr, rules[2].Descr)
	}
	// What is typed into the search is looked for without a button.
	if err := chromedp.Do(ctx, chromedp.SendKeys("[data-search]", "printers"), chromedp.WaitNotPresent("#r-"+string(ruleID(1))), chromedp.WaitVisible("#r-"+string(ruleID(3)))); err != nil {
		t.Fatal(err)
	}
	if lines := console(); len(lines) > 0 {
		t.Errorf("the console says: %q", lines)
	}
}

// The whole way of a harmless change: Apply, the bar asks on new connections,
// and the revision is kept without a click.
func TestHarmlessChangeKeepsItself(t *testing.T) {
	d := edited(t, "admin")
	base := d.serveTLS()
	ctx, console := browser(t)
	goTo(t, ctx, base+"/review")
	if err := chromedp.Do(ctx, chromedp.Click("form[action='/apply'] button")); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.WaitVisible("#result [href='/revisions']"), chromedp.WaitVisible("#bar .bar-good")); err != nil {
		t.Fatalf("%v: %s", err, run(t, ctx, chromedp.Evaluate[string](`document.querySelector("main").innerText`)))
	}
	shoot(t, ctx, "kept")
	if _, rev := d.w.Running(); rev.State != commit.Confirmed || !rev.Auto {
		t.Errorf("revision %d is %s", rev.Number, rev.State)
	}
	for _, line := range console() {
		if !strings.Contains(line, "409") { // a poll on a connection that is too young
			t.Errorf("the console says: %s", line)
		}
	}
}

// A change of the address in use waits for a click, and Undo brings everything back.
func TestNewAddressWaitsForTheClick(t *testing.T) {
	d := newDesk(t, home())
	d.moveLAN("admin")
	base := d.serveTLS()
	ctx, _ := browser(t)
	goTo(t, ctx, base+"/review")
	if _, err := chromedp.RunResponse(ctx, chromedp.Click("form[action='/apply'] button")); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.WaitVisible("#result .todo")); err != nil {
		t.Fatal(err)
	}
	checkWidth(t, ctx, "applied")
	shoot(t, ctx, "applied")
	size(t, ctx, 390, 844, "dark")
	checkWidth(t, ctx, "applied 390")
	shoot(t, ctx, "applied-390")
	if _, err := chromedp.RunResponse(ctx, chromedp.Click("#bar form[action='/undo'] button")); err != nil {
		t.Fatal(err)
	}
	if v := d.w.View("admin"); v.Trial != nil || len(v.Items) == 0 {
		t.Error("it was not taken back into the draft")
	}
}

// A switch of a row that changed meanwhile says so in place and shows the list as it is.
func TestOldSwitchSaysWhyInPlace(t *testing.T) {
	d := newDesk(t, home())
	base := d.serveTLS()
	ctx, _ := browser(t)
	goTo(t, ctx, base+"/rules?tab=LAN")
	d.toggle("admin", ruleID(1)) // the other tab
	if err := chromedp.Do(ctx, chromedp.Click("#r-"+string(ruleID(1))+" .switch"), chromedp.WaitVisible("#rules .note-bad"),
		chromedp.WaitVisible("#r-"+string(ruleID(1))+".off.changed")); err != nil {
		t.Fatal(err)
	}
	if said := run(t, ctx, chromedp.Evaluate[string](`document.querySelector("#rules .note-bad").innerText`)); !strings.Contains(said, "Active is now no") {
		t.Error(said)
	}
	if n := run(t, ctx, chromedp.Evaluate[int](`document.querySelectorAll("header").length`)); n != 1 {
		t.Errorf("%d headers: a page inside the page", n)
	}
	if r, _ := d.config("admin").Rule(ruleID(1)); r.On {
		t.Error("it was switched back")
	}
}
