package web

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/quarantine"
)

// One field says where an address is, everywhere.
func TestFindLooksEverywhere(t *testing.T) {
	c := limited()
	end := func(s string) firewall.End { e, _ := firewall.ParseEnd(s); return e }
	c.Aliases = append(c.Aliases, firewall.Alias{Name: "INNER", Kind: firewall.Addresses, Addrs: []firewall.Entry{{End: end("192.168.1.96/28"), Note: "<i>printers</i>"}}},
		firewall.Alias{Name: "OUTER", Kind: firewall.Addresses, Addrs: []firewall.Entry{{End: end("INNER")}}})
	c.Rules[3].Src = firewall.Ends{Of: []firewall.End{end("192.168.1.50-192.168.1.110")}}
	c.Rules[0].Src = firewall.Ends{Of: []firewall.End{end("OUTER")}}
	d := jailed(t)
	d.install(c)
	a := d.get("admin", "/tables/find?q=192.168.1.102")
	wantStatus(t, a, http.StatusOK)
	wantText(t, a, "192.168.1.102 locked out 104 open, limit 100", "Release and never again", "INNER 192.168.1.96/28 (<i>printers</i>)", "OUTER by alias INNER",
		"Known bad networks source, by alias OUTER", "No mail from printers source, 192.168.1.50-192.168.1.110", "Allow LAN to any source, LAN net", "Guests stay out destination, LAN net",
		"1 rule for any source", "lease of phone a4:83:e7:00:10:22 , active", "UDP 192.168.1.102:5353 → 9.9.9.9:53")
	a = d.get("admin", "/tables/find?q=192.168.1.10")
	wantText(t, a, "192.168.1.10 is not shut out.", "WEB_SERVERS 192.168.1.10", "Web servers source, LAN net; destination, by alias WEB_SERVERS", "Web from outside leads to it", "always goes to nas", "TCP 203.0.113.77:40001 → 203.0.113.24:443 → 192.168.1.10:8443")
	wantText(t, d.get("admin", "/tables/find?q=192.168.1.1"), "Its own address on LAN.", "192.168.1.1 this box", "Names source, LAN net; destination, this box")
	wantText(t, d.get("admin", "/tables/find?q=198.51.100.9"), "198.51.100.0/24 quarantine", "BAD_NETS 198.51.100.0/24")
	wantText(t, d.get("admin", "/tables/find?q=203.0.113.105"), "203.0.113.105 is not shut out.", "It would be shut out, but the rule Guests may browse is only counting")
	wantText(t, d.get("admin", "/tables/find?q="+url.QueryEscape("2001:db8:77:1::/64")), "104 open, limit 100", "Since 14 min ago")
	wantText(t, d.get("admin", "/tables/find?q=2001:db8:77:1:a::b"), "104 open, limit 100")
	wantText(t, d.get("admin", "/tables/find?q=phone"), "192.168.1.102 phone")
	for _, q := range []string{"", "nobody", "203.0.113.300", "203.0.113.0/40", "<b>"} {
		a := d.get("admin", "/tables/find?q="+url.QueryEscape(q))
		wantStatus(t, a, http.StatusUnprocessableEntity)
		if strings.Contains(a.body, "<b>") {
			t.Error("what was typed is markup")
		}
	}
	// Release from there leads back there.
	a = d.post("admin", "/tables", "op", "release:0:192.168.1.102/32", "at", "find=192.168.1.102")
	if to := a.Header.Get("Location"); to != "/tables/find?q=192.168.1.102" {
		t.Errorf("leads to %s", to)
	}
	wantText(t, d.get("admin", "/tables/find?q=192.168.1.102"), "192.168.1.102 is not shut out.")
}

// Reasons, notes and names come from people and from the network: whatever they say is text.
func TestHostileReasonsAreText(t *testing.T) {
	c := limited()
	c.Aliases[0].Descr = `"><script>alert(1)</script>`
	c.Aliases[0].Addrs[0].Note = "<script>alert(2)</script>\u202e"
	c.Rules[1].Descr = "</a><script>alert(3)</script>"
	d := jailed(t)
	d.install(c)
	d.network.rows[2].Host = "<script>alert(4)</script>"
	for _, path := range []string{"/tables", "/tables?set=lock-outs", "/tables?q=" + url.QueryEscape("<script>alert(5)"), "/tables?set=aliases", "/tables?set=aliases&name=WEB_SERVERS", "/tables?set=automatic",
		"/tables/find?q=192.168.1.102", "/tables/find?q=192.168.1.10", "/tables/find?q=198.51.100.7", "/tables/find?q=script", "/tables/add?reason=" + url.QueryEscape("<script>alert(6)"),
		"/tables?menu=" + url.QueryEscape("<script>alert(7)"), "/tables?sort=" + url.QueryEscape("<script>alert(8)")} {
		body := d.get("admin", path).body
		for _, bad := range []string{"<script>alert", "<img src=x", "\u202e", "<b>scans"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s holds %q", path, bad)
			}
		}
	}
	wantText(t, d.get("admin", "/tables"), `"><img src=x onerror=alert(1)>`, "<b>scans</b> our mail")
}

