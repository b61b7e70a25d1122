package web

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"gatehouse/web/page"
)

// upload sends a form with a file, as a browser does.
func (d *desk) upload(path string, form url.Values, name, content string) answer {
	d.t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for field, values := range form {
		if field == "file" {
			continue
		}
		for _, v := range values {
			if err := w.WriteField(field, v); err != nil {
				d.t.Fatal(err)
			}
		}
	}
	f, err := w.CreateFormFile("file", name)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := f.Write([]byte(content)); err != nil {
		d.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		d.t.Fatal(err)
	}
	r := httptest.NewRequest("POST", "https://localhost"+path, &b)
	r.Header.Set("Content-Type", w.FormDataContentType())
	r.Header.Set("Account", "admin")
	r = r.WithContext(page.WithConn(d.t.Context(), page.Conn{Peer: netip.MustParseAddr("192.168.1.20"), Since: time.Now()}))
	rec := httptest.NewRecorder()
	d.handler.ServeHTTP(rec, r)
	return answer{rec.Result(), rec.Body.String()}
}

// area is what stands in the text area of the entries.
func area(body string) string {
	_, rest, _ := strings.Cut(body, `<textarea id="f-items"`)
	_, rest, _ = strings.Cut(rest, ">")
	in, _, _ := strings.Cut(rest, "</textarea>")
	return unescape(in)
}

func TestAliasImportShowsWhatWouldComeAndGo(t *testing.T) {
	d := newDesk(t, home())
	path := "/aliases/WEB_SERVERS"
	form := aliasForm("name", "WEB_SERVERS", "hash", d.aliasHash("WEB_SERVERS"), "items", "192.168.1.10\r\n192.168.1.11\r\n", "descr", "typed meanwhile")
	form.Del("then")
	file := "ip,comment\n192.168.1.11,\"second, upstairs\"\n192.168.1.300,bad\n192.168.1.12,third\n192.168.1.12,again\n"

	a := d.upload(path+"/import", form, "list.csv", file)
	wantStatus(t, a, http.StatusOK)
	wantWords(t, a, "From list.csv: not saved yet", "2 entries, 1 duplicate removed, 1 problem: line 3 `192.168.1.300`", "2 lines would come, 1 would go, 1 would stay.", "- 192.168.1.11 + 192.168.1.11 # second, upstairs + 192.168.1.12 # third", "Not kept: a heading.")
	if got, want := area(a.body), "192.168.1.300  # bad\n192.168.1.10\n192.168.1.11  # second, upstairs\n192.168.1.12  # third\n"; got != want {
		t.Errorf("the entries are %q, want %q", got, want)
	}
	if !strings.Contains(a.body, "typed meanwhile") || len(d.w.View("admin").Items) > 0 {
		t.Error("what was typed is gone, or something was saved")
	}

	form.Set("mode", "replace")
	a = d.upload(path+"/import", form, "list.csv", file)
	wantWords(t, a, "2 lines would come, 2 would go, 0 would stay.", "- 192.168.1.10 - 192.168.1.11 + 192.168.1.11 # second, upstairs + 192.168.1.12 # third")
	// Saving is refused until the bad line is mended: it stands first.
	form.Set("items", area(a.body))
	form.Set("then", "save")
	wantSays(t, d.ask(by("admin"), "POST", path, form), "items", "Line 1: `192.168.1.300` is not an IP address.")
	form.Set("skip", "1")
	wantStatus(t, d.ask(by("admin"), "POST", path, form), http.StatusSeeOther)
	if got, _ := d.config("admin").Alias("WEB_SERVERS"); got.Lines() != "192.168.1.11  # second, upstairs\n192.168.1.12  # third\n" || got.Descr != "typed meanwhile" {
		t.Errorf("saved %q %q", got.Lines(), got.Descr)
	}
	wantStatus(t, d.post("admin", "/discard", "ref", "alias/WEB_SERVERS"), http.StatusSeeOther)
}

// An exception of a saved set is shown as wrong, and never becomes an entry.
func TestAliasImportKeepsExceptionsOut(t *testing.T) {
	d := newDesk(t, home())
	form := aliasForm("items", "")
	a := d.upload("/aliases/new/import", form, "bad.ipset", "create bad hash:net\nadd bad 10.0.0.0/8\nadd bad 10.2.0.0/16 nomatch\n")
	if got := area(a.body); got != "!10.2.0.0/16\n10.0.0.0/8\n" {
		t.Errorf("the entries are %q", got)
	}
	form.Set("items", area(a.body))
	wantSays(t, d.ask(by("admin"), "POST", "/aliases/new", form), "items", "Line 1: `!10.2.0.0/16`")
}

