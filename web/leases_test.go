package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
)

const nasID = "01JSTATIC00000000000000001"

// networked is the desk of a small office in use.
func networked(t *testing.T) *desk {
	d := newDesk(t, home())
	d.use(busy(time.Now()))
	return d
}

// scopeForm is the LAN's scope as its editor sends it untouched, with changes.
func (d *desk) scopeForm(pairs ...string) url.Values {
	v := values("hash", d.config("admin").Hash(firewall.Ref{Kind: "scope", Key: "LAN"}), "on", "1", "from", "192.168.1.100", "to", "192.168.1.199",
		"lease", "2h", "gw", "", "dns", "", "domain", "", "then", "save")
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

func staticForm(pairs ...string) url.Values {
	v := values("hash", "", "in", "LAN", "mac", "52:54:00:3a:01:77", "addr", "192.168.1.20", "host", "laptop", "descr", "", "then", "save")
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

// wantSays fails when a refused form does not say it beside its field.
func wantSays(t *testing.T, a answer, field, says string) {
	t.Helper()
	wantStatus(t, a, http.StatusUnprocessableEntity)
	if body := unescape(text(a.body)); !strings.Contains(body, says) {
		t.Errorf("%s: no word of %q: %s", field, says, body)
	}
	if !strings.Contains(a.body, `href="#f-`+field+`"`) || !strings.Contains(a.body, `id="f-`+field) {
		t.Errorf("%s: the summary does not link to the field", field)
	}
}

func TestLeasesShowEveryState(t *testing.T) {
	d := networked(t)
	body := unescape(text(d.get("admin", "/leases").body))
	for _, s := range []string{"laptop-anna", "active", "expired", "declined", "offered", "released", "192.168.1.100 – 192.168.1.199", "lease 2h", "4 in use",
		"Somebody uses this address without a lease", "in 8 seconds", "Static mappings", "here"} {
		if !strings.Contains(body, s) {
			t.Errorf("no word of %q: %s", s, body)
		}
	}
	if strings.Contains(body, "WAN DHCP") || strings.Contains(d.get("admin", "/leases").body, "/leases/scope/WAN") {
		t.Error("there is a DHCP server on the WAN")
	}
}

// Host names come from the network: whatever they say is text.
func TestHostileNamesAreText(t *testing.T) {
	d := networked(t)
	d.network.rows[1].Host = `"><script>alert(1)</script>` // as a store that somebody edited could hold
	for _, path := range []string{"/leases", "/leases/static/new", "/leases?q=" + url.QueryEscape("<img")} {
		body := d.get("admin", path).body
		for _, bad := range []string{"<img src=x", "<script>alert", "\x1b", "\u202e", "onerror=alert(1)>"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s holds %q", path, bad)
			}
		}
		if !strings.Contains(body, "&lt;img") {
			t.Errorf("%s does not show the name at all", path)
		}
	}
	link := d.get("admin", "/leases").body
	at := strings.Index(link, "/leases/static/new?addr=192.168.1.101")
	if at < 0 {
		t.Fatal("no button to make it static")
	}
	href, _, _ := strings.Cut(link[at:], `"`)
	if body := d.get("admin", unescape(href)).body; strings.Contains(body, "<script>alert") || !strings.Contains(body, `value="52:54:00:3a:01:77"`) {
		t.Error("the editor takes over more than text")
	}
}

func TestLeaseSearchFindsAnyNotation(t *testing.T) {
	d := networked(t)
	for q, want := range map[string][]string{"phone": {"102"}, "a483.e700.1022": {"102"}, "A4-83-E7": nil, "192.168.1.10 nas": {"10"}, "declined": {"105"}, "PRINTER expired": {"104"}, "active 00:1e": {"103"}} {
		body := d.get("admin", "/leases?q="+url.QueryEscape(q)).body
		for _, l := range d.network.rows {
			last := l.Addr.String()[len("192.168.1."):]
			if shown := strings.Contains(body, `id="l-`+l.Addr.String()+`"`); shown != slices.Contains(want, last) {
				t.Errorf("%q: %s shown: %v", q, l.Addr, shown)
			}
		}
		if want == nil && !strings.Contains(unescape(text(body)), "Nobody here is called “"+q+"”") {
			t.Errorf("%q: does not say that nothing was found", q)
		}
	}
}

// Runtime acts happen at once and never enter the draft.
func TestLeaseActsAreNoChanges(t *testing.T) {
	d := networked(t)
	for _, op := range []string{"release:192.168.1.102", "delete:192.168.1.104", "delete:192.168.1.250"} {
		a := d.post("admin", "/leases", "op", op, "q", "x y")
		wantStatus(t, a, http.StatusSeeOther)
		if to := a.Header.Get("Location"); to != "/leases?q=x+y" {
			t.Errorf("leads to %s", to)
		}
	}
	if want := []string{"release 192.168.1.102", "delete 192.168.1.104"}; !slices.Equal(d.network.did, want) {
		t.Errorf("did %v, want %v", d.network.did, want)
	}
	if v := d.w.View("admin"); len(v.Items) > 0 {
		t.Errorf("in the draft: %v", v.Items)
	}
	for _, op := range []string{"", "release", "release:nas", "format:192.168.1.102", "release:192.168.1.102:x:y"} {
		if a := d.post("admin", "/leases", "op", op); a.StatusCode != http.StatusBadRequest && op != "release:192.168.1.102:x:y" {
			t.Errorf("%q: %s", op, a.Status)
		}
	}
	wantStatus(t, d.post("admin", "/leases", "op", "release:192.168.1.102", "force", "1"), http.StatusBadRequest)
}

func TestScopeEditorReadsWhatItShows(t *testing.T) {
	d := networked(t)
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/scope/LAN", d.scopeForm()), http.StatusSeeOther)
	if v := d.w.View("admin"); len(v.Items) > 0 {
		t.Fatalf("an untouched form changed something: %v", v.Items)
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/scope/LAN", d.scopeForm("lease", "1h 30m", "dns", "192.168.1.1, 9.9.9.9", "gw", "192.168.1.254", "domain", "office.home.arpa")), http.StatusSeeOther)
	s, _ := d.config("admin").Scope("LAN")
	if s.Lease != 5400 || len(s.DNS) != 2 || s.Gateway.String() != "192.168.1.254" || s.Domain != "office.home.arpa" || len(s.Statics) != 1 {
		t.Errorf("saved %+v", s)
	}
	body := d.get("admin", "/leases/scope/LAN").body
	for _, field := range []string{`value="1h30m"`, `value="192.168.1.1, 9.9.9.9"`, `value="192.168.1.254"`, `value="office.home.arpa"`} {
		if !strings.Contains(body, field) {
			t.Errorf("the editor does not show %s", field)
		}
	}
	// The same again: what is shown is what is saved.
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/scope/LAN", d.scopeForm("lease", "1h30m", "dns", "192.168.1.1, 9.9.9.9", "gw", "192.168.1.254", "domain", "office.home.arpa")), http.StatusSeeOther)
	if again, _ := d.config("admin").Scope("LAN"); again.Lease != s.Lease || again.Domain != s.Domain {
		t.Errorf("saved again %+v", again)
	}
}

func TestScopeTellsBadFields(t *testing.T) {
	for _, bad := range []struct{ field, typed, says string }{
		{"from", "", "Write an IPv4 address"}, {"from", "192.168.1.x", "`192.168.1.x` is not an IP address"}, {"from", "192.168.2.100", "The range must lie inside 192.168.1.0/24"},
		{"from", "192.168.1.1", "contains the box's own address"}, {"to", "192.168.1.99", "The range ends (192.168.1.99) before it starts"}, {"to", "192.168.1.255", "broadcast"},
		{"lease", "", "Write for example 30s, 5m or 2h."}, {"lease", "59", "60 seconds to 7 days"}, {"lease", "8d", "60 seconds to 7 days"}, {"lease", "2 weeks", "Write for example"},
		{"gw", "10.0.0.1", "Gateway must be inside 192.168.1.0/24"}, {"gw", "here", "is not an IP address"}, {"dns", "1.1.1.1 2.2.2.2 3.3.3.3 4.4.4.4 5.5.5.5", "At most 4"},
		{"dns", "1.1.1.1, ns1", "`ns1` is not an IP address"}, {"dns", "2001:db8::1", "At most 4 IPv4"}, {"domain", "-x", "Domain: use letters"},
	} {
		d := networked(t)
		wantSays(t, d.ask(by("admin"), "POST", "/leases/scope/LAN", d.scopeForm(bad.field, bad.typed)), bad.field, bad.says)
		if len(d.w.View("admin").Items) > 0 {
			t.Errorf("%s %q was saved", bad.field, bad.typed)
		}
	}
	d := networked(t)
	// All at once, with what was typed still there.
	a := d.ask(by("admin"), "POST", "/leases/scope/LAN", d.scopeForm("from", "192.168.1.x", "gw", "10.0.0.1", "lease", "soon"))
	for _, s := range []string{"from", "gw", "lease"} {
		wantSays(t, a, s, "3 problems")
	}
	if !strings.Contains(a.body, `value="soon"`) {
		t.Error("what was typed is gone")
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/scope/LAN", d.scopeForm("ntp", "1")), http.StatusBadRequest)
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/scope/DMZ", d.scopeForm()), http.StatusNotFound)
	if wan := d.ask(by("admin"), "POST", "/leases/scope/WAN", d.scopeForm("hash", "")); wan.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(text(wan.body), "never runs on a WAN") {
		t.Errorf("a WAN: %s", wan.Status)
	}
}

func TestScopeOfAnotherNetworkStartsWithTheUsualRange(t *testing.T) {
	d := networked(t)
	body := d.get("admin", "/leases/scope/GUEST?on=1").body
	for _, s := range []string{`value="192.168.2.10"`, `value="192.168.2.244"`, `value="2h"`, "checked"} {
		if !strings.Contains(body, s) {
			t.Errorf("no %s", s)
		}
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/scope/GUEST", d.scopeForm("hash", "", "from", "192.168.2.10", "to", "192.168.2.244")), http.StatusSeeOther)
	if s, ok := d.config("admin").Scope("GUEST"); !ok || !s.On {
		t.Error("no scope")
	}
	if body := unescape(text(d.get("admin", "/leases").body)); !strings.Contains(body, "GUEST on after Apply new") {
		t.Error(body)
	}
}

// C20: a reservation may lie outside the pool, never outside the network.
func TestC20ReservationOutsideThePool(t *testing.T) {
	d := networked(t)
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/static/new", staticForm("addr", "192.168.1.20")), http.StatusSeeOther) // pool .100–.199
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/static/new", staticForm("mac", "02:00:00:00:00:09", "addr", "192.168.1.150", "host", "inside")), http.StatusSeeOther)
	s, _ := d.config("admin").Scope("LAN")
	if len(s.Statics) != 3 {
		t.Errorf("mappings: %v", s.Statics)
	}
	for addr, says := range map[string]string{"192.168.2.20": "The address must lie inside 192.168.1.0/24", "192.168.1.255": "network or broadcast", "192.168.1.0": "network or broadcast",
		"192.168.1.1": "the box's own address", "": "Write the address", "192.168.1": "Write the address", "2001:db8::1": "must lie inside"} {
		wantSays(t, d.ask(by("admin"), "POST", "/leases/static/new", staticForm("mac", "02:00:00:00:00:0a", "host", "x", "addr", addr)), "addr", says)
	}
}

// C21: two that collide are refused and the other one is named; one MAC in two networks is fine.
func TestC21ReservationsThatCollide(t *testing.T) {
	d := networked(t)
	second := staticForm("addr", "192.168.1.50", "mac", "02:00:00:00:00:02", "host", "second")
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/static/new", second), http.StatusSeeOther)
	for _, c := range []struct {
		name, mac, addr, host string
		field, says           string
	}{
		{"address of another", "02:00:00:00:00:03", "192.168.1.50", "third", "addr", "192.168.1.50 already belongs to second."},
		{"MAC of another", "02:00:00:00:00:02", "192.168.1.51", "third", "mac", "02:00:00:00:00:02 already has 192.168.1.50 (second)."},
		{"MAC in dashes", "02-00-00-00-00-02", "192.168.1.51", "third", "mac", "already has 192.168.1.50 (second)."},
		{"MAC in dots and capitals", "0200.0000.0002", "192.168.1.51", "THIRD", "mac", "already has 192.168.1.50 (second)."},
		{"name of another", "02:00:00:00:00:03", "192.168.1.51", "second", "host", "second is already the name of 02:00:00:00:00:02."},
		{"no MAC", "", "192.168.1.51", "third", "mac", "A MAC has 12 hex digits."},
		{"a group's MAC", "01:00:5e:00:00:01", "192.168.1.51", "third", "mac", "multicast MAC"},
		{"a full name", "02:00:00:00:00:03", "192.168.1.51", "third.home.arpa", "host", "no dot"},
	} {
		a := d.ask(by("admin"), "POST", "/leases/static/new", staticForm("mac", c.mac, "addr", c.addr, "host", c.host))
		t.Log(c.name)
		wantSays(t, a, c.field, c.says)
	}
	// Editing the first into the second is told at the first, which is what the person edits.
	hash := d.config("admin").Hash(firewall.Ref{Kind: "static", Key: nasID})
	form := staticForm("hash", hash, "mac", "02:00:00:00:00:01", "addr", "192.168.1.50", "host", "nas")
	form.Del("in")
	wantSays(t, d.ask(by("admin"), "POST", "/leases/static/"+nasID, form), "addr", "192.168.1.50 already belongs to second.")

	wantStatus(t, d.ask(by("admin"), "POST", "/leases/scope/GUEST", d.scopeForm("hash", "", "from", "192.168.2.10", "to", "192.168.2.244")), http.StatusSeeOther)
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/static/new", staticForm("in", "GUEST", "mac", "02:00:00:00:00:02", "addr", "192.168.2.50", "host", "")), http.StatusSeeOther)
	wantSays(t, d.ask(by("admin"), "POST", "/leases/static/new", staticForm("in", "DMZ")), "in", "Choose a network that has a DHCP scope.")
}

func TestStaticOfALeaseThatIsTakenWarns(t *testing.T) {
	d := networked(t)
	if body := unescape(text(d.get("admin", "/leases/static/new?in=LAN&mac=02:00:00:00:00:0c&addr=192.168.1.102").body)); !strings.Contains(body, "192.168.1.102 is leased now to phone until") {
		t.Error("no warning: " + body)
	}
	if body := text(d.get("admin", "/leases/static/new?in=LAN&mac=a483.e700.1022&addr=192.168.1.102").body); strings.Contains(body, "is leased now") {
		t.Error("warns of the very client")
	}
}

func TestStaticIsChangedDeletedAndBroughtBack(t *testing.T) {
	d := networked(t)
	ref := firewall.Ref{Kind: "static", Key: nasID}
	old := d.get("admin", "/leases").body
	hash := d.config("admin").Hash(ref)
	form := staticForm("hash", hash, "mac", "02:00:00:00:00:01", "addr", "192.168.1.11", "host", "nas", "descr", "Cellar")
	form.Del("in")
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/static/"+nasID, form), http.StatusSeeOther)
	if _, s, _ := d.config("admin").Static(nasID); s.Addr.String() != "192.168.1.11" || s.Descr != "Cellar" {
		t.Errorf("saved %+v", s)
	}
	// The same form once more, from a tab that was open: both versions.
	form.Set("addr", "192.168.1.12")
	a := d.ask(by("admin"), "POST", "/leases/static/"+nasID, form)
	wantStatus(t, a, http.StatusConflict)
	if body := text(a.body); !strings.Contains(body, "Address 192.168.1.11 192.168.1.12") || !strings.Contains(body, "Save mine instead") {
		t.Error(body)
	}
	wantStatus(t, d.post("admin", "/leases", "op", opOf(t, old, "unmap", nasID), "q", ""), http.StatusConflict)
	wantStatus(t, d.post("admin", "/leases", "op", opOf(t, d.get("admin", "/leases").body, "unmap", nasID), "q", ""), http.StatusSeeOther)
	if _, _, there := d.config("admin").Static(nasID); there {
		t.Error("still there")
	}
	form.Set("hash", hash)
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/static/"+nasID, form), http.StatusNotFound)
	wantStatus(t, d.post("admin", "/leases", "op", opOf(t, d.get("admin", "/leases").body, "undo", nasID), "q", ""), http.StatusSeeOther)
	if v := d.w.View("admin"); v.Config.Stamp() != v.Head.Stamp() {
		t.Error("undo does not bring it back")
	}
}

func TestScopeConflictShowsBothVersions(t *testing.T) {
	d := networked(t)
	mine := d.scopeForm("to", "192.168.1.150")
	other := commit.Who{Account: "admin", Door: "cli"}
	s, _ := d.config("admin").Scope("LAN")
	s.Lease = 600
	if err := d.w.Save(t.Context(), other, commit.AnyHash, firewall.PutScope{Scope: s}); err != nil {
		t.Fatal(err)
	}
	a := d.ask(by("admin"), "POST", "/leases/scope/LAN", mine)
	wantStatus(t, a, http.StatusConflict)
	if body := text(a.body); !strings.Contains(body, "To 192.168.1.199 192.168.1.150") || !strings.Contains(body, "Lease time 10m 2h") {
		t.Error(body)
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/leases/scope/LAN", d.scopeForm("to", "192.168.1.150")), http.StatusSeeOther) // "Save mine instead", with the new hash
}
