package web

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gatehouse/firewall"
	"gatehouse/services/events"
	"gatehouse/services/quarantine"
)

func TestTablePagesFitEveryWindowWithoutViolation(t *testing.T) {
	for _, window := range []struct {
		name, scheme string
		width        int64
	}{{"light-wide", "light", 1360}, {"light-390", "light", 390}, {"light-320", "light", 320}, {"dark-wide", "dark", 1360}, {"dark-390", "dark", 390}} {
		t.Run(window.name, func(t *testing.T) {
			d := jailed(t)
			base := d.serveTLS()
			ctx, console := browser(t)
			size(t, ctx, window.width, 1000, window.scheme)
			for what, path := range map[string]string{"quarantine": "/tables", "lock-outs": "/tables?set=lock-outs&menu=192.168.1.102%2F32", "would": "/tables?set=would",
				"none": "/tables?set=lock-outs&q=203.0.113.77", "aliases": "/tables?set=aliases", "alias": "/tables?set=aliases&name=WEB_SERVERS", "automatic": "/tables?set=automatic",
				"add": "/tables/add", "keep": "/tables/keep?source=192.168.1.102%2F32", "settings": "/tables/settings", "find": "/tables/find?q=203.0.113.77",
				"find-inside": "/tables/find?q=192.168.1.10", "find-name": "/tables/find?q=phone", "find-none": "/tables/find?q=nobody"} {
				goTo(t, ctx, base+path)
				checkWidth(t, ctx, what)
				shoot(t, ctx, "tables-"+what+"-"+window.name)
			}
			goTo(t, ctx, base+"/tables")
			if err := chromedp.Do(ctx, chromedp.Click("[commandfor=all]"), chromedp.WaitVisible("#all")); err != nil {
				t.Fatal(err)
			}
			shoot(t, ctx, "tables-all-"+window.name)
			if err := chromedp.Do(ctx, chromedp.Click("#all [formmethod=dialog]"), chromedp.WaitNotVisible("#all"), chromedp.Click("[name=sel]"), chromedp.WaitVisible(".bulk")); err != nil {
				t.Fatal(err)
			}
			checkWidth(t, ctx, "selected")
			shoot(t, ctx, "tables-selected-"+window.name)
			for _, line := range console() {
				if !strings.Contains(line, "422") { // meant, and said there too
					t.Errorf("the console says: %s", line)
				}
			}
		})
	}
}

// focused is what has the focus, by its name or text.
const focused = `(() => { const e = document.activeElement; return (e.getAttribute("aria-label") || e.id || e.innerText || e.tagName).replace(/\s+/g, " "); })()`

// tabTo presses Tab until something with this name or text has the focus.
func tabTo(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	var seen []string
	for range 60 {
		if err := chromedp.Do(ctx, chromedp.KeyEvent("\t")); err != nil {
			t.Fatal(err)
		}
		now := run(t, ctx, chromedp.Evaluate[string](focused))
		if now == name {
			return
		}
		seen = append(seen, now)
	}
	t.Fatalf("Tab never comes to %q, but to %q", name, seen)
}

// press opens what has the focus and waits for the page.
func press(t *testing.T, ctx context.Context) {
	t.Helper()
	if _, err := chromedp.RunResponse(ctx, chromedp.KeyEvent("\r")); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.WaitNotPresent("#bar:not([data-htmx-powered])")); err != nil {
		t.Fatal(err)
	}
}

// "It suddenly stopped for one customer": the reason and the way out are three
// clicks away, with nothing but a keyboard.
func TestCustomerIsReleasedInThreeClicks(t *testing.T) {
	d := jailed(t).withDashboard(t)
	base := d.serveTLS()
	ctx, console := browser(t)
	size(t, ctx, 1360, 1000, "light")
	goTo(t, ctx, base+"/")
	clicks := 0
	click := func(name string) {
		t.Helper()
		tabTo(t, ctx, name)
		press(t, ctx)
		clicks++
	}
	click("Tables 5 shut out")
	tabTo(t, ctx, "Where is this address?")
	if err := chromedp.Do(ctx, chromedp.KeyEvent("203.0.113.77")); err != nil {
		t.Fatal(err)
	}
	press(t, ctx)
	clicks++
	if said := run(t, ctx, chromedp.Evaluate[string](`document.querySelector("main").innerText`)); !strings.Contains(said, "3rd lock-out in 1h: more than 100 new in 10s") || !strings.Contains(said, "Web from outside") {
		t.Errorf("the reason is not said: %s", said)
	}
	click("Release 203.0.113.77")
	if clicks > 3 {
		t.Errorf("it took %d clicks", clicks)
	}
	wantDeeds(t, d, "released 203.0.113.77/32")
	if said := run(t, ctx, chromedp.Evaluate[string](`document.body.innerText`)); !strings.Contains(said, "203.0.113.77 is not shut out.") || !strings.Contains(said, "Released 203.0.113.77.") {
		t.Errorf("it is not said that it is free: %s", said)
	}
	// Undo is the second stop of the page.
	tabTo(t, ctx, "Skip to the content")
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\t")); err != nil {
		t.Fatal(err)
	}
	if now := run(t, ctx, chromedp.Evaluate[string](focused)); now != "Undo" {
		t.Errorf("after the first stop comes %q", now)
	}
	press(t, ctx)
	wantDeeds(t, d, "released 203.0.113.77/32", "undone 203.0.113.77/32")
	if at := run(t, ctx, chromedp.Evaluate[string](`location.pathname + location.search`)); at != "/tables/find?q=203.0.113.77" {
		t.Errorf("Undo leads to %s", at)
	}
	for _, line := range console() {
		t.Errorf("the console says: %s", line)
	}
}

