package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
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
	if err != nil || r == nil {
		p.s.Fatalf("click %s: %v %v\non the page: %s", sel, r, err, p.text())
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

// fits fails when the page can be pushed sideways in the smallest window.
func (p *tab) fits() {
	p.s.Helper()
	p.do(chromedp.EmulateViewport(320, 700))
	if wide := eval[string](p, `(() => { const width = document.documentElement.clientWidth;
		return [...document.querySelectorAll("body *")].filter(e => document.documentElement.scrollWidth > width && e.getBoundingClientRect().right > width + 1)
			.map(e => e.tagName + "." + e.className).slice(0, 5).join(" "); })()`); wide != "" {
		p.s.Errorf("%s sticks out of a window of 320: %s", wide, p.text())
	}
	p.do(chromedp.EmulateViewport(1280, 900))
}

// step is the number of the wizard's step that is lit.
func (p *tab) step(n string) {
	p.s.Helper()
	p.fits()
	if got := eval[string](p, `document.querySelector(".steps [aria-current=step]")?.innerText ?? ""`); got != n {
		p.s.Errorf("step %q is lit, not %q", got, n)
	}
}
