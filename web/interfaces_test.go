package web

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/services/commit"
)

// portForm is an interface as its editor sends it untouched, with changes; "-" takes a tick away.
func (d *desk) portForm(name firewall.Name, pairs ...string) url.Values {
	d.t.Helper()
	c := d.config("admin")
	in, ok := c.Interface(name)
	if !ok {
		d.t.Fatalf("no interface %s", name)
	}
	v := values("hash", c.Hash(firewall.Ref{Kind: "interface", Key: string(name)}), "name", string(name), "device", in.Device, "role", string(in.Role),
		"mode", string(in.V4.Mode), "addr", "", "gw", "", "dns", "", "mode6", string(in.V6.Mode), "addr6", "", "gw6", "", "mtu", "", "then", "save", "along", "1")
	for field, on := range map[string]bool{"on": in.On, "block_private": in.BlockPrivate, "block_bogons": in.BlockBogons} {
		if on {
			v.Set(field, "1")
		}
	}
	if in.V4.Addr.IsValid() {
		v.Set("addr", in.V4.Addr.String())
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if v.Set(pairs[i], pairs[i+1]); pairs[i+1] == "-" {
			v.Del(pairs[i])
		}
	}
	return v
}

func newPort(pairs ...string) url.Values {
	v := values("hash", "", "name", "DMZ", "device", "eth3", "role", "other", "on", "1", "mode", "static", "addr", "192.168.3.1/24", "gw", "", "dns", "",
		"mode6", "none", "addr6", "", "gw6", "", "mtu", "", "then", "save")
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v
}

func TestUntouchedInterfaceEditorKeepsTheInterface(t *testing.T) {
	d := networked(t)
	for _, name := range []firewall.Name{"WAN", "LAN", "GUEST"} {
		wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/"+string(name), d.portForm(name)), http.StatusSeeOther)
	}
	if v := d.w.View("admin"); len(v.Items) > 0 {
		t.Errorf("untouched forms changed something: %v", v.Items)
	}
}

func TestInterfaceEditorReadsWhatItShows(t *testing.T) {
	d := networked(t)
	form := d.portForm("WAN", "mode", "static", "addr", "203.0.113.24/24", "gw", "203.0.113.1", "dns", "203.0.113.53, 2001:db8::53", "mode6", "static",
		"addr6", "2001:db8:1::2/64", "gw6", "fe80::1", "mtu", "1 492", "block_private", "-")
	wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/WAN", form), http.StatusSeeOther)
	in, _ := d.config("admin").Interface("WAN")
	if in.V4.Addr.String() != "203.0.113.24/24" || in.V4.Gateway.String() != "203.0.113.1" || len(in.V4.DNS) != 2 || in.V6.Gateway.String() != "fe80::1" || in.MTU != 1492 ||
		in.BlockPrivate || !in.BlockBogons {
		t.Errorf("saved %+v", in)
	}
	body := d.get("admin", "/interfaces/WAN").body
	for _, s := range []string{`value="203.0.113.24/24"`, `value="203.0.113.1"`, `value="203.0.113.53, 2001:db8::53"`, `value="2001:db8:1::2/64"`, `value="fe80::1"`, `value="1492"`} {
		if !strings.Contains(body, s) {
			t.Errorf("the editor does not show %s", s)
		}
	}
	stamp := d.config("admin").Stamp()
	form.Set("hash", d.config("admin").Hash(firewall.Ref{Kind: "interface", Key: "WAN"}))
	wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/WAN", form), http.StatusSeeOther)
	if d.config("admin").Stamp() != stamp {
		t.Error("saving what is shown changes it")
	}
}