func TestAliasImportTellsWhatIsNoList(t *testing.T) {
	d := newDesk(t, home())
	for _, c := range []struct{ name, content, says string }{
		{"", "", "Choose a file."}, {"empty.txt", " \n", "The file is empty."}, {"word.txt", "\xff\xfe1\x000\x00", "This is not a text file."},
		{"x.json", `{"rules":[]}`, "This is not the JSON that an export holds."}, {"big.txt", strings.Repeat("10.0.0.1\n", 600_000), "The file is larger than 5 MiB."},
	} {
		a := d.upload("/aliases/new/import", aliasForm(), c.name, c.content)
		wantSays(t, a, "file", c.says)
		if !strings.Contains(area(a.body), "203.0.113.7") {
			t.Errorf("%s: what was typed is gone", c.name)
		}
	}
	wantSays(t, d.upload("/aliases/new/import", aliasForm("mode", "both"), "a.txt", "10.0.0.1"), "file", "Choose whether")
	wantStatus(t, d.upload("/aliases/new/import", aliasForm("role", "root"), "a.txt", "10.0.0.1"), http.StatusBadRequest)
	wantStatus(t, d.upload("/aliases/NOPE/import", aliasForm(), "a.txt", "10.0.0.1"), http.StatusNotFound)
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new/import", aliasForm()), http.StatusBadRequest)
	// T20: the name of a file is text.
	a := d.upload("/aliases/new/import", aliasForm(), `<img src=x onerror=alert(1)>.txt`, "10.0.0.9")
	if wantStatus(t, a, http.StatusOK); strings.Contains(a.body, "<img src=x") || !strings.Contains(a.body, "&lt;img src=x") {
		t.Error("the name of the file is markup, or not shown")
	}
}

// Every export comes back as the same alias.
func TestAliasExportComesBack(t *testing.T) {
	d := newDesk(t, home())
	form := aliasForm("items", "10.0.0.1  # =1+1\n10.0.0.0/8  # a \"quoted\", note\n10.0.0.5-10.0.0.9\nWEB_SERVERS  # ours\n2001:db8::/32  # ünï")
	wantStatus(t, d.ask(by("admin"), "POST", "/aliases/new", form), http.StatusSeeOther)
	was, _ := d.config("admin").Alias("OFFICES")
	for as, kind := range map[string]string{"txt": "text/plain", "csv": "text/csv", "json": "application/json"} {
		a := d.get("admin", "/aliases/OFFICES/export?as="+as)
		wantStatus(t, a, http.StatusOK)
		if got := a.Header.Get("Content-Disposition"); got != `attachment; filename="OFFICES.`+as+`"` || !strings.HasPrefix(a.Header.Get("Content-Type"), kind) {
			t.Errorf("%s: %s, %s", as, got, a.Header.Get("Content-Type"))
		}
		back := d.upload("/aliases/new/import", aliasForm("name", "BACK", "items", ""), "OFFICES."+as, a.body)
		wantStatus(t, back, http.StatusOK)
		if got := area(back.body); got != was.Lines() {
			t.Errorf("%s: came back as %q, want %q", as, got, was.Lines())
		}
	}
	if csv := d.get("admin", "/aliases/OFFICES/export?as=csv").body; !strings.Contains(csv, `10.0.0.1,"'=1+1"`) {
		t.Errorf("a note can be a formula: %s", csv)
	}
	wantStatus(t, d.get("admin", "/aliases/OFFICES/export?as=exe"), http.StatusNotFound)
	wantStatus(t, d.get("admin", "/aliases/NOPE/export?as=txt"), http.StatusNotFound)
}

// A list of 100,000 lines goes through the editor whole, and one more is refused.
func TestAliasOfManyEntries(t *testing.T) {
	d := newDesk(t, home())
	list := manyLines(100_000)
	clock := func(what string, do func() answer) answer {
		start := time.Now()
		a := do()
		t.Logf("%s: %v, %d KB", what, time.Since(start).Round(time.Millisecond), len(a.body)/1024)
		return a
	}
	form := aliasForm("items", list)
	a := clock("check", func() answer { return d.ask(by("admin"), "POST", "/aliases/new/check", form) })
	wantWords(t, a, "100,000 entries", "100,000 IPv6 addresses")
	wantStatus(t, clock("save", func() answer { return d.ask(by("admin"), "POST", "/aliases/new", form) }), http.StatusSeeOther)
	if got, _ := d.config("admin").Alias("OFFICES"); len(got.Addrs) != 100_000 {
		t.Fatalf("%d entries", len(got.Addrs))
	}
	wantWords(t, clock("list", func() answer { return d.get("admin", "/aliases") }), "OFFICES new addresses 100,000")
	a = clock("editor", func() answer { return d.get("admin", "/aliases/OFFICES") })
	if !strings.Contains(a.body, `hx-trigger="change"`) {
		t.Error("a long list is sent at every key")
	}
	form = aliasForm("hash", d.aliasHash("OFFICES"), "items", list+"2001:db8:1::1\r\n")
	wantSays(t, clock("one too many", func() answer { return d.ask(by("admin"), "POST", "/aliases/OFFICES", form) }), "items", "At most 100,000 entries; this has 100001.")
	form.Set("items", strings.Replace(list, " # office\r\n", " # office, moved\r\n", 1))
	wantStatus(t, clock("save again", func() answer { return d.ask(by("admin"), "POST", "/aliases/OFFICES", form) }), http.StatusSeeOther)
	clock("rules", func() answer { return d.get("admin", "/rules") })
}

// manyLines is the longest kind of lines that people have: IPv6 with a note, as a browser sends it.
func manyLines(n int) string {
	var b strings.Builder
	a := netip.MustParseAddr("2001:db8:1234:5678:9abc:def0::1")
	for range n {
		b.WriteString(a.String() + "  # office\r\n")
		a = a.Next().Next()
	}
	return b.String()
}
