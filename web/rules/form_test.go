package rules

import (
	"bytes"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

var names = []firewall.Name{"LAN", "WAN", "GUEST"}

// base is a configuration in which every rule that anyRule draws is valid.
func base() firewall.Config {
	c := firewall.Factory()
	for i, n := range names {
		c.Interfaces = append(c.Interfaces, firewall.Interface{Name: n, Device: "eth" + string(rune('0'+i)), Role: firewall.Other, On: true,
			V4: firewall.V4{Mode: firewall.None}, V6: firewall.V6{Mode: firewall.None}})
	}
	c.Aliases = []firewall.Alias{{Name: "HOSTS", Kind: firewall.Addresses}, {Name: "PORTS", Kind: firewall.PortList}}
	return c
}

func anyEnd(t *rapid.T, box bool) firewall.End {
	texts := []string{"10.0.0.7", "192.168.1.0/24", "10.0.0.5-10.0.0.9", "HOSTS", "LAN net", "GUEST address"}
	if box {
		texts = append(texts, "this box")
	}
	e, err := firewall.ParseEnd(rapid.SampledFrom(texts).Draw(t, "end"))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func anyEnds(t *rapid.T, box bool) firewall.Ends {
	if rapid.Bool().Draw(t, "any") {
		return firewall.Anyone()
	}
	if rapid.Bool().Draw(t, "not") {
		return firewall.Ends{Not: true, Of: []firewall.End{anyEnd(t, box)}}
	}
	return firewall.Ends{Of: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) firewall.End { return anyEnd(t, box) }), 1, 4).Draw(t, "ends")}
}

func anyPorts(t *rapid.T) firewall.Ports {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) firewall.PortEnd {
		if rapid.Bool().Draw(t, "alias") {
			return firewall.PortEnd{Alias: "PORTS"}
		}
		a, b := rapid.Uint16Min(1).Draw(t, "a"), rapid.Uint16Min(1).Draw(t, "b")
		return firewall.PortEnd{Range: firewall.PortRange{From: min(a, b), To: max(a, b)}}
	}), 0, 15).Draw(t, "ports")
}

func anyRule(t *rapid.T) firewall.Rule {
	words := rapid.StringOfN(rapid.RuneFrom([]rune(`aé "'<>&;{}$()`+"`\\\u200f😀")), 0, 200, -1)
	r := firewall.Rule{ID: "01JTEST", On: rapid.Bool().Draw(t, "on"), Log: rapid.Bool().Draw(t, "log"), Descr: words.Draw(t, "descr"), Section: words.Draw(t, "section"),
		Action: rapid.SampledFrom([]firewall.Action{firewall.Pass, firewall.Block, firewall.Reject}).Draw(t, "action"),
		In:     rapid.SampledFrom(append([]firewall.Name{""}, names...)).Draw(t, "in"),
		Family: rapid.SampledFrom([]firewall.Family{firewall.IPv4, firewall.Both}).Draw(t, "family"),
		Proto:  firewall.Proto(rapid.SampledFrom([]string{"any", "tcp", "udp", "tcp+udp", "icmp", "esp", "ah", "gre", "igmp", "sctp", "0", "6", "255"}).Draw(t, "proto")),
		Src:    anyEnds(t, false), Dst: anyEnds(t, true)}
	if r.Proto == firewall.ICMP {
		r.ICMP = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"echo-request", "echo-reply", "redirect", "time-exceeded"}), 0, 4, rapid.ID[string]).Draw(t, "icmp")
		slices.Sort(r.ICMP) // as the boxes stand on the page
	}
	if r.Proto.HasPorts() {
		r.SrcPorts, r.DstPorts = anyPorts(t), anyPorts(t)
	}
	if r.Action == firewall.Pass && rapid.Bool().Draw(t, "limited") {
		r.Limit = anyLimit(t, r.Proto == firewall.TCP)
	}
	return r
}

func anyLimit(t *rapid.T, punish bool) firewall.Limit {
	l := firewall.Limit{Open: rapid.IntRange(0, 1_000_000).Draw(t, "open"), Over: firewall.DropExcess, DryRun: rapid.Bool().Draw(t, "dry run"),
		LockFor: rapid.SampledFrom([]int{0, 10, 300, 86400}).Draw(t, "lock for"), Never: rapid.SampledFrom([]firewall.Name{"", "HOSTS"}).Draw(t, "never")}
	if l.Open == 0 || rapid.Bool().Draw(t, "new") {
		l.New, l.Window = rapid.IntRange(1, 1_000_000).Draw(t, "new"), rapid.IntRange(1, 86400).Draw(t, "window")
	}
	if l.Strikes = rapid.IntRange(0, 100).Draw(t, "strikes"); l.Strikes > 0 {
		l.StrikeWindow = rapid.IntRange(60, 30*86400).Draw(t, "strike window")
	}
	if punish {
		l.Over = rapid.SampledFrom([]firewall.Over{firewall.DropExcess, firewall.LockOut, firewall.Quarantine}).Draw(t, "over")
		l.LockFor = rapid.IntRange(10, 86400).Draw(t, "lock for")
	}
	return l
}

