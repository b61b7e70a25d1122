package firewall

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func encode(t interface{ Fatal(...any) }, c Config) []byte {
	b, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCodecSampleComesBack(t *testing.T) {
	got, err := Decode(encode(t, sample()))
	if err != nil || !reflect.DeepEqual(got, sample()) {
		t.Errorf("%v\n%+v\n%+v", err, got, sample())
	}
}

// Any rules, forwards and aliases come back as they were, byte for byte and value for value.
func TestCodecAnyConfigComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := sample()
		c.Rules, c.Aliases = drawRules(t), rapid.SliceOfN(rapid.Custom(drawAlias), 1, 4).Draw(t, "aliases")
		b := encode(t, c)
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, c) || string(encode(t, got)) != string(b) || got.Stamp() != c.Stamp() {
			t.Fatalf("%v\n%s\n%s", err, b, encode(t, got))
		}
	})
}

func drawAddr(t *rapid.T, v6 bool) netip.Addr {
	if v6 {
		b := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6"))
		if a := netip.AddrFrom16(b); !a.Is4In6() {
			return a
		}
		return netip.IPv6Unspecified()
	}
	return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
}

func drawEnd(t *rapid.T) End {
	v6 := rapid.Bool().Draw(t, "family")
	a, b := drawAddr(t, v6), drawAddr(t, v6)
	if b.Less(a) {
		a, b = b, a
	}
	name := Name(rapid.StringMatching(`X[A-Za-z0-9_]{0,14}`).Draw(t, "name"))
	p, _ := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
	return rapid.SampledFrom([]End{{Kind: EndAny}, {Kind: EndSelf}, {Kind: EndAddr, Addr: a}, {Kind: EndNet, Net: p}, {Kind: EndRange, Addr: a, Last: b},
		{Kind: EndAlias, Name: name}, {Kind: EndIfNet, Name: name}, {Kind: EndIfAddr, Name: name}}).Draw(t, "end")
}

func drawPorts(t *rapid.T) Ports {
	var out Ports
	for range rapid.IntRange(0, 3).Draw(t, "ports") {
		a, b := rapid.Uint16Min(1).Draw(t, "from"), rapid.Uint16Min(1).Draw(t, "to")
		out = append(out, rapid.SampledFrom([]PortEnd{{Range: PortRange{min(a, b), max(a, b)}}, {Alias: "XPORTS"}}).Draw(t, "port"))
	}
	return out
}

func drawRules(t *rapid.T) []Rule {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rule {
		text := func(what string) string { return strings.ToValidUTF8(rapid.String().Draw(t, what), "?") }
		ends := func(what string) Ends {
			return Ends{Not: rapid.Bool().Draw(t, what), Of: rapid.SliceOfN(rapid.Custom(drawEnd), 1, 4).Draw(t, what)}
		}
		return Rule{ID: ID(text("id")), On: rapid.Bool().Draw(t, "on"), Action: rapid.SampledFrom([]Action{Pass, Block, Reject}).Draw(t, "action"),
			In: Name(text("in")), Family: Both, Proto: Proto(text("proto")), Src: ends("src"), Dst: ends("dst"), SrcPorts: drawPorts(t), DstPorts: drawPorts(t),
			Log: rapid.Bool().Draw(t, "log"), Descr: text("descr"), Section: text("section")}
	}), 1, 5).Draw(t, "rules")
}

func drawAlias(t *rapid.T) Alias {
	a := Alias{Name: "X", Kind: Addresses, Descr: rapid.String().Draw(t, "descr")}
	for range rapid.IntRange(0, 4).Draw(t, "entries") {
		a.Addrs = append(a.Addrs, Entry{End: drawEnd(t), Note: rapid.String().Draw(t, "note")})
	}
	return a
}

