package firewall

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// there is the aliases that the texts below can name.
func there(n Name) bool { return n == "WEB" || n == "DMZ" || n == "MAIL" }

// said is what was read, in one line.
func (it Items) said() string {
	a := Alias{Addrs: it.Addrs, Ports: it.Ports}
	parts := strings.Split(strings.TrimSpace(strings.ReplaceAll(a.Lines(), "  # ", "#")), "\n")
	for _, b := range it.Bad {
		parts = append(parts, fmt.Sprintf("!%d %s", b.Line, b.Text))
	}
	if it.Twice > 0 {
		parts = append(parts, fmt.Sprintf("twice %d", it.Twice))
	}
	for _, m := range it.Masked {
		parts = append(parts, "masked "+m)
	}
	if it.Words > 0 {
		parts = append(parts, fmt.Sprintf("words %d", it.Words))
	}
	for _, l := range it.Left {
		parts = append(parts, "left "+l)
	}
	return strings.TrimPrefix(strings.Join(parts, " | "), " | ")
}

var long = strings.Repeat("x", 201)

// pasted is lists of addresses, and what they say.
var pasted = []struct{ text, want string }{
	{"", ""}, {"\n \r\n\t\n", ""},
	{"10.0.0.1", "10.0.0.1"}, {"\ufeff10.0.0.1\r\n10.0.0.2\r10.0.0.3", "10.0.0.1 | 10.0.0.2 | 10.0.0.3"},
	{"10.0.0.1, 10.0.0.2;10.0.0.3 10.0.0.4\t10.0.0.5,,\n", "10.0.0.1 | 10.0.0.2 | 10.0.0.3 | 10.0.0.4 | 10.0.0.5"},
	{"10.0.0.1  # office\n10.0.0.2#lab # two", "10.0.0.1#office | 10.0.0.2#lab # two"},
	{"10.0.0.1, 10.0.0.2 # both", "10.0.0.1#both | 10.0.0.2#both"},
	{"WEB, 2001:DB8::/32 DMZ # x", "WEB#x | 2001:db8::/32#x | DMZ#x"},
	// C03
	{" 192.0.2.10 - 192.0.2.12 ", "192.0.2.10-192.0.2.12"}, {"192.0.2.10 -192.0.2.12, 192.0.2.20- 192.0.2.22", "192.0.2.10-192.0.2.12 | 192.0.2.20-192.0.2.22"},
	{"192.0.2.10 – 192.0.2.12\n192.0.2.20—192.0.2.22", "192.0.2.10-192.0.2.12 | 192.0.2.20-192.0.2.22"},
	{"2001:db8::1 - 2001:db8::ff", "2001:db8::1-2001:db8::ff"},
	{"10.0.0.1 - 10.0.0.2 - 10.0.0.3", "10.0.0.1-10.0.0.2 | !1 write `10.0.0.3` on a line of its own, and notes after #"}, {"- 10.0.0.1", "10.0.0.1 | !1 `-` is not an address, a network, a range or an alias"},
	{"192.0.2.10 - the printer", "192.0.2.10#the printer | words 1"}, {"192.0.2.10 -printer", "192.0.2.10#-printer | words 1"},
	{"198.18.220.0-198.18.222.200\n198.18.234.124\n198.18.224.0/20\n198.18.230.0/24\n 192.0.2.10 - 192.0.2.12 ",
		"198.18.220.0-198.18.222.200 | 198.18.234.124 | 198.18.224.0/20 | 198.18.230.0/24 | 192.0.2.10-192.0.2.12"},
	// What is there twice, or has host bits.
	{"10.0.0.1\n10.0.0.1 # late\n10.0.0.1 # later\n10.0.0.01", "10.0.0.1#late | !4 `10.0.0.01` is not an IP address | twice 2"},
	{"10.0.0.5/24, 10.0.0.0/24", "10.0.0.0/24 | twice 1 | masked 10.0.0.5/24"},
	// What is wrong names its line.
	{"10.0.0.1\n\n10.0.0.300 # x\n10.0.0.2", "10.0.0.1 | 10.0.0.2 | !3 `10.0.0.300` is not an IP address"},
	{"10.0.0.9-10.0.0.1", "!1 the range ends (10.0.0.1) before it starts (10.0.0.9)"},
	{"NOPE", "!1 there is no alias `NOPE`"}, {"any", "!1 there is no alias `any`"}, {"10.0.0.1, NOPE", "10.0.0.1 | !1 there is no alias `NOPE`"}, {"10.0.0.1;NOPE", "10.0.0.1 | !1 there is no alias `NOPE`"},
	{"www.example.com", "!1 `www.example.com` is a host name; write its address"}, {"a_b-c", "!1 `a_b-c` is not an address, a network, a range or an alias"},
	{"443\n80-90\n80:90", "!1 `443`: addresses cannot contain ports | !2 `80-90`: addresses cannot contain ports | !3 `80:90`: addresses cannot contain ports"},
	{"10.0.0.1/255.255.255.0", "!1 `10.0.0.1/255.255.255.0` is not a network; write for example 192.168.1.0/24"},
	{"fe80::1%eth0, ::ffff:1.2.3.4", "!1 `fe80::1%eth0` is not an IP address | !1 `::ffff:1.2.3.4` is not an IP address"},
	{long, "!1 `" + long[:60] + "…` is too long"}, {"10.0.0.1 # " + long, "!1 the note has 201 characters; at most 200 fit"},
	{"10.0.0.1 # a\tb", "10.0.0.1#a b"}, {"10.0.0.1 # a\x1bb", "!1 the note holds the control character U+001B"}, {"10.0.0.1 # B\xfcro", "!1 this is not UTF-8 text"},
	{"10.0.0.1\x00", "!1 `10.0.0.1\ufffd` is not an IP address"},
	// Words behind a value.
	{"# a list\n; of ours\n//\n10.0.0.1", "10.0.0.1 | left 3 lines without a value"}, {",;,", "left 1 line without a value"},
	{"192.0.2.1\twww.example.com www\n127.0.0.1 localhost # old", "192.0.2.1#www.example.com www | 127.0.0.1#localhost; old | words 2"},
	{"198.51.100.0/24 ; SBL256894", "198.51.100.0/24#SBL256894 | words 1"},
	{`10.0.0.1,"the ""big"" one, upstairs"`, `10.0.0.1#the "big" one, upstairs | words 1`}, {"10.0.0.1,Main office", "10.0.0.1#Main office | words 1"}, {`"10.0.0.1","10.0.0.2"`, "10.0.0.1 | 10.0.0.2"},
	{"10.0.0.1 NOPE 10.0.0.2", "10.0.0.1 | !1 write `10.0.0.2` on a line of its own, and notes after #"},
	{`10.0.0.1,"NOPE, WEB"`, "10.0.0.1 | !1 write `WEB` on a line of its own, and notes after #"},
	{"10.0.0.1 " + long, "10.0.0.1#" + long[:199] + "… | words 1 | left the end of 1 long note"},
	// Tables.
	{"ip,comment,date\n10.0.0.1,office,2024-01-01\n\"10.0.0.2\",\"a, \"\"b\"\"\",x\n,none\n10.0.0.300,bad\n10.0.0.9",
		"10.0.0.1#office | 10.0.0.2#a, \"b\" | 10.0.0.9 | !5 `10.0.0.300` is not an IP address | left a heading | left 1 line without a value | left the columns date"},
	{"# of today\nip,comment\n10.0.0.1,x", "10.0.0.1#x | left a heading | left 1 line without a value"},
	{"Name;Network\nlab;10.0.0.0/8\n", "10.0.0.0/8#lab | left a heading"}, {"country\tip\nAT\t10.0.0.1 - 10.0.0.5", "10.0.0.1-10.0.0.5 | left a heading | left the columns country"},
	{"value,note\n10.0.0.1,\"'=1+1\"\n10.0.0.2,'quoted'", "10.0.0.1#=1+1 | 10.0.0.2#'quoted' | left a heading"},
	{"ip\n10.0.0.1 # x", "10.0.0.1#x | left a heading"}, {"10.0.0.1\nip,note", "10.0.0.1 | !2 there is no alias `ip` | !2 there is no alias `note`"},
	// ipset save.
	{"create bad hash:net family inet hashsize 1024 maxelem 65536\nadd bad 10.0.0.0/8\nadd bad 10.1.1.1 timeout 300 comment \"ssh, again\"\nipset -exist add bad 10.1.1.2 timeout 0 packets 5 bytes 300\nadd bad 10.2.0.0/16 nomatch\nadd bad 1.2.3.4,tcp:80\nflush bad",
		"10.0.0.0/8 | 10.1.1.1#ssh, again | 10.1.1.2 | !5 an exception (nomatch) cannot stand in an alias | !6 an entry of address and port cannot stand in an alias | left 2 lines without a value | left 1 timeout"},
	{"add bad 10.0.0.300", "!1 `10.0.0.300` is not an IP address"},
}