func TestNewInterfaceTakesAFreePort(t *testing.T) {
	d := networked(t)
	body := d.get("admin", "/interfaces/new").body
	for _, s := range []string{`<option value="eth3" selected`, `<option value="eth4"`, `value="192.168.3.1/24"`} {
		if !strings.Contains(body, s) {
			t.Errorf("no %s", s)
		}
	}
	if strings.Contains(body, `<option value="eth1"`) {
		t.Error("a port that is used is offered")
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/new", newPort()), http.StatusSeeOther)
	if in, ok := d.config("admin").Interface("DMZ"); !ok || in.String() != "DMZ (OTHER) on eth3, 192.168.3.1/24" {
		t.Errorf("added %q", in)
	}
	if body := unescape(text(d.get("admin", "/interfaces").body)); !strings.Contains(body, "DMZ new") || !strings.Contains(body, "after Apply") {
		t.Error(body)
	}
	wantStatus(t, d.post("admin", "/interfaces", "op", "undo:DMZ"), http.StatusSeeOther)
	if len(d.w.View("admin").Items) > 0 {
		t.Error("undo does not take it back")
	}
}

func TestInterfaceTellsBadFields(t *testing.T) {
	for _, bad := range []struct{ field, typed, says string }{
		{"name", "", "start with a letter"}, {"name", "1ST", "start with a letter"}, {"name", "tcp", "reserved or protocol name"}, {"name", "lan", "LAN is already an interface"},
		{"name", "ssh", "is a service name"}, {"name", "new", "reserved name"}, {"name", "web_servers", "WEB_SERVERS is already an alias"}, {"name", strings.Repeat("A", 16), "at most 15"},
		{"device", "eth9", "There is no such port now"}, {"device", "eth1", "eth1 is already used by LAN"}, {"device", "../x", "There is no such port"}, {"device", "", "Choose a port from the list"},
		{"role", "dmz", "Choose WAN, LAN or other"}, {"mode", "dhcp", "Only a WAN can ask"}, {"mode", "pppoe", "Choose none, static or DHCP"}, {"mode6", "slaac", "Choose none or static"},
		{"addr", "192.168.3.1", "Write an address with its length"}, {"addr", "192.168.1.9/24", "already used by LAN"}, {"addr", "192.168.3.0/24", "choose one between 192.168.3.1 and 192.168.3.254"},
		{"addr", "192.168.3.255/24", "broadcast"}, {"addr", "2001:db8::1/64", "Write an address with its length, for example 192.168.1.1/24"}, {"gw", "192.168.3.254", "Only a WAN has a gateway"},
		{"gw", "x", "is not an IP address"}, {"dns", "9.9.9.9 x", "`x` is not an IP address"}, {"dns", "1.1.1.1 1.1.1.2 1.1.1.3 1.1.1.4 1.1.1.5", "At most 4"},
		{"mtu", "575", "576–9000"}, {"mtu", "9001", "576–9000"}, {"mtu", "0", "leave it empty"}, {"mtu", "big", "576–9000"}, {"mtu", "99999999999", "576–9000"},
	} {
		d := networked(t)
		a := d.ask(by("admin"), "POST", "/interfaces/new", newPort(bad.field, bad.typed))
		t.Logf("%s %q", bad.field, bad.typed)
		wantSays(t, a, bad.field, bad.says)
		if len(d.w.View("admin").Items) > 0 {
			t.Errorf("%s %q was saved", bad.field, bad.typed)
		}
	}
	d := networked(t)
	a := d.ask(by("admin"), "POST", "/interfaces/new", newPort("role", "wan", "addr", "198.51.100.2/29", "gw", "198.51.100.9", "mode6", "static", "addr6", "192.168.3.1/24", "mtu", "1000"))
	for field, says := range map[string]string{"gw": "Gateway must be inside 198.51.100.0/29", "addr6": "2001:db8:1::1/64", "mtu": "IPv6 needs an MTU of at least 1280"} {
		wantSays(t, a, field, says)
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/new", newPort("vlan", "7")), http.StatusBadRequest)
	wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/DMZ", newPort()), http.StatusNotFound)
	// The earlier one of two that collide: told at the one that the person edits.
	wantSays(t, d.ask(by("admin"), "POST", "/interfaces/LAN", d.portForm("LAN", "addr", "192.168.2.9/24")), "addr", "already used by GUEST")
	wantSays(t, d.ask(by("admin"), "POST", "/interfaces/WAN", d.portForm("WAN", "name", "GUEST")), "name", "GUEST is already an interface")
}

// A new address takes the DHCP range and the static mappings along, in one save.
func TestNewAddressMovesTheDHCPRange(t *testing.T) {
	for _, c := range []struct{ addr, from, to, nas string }{
		{"10.1.2.1/24", "10.1.2.10", "10.1.2.244", "10.1.2.10"},
		{"192.168.1.254/24", "192.168.1.100", "192.168.1.199", "192.168.1.10"}, // still fits: nothing moves
		{"192.168.1.150/24", "192.168.1.10", "192.168.1.149", "192.168.1.10"},  // the box would stand in the range
		{"10.0.0.1/16", "10.0.0.10", "10.0.255.244", "10.0.0.10"},
	} {
		d := networked(t)
		wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/LAN", d.portForm("LAN", "addr", c.addr)), http.StatusSeeOther)
		cfg := d.config("admin")
		in, _ := cfg.Interface("LAN")
		s, _ := cfg.Scope("LAN")
		if in.V4.Addr.String() != c.addr || s.From.String() != c.from || s.To.String() != c.to || s.Statics[0].Addr.String() != c.nas || !s.On {
			t.Errorf("%s: %s to %s, nas %s; want %s to %s, nas %s", in.V4.Addr, s.From, s.To, s.Statics[0].Addr, c.from, c.to, c.nas)
		}
	}
	d := networked(t)
	a := d.ask(by("admin"), "POST", "/interfaces/LAN", d.portForm("LAN", "addr", "10.1.2.1/24", "along", "-"))
	wantSays(t, a, "along", "DHCP: The range must lie inside 10.1.2.0/24")
	if !strings.Contains(unescape(text(a.body)), "Static mapping 192.168.1.10") {
		t.Error("does not tell of the mapping")
	}
	// Too small for the mapping: said, nothing lost.
	a = d.ask(by("admin"), "POST", "/interfaces/LAN", d.portForm("LAN", "addr", "10.1.2.1/29"))
	wantStatus(t, a, http.StatusUnprocessableEntity)
	if !strings.Contains(unescape(text(a.body)), "Static mapping 192.168.1.10 (02:00:00:00:00:01): The address must lie inside 10.1.2.0/29") {
		t.Error(text(a.body))
	}
	if len(d.w.View("admin").Items) > 0 {
		t.Error("something was saved")
	}
}

func TestRenamedInterfaceKeepsWhatBelongsToIt(t *testing.T) {
	d := networked(t)
	wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/LAN", d.portForm("LAN", "name", "HOME", "addr", "10.1.2.1/24")), http.StatusSeeOther)
	c := d.config("admin")
	s, ok := c.Scope("HOME")
	if r, _ := c.Rule(ruleID(1)); !ok || s.From.String() != "10.1.2.10" || r.In != "HOME" || r.Src.String() != "HOME net" {
		t.Errorf("scope %v %s, rule on %s from %s", ok, s.From, r.In, r.Src)
	}
	body := unescape(text(d.get("admin", "/interfaces").body))
	if !strings.Contains(body, "called LAN until Apply") || strings.Contains(body, "Undo deleting") {
		t.Error(body)
	}
	wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/HOME", d.portForm("HOME", "mtu", "1400")), http.StatusSeeOther)
	if v := d.w.View("admin"); !v.Fits || len(v.Problems) > 0 {
		t.Errorf("the draft does not fit: %v %v", v.Items, v.Problems)
	}
}

func TestWithoutAFixedAddressTheDHCPServerGoesOff(t *testing.T) {
	d := networked(t)
	s := firewall.Scope{In: "GUEST", On: true, From: netip.MustParseAddr("192.168.2.10"), To: netip.MustParseAddr("192.168.2.99"), Lease: 600}
	if err := d.w.Save(t.Context(), commit.Who{Account: "admin"}, commit.AnyHash, firewall.PutScope{Scope: s}); err != nil {
		t.Fatal(err)
	}
	wantSays(t, d.ask(by("admin"), "POST", "/interfaces/GUEST", d.portForm("GUEST", "mode", "none", "along", "-")), "along", "GUEST has no fixed address")
	wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/GUEST", d.portForm("GUEST", "mode", "none")), http.StatusSeeOther)
	c := d.config("admin")
	if s, _ := c.Scope("GUEST"); s.On {
		t.Error("it is still on")
	}
	if in, _ := c.Interface("GUEST"); in.V4.Mode != firewall.None || in.V4.Addr.IsValid() {
		t.Errorf("saved %+v", in.V4)
	}
}

func TestDeletingAnInterfaceNamesWhatGoes(t *testing.T) {
	d := networked(t)
	body := unescape(text(d.get("admin", "/interfaces/WAN").body))
	for _, s := range []string{"Delete WAN?", "1 rule of its list", "1 port forward"} {
		if !strings.Contains(body, s) {
			t.Errorf("no word of %q: %s", s, body)
		}
	}
	op := "delete:WAN:" + d.config("admin").Hash(firewall.Ref{Kind: "interface", Key: "WAN"})
	wantStatus(t, d.post("admin", "/interfaces", "op", op), http.StatusSeeOther)
	if c := d.config("admin"); len(c.Interfaces) != 2 || len(c.Forwards) != 0 {
		t.Errorf("%d interfaces, %d forwards", len(c.Interfaces), len(c.Forwards))
	}
	wantStatus(t, d.post("admin", "/interfaces", "op", "undo:WAN"), http.StatusSeeOther)
	if v := d.w.View("admin"); v.Config.Stamp() != v.Head.Stamp() {
		t.Error("undo does not bring everything back")
	}
	// The LAN is named by a rule of the guests: refused, and the rule is named.
	body = unescape(text(d.get("admin", "/interfaces/LAN").body))
	if !strings.Contains(body, "It cannot go yet") || !strings.Contains(body, "Rule “Guests stay out” uses it.") {
		t.Error(body)
	}
	op = "delete:LAN:" + d.config("admin").Hash(firewall.Ref{Kind: "interface", Key: "LAN"})
	a := d.post("admin", "/interfaces", "op", op)
	wantStatus(t, a, http.StatusUnprocessableEntity)
	if !strings.Contains(unescape(text(a.body)), "Rule “Guests stay out” uses it.") {
		t.Error(text(a.body))
	}
	wantStatus(t, d.post("admin", "/interfaces", "op", "delete:GUEST:old"), http.StatusConflict)
	wantStatus(t, d.post("admin", "/interfaces", "op", "delete:DMZ:"), http.StatusNotFound)
	wantStatus(t, d.post("admin", "/interfaces", "op", "format:LAN:"), http.StatusBadRequest)
	if len(d.w.View("admin").Items) > 0 {
		t.Error("something was saved")
	}
}

func TestInterfaceConflictShowsBothVersions(t *testing.T) {
	d := networked(t)
	mine := d.portForm("GUEST", "mtu", "1400", "name", "VISITORS")
	wantStatus(t, d.ask(by("admin"), "POST", "/interfaces/GUEST", d.portForm("GUEST", "on", "-")), http.StatusSeeOther)
	a := d.ask(by("admin"), "POST", "/interfaces/GUEST", mine)
	wantStatus(t, a, http.StatusConflict)
	if body := text(a.body); !strings.Contains(body, "Active no yes") || !strings.Contains(body, "Name GUEST VISITORS") || !strings.Contains(body, "Save mine instead") {
		t.Error(body)
	}
	if in, _ := d.config("admin").Interface("GUEST"); in.On || in.MTU != 0 {
		t.Error("it was saved")
	}
}

// What a driver or a problem of the kernel says is text.
func TestPortsAreText(t *testing.T) {
	d := networked(t)
	d.network.ports[3].Driver = "<b>driver</b>"
	d.network.ports[1].Problems = []string{`The address <script>alert(1)</script> is taken.`}
	d.network.ports[4].Device = `x"><i>`
	for _, path := range []string{"/interfaces", "/interfaces/new", "/interfaces/new?device=" + url.QueryEscape(`"><script>`)} {
		body := d.get("admin", path).body
		for _, bad := range []string{"<b>driver", "<script>alert", `"><i>`, `"><script>`} {
			if strings.Contains(body, bad) {
				t.Errorf("%s holds %q", path, bad)
			}
		}
	}
}