// C19: free text is kept as it is, or refused with its reason; it never changes on the way.
func TestCodecC19FreeText(t *testing.T) {
	for text, want := range map[string]string{
		`He said "no"`: "", strings.Repeat("é", 65): "", strings.Repeat("x", 4000): "at most 200 characters; this has 4000", "'; drop": "", "{}": "", "$(id)": "",
		"two\nlines": "line break", "two\rlines": "line break", "right\u200fto left": "", "🧱🔥": "", "bell\a": "control character U+0007", "tab\there": "U+0009",
		"\xff": "not valid UTF-8", strings.Repeat("é", 201): "this has 201", strings.Repeat("é", 200): "", "\\\"</script>&": "", "nul\x00": "U+0000", "del\x7f": "U+007F",
	} {
		c := sample()
		c.Rules[0].Descr = text
		own, rest := c.Validate().Of(Ref{"rule", "01A"})
		if (own["descr"] == "") != (want == "") || !strings.Contains(own["descr"], want) || len(rest) != 0 {
			t.Errorf("%.20q: %v %v", text, own, rest)
		}
		if want != "" {
			continue
		}
		if got, err := Decode(encode(t, c)); err != nil || got.Rules[0].Descr != text || string(encode(t, got)) != string(encode(t, c)) {
			t.Errorf("%.20q came back as %.20q, %v", text, got.Rules[0].Descr, err)
		}
	}
}

func TestDecodeIsStrict(t *testing.T) {
	good := string(encode(t, sample()))
	for name, c := range map[string]struct{ doc, want string }{
		"unknown field":        {strings.Replace(good, `"host"`, `"hots"`, 1), `unknown field "hots"`},
		"unknown field inside": {strings.Replace(good, `"action"`, `"acton"`, 1), `unknown field "acton"`},
		"trailing data":        {good + "{}", "something follows the document"},
		"trailing word":        {good + " x", "something follows the document"},
		"nothing":              {"", "EOF"},
		"null":                 {"null", "the schema version is missing"},
		"no schema":            {"{}", "the schema version is missing"},
		"negative schema":      {`{"schema":-1}`, "the schema version is missing"},
		"truncated":            {good[:len(good)-1], "unexpected EOF"},
		"deep":                 {`{"schema":1,"rules":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`, "nested more than 64 deep"},
		"deep beside a quote":  {`{"system":{"host":"\"\\"},"rules":` + strings.Repeat("[", 70), "nested more than 64 deep"},
		"too long":             {strings.Repeat(" ", 16<<20) + good, "bytes are more than"},
		"a port out of range":  {strings.Replace(good, `"https":443`, `"https":70000`, 1), "cannot unmarshal number 70000"},
		"a range backwards":    {strings.Replace(good, `"1024-65535"`, `"65535-1024"`, 1), "the range ends (1024) before it starts (65535)"},
		"a wrong address":      {strings.Replace(good, `"192.168.1.10"`, `"192.168.1.256"`, 1), "`192.168.1.256` is not an IP address"},
		"a wrong MAC":          {strings.Replace(good, `"02:00:00:00:00:01"`, `"02:00"`, 1), "12 hex digits"},
		"a text for a number":  {strings.Replace(good, `"lease":7200`, `"lease":"7200"`, 1), "cannot unmarshal string"},
	} {
		if _, err := Decode([]byte(c.doc)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Decode([]byte(strings.Repeat(`"`, 100))); err == nil {
		t.Error("quotes are no document")
	}
	if _, err := Decode([]byte(`{"schema":1,"system":{"host":"` + strings.Repeat("[", 100) + `"}}`)); err != nil {
		t.Errorf("brackets in a text are not nesting: %v", err)
	}
}

func TestDecodeTellsANewerDocument(t *testing.T) {
	for _, doc := range []string{`{"schema":2}`, `{"schema":9,"later":{"field":1}}`} {
		if _, err := Decode([]byte(doc)); !errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v", doc, err)
		}
	}
	if _, err := Decode([]byte(`{"schema":1,"later":1}`)); err == nil || errors.Is(err, ErrNewer) {
		t.Errorf("an unknown field of our own schema: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(f, sample()))
	f.Add(encode(f, Factory()))
	for _, s := range []string{`{"schema":1}`, `{"schema":2}`, `null`, `{"schema":1}{}`, `{"schema":1,"rules":[{"src":{"of":["any"]}}]}`, `{"schema":1,"aliases":[{"name":"A","kind":"addresses","addrs":[{"end":"A"}]}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(b)
		if err != nil {
			return
		}
		c.Validate() // must not panic, whatever it says
		c.Warnings()
		c.RuleNumbers()
		first := encode(t, c)
		again, err := Decode(first)
		if err != nil || string(encode(t, again)) != string(first) {
			t.Errorf("comes back otherwise: %v\n%s", err, first)
		}
	})
}
