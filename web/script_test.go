package web

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"gatehouse/services/events"
	"gatehouse/web/page"
)

// confirmPage answers the poll of the bar as the confirm page will.
type confirmPage struct {
	polls  atomic.Int32
	asked  atomic.Pointer[string]
	answer atomic.Pointer[string]
}

func (c *confirmPage) routes() []page.Route {
	return []page.Route{{Method: "POST", Path: "/confirm", Open: true, Serve: c.confirm}}
}

func (c *confirmPage) confirm(w http.ResponseWriter, r *http.Request) error {
	f, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	asked := f.Get("revision") + " " + f.Get("token") + " " + f.Get("poll")
	c.asked.Store(&asked)
	c.polls.Add(1)
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{"state": *c.answer.Load(), "left": 40})
}

func open(t *testing.T, ctx context.Context, r *rig, path string) {
	t.Helper()
	if err := chromedp.Do(ctx, chromedp.Navigate("https://"+r.host+path), chromedp.WaitReady("main")); err != nil {
		t.Fatal(err)
	}
}

// until waits for an expression to become true.
func until(t *testing.T, ctx context.Context, what, expression string) {
	t.Helper()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression, chromedp.WithPollingTimeout(time.Minute))); err != nil {
		t.Fatalf("%s: %v; the bar says: %s", what, err, run(t, ctx, chromedp.Evaluate[string](`document.body.innerText`)))
	}
}

func TestBarFollowsWhatHappens(t *testing.T) {
	c := &confirmPage{}
	r := newRig(t, append(samplePages(), c.routes()...)...)
	waiting, confirmed := "testing", "confirmed"
	c.answer.Store(&waiting)
	ctx, console := browser(t)
	size(t, ctx, 1280, 800, "light")
	open(t, ctx, r, "/login")
	enter(t, ctx)
	open(t, ctx, r, "/")

	// The stream may not be there yet: what happens is told until it is heard.
	r.box.set(page.Bar{Pending: 3})
	stop := make(chan struct{})
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				r.bus.Publish(events.Event{Name: "bar"})
			}
		}
	}()
	until(t, ctx, "someone saved a change", `document.querySelector("#bar").innerText.includes("3 pending changes")`)
	r.box.set(page.Bar{Testing: page.Testing{Revision: 8, Mine: true, Auto: true, Left: 50 * time.Second, Token: "t0k"}})
	until(t, ctx, "an apply", `document.querySelector("#bar").innerText.includes("still get through")`)
	close(stop)

	until(t, ctx, "the time runs", `/0:4[0-8]/.test(document.querySelector(".count").innerText)`)
	r.box.set(page.Bar{Undo: page.Undo{Revision: 8, Left: 10 * time.Minute}})
	c.answer.Store(&confirmed)
	until(t, ctx, "the poll sees the confirm", `document.querySelector("#bar").innerText.includes("Revision 8 is active and kept.")`)
	if got := c.asked.Load(); got == nil || *got != "8 t0k 1" {
		t.Errorf("the poll sends %v", got)
	}
	for _, line := range console() {
		t.Errorf("the console says: %s", line)
	}

	if err := r.auth.EndAll("admin", ""); err != nil {
		t.Fatal(err)
	}
	r.bus.Publish(events.Event{Name: "bar"})
	until(t, ctx, "signed out", `document.querySelector(".offline")?.innerText.includes("You are signed out")`)
	if at := run(t, ctx, chromedp.Evaluate[string](`location.pathname`)); at != "/" {
		t.Errorf("the page was left for %s", at)
	}
}

func TestDialogMenuAndKeysWork(t *testing.T) {
	r := newRig(t, samplePages()...)
	ctx, console := browser(t)
	size(t, ctx, 390, 844, "light")
	open(t, ctx, r, "/login")
	if err := chromedp.Do(ctx, chromedp.Click("[data-show]")); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "the password shows", `document.querySelector("#f-password").type === "text"`)
	enter(t, ctx)
	r.box.set(page.Bar{Pending: 2})
	open(t, ctx, r, "/")
	if err := chromedp.Do(ctx, chromedp.Click(".menu-button")); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "the menu opens", `document.querySelector("#menu").getBoundingClientRect().width > 200`)
	shoot(t, ctx, "menu-390")
	run(t, ctx, chromedp.Evaluate[any](`document.querySelector("#menu").hidePopover()`))
	until(t, ctx, "the menu closes", `document.querySelector("#menu").getBoundingClientRect().width === 0`)
	if err := chromedp.Do(ctx, chromedp.KeyEvent("/")); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "slash finds the search", `document.activeElement.type === "search"`)
	if err := chromedp.Do(ctx, chromedp.Click("[commandfor=discard]")); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "the dialog opens on its safe button", `document.querySelector("dialog").open && document.activeElement.innerText === "Keep the changes"`)
	shoot(t, ctx, "dialog-390")
	if err := chromedp.Do(ctx, chromedp.KeyEvent("\r")); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "the safe button only closes it", `!document.querySelector("dialog").open && location.pathname === "/"`)
	for _, line := range console() {
		t.Errorf("the console says: %s", line)
	}
}

func TestLoginWorksWithoutScript(t *testing.T) {
	r := newRig(t, samplePages()...)
	ctx, _ := browser(t)
	if _, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.Navigate("https://"+r.host+"/rules")); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.SendKeys("#f-name", "admin"), chromedp.SendKeys("#f-password", goodPassword)); err != nil {
		t.Fatal(err)
	}
	resp, err := chromedp.RunResponse(ctx, chromedp.Click("form button[type=submit]"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://" + r.host + "/rules"; resp.URL != want {
		t.Errorf("the login leads to %s, want %s", resp.URL, want)
	}
}
