package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"testing"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/setup"
)

// twoPorts is a box with one port to the internet and one inside.
type twoPorts struct{}

func (twoPorts) Ports() []setup.Port {
	return []setup.Port{{Device: "eth0", Up: true}, {Device: "eth1", Up: true, Addr: netip.MustParsePrefix("192.168.1.1/24")}}
}
func (twoPorts) Test(context.Context, string) []setup.Line { return nil }

// wizard puts the steps behind the login on the desk's writer.
func (d *desk) wizard() {
	d.t.Helper()
	var err error
	d.handler, err = New(Deps{Log: slog.New(slog.DiscardHandler), Sessions: headerSessions{}, Events: d.bus, Box: d,
		Routes: setup.New(setup.Deps{Ports: twoPorts{}, Drafts: d.w, NewID: commit.NewID})})
	if err != nil {
		d.t.Fatal(err)
	}
}

// exempt is what the alias of those who are never shut out holds; "none" without it.
func (d *desk) exempt(account string) string {
	a, ok := d.config(account).Alias(firewall.NeverQuarantine)
	if !ok {
		return "none"
	}
	text := ""
	for _, e := range a.Addrs {
		text += e.End.String() + " (" + e.Note + ")"
	}
	return text
}

func localForm(addr string) url.Values {
	return values("hash", "", "was", addr, "addr", addr, "from", "", "to", "", "dhcp", "1")
}

// The browser of these requests is 192.168.1.20.
func TestWizardExemptsItsBrowserFromLockOuts(t *testing.T) {
	start := firewall.Factory()
	start.System.Host = "fw1"
	d := newDesk(t, start)
	d.wizard()
	step := func(path string, form url.Values, want string) {
		t.Helper()
		if path == "/setup/4" {
			form.Set("hash", d.config("admin").Hash(firewall.Ref{Kind: "interface", Key: "LAN"}))
		}
		wantStatus(t, d.ask(by("admin"), "POST", path, form), http.StatusSeeOther)
		if got := d.exempt("admin"); got != want {
			t.Fatalf("after %s the alias holds %q, want %q", path, got, want)
		}
	}
	const browser = "192.168.1.20 (wizard's browser)"
	ports := values("wan", "eth0", "lan", "eth1")
	step("/setup/2", ports, browser)
	step("/setup/2", ports, browser) // once more: not a second time
	step("/setup/4", localForm("192.168.77.1/24"), "none")
	step("/setup/4", localForm("192.168.77.1/24"), "none")
	step("/setup/4", localForm("192.168.1.1/24"), browser)
	admin := commit.Who{Account: "admin", Door: "web"}
	c := d.config("admin")
	a, _ := c.Alias(firewall.NeverQuarantine)
	a.Addrs = append(a.Addrs, firewall.Entry{End: firewall.End{Kind: firewall.EndAddr, Addr: netip.MustParseAddr("192.168.1.21")}, Note: "mine"})
	if err := d.w.Save(t.Context(), admin, commit.AnyHash, firewall.UpdateAlias{Name: a.Name, Alias: a}); err != nil {
		t.Fatal(err)
	}
	step("/setup/4", localForm("192.168.77.1/24"), browser+"192.168.1.21 (mine)") // what somebody edited is his
	step("/setup/4", localForm("192.168.1.1/24"), browser+"192.168.1.21 (mine)")
}

// A later run of the wizard makes nothing that somebody has removed.
func TestWizardLeavesTheExemptAloneLater(t *testing.T) {
	d := newDesk(t, home())
	d.wizard()
	for path, form := range map[string]url.Values{"/setup/2": values("wan", "eth0", "lan", "eth1"), "/setup/4": localForm("192.168.1.1/24")} {
		if path == "/setup/4" {
			form.Set("hash", d.config("admin").Hash(firewall.Ref{Kind: "interface", Key: "LAN"}))
		}
		wantStatus(t, d.ask(by("admin"), "POST", path, form), http.StatusSeeOther)
		if got := d.exempt("admin"); got != "none" {
			t.Errorf("after %s the alias holds %q", path, got)
		}
	}
}