// The first page leads there in two: who was shut out last stands on it.
func TestDashboardLeadsToWhoIsShutOut(t *testing.T) {
	d := jailed(t).withDashboard(t)
	base := d.serveTLS()
	ctx, _ := browser(t)
	for _, window := range []struct {
		name, scheme string
		width        int64
	}{{"light-wide", "light", 1360}, {"dark-390", "dark", 390}} {
		size(t, ctx, window.width, 1000, window.scheme)
		goTo(t, ctx, base+"/")
		checkWidth(t, ctx, window.name)
		shoot(t, ctx, "dashboard-"+window.name)
	}
	if said := run(t, ctx, chromedp.Evaluate[string](`document.querySelector("#dashboard").innerText`)); !strings.Contains(said, "A meter of Web from outside is nearly full: 55,050 of 65,536 sources.") {
		t.Errorf("no alarm: %s", said)
	}
	tabTo(t, ctx, "192.168.1.102") // in a narrow window, too
	press(t, ctx)
	tabTo(t, ctx, "Release 192.168.1.102")
	press(t, ctx)
	wantDeeds(t, d, "released 192.168.1.102/32")
}

// A list is worked through without losing one's place: the row says what became
// of it, Undo is there, the next row does not move under the finger.
func TestFocusStaysWhereTheRowWas(t *testing.T) {
	d := jailed(t)
	base := d.serveTLS()
	ctx, console := browser(t)
	size(t, ctx, 1360, 1000, "light")
	goTo(t, ctx, base+"/tables")
	top := `document.getElementById("e-198.51.100.0/24").getBoundingClientRect().top`
	before := run(t, ctx, chromedp.Evaluate[float64](top))
	tabTo(t, ctx, "Release 2001:db8:77:1::/64")
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r"), chromedp.WaitVisible("#ghost"), chromedp.WaitVisible(".toast")); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "the focus is on Undo", focused+` === "Undo"`)
	row := run(t, ctx, chromedp.Evaluate[string](`document.querySelector("#ghost").innerText`))
	if !strings.Contains(row, "Released 2001:db8:77:1::/64.") {
		t.Errorf("the row says %q", row)
	}
	shoot(t, ctx, "tables-ghost")
	if after := run(t, ctx, chromedp.Evaluate[float64](top)); after-before > 12 || before-after > 12 {
		t.Errorf("the next row moved from %v to %v", before, after)
	}
	// The event of the release must not take the row away while it has the focus.
	d.bus.Publish(events.Event{Name: "quarantine"})
	until(t, ctx, "the badge follows", `document.querySelector("#badge").innerText.startsWith("4")`)
	until(t, ctx, "the line knows that the rows are held", `document.querySelector("#line").innerText.startsWith("As of")`)
	if now := run(t, ctx, chromedp.Evaluate[string](focused)); now != "Undo" {
		t.Errorf("the focus is on %q", now)
	}
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r"), chromedp.WaitVisible(`[id="e-2001:db8:77:1::/64"]`)); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "the focus is on the row that came back", focused+` === "2001:db8:77:1::/64"`)
	wantDeeds(t, d, "released 2001:db8:77:1::/64", "undone 2001:db8:77:1::/64")
	// More acts open below the row, and the button keeps the focus.
	tabTo(t, ctx, "More for 2001:db8:77:1::/64")
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r"), chromedp.WaitVisible(".open-menu")); err != nil {
		t.Fatal(err)
	}
	if now := run(t, ctx, chromedp.Evaluate[string](focused)); now != "More for 2001:db8:77:1::/64" {
		t.Errorf("the focus is on %q", now)
	}
	tabTo(t, ctx, "Release and never again")
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r"), chromedp.WaitVisible("#bar .bar-line")); err != nil { // a pending change
		t.Fatal(err)
	}
	until(t, ctx, "the focus is on Undo again", focused+` === "Undo"`)
	for _, line := range console() {
		t.Errorf("the console says: %s", line)
	}
}

