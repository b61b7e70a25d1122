package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"gatehouse/firewall/netlab"
)

// tab is a person with a browser at a host of the lab.
type tab struct {
	s    *story
	ctx  context.Context
	base string
	said chan string
}

// chrome starts a Chromium that loads the box's pages as a host would that types
// the address of its default gateway. Errors and warnings of its console are
// kept: a violation of the content policy is one.
func (s *story) chrome(h *netlab.Host) *tab {
	s.Helper()
	page, err := s.lab.Publish("127.0.0.1:0", func(ctx context.Context) (net.Conn, error) {
		gw, err := h.Gateway()
		if err != nil {
			return nil, err
		}
		return h.Dial(ctx, "tcp", netip.AddrPortFrom(gw, 443))
	})
	if err != nil {
		s.Fatal(err)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.IgnoreCertErrors, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, stop := chromedp.NewExecAllocator(s.ctx, opts...)
	s.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	s.Cleanup(stop)
	p := &tab{s: s, ctx: ctx, base: "https://" + page.Addr().String(), said: make(chan string, 256)}
	// The first call starts the browser, which lives as long as its context.
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank"), chromedp.EmulateViewport(1280, 900)); err != nil {
		s.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"}); err != nil {
		s.Fatal(err)
	}
	go func() {
		for m, err := range chromedp.Console(ctx) {
			if err != nil {
				return
			}
			if m.Type == "error" || m.Type == "warning" || m.IsException() {
				select {
				case p.said <- m.String():
				default:
				}
			}
		}
	}()
	return p
}

// quiet fails when the console had anything to say that is not one of the
// answers that are meant, and said there too.
func (p *tab) quiet(meant ...string) {
	p.s.Helper()
	for {
		select {
		case line := <-p.said:
			known := false
			for _, m := range meant {
				known = known || strings.Contains(line, m)
			}
			if !known {
				p.s.Errorf("the browser's console says: %s", line)
			}
		default:
			return
		}
	}
}

// do takes the steps, for as long as a person is patient.
func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.s.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.s.Fatalf("%v\non the page: %s", err, p.text())
	}
}

// eval gives the value of an expression on the page.
func eval[T any](p *tab, js string) T {
	p.s.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		p.s.Fatalf("%s: %v", js, err)
	}
	return v
}

func (p *tab) text() string {
	t, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return blanks.ReplaceAllString(t, " ")
}

// open types an address.
func (p *tab) open(path string) {
	p.s.Helper()
	p.do(chromedp.Navigate(p.base+path), chromedp.WaitReady("main"))
}

// click presses what leads to another page, and gives its status.
func (p *tab) click(sel string) int64 {
	p.s.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	r, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(sel)), chromedp.WaitReady("main"))
	if err != nil {
		p.s.Fatalf("click %s: %v\non the page: %s", sel, err, p.text())
	}
	return r.Status
}

// fill types into a field in place of what is there.
func (p *tab) fill(sel, text string) {
	p.s.Helper()
	p.do(chromedp.Clear(chromedp.CSS(sel)), chromedp.SendKeys(chromedp.CSS(sel), text))
}

// value is what a field holds.
func (p *tab) value(sel string) string {
	p.s.Helper()
	return eval[string](p, fmt.Sprintf(`document.querySelector(%q).value`, sel))
}

// await waits until the expression is true on the page.
func (p *tab) await(what, js string) {
	p.s.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](js, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(0))); err != nil {
		p.s.Fatalf("%s never came: %v\non the page: %s", what, err, p.text())
	}
}

// sees waits for a text.
func (p *tab) sees(text string) {
	p.s.Helper()
	p.await(fmt.Sprintf("%q", text), fmt.Sprintf(`document.body.innerText.includes(%q)`, text))
}

// at fails when the page is another.
func (p *tab) at(path string) {
	p.s.Helper()
	if got := eval[string](p, `location.pathname`); got != path {
		p.s.Fatalf("the browser is at %s, not %s: %s", got, path, p.text())
	}
}

// step is the number of the wizard's step that is lit.
func (p *tab) step(n string) {
	p.s.Helper()
	if got := eval[string](p, `document.querySelector(".steps [aria-current=step]")?.innerText ?? ""`); got != n {
		p.s.Errorf("step %q is lit, not %q", got, n)
	}
}

// silent fails when the internet side gets any answer of a port: a firewall says
// nothing, so there is no event to wait for.
func (s *story) silent(addr string) {
	s.Helper()
	ctx, stop := context.WithTimeout(s.ctx, 2*time.Second)
	defer stop()
	c, err := s.lab.Inet.Dial(ctx, "tcp", netip.MustParseAddrPort(addr))
	switch {
	case err == nil:
		c.Close()
		s.Errorf("%s answers the internet side", addr)
	case errors.Is(err, syscall.ECONNREFUSED):
		s.Errorf("%s refuses the internet side instead of being silent", addr)
	case !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, syscall.EHOSTUNREACH):
		s.Errorf("%s: %v", addr, err)
	}
}

