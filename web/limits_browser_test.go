package web

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"gatehouse/firewall"
)

// A limit is found, opened and filled in by keyboard alone, in the narrowest
// window, and every window shows all of it.
func TestLimitIsSetByKeyboardAlone(t *testing.T) {
	d := newDesk(t, home())
	base := d.serveTLS()
	ctx, console := browser(t)
	size(t, ctx, 320, 844, "light")
	goTo(t, ctx, base+"/forwards/"+webForward)
	press := func(keys string) {
		t.Helper()
		if err := chromedp.Do(ctx, chromedp.KeyEvent(keys)); err != nil {
			t.Fatal(err)
		}
	}
	reach := func(what string) {
		t.Helper()
		for range 60 { // as many presses as it takes, no more than the page has controls
			if run(t, ctx, chromedp.Evaluate[bool](`document.activeElement.matches("`+what+`")`)) {
				return
			}
			press("\t")
		}
		t.Fatalf("Tab never reaches %s", what)
	}
	reach("details.card > summary")
	press(" ")
	for _, field := range []struct{ id, text string }{{"limit_open", "100"}, {"limit_new", "7"}, {"limit_window", "5"}} {
		reach("#f-" + field.id)
		press(field.text)
	}
	reach("[name=over]:checked")
	if err := chromedp.Do(ctx, chromedp.KeyEvent(kb.ArrowRight)); err != nil { // from lock out to quarantine
		t.Fatal(err)
	}
	reach("button[value=save]")
	if resp, err := chromedp.RunResponse(ctx, chromedp.KeyEvent("\r")); err != nil || resp.Status != 200 {
		t.Fatalf("after Enter: %v, %v", resp, err)
	}
	want := firewall.Limit{Open: 100, New: 7, Window: 5, Over: firewall.Quarantine, LockFor: 300, Strikes: 3, StrikeWindow: 3600}
	if l := limitOf(t, d, "admin", webRule); l != want {
		t.Errorf("saved %+v, want %+v", l, want)
	}
	for _, path := range []string{"/forwards/" + webForward, "/rules/" + webRule, "/forwards", "/rules?tab=WAN"} {
		for _, width := range []int64{320, 390, 1360} {
			size(t, ctx, width, 844, map[int64]string{320: "light", 390: "dark", 1360: "light"}[width])
			goTo(t, ctx, base+path)
			checkWidth(t, ctx, path)
			if said := run(t, ctx, chromedp.Evaluate[string](`document.querySelector("main").innerText`)); !strings.Contains(said, "100 open · 7/5s") || strings.Contains(path, webForward) && !strings.Contains(said, "84 a minute") {
				t.Errorf("%s at %d does not show the limit: %s", path, width, said)
			}
		}
	}
	if lines := console(); len(lines) > 0 {
		t.Errorf("the console says: %q", lines)
	}
}