// sent reads a page as a browser does: what its editor form would send.
func sent(t interface{ Fatal(...any) }, page []byte) url.Values {
	doc, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	out := url.Values{}
	attr := func(n *html.Node, name string) (string, bool) {
		for _, a := range n.Attr {
			if a.Key == name {
				return a.Val, true
			}
		}
		return "", false
	}
	var walk func(n *html.Node, in, off bool, sel string)
	walk = func(n *html.Node, in, off bool, sel string) {
		if n.Type == html.ElementNode {
			if class, _ := attr(n, "class"); n.Data == "form" && strings.Contains(class, "editor") {
				in = true
			}
			_, disabled := attr(n, "disabled")
			off = off || disabled
			name, _ := attr(n, "name")
			value, _ := attr(n, "value")
			kind, _ := attr(n, "type")
			_, checked := attr(n, "checked")
			_, selected := attr(n, "selected")
			switch {
			case !in || off:
			case n.Data == "select":
				sel = name
			case n.Data == "option" && sel != "" && selected:
				out.Add(sel, value)
			case n.Data == "input" && (kind == "checkbox" || kind == "radio"):
				if checked {
					out.Add(name, value)
				}
			case n.Data == "input":
				out.Add(name, value)
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c, in, off, sel)
		}
	}
	walk(doc, false, false, "")
	return out
}

// What a browser sends back from an untouched editor is the very same rule.
func TestUntouchedEditorKeepsTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyRule(t)
		c := base()
		c.Rules = []firewall.Rule{want}
		if ps := c.Validate(); len(ps) > 0 {
			t.Fatalf("the drawn rule is not valid: %v", ps)
		}
		var b bytes.Buffer
		if err := editPage(editor{form: show(c, want), Rule: want, Config: c}).Render(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(want.Descr, "<") && strings.Contains(b.String(), `value="`+want.Descr) {
			t.Fatal("the description is not escaped")
		}
		req := httptest.NewRequest("POST", "/rules/x", strings.NewReader(sent(t, b.Bytes()).Encode()))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		in, err := page.ReadForm(req)
		if err != nil {
			t.Fatal(err)
		}
		e := editor{form: read(in, false), Editor: draft.Read(in)}
		if err := in.Done(); err != nil {
			t.Fatal(err)
		}
		got, ps := e.rule(c, want)
		if len(ps) > 0 {
			t.Fatalf("problems: %v", ps)
		}
		if len(got.ICMP) == 0 {
			got.ICMP = want.ICMP
		}
		if len(got.SrcPorts) == 0 && len(want.SrcPorts) == 0 {
			got.SrcPorts = want.SrcPorts
		}
		if len(got.DstPorts) == 0 && len(want.DstPorts) == 0 {
			got.DstPorts = want.DstPorts
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %#v\nwant %#v", got, want)
		}
	})
}

// One moved rule is marked and its neighbours are not, whichever way it went.
func TestOnlyTheMovedRuleIsMarkedMoved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 30).Draw(t, "rules")
		c := base()
		for i := range n {
			c.Rules = append(c.Rules, firewall.Rule{ID: firewall.ID(string(rune('A' + i))), In: "LAN"})
		}
		id := c.Rules[rapid.IntRange(0, n-1).Draw(t, "which")].ID
		to := c.Rules[rapid.IntRange(0, n-1).Draw(t, "past")].ID
		if id == to {
			t.Skip("a rule cannot move past itself")
		}
		next, err := firewall.MoveRule{ID: id, Place: firewall.Place{After: to}}.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		var moved []firewall.ID
		for _, r := range merged(commit.View{Head: c, Config: next}) {
			if r.State == "moved" {
				moved = append(moved, r.ID)
			}
		}
		if len(moved) > 1 {
			t.Errorf("%v are marked after moving %s", moved, id)
		}
	})
}

// A thousand rules must stay quick to lay out: few elements, in small tables.
func TestRowsStayLean(t *testing.T) {
	c := base()
	for i := range 1000 {
		c.Rules = append(c.Rules, firewall.Rule{ID: firewall.ID("R" + strings.Repeat("x", i%7) + string(rune('0'+i/100)) + string(rune('0'+i/10%10)) + string(rune('0'+i%10))), On: true,
			Action: firewall.Pass, In: "LAN", Family: firewall.Both, Proto: firewall.TCP, Src: firewall.Anyone(), Section: "S" + string(rune('A'+i/100)),
			Dst: firewall.Ends{Of: []firewall.End{{Kind: firewall.EndAddr, Addr: netip.MustParseAddr("10.0.0.1")}}}, Descr: "Allow a branch"})
	}
	var b bytes.Buffer
	l := find(commit.View{Head: c, Config: c}, nil, url.Values{"tab": {"LAN"}})
	if err := lists(l).Render(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	elements := strings.Count(b.String(), "<") - strings.Count(b.String(), "</")
	if per := float64(elements) / 1000; per > 12 {
		t.Errorf("%.1f elements a rule, want 12 at most with all headings", per)
	}
	if most := strings.Count(b.String(), `id="r-`); most != 1000 {
		t.Errorf("%d rows", most)
	}
}