// The first day of a box: from the setup code to the internet, in a browser.
func TestWizardLeadsABrowserToTheInternet(t *testing.T) {
	s := begin(t)
	s.serve()
	code := s.hear(`setup code: (\S+)`)[1]
	s.lease(s.lab.LAN1)
	gw, err := s.lab.LAN1.Gateway()
	if err != nil {
		t.Fatal(err)
	}
	// The internet side knows the way to the inside address, and gets no word.
	if err := s.lab.Inet.AddDirectRoute(gw.String()+"/32", "eth0"); err != nil {
		t.Fatal(err)
	}
	s.silent(gw.String() + ":443")

	p := s.chrome(s.lab.LAN1)
	claimInBrowser(p, code)
	portsInBrowser(p)
	internetInBrowser(p)
	localInBrowser(p)
	applyInBrowser(p)

	s.lease(s.lab.LAN2)
	out, err := s.lab.LAN2.Run(s.ctx, "curl", "-sS", "--max-time", "60", "http://www.example.test/")
	if err != nil || !strings.Contains(out, "This is the internet") {
		t.Fatalf("a LAN client could not load a page from the internet: %v\n%s", err, out)
	}
	p.open("/")
	p.await("WAN up in the header", `document.querySelector(".head").innerText.includes("WAN up")`)
	wan, err := s.lab.Box.Addrs("eth0")
	if err != nil {
		t.Fatal(err)
	}
	s.silent(gw.String() + ":443")
	for _, a := range wan {
		if a.Addr().Is4() {
			s.silent(a.Addr().String() + ":443")
			s.silent(a.Addr().String() + ":80")
		}
	}
	againInBrowser(p)
	p.quiet("409", "410", "422")
}

// claimInBrowser is step 1.
func claimInBrowser(p *tab, code string) {
	p.s.Helper()
	p.open("/")
	p.at("/setup/1")
	p.step("1 Claim")
	if zone := eval[string](p, `document.querySelector("[name=zone]").value`); zone != "Europe/Berlin" {
		p.s.Errorf("the time zone is %q, the browser's is Europe/Berlin", zone)
	}
	p.fill("#f-code", "AAAA-AAAA")
	p.fill("#f-password", "short")
	if status := p.click("main button[type=submit]"); status != 422 {
		p.s.Errorf("a wrong code and a short password: %d", status)
	}
	p.sees("The setup code does not match.")
	p.sees("Password: use at least 12 characters.")
	if zone := p.value("[name=zone]"); zone != "Europe/Berlin" {
		p.s.Errorf("the time zone became %q", zone)
	}
	p.fill("#f-code", strings.ToLower(code))
	p.fill("#f-password", ownerPassword)
	p.click("main button[type=submit]")
	p.at("/setup/2")
}

// portsInBrowser is step 2, with a cable that comes while a person looks.
func portsInBrowser(p *tab) {
	p.s.Helper()
	p.step("2 Ports")
	p.sees("A DHCP server answered")
	for sel, want := range map[string]string{"[name=wan]:checked": "eth0", "[name=lan]:checked": "eth1"} {
		if got := p.value(sel); got != want {
			p.s.Errorf("%s is suggested, not %s", got, want)
		}
	}
	if !eval[bool](p, `document.querySelector("[name=wan][value=eth1]").disabled`) {
		p.s.Error("the port of this browser can become the Internet port")
	}
	p.do(chromedp.Click(chromedp.CSS("[name=wan][value=none]")))
	for _, up := range []bool{false, true} {
		move, want := p.s.lab.Box.Unplug, "true"
		if up {
			move, want = p.s.lab.Box.Plug, "false"
		}
		if err := move("eth2"); err != nil {
			p.s.Fatal(err)
		}
		p.await("the cable of eth2", `document.querySelector("[name=lan][value=eth2]").closest("label").innerText.includes("No cable") === `+want)
		if got := p.value("[name=wan]:checked"); got != "none" {
			p.s.Errorf("a cable undid a click: %s is chosen", got)
		}
	}
	p.do(chromedp.Click(chromedp.CSS("[name=wan][value=eth0]")))
	p.do(chromedp.Reload(), chromedp.WaitReady("main"))
	p.at("/setup/2")
	p.click("#ports button[type=submit]")
	p.at("/setup/3")
}

