package web

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/quarantine"
)

// While a row is in use, or the page is paused, only the line above changes.
func TestRowsInUseAreNotMoved(t *testing.T) {
	d := jailed(t)
	page := d.get("admin", "/tables").body
	_, path, _ := strings.Cut(page, `data-hold hx-get="`)
	path, _, _ = strings.Cut(path, `"`)
	path = unescape(path)
	if !strings.HasPrefix(path, "/tables?seen=") {
		t.Fatalf("refetches %q", path)
	}
	ask := func(path string) answer { return d.ask(visit{account: "admin", headers: live}, "GET", path, nil) }
	if a := ask(path); a.Header.Get("HX-Reswap") != "" || !strings.Contains(a.body, `id="e-203.0.113.77/32"`) {
		t.Error("the rows are not refetched")
	}
	for i := range 3 {
		d.jail.put(quarantine.Entry{Source: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, byte(i)}), 32), Kind: quarantine.Quarantine, Rule: ruleID(1), What: firewall.OverNew, Limit: limit, Times: 1, Since: time.Now()})
	}
	if _, err := d.jail.Release(t.Context(), quarantine.Who{}, []netip.Prefix{netip.MustParsePrefix("203.0.113.77/32")}, quarantine.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, held := range []string{path + "&hold=1", path + "&live=off"} {
		a := ask(held)
		if a.Header.Get("HX-Reswap") != "none" || strings.Contains(a.body, "<tr") || strings.Contains(a.body, `id="tables"`) {
			t.Errorf("%s brings rows", held)
		}
		wantText(t, a, "3 new, 1 gone", "Show")
		if !strings.Contains(a.body, `hx-target="#line"`) || !strings.Contains(a.body, `id="n-quarantine" hx-swap-oob="true">5</span>`) {
			t.Errorf("%s does not bring the line and the numbers: %s", held, a.body)
		}
	}
	if a := ask("/tables?set=quarantine&fresh=1"); a.Header.Get("HX-Reswap") != "" || !strings.Contains(a.body, `id="e-198.18.0.0/32"`) {
		t.Error("Show does not show")
	}
	if body := d.get("admin", "/tables?live=off").body; !strings.Contains(body, "Paused") || !strings.Contains(body, "Go on") || !strings.Contains(body, `id="e-198.18.0.0/32"`) {
		t.Error("a paused page does not open with its rows")
	}
}

// The answer to a button stays in place: the row says that it is released, with the way back.
func TestReleasedRowKeepsItsPlaceWithUndo(t *testing.T) {
	d := jailed(t)
	a := d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", "release:1:2001:db8:77:1::/64", "at", "set=quarantine"))
	wantStatus(t, a, http.StatusOK)
	first, ghost, last := strings.Index(a.body, `id="e-203.0.113.77/32"`), strings.Index(a.body, `id="ghost"`), strings.Index(a.body, `id="e-198.51.100.0/24"`)
	if first < 0 || ghost < first || last < ghost {
		t.Errorf("the rows stand at %d, %d, %d", first, ghost, last)
	}
	_, undo, _ := strings.Cut(a.body[ghost:], `value="`)
	undo, _, _ = strings.Cut(undo, `"`)
	if !strings.HasPrefix(undo, "undo:") || !strings.HasSuffix(undo, ":2001:db8:77:1::/64") {
		t.Fatalf("Undo is %q", undo)
	}
	for _, part := range []string{`id="toasts"`, `id="badge"`, `hx-target="#bar"`, "4 shut out"} {
		if !strings.Contains(text(a.body)+a.body, part) {
			t.Errorf("the answer does not bring %s", part)
		}
	}
	a = d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", undo, "at", "set=quarantine"))
	if !strings.Contains(a.body, `data-focus>2001:db8:77:1::/64</a>`) || strings.Contains(a.body, `id="ghost"`) {
		t.Error("the row is not back, with the focus")
	}
	a = d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", undo, "at", "set=quarantine"))
	wantStatus(t, a, http.StatusConflict)
	if !strings.Contains(a.body, `role="alert"`) || strings.Contains(a.body, "<header") {
		t.Error("too late is a page in the page")
	}
	a = d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", "menu:203.0.113.77/32", "at", "set=quarantine"))
	wantText(t, a, "Release and never again Keep for… Where else it is")
	a = d.ask(visit{account: "admin", headers: live}, "POST", "/tables", values("op", "menu:203.0.113.77/32", "at", "menu=203.0.113.77%2F32&set=quarantine"))
	if strings.Contains(a.body, "open-menu") {
		t.Error("the second click does not close it")
	}
	if to := d.post("admin", "/tables", "op", "menu:203.0.113.77/32", "at", "set=quarantine").Header.Get("Location"); to != "/tables?menu=203.0.113.77%2F32&set=quarantine#e-203.0.113.77/32" {
		t.Errorf("without script it leads to %s", to)
	}
}