// What a spreadsheet would take for a formula is text.
func TestExportHoldsNoFormula(t *testing.T) {
	d := jailed(t)
	for i, reason := range []string{"=1+1", "+cmd|' /C calc'!A0", "-2", "@SUM(A1)", "\tx", `a "quoted", line`} {
		d.jail.put(quarantine.Entry{Source: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(i)}), 32), Kind: quarantine.Quarantine, Reason: reason, By: "=berta", Since: time.Now()})
	}
	a := d.get("admin", "/tables/quarantine.csv?q=198.18&name=..%2Fx&sort=address")
	wantStatus(t, a, http.StatusOK)
	if h := a.Header; h.Get("Content-Disposition") != `attachment; filename="gatehouse-quarantine.csv"` || h.Get("Content-Type") != "text/csv; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("headers %v", h)
	}
	lines := strings.Split(strings.TrimSpace(a.body), "\r\n")
	if len(lines) != 7 || lines[0] != "source,kind,why,rule,times,since,until,packets,bytes,last packet,by" {
		t.Fatalf("%d lines: %s", len(lines), a.body)
	}
	for i, want := range []string{"198.18.0.0,quarantine,'=1+1,", "198.18.0.1,quarantine,'+cmd", "198.18.0.2,quarantine,'-2,", "198.18.0.3,quarantine,'@SUM", "198.18.0.4,quarantine,\uFFFDx", `198.18.0.5,quarantine,"a ""quoted"", line",`} {
		if !strings.HasPrefix(lines[i+1], want) || !strings.HasSuffix(lines[i+1], ",'=berta") {
			t.Errorf("line %d is %s", i+1, lines[i+1])
		}
	}
	if a := d.get("admin", "/tables/lock-outs.csv"); strings.Count(a.body, "\n") != 3 || !strings.Contains(a.body, "192.168.1.102,locked out,") {
		t.Errorf("the lock-outs are %s", a.body)
	}
	for _, path := range []string{"/tables/aliases.csv", "/tables/nothing.csv", "/tables/.csv"} {
		wantStatus(t, d.get("admin", path), http.StatusNotFound)
	}
}

func TestSettingsOfSources(t *testing.T) {
	d := newDesk(t, limited())
	body := d.get("admin", "/tables/settings").body
	if !strings.Contains(body, `value="64"`) || !strings.Contains(body, `value="65536"`) {
		t.Error("what is usual is not shown")
	}
	hash := func() string { return d.config("admin").Hash(firewall.Ref{Kind: "sources"}) }
	a := d.post("admin", "/tables/settings", "hash", hash(), "prefix6", "64", "meter", "65,536", "then", "save")
	wantStatus(t, a, http.StatusSeeOther)
	if v := d.w.View("admin"); len(v.Items) > 0 {
		t.Fatalf("an untouched form changed something: %v", v.Items)
	}
	first := hash()
	a = d.post("admin", "/tables/settings", "hash", first, "prefix6", "/56", "meter", "100 000", "then", "save")
	wantStatus(t, a, http.StatusSeeOther)
	if s := d.config("admin").Sources; s != (firewall.Sources{Prefix6: 56, Meter: 100_000}) {
		t.Errorf("saved %+v", s)
	}
	a = d.post("admin", "/tables/settings", "hash", first, "prefix6", "60", "meter", "65536", "then", "save")
	wantStatus(t, a, http.StatusConflict)
	wantText(t, a, "How sources are told apart was changed by someone else", "IPv6 prefix 56 60", "Sources per limit 100000 65536")
	for _, bad := range []struct{ field, typed, says string }{
		{"prefix6", "47", "48 to 128"}, {"prefix6", "129", "48 to 128"}, {"prefix6", "", "48 to 128"}, {"prefix6", "x", "48 to 128"}, {"prefix6", "0", "48 to 128"},
		{"meter", "3", "from 4 to 1 000 000"}, {"meter", "1000001", "from 4 to 1 000 000"}, {"meter", "many", "from 4 to 1 000 000"}, {"meter", "-5", "from 4 to 1 000 000"},
	} {
		form := values("hash", hash(), "prefix6", "64", "meter", "65536", "then", "save")
		form.Set(bad.field, bad.typed)
		wantSays(t, d.ask(by("admin"), "POST", "/tables/settings", form), bad.field, bad.says)
	}
	wantText(t, d.post("admin", "/tables/settings", "hash", hash(), "prefix6", "x", "meter", "3", "then", "save"), "2 problems")
	// The draft of one account, of nobody else.
	if s := d.config("berta").Sources; s != (firewall.Sources{}) {
		t.Errorf("berta sees %+v", s)
	}
}

