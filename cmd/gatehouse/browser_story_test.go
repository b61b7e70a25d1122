package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

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
	t.Parallel()
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
	for _, path := range []string{"/", "/rules?tab=all", "/rules/new", "/forwards", "/forwards/new", "/interfaces", "/interfaces/LAN", "/leases", "/leases/scope/LAN", "/revisions", "/revisions/1", "/review"} {
		p.open(path)
		p.fits()
	}
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
	p.fill("#f-to", "192.168.1.99")
	p.click("form[action='/setup/4'] button[type=submit]")
	p.at("/review")
	p.do(chromedp.NavigateBack(), chromedp.WaitReady("main"))
	p.at("/setup/4")
	if got := p.value("#f-to"); got != "192.168.1.99" {
		p.s.Errorf("Back lost the end of the range: %q", got)
	}
	p.fill("#f-to", "192.168.1.1")
	if status := p.click("form[action='/setup/4'] button[type=submit]"); status != 422 {
		p.s.Errorf("a range that ends before it starts: %d %s", status, p.text())
	}
	if got := p.value("#f-to"); got != "192.168.1.1" {
		p.s.Errorf("what was typed became %q", got)
	}
	p.open("/setup/4")
	if got := p.value("#f-to"); got != "192.168.1.99" {
		p.s.Errorf("a mistake became the end of the range: %q", got)
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
	t.Parallel()
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