func TestDoneLatelyTellsWho(t *testing.T) {
	d := jailed(t)
	a := d.get("admin", "/tables")
	wantText(t, a, "5 min ago berta released 203.0.113.60 exempt for 1d Shut out again", "3 h ago admin released 1,204 sources", "26 h ago berta added 198.51.100.0/24")
	if strings.Contains(unescape(text(a.body)), "locked out 203.0.113.9") || !strings.Contains(a.body, `href="/tables/add?address=203.0.113.60"`) {
		t.Error("tells of limits, or not the way back")
	}
}

// full is as many sources as the kernel's list holds.
func full(j *jail) {
	now := time.Now()
	var all []quarantine.Entry
	for i := range 65_536 {
		all = append(all, quarantine.Entry{Source: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), 32), Kind: quarantine.Quarantine, Rule: ruleID(1), What: firewall.OverNew, Limit: limit,
			Times: 1 + i%5, Since: now.Add(-time.Duration(i) * time.Second), Packets: uint64(i), Bytes: uint64(60 * i), Last: now})
	}
	j.put(all...)
}

// A full list is shown like a short one: 200 rows a page, sorted and searched whole.
func TestTablesShowAFullListPageByPage(t *testing.T) {
	d := newDesk(t, limited())
	full(&d.jail)
	rows := func(a answer) int { return strings.Count(a.body, `<tr id="e-`) }
	began := time.Now()
	a := d.get("admin", "/tables?sort=packets&desc=1")
	took := time.Since(began)
	if rows(a) != 200 || !strings.Contains(a.body, `id="e-198.18.255.255/32"`) || strings.Contains(a.body, `rel="prev"`) {
		t.Errorf("the first page has %d rows", rows(a))
	}
	wantText(t, a, "65,536 entries of at most 65,536", "1–200 of 65,536", "Release all 65,536 addresses…", "Quarantine 65,536")
	began = time.Now()
	d.jail.List(quarantine.Query{Set: quarantine.InQuarantine, Sort: "packets", Desc: true})
	t.Logf("a page of 65,536 took %v, of which the list %v; %d KB", took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), len(a.body)/1000)
	a = d.get("admin", "/tables?page=328&sort=address")
	wantText(t, a, "65,401–65,536 of 65,536")
	if rows(a) != 136 || strings.Contains(a.body, `rel="next"`) {
		t.Errorf("the last page has %d rows", rows(a))
	}
	wantText(t, d.get("admin", "/tables?page=5000"), "65,401–65,536 of 65,536") // what stood there is gone
	wantText(t, d.get("admin", "/tables?q=198.18.7.&page=2"), "201–256 of 256", "Release all 256 found", "256 found in 65,536 entries Clear")
	// Released whole, in one batch.
	upto := fmt.Sprint(time.Now().UnixNano())
	if toast := said(t, d.post("admin", "/tables", "op", "all", "upto", upto, "at", "set=quarantine&q=198.18.7.&page=2")); toast.Text != "Released 256 sources." {
		t.Errorf("says %q", toast.Text)
	}
	if a := d.get("admin", "/tables/quarantine.csv"); strings.Count(a.body, "\n") != 65_536-256+1 {
		t.Errorf("the file has %d lines", strings.Count(a.body, "\n"))
	}
}