func TestParseItemsReadsWhatPeoplePaste(t *testing.T) {
	for _, c := range pasted {
		if got := ParseItems(Addresses, c.text, there).said(); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestParseItemsReadsPorts(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"80, 443\n8000-8010 # app\nhttps\n7000:7005\nMAIL", "80 | 443 | 8000-8010#app | 7000-7005 | MAIL | twice 1"}, {"80 - 90", "80-90"},
		{"10.0.0.1\n::1\n10.0.0.0/8", "!1 `10.0.0.1`: ports cannot contain addresses | !2 `::1`: ports cannot contain addresses | !3 `10.0.0.0/8`: ports cannot contain addresses"},
		{"0\n65536\n90-80\n80/tcp\nNOPE", "!1 `0`: port must be 1–65535 | !2 `65536`: port must be 1–65535 | !3 `90-80`: the range ends (80) before it starts (90) | !4 `80/tcp`: port must be 1–65535 | !5 there is no alias or service `NOPE`"},
		{"8080 proxy", "8080#proxy | words 1"}, {"8080 proxy 2", "8080 | !1 write `2` on a line of its own, and notes after #"},
		{"port,note\n80,web", "80#web | left a heading"},
	} {
		if got := ParseItems(PortList, c.text, there).said(); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

func TestBadItemStaysBad(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.300 # x":                         "10.0.0.300  # x",
		"add bad 10.2.0.0/16 nomatch":            "!10.2.0.0/16",
		"add bad 1.2.3.4,tcp:80":                 `"1.2.3.4,tcp:80"`,
		"10.0.0.1 was 10.0.0.2":                  "!10.0.0.2  # was 10.0.0.2",
		"10.0.0.1, B\xfcro # 5":                  `"10.0.0.1, B�ro # 5"`,
		"10.0.0.1 # " + strings.Repeat("x", 201): "10.0.0.1  # " + strings.Repeat("x", 200) + "…",
	} {
		it := ParseItems(Addresses, text, there)
		if len(it.Bad) != 1 {
			t.Errorf("%q: %s", text, it.said())
			continue
		}
		got := it.Bad[0].Again(Addresses, there)
		if again := ParseItems(Addresses, got, there); !strings.Contains(got, want) || len(again.Bad) == 0 || again.Addrs != nil {
			t.Errorf("%q: %q, want %q; it comes back as %s", text, got, want, again.said())
		}
	}
}

// A cell is no formula in a spreadsheet, and comes back as it was.
func TestAliasCSVIsSafeAndComesBack(t *testing.T) {
	a := listed("A", Addresses, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 WEB")
	for i, note := range []string{`=cmd|' /C calc'!A0`, `'=x`, `it's "quoted", yes`, "", "'plain'", "@sum #1"} {
		a.Addrs[i].Note = note
	}
	want := "value,note\r\n10.0.0.1,\"'=cmd|' /C calc'!A0\"\r\n10.0.0.2,\"''=x\"\r\n10.0.0.3,\"it's \"\"quoted\"\", yes\"\r\n10.0.0.4,\r\n10.0.0.5,\"'plain'\"\r\nWEB,\"'@sum #1\"\r\n"
	if got := a.CSV(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if it := ParseItems(Addresses, a.CSV(), there); !reflect.DeepEqual(it.Addrs, a.Addrs) || it.Bad != nil {
		t.Errorf("came back as %s", it.said())
	}
}

// What is read and printed reads the same again, and no line is lost in silence.
func FuzzParseItems(f *testing.F) {
	for _, s := range []string{"10.0.0.1, 10.0.0.2;10.0.0.3 # x", " 192.0.2.10 - 192.0.2.12 ", "192.0.2.1 www.example.com www", "ip,comment\n10.0.0.1,\"a, b\"", "add bad 10.0.0.0/8 comment \"x\"",
		"10.0.0.5/24\n10.0.0.0/24", "80\n8000-8010 # app", "WEB # ip", "WEB # a, ip", "add # x y", "10.0.0.1 5\" rack # n", "10.0.0.1,Main office", "198.51.100.0/24 ; SBL1", "2001:db8::1–2001:db8::5", "value\tnote\n::1\t'=x", "\ufeff#\n\r//"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, text string, ports bool) {
		kind := Addresses
		if ports {
			kind = PortList
		}
		known := func(n Name) bool { return n != "" && n[0] >= 'A' && n[0] <= 'Z' }
		it := ParseItems(kind, text, known)
		if strings.TrimSpace(strings.TrimPrefix(text, "\ufeff")) != "" && len(it.Addrs)+len(it.Ports)+len(it.Bad)+len(it.Left) == 0 {
			t.Errorf("%q says nothing", text)
		}
		a := Alias{Kind: kind, Addrs: it.Addrs, Ports: it.Ports}
		for _, written := range []string{a.Lines(), a.CSV()} {
			again := ParseItems(kind, written, known)
			if !reflect.DeepEqual(again.Addrs, it.Addrs) || !reflect.DeepEqual(again.Ports, it.Ports) || again.Bad != nil || again.Twice+again.Words+len(again.Masked) > 0 {
				t.Errorf("%q is written as %q and comes back as %s", text, written, again.said())
			}
		}
		a.Name = "A"
		for _, p := range (Config{Aliases: []Alias{a}}).Validate() {
			if p.Field == "alias/A.items" && !strings.Contains(p.Text, "is no alias") && !strings.Contains(p.Text, "contains A") {
				t.Errorf("%q gives an alias that is not valid: %s", text, p.Text)
			}
		}
		for _, b := range it.Bad {
			if again := ParseItems(kind, b.Again(kind, known), known); len(again.Bad) == 0 || len(again.Addrs)+len(again.Ports) > 0 {
				t.Errorf("%+v is written as %q and comes back as %s", b, b.Again(kind, known), again.said())
			}
			if b.Line < 1 || b.Text == "" || strings.ContainsAny(b.Value+b.Text+b.Note, "\n\x00\x1b") {
				t.Errorf("%q: %+v", text, b)
			}
		}
	})
}
