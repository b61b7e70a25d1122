package web

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/events"
)

func TestNetworkPagesFitEveryWindowWithoutViolation(t *testing.T) {
	d := networked(t)
	admin := commit.Who{Account: "admin", Door: "web"}
	guest, _ := d.config("admin").Interface("GUEST")
	guest.MTU = 1400
	for _, ch := range []firewall.Change{
		firewall.UpdateInterface{Name: "GUEST", Interface: guest},
		firewall.AddStatic{In: "LAN", Static: firewall.StaticLease{ID: commit.NewID(), MAC: "a4:83:e7:00:10:23", Addr: netip.MustParseAddr("192.168.1.101"), Host: "camera", Descr: "Front door"}},
	} {
		if err := d.w.Save(t.Context(), admin, commit.AnyHash, ch); err != nil {
			t.Fatal(err)
		}
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
			for what, path := range map[string]string{"leases": "/leases", "leases-empty": "/leases?q=nothing-like-it", "scope": "/leases/scope/LAN",
				"static": "/leases/static/" + nasID, "interfaces": "/interfaces", "interface": "/interfaces/LAN", "interface-new": "/interfaces/new"} {
				goTo(t, ctx, base+path)
				checkWidth(t, ctx, what+" "+name)
				shoot(t, ctx, what+"-"+name)
			}
			goTo(t, ctx, base+"/interfaces/WAN")
			if err := chromedp.Do(ctx, chromedp.Click("[commandfor=delete]"), chromedp.WaitVisible("#delete")); err != nil {
				t.Fatal(err)
			}
			shoot(t, ctx, "interface-delete-"+name)
			goTo(t, ctx, base+"/interfaces/LAN")
			run(t, ctx, chromedp.Evaluate[any](`document.querySelector("#f-addr").value = "192.168.2.9/24"; document.querySelector("#f-mtu").value = "9999"`))
			if _, err := chromedp.RunResponse(ctx, chromedp.Click("button[value=save]")); err != nil {
				t.Fatal(err)
			}
			checkWidth(t, ctx, "interface-wrong "+name)
			shoot(t, ctx, "interface-wrong-"+name)
		}
	}
	for _, line := range console() {
		if !strings.Contains(line, "422") { // meant, and said there too
			t.Errorf("the console says: %s", line)
		}
	}
}

// A lease that is given shows up by itself, and the search stays what it is.
func TestLeasesFollowWhatHappens(t *testing.T) {
	d := networked(t)
	base := d.serveTLS()
	ctx, console := browser(t)
	goTo(t, ctx, base+"/leases?q=phone")
	if err := chromedp.Do(ctx, chromedp.WaitVisible("[id='l-192.168.1.102']"), chromedp.Focus("[id='release-192.168.1.102']")); err != nil {
		t.Fatal(err)
	}
	run(t, ctx, chromedp.Evaluate[any](`document.body.dataset.same = "1"`))
	d.network.mu.Lock()
	next := d.network.rows[2]
	next.Addr, next.MAC, next.Host = netip.MustParseAddr("192.168.1.120"), "a4:83:e7:00:10:99", "phone-of-ben"
	d.network.rows = append(d.network.rows, next)
	d.network.mu.Unlock()
	over, stop := context.WithCancel(ctx)
	go func() { // more than once: the page may not listen yet
		again := time.NewTicker(time.Second)
		defer again.Stop()
		for over.Err() == nil {
			d.bus.Publish(events.Event{Name: "lease"})
			<-again.C
		}
	}()
	defer stop()
	if err := chromedp.Do(ctx, chromedp.WaitVisible("[id='l-192.168.1.120']")); err != nil {
		t.Fatal(err)
	}
	stop()
	if got := run(t, ctx, chromedp.Evaluate[string](`document.body.dataset.same + " " + document.activeElement.id`)); got != "1 release-192.168.1.102" {
		t.Errorf("page and focus are now %q", got)
	}
	// What is typed is looked for without a button.
	run(t, ctx, chromedp.Evaluate[any](`document.querySelector("[data-search]").select()`))
	if err := chromedp.Do(ctx, chromedp.SendKeys("[data-search]", "of-ben"), chromedp.WaitNotPresent("[id='l-192.168.1.102']"), chromedp.WaitVisible("[id='l-192.168.1.120']")); err != nil {
		t.Fatal(err)
	}
	if lines := console(); len(lines) > 0 {
		t.Errorf("the console says: %q", lines)
	}
}