func TestAliasTabListsWhatRuns(t *testing.T) {
	c := limited()
	var big []firewall.Entry
	for i := range 450 {
		big = append(big, firewall.Entry{End: firewall.End{Kind: firewall.EndAddr, Addr: netip.AddrFrom4([4]byte{10, 1, byte(i / 256), byte(i)})}, Note: fmt.Sprintf("host %d", i)})
	}
	c.Aliases = append(c.Aliases, firewall.Alias{Name: "BIG", Kind: firewall.Addresses, Descr: "Many hosts", Addrs: big})
	d := newDesk(t, c)
	a := d.get("admin", "/tables?set=aliases")
	wantText(t, a, "WEB_SERVERS 2", "BIG 450 Many hosts", "NOBODY 0")
	if strings.Contains(a.body, "MAIL") || !strings.Contains(a.body, `href="/aliases/BIG"`) {
		t.Error("shows ports, or no way to the editor")
	}
	if err := d.w.Save(t.Context(), commit.Who{Account: "admin"}, commit.AnyHash, firewall.DeleteAlias{Name: "NOBODY"}); err != nil {
		t.Fatal(err)
	}
	wantText(t, d.get("admin", "/tables?set=aliases"), "NOBODY 0") // what runs, not the draft
	a = d.get("admin", "/tables?set=aliases&name=BIG&page=3")
	wantText(t, a, "450 lines", "401–450 of 450", "10.1.1.193 host 449")
	if strings.Contains(a.body, "host 399<") || strings.Contains(a.body, `rel="next"`) {
		t.Error("the page holds more than it should")
	}
	wantText(t, d.get("admin", "/tables?set=aliases&name=BIG&q=host+44"), "11 lines of 450")
	wantText(t, d.get("admin", "/tables?set=aliases&name=BAD_NETS&q=198.51.100.77"), "1 line of 1", "198.51.100.0/24")
	wantText(t, d.get("admin", "/tables?set=aliases&name=BIG&q=nothing"), "No line matches “nothing”.")
	wantText(t, d.get("admin", "/tables?set=aliases&name=NOBODY"), "This alias is empty.")
}

func TestAutomaticTabShowsTheBoxsOwnSets(t *testing.T) {
	d := jailed(t)
	wantText(t, d.get("admin", "/tables?set=automatic"), "Web from outside new connections 55,050 of 65,536 IPv4 sources", "412 of 65,536 IPv6 sources", "192.168.1.20 an administrator was signed in there within 15 minutes 14 min",
		"203.0.113.60 released and never again 20 h 30 min", "LAN 192.168.1.1, fe80::1 192.168.1.0/24", "10.0.0.0/8", "198.18.0.0/15", "203.0.113.200 7 min")
	d = newDesk(t, home())
	wantText(t, d.get("admin", "/tables?set=automatic"), "No rule that runs has a limit.", "Nobody has to wait for the next try.")
}

func TestRulesThatOnlyCountAndFullMetersAreTold(t *testing.T) {
	d := jailed(t)
	a := d.get("admin", "/tables")
	wantText(t, a, "The rule Guests may browse is only counting: 14 sources would be here", "A meter of Web from outside is nearly full: 55,050 of 65,536 IPv4 sources.")
	if !strings.Contains(a.body, `href="/tables?q=`+string(ruleID(7))+`&amp;set=would"`) {
		t.Error("no way to those 14")
	}
	wantText(t, d.get("admin", "/tables?set=would&q="+string(ruleID(7))), "203.0.113.100", "203.0.113.113", "Only counted 14")
	d.jail.full = []quarantine.Alarm{{Rule: ruleID(1), What: firewall.OverNew, Used: 65_536, Size: 65_536, Time: time.Now()}, {Used: 60_000, Size: 65_536}}
	wantText(t, d.get("admin", "/tables"), "A meter of Web servers had no room for more than its 65,536 IPv4 sources.", "The list of those that are shut out is nearly full: 60,000 of 65,536 IPv4 sources.")
}