// caught has somebody locked out now, and gives the selector of his row.
func (d *desk) caught(last byte) string {
	src := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, last}), 32)
	d.jail.put(quarantine.Entry{Source: src, Kind: quarantine.LockOut, Rule: ruleID(1), What: firewall.OverNew, Limit: limit, Times: 1, Since: time.Now(), Until: time.Now().Add(time.Hour)})
	d.bus.Publish(events.Event{Name: "quarantine"})
	return `[id="e-` + src.String() + `"]`
}

// Who is locked out shows up by itself; rows in use stay, and the page says what is new.
func TestTablesFollowWhatHappens(t *testing.T) {
	d := jailed(t)
	base := d.serveTLS()
	ctx, console := browser(t)
	size(t, ctx, 1360, 1000, "light")
	goTo(t, ctx, base+"/tables?set=lock-outs")
	if err := chromedp.Do(ctx, chromedp.WaitVisible(d.caught(1))); err != nil {
		t.Fatal(err)
	}
	run(t, ctx, chromedp.Evaluate[any](`document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true }))`))
	if now := run(t, ctx, chromedp.Evaluate[string](focused)); now != "Search this list" {
		t.Errorf("/ leads to %q", now)
	}
	tabTo(t, ctx, "203.0.113.9")
	second := d.caught(2)
	until(t, ctx, "one is new", `document.querySelector("#line [role=status]").innerText === "1 new"`)
	if n := run(t, ctx, chromedp.Evaluate[int](`document.querySelectorAll('`+second+`').length`)); n != 0 {
		t.Error("the rows were moved while one had the focus")
	}
	if now := run(t, ctx, chromedp.Evaluate[string](focused)); now != "203.0.113.9" {
		t.Errorf("the focus is on %q", now)
	}
	until(t, ctx, "the tab counts on", `document.querySelector("#n-lock-outs").innerText === "4"`)
	// Show brings it, although a row had the focus, and the focus is not lost.
	run(t, ctx, chromedp.Evaluate[any](`document.querySelector("#fresh").focus()`))
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r"), chromedp.WaitVisible(second)); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "the focus is beside", focused+` === "pause"`)
	// Pause.
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r")); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "it is paused", `document.querySelector("#line").innerText.startsWith("Paused")`)
	third := d.caught(3)
	until(t, ctx, "one is new", `document.querySelector("#line [role=status]").innerText === "1 new"`)
	if got := run(t, ctx, chromedp.Evaluate[string](focused+` + location.search`)); got != "pause?live=off&set=lock-outs" {
		t.Errorf("focus and address are %s", got)
	}
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r"), chromedp.WaitVisible(third)); err != nil { // go on
		t.Fatal(err)
	}
	for _, line := range console() {
		t.Errorf("the console says: %s", line)
	}
}

// While the question is open nothing moves, and the focus is on the harmless answer.
func TestReleaseAllAsksFirst(t *testing.T) {
	d := jailed(t)
	base := d.serveTLS()
	ctx, console := browser(t)
	size(t, ctx, 1360, 1000, "light")
	goTo(t, ctx, base+"/tables?set=lock-outs")
	tabTo(t, ctx, "Release all 2 addresses…")
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r"), chromedp.WaitVisible("#all")); err != nil {
		t.Fatal(err)
	}
	if now := run(t, ctx, chromedp.Evaluate[string](focused)); now != "Keep them blocked" {
		t.Errorf("the focus is on %q", now)
	}
	third := d.caught(3)
	until(t, ctx, "one is new", `document.querySelector("#line [role=status]").innerText === "1 new"`)
	if said := run(t, ctx, chromedp.Evaluate[string](`document.querySelector("#all").open + document.querySelector("#all").innerText`)); !strings.HasPrefix(said, "true") || !strings.Contains(said, "Release 2 addresses from the lock-outs?") {
		t.Errorf("the question is %s", said)
	}
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r"), chromedp.WaitNotVisible("#all")); err != nil {
		t.Fatal(err)
	}
	wantDeeds(t, d)
	if err := chromedp.Do(ctx, chromedp.WaitVisible(third)); err != nil { // by itself, 5 seconds later at most
		t.Fatal(err)
	}
	if now := run(t, ctx, chromedp.Evaluate[string](focused)); now != "Release all 3 addresses…" {
		t.Errorf("the focus is on %q", now)
	}
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r"), chromedp.WaitVisible("#all")); err != nil {
		t.Fatal(err)
	}
	tabTo(t, ctx, "Release all 3 addresses")
	press(t, ctx)
	if n := d.jail.Counts(); n.LockOuts != 0 || n.Quarantine != 3 {
		t.Errorf("left are %+v", n)
	}
	if said := run(t, ctx, chromedp.Evaluate[string](`document.body.innerText`)); !strings.Contains(said, "Released 3 sources.") || !strings.Contains(said, "Nobody is locked out.") {
		t.Errorf("the page says %s", said)
	}
	for _, line := range console() {
		t.Errorf("the console says: %s", line)
	}
}