// internetInBrowser is step 3.
func internetInBrowser(p *tab) {
	p.s.Helper()
	p.step("3 Internet")
	p.click("button[value=test]")
	p.sees("203.0.113.1 offers 203.0.113.")
	p.click("form[action='/setup/3'] a.btn") // Back
	p.at("/setup/2")
	if got := p.value("[name=wan]:checked") + p.value("[name=lan]:checked"); got != "eth0eth1" {
		p.s.Errorf("Back lost what was chosen: %s", got)
	}
	p.click("#ports button[type=submit]")
	p.do(chromedp.Reload(), chromedp.WaitReady("main"))
	p.at("/setup/3")
	p.click("form[action='/setup/3'] button.btn-primary")
	p.at("/setup/4")
}

// localInBrowser is step 4: a range that the person chose stays.
func localInBrowser(p *tab) {
	p.s.Helper()
	p.step("4 Local network")
	p.fill("#f-to", "192.168.1.1")
	if status := p.click("form[action='/setup/4'] button[type=submit]"); status != 422 {
		p.s.Errorf("a range that ends before it starts: %d %s", status, p.text())
	}
	if got := p.value("#f-to"); got != "192.168.1.1" {
		p.s.Errorf("what was typed became %q", got)
	}
	p.fill("#f-to", "192.168.1.99")
	p.click("form[action='/setup/4'] button[type=submit]")
	p.at("/review")
	p.do(chromedp.NavigateBack(), chromedp.WaitReady("main"))
	p.open("/setup/4")
	if got := p.value("#f-to"); got != "192.168.1.99" {
		p.s.Errorf("Back lost the end of the range: %q", got)
	}
	p.open("/setup/5")
	p.at("/review")
}

// applyInBrowser is steps 5 and 6.
func applyInBrowser(p *tab) {
	p.s.Helper()
	if bar := eval[string](p, `document.querySelector("#bar").innerText`); bar != "" {
		p.s.Errorf("the bar stands above the wizard: %s", bar)
	}
	p.step("5 Review")
	p.do(chromedp.Reload(), chromedp.WaitReady("main"))
	p.sees("You keep reaching these pages from your address")
	p.click("form[action='/apply'] button")
	p.step("6 Confirm")
	if text := p.text(); strings.Contains(text, "new address") {
		p.s.Errorf("the address did not change: %s", text)
	}
	p.sees("Keep these changes?")
	deadline := time.Now().Add(patience)
	for {
		p.click("#bar form[action='/confirm'] button, main form[action='/confirm'] button")
		if eval[string](p, `location.pathname`) == "/applied" || time.Now().After(deadline) {
			break // else: too soon after the apply to prove anything; the page says so, and a person presses again
		}
	}
	p.at("/applied")
	p.sees("Revision 1 is active and kept")
}

// againInBrowser runs the wizard once more: it is prefilled, changes nothing
// that nobody touched, and has no owner to give away.
func againInBrowser(p *tab) {
	p.s.Helper()
	for _, step := range []string{"/setup/2", "/setup/3", "/setup/4"} {
		p.open(step)
		p.click("form[action='" + step + "'] button.btn-primary")
	}
	p.at("/review")
	p.sees("Nothing is waiting.")
	p.open("/setup/4")
	if got := p.value("#f-addr") + " " + p.value("#f-to"); got != "192.168.1.1/24 192.168.1.99" {
		p.s.Errorf("the wizard is filled with %s", got)
	}
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	r, err := chromedp.RunResponse(ctx, chromedp.Navigate(p.base+"/setup/1"))
	if err != nil || r.Status != 410 {
		p.s.Errorf("step 1 of a box with an owner: %v %v", r, err)
	}
	p.sees("This box has an owner")
}

// A stranger on the wire who guesses at the code is held up, and only he.
func TestWizardHoldsUpWhoGuesses(t *testing.T) {
	s := begin(t)
	s.serve()
	code := s.hear(`setup code: (\S+)`)[1]
	s.lease(s.lab.Guest)
	p := s.chrome(s.lab.Guest)
	p.open("/setup/1")
	for i := range 6 {
		p.fill("#f-code", "AAAA-AAAA")
		p.fill("#f-password", ownerPassword)
		want := int64(422)
		if i == 5 {
			want = 429
		}
		if status := p.click("main button[type=submit]"); status != want {
			t.Fatalf("guess %d: %d, not %d: %s", i+1, status, want, p.text())
		}
	}
	p.sees("Too many tries")
	p.quiet("422", "429")
	s.lease(s.lab.LAN1)
	gw, err := s.lab.LAN1.Gateway()
	if err != nil {
		t.Fatal(err)
	}
	owner := s.from(s.lab.LAN1, gw.String()+":443")
	owner.post("/setup/1", fields("code", code, "admin", ownerName, "password", ownerPassword, "host", "fw1", "domain", "home.arpa", "zone", "UTC"))
}
