package firewall

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// changes is one change of every kind that fits the sample, with its audit line and its Ref.
func changes() []struct {
	change    Change
	line, ref string
} {
	c := sample()
	rule, fwd, lan, web := c.Rules[1], c.Forwards[1], c.Interfaces[1], c.Aliases[0]
	added := rule
	added.ID, added.Descr = "01N", ""
	rule.Descr = "new words"
	newFwd := fwd
	newFwd.ID, newFwd.Rule, newFwd.Ports, newFwd.Descr = "01O", "01P", PortRange{25, 25}, ""
	newFwd.ToPort, newFwd.From = 25, Anyone()
	fwd.ToPort = 9100
	lan.Name, web.Name = "HOME", "SERVERS"
	port := lan
	port.Name, port.Device, port.V4 = "DMZ", "eth3", V4{Mode: None}
	scope := c.Scopes[0]
	scope.Lease, scope.Statics = 600, nil
	static := c.Scopes[0].Statics[0]
	static.Addr = netip.MustParseAddr("192.168.1.21")
	second := StaticLease{ID: "01T", MAC: "02:00:00:00:00:02", Addr: netip.MustParseAddr("192.168.1.22")}
	off := scope
	off.In, off.On = "GUEST", false
	return []struct {
		change    Change
		line, ref string
	}{
		{AddRule{added, Place{Before: "01B"}}, "Add rule: pass tcp+udp from LAN net port 1024-65535 to WAN address, WEB port PORTS, 22 on LAN, IPv4 only, at most 20 open, 10 new in 5s per source, counted only", "rule/01N"},
		{UpdateRule{rule}, "Change rule: new words", "rule/01B"},
		{MoveRule{"01C", Place{After: "01A"}}, "Move a rule", "rule/01C"},
		{DeleteRule{"01A", "no bad hosts"}, "Delete rule: no bad hosts", "rule/01A"},
		{AddForward{newFwd}, "Add forward: tcp WAN address port 25 to 192.168.1.10 port 25, reflected", "forward/01O"},
		{UpdateForward{fwd}, "Change forward: web", "forward/01F"},
		{DeleteForward{"01F", "web"}, "Delete forward: web", "forward/01F"},
		{AddAlias{Alias{Name: "NEW", Kind: PortList}}, "Add alias NEW", "alias/NEW"},
		{UpdateAlias{"WEB", web}, "Rename alias WEB to SERVERS", "alias/WEB"},
		{DeleteAlias{"OTHERS"}, "Delete alias OTHERS", "alias/OTHERS"},
		{ReplaceAlias{"MORE", "SPARE"}, "Replace alias MORE by SPARE everywhere, and delete it", "alias/MORE"},
		{AddInterface{port}, "Add interface DMZ (LAN) on eth3, no IPv4", "interface/DMZ"},
		{UpdateInterface{"LAN", lan}, "Rename interface LAN to HOME", "interface/LAN"},
		{DeleteInterface{"GUEST"}, "Delete interface GUEST", "interface/GUEST"},
		{PutScope{scope}, "Set DHCP on LAN: 192.168.1.100 to 192.168.1.199", "scope/LAN"},
		{PutScope{off}, "Switch DHCP off on GUEST", "scope/GUEST"},
		{AddStatic{"LAN", second}, "Add static mapping: 02:00:00:00:00:02 gets 192.168.1.22", "static/01T"},
		{UpdateStatic{static}, "Change static mapping: printer gets 192.168.1.21", "static/01S"},
		{DeleteStatic{"01S", "printer"}, "Delete static mapping: printer", "static/01S"},
		{SetSystem{System{Host: "fw2", Domain: "home.arpa", Zone: "UTC"}}, "Call the box fw2.home.arpa", "system"},
		{SetAdmin{Admin{HTTPS: 8443}}, "Web pages on port 8443", "admin"},
		{SetLimit{"01B", Limit{}, "web"}, "No limit per source: web", "rule/01B"},
		{SetLimit{"01R", Limit{Open: 5, Over: Quarantine, LockFor: 60}, "web"}, "Limit web: 5 open per source, then quarantine", "rule/01R"},
		{SetSources{Sources{Prefix6: 48}}, "An IPv6 source is a /48; limits remember 65536 sources", "sources"},
		{ReplaceAll{Factory(), "Restore revision 12"}, "Restore revision 12", "all"},
		{ReplaceAll{Factory(), ""}, "Replace the whole configuration", "all"},
	}
}

// Every kind comes back from its JSON, says what it does and about what, changes
// something, and never the configuration that it was given.
func TestChangeEveryKind(t *testing.T) {
	tried := map[string]bool{}
	for _, c := range changes() {
		kind := reflect.TypeOf(c.change).Name()
		tried[kind] = true
		b, err := EncodeChange(c.change)
		if err != nil {
			t.Fatal(kind, err)
		}
		got, err := DecodeChange(b)
		if err != nil || !reflect.DeepEqual(got, c.change) {
			t.Errorf("%s: %v\n%+v\n%+v", kind, err, got, c.change)
		}
		if c.change.String() != c.line || c.change.Ref().String() != c.ref {
			t.Errorf("%s: %q about %s", kind, c.change.String(), c.change.Ref())
		}
		base := sample()
		next, err := c.change.Apply(base)
		switch {
		case err != nil:
			t.Errorf("%s: %v", kind, err)
		case !reflect.DeepEqual(base, sample()):
			t.Errorf("%s wrote into the configuration it was given", kind)
		case next.Stamp() == base.Stamp():
			t.Errorf("%s changed nothing", kind)
		}
	}
	for kind := range kinds {
		if !tried[kind] {
			t.Errorf("%s was not tried", kind)
		}
	}
}

// What a change gives may be changed further without the first result noticing.
func TestChangeResultsShareNothingThatIsWritten(t *testing.T) {
	for _, first := range changes() {
		mid, err := first.change.Apply(sample())
		if err != nil {
			t.Fatal(err)
		}
		was := clone(mid)
		for _, second := range changes() {
			second.change.Apply(mid) // it may refuse; it must not write
			if !reflect.DeepEqual(clone(mid), was) {
				t.Fatalf("%s after %s wrote into its base", second.line, first.line)
			}
		}
	}
}

func TestDecodeChangeIsStrict(t *testing.T) {
	for doc, want := range map[string]string{
		`{"kind":"DropTable","change":{}}`:                                                       "unknown kind",
		`{"kind":"MoveRule","change":{"idd":"01A"}}`:                                             "unknown field",
		`{"kind":"MoveRule","change":{"id":"01A"},"x":1}`:                                        "unknown field",
		`{"kind":"MoveRule","change":{"id":"01A"}}{}`:                                            "something follows",
		`{"kind":"MoveRule"}`:                                                                    "EOF",
		`{"kind":"AddAlias","change":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`: "nested more than",
		``: "EOF",
	} {
		if got, err := DecodeChange([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", doc, got, err)
		}
	}
}

func TestChangeThatDoesNotFitSaysWhy(t *testing.T) {
	gone := "is not there any more"
	for _, c := range []struct {
		change Change
		want   string
	}{
		{AddRule{Rule: Rule{ID: "01A", Descr: "twice"}}, "rule “twice” is already there"},
		{AddRule{Rule: Rule{ID: "01N"}, Place: Place{After: "01Z"}}, "the rule it should stand beside is not there any more"},
		{UpdateRule{Rule{ID: "01Z", Descr: "x"}}, "rule “x” " + gone},
		{MoveRule{ID: "01Z"}, gone},
		{MoveRule{"01A", Place{Before: "01Z"}}, "cannot move: the rule it should stand beside is not there any more"},
		{MoveRule{"01A", Place{Before: "01A"}}, "cannot move"},
		{DeleteRule{ID: "01Z"}, gone},
		{DeleteRule{ID: "01R"}, "belongs to the forward “web”; delete the forward, or unlink its rule there"},
		{AddForward{Forward{ID: "01F", Descr: "web"}}, "“web” is already there"},
		{AddForward{Forward{ID: "01O", Descr: "thief", Rule: "01A"}}, "rule “no bad hosts” is not the rule of the forward “thief”"},
		{UpdateForward{Forward{ID: "01Z", Descr: "w"}}, "“w” " + gone},
		{DeleteForward{ID: "01Z"}, "the forward " + gone},
		{AddAlias{Alias{Name: "WEB"}}, "the alias WEB is already there"},
		{UpdateAlias{"NONE", Alias{Name: "NONE"}}, "the alias NONE " + gone},
		{DeleteAlias{"NONE"}, "the alias NONE " + gone},
		{ReplaceAlias{"NONE", "WEB"}, "the alias NONE " + gone},
		{ReplaceAlias{"WEB", "NONE"}, "the alias NONE " + gone},
		{ReplaceAlias{"WEB", "WEB"}, "WEB cannot take its own place"},
		{ReplaceAlias{"WEB", "PORTS"}, "PORTS holds ports, not addresses"},
		{ReplaceAlias{"MORE", "WEB"}, "WEB contains MORE and cannot take its place"},
		{AddInterface{Interface{Name: "LAN"}}, "the interface LAN is already there"},
		{UpdateInterface{"NONE", Interface{Name: "NONE"}}, "the interface NONE " + gone},
		{DeleteInterface{"NONE"}, "the interface NONE " + gone},
		{AddStatic{"GUEST", StaticLease{ID: "01T"}}, "GUEST has no DHCP scope"},
		{AddStatic{"LAN", StaticLease{ID: "01S", Host: "printer"}}, "the static mapping of printer is already there"},
		{UpdateStatic{StaticLease{ID: "01T", MAC: "02:00:00:00:00:09"}}, "the static mapping of 02:00:00:00:00:09 " + gone},
		{DeleteStatic{ID: "01T"}, "the static mapping " + gone},
	} {
		if _, err := c.change.Apply(sample()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.change, err)
		}
	}
}

func order(c Config) (out string) {
	for _, r := range c.Rules {
		out += string(r.ID[2:])
	}
	return out
}

func TestMoveRuleByItsNeighbour(t *testing.T) {
	for _, c := range []struct {
		move MoveRule
		want string
	}{
		{MoveRule{"01C", Place{Before: "01A"}}, "CABDR"}, {MoveRule{"01A", Place{After: "01C"}}, "BCADR"}, {MoveRule{"01A", Place{}}, "BCDRA"},
		{MoveRule{"01R", Place{Before: "01D"}}, "ABCRD"}, {MoveRule{"01B", Place{Before: "01C"}}, "ABCDR"}, {MoveRule{"01A", Place{Before: "01R"}}, "BCDAR"},
	} {
		if got, err := c.move.Apply(sample()); err != nil || order(got) != c.want {
			t.Errorf("%+v: %s, %v", c.move, order(got), err)
		}
	}
	got, err := AddRule{Rule{ID: "01N"}, Place{After: "01A"}}.Apply(sample())
	if err != nil || order(got) != "ANBCDR" {
		t.Errorf("%s, %v", order(got), err)
	}
}

// The linked rule comes last, follows its forward and keeps what people set on it.
func TestLinkedRuleFollowsItsForward(t *testing.T) {
	c := sample()
	if r := c.Rules[len(c.Rules)-1]; r.ID != "01R" || r.String() != "pass tcp from WEB to 192.168.1.10 port 9000-9010 on WAN, IPv4 only, at most 100 new in 10s per source, then locked out for 5m, quarantine after 3 in 1h" || r.Descr != "web" {
		t.Errorf("%+v", r)
	}
	c, _ = MoveRule{"01R", Place{Before: "01A"}}.Apply(c)
	mine, _ := c.Rule("01R")
	mine.Log, mine.On, mine.Descr, mine.Limit = true, false, "mine", Limit{Open: 7, Over: DropExcess}
	c, _ = UpdateRule{mine}.Apply(c)
	f, _ := c.Forward("01F")
	f.To, f.Proto, f.From, f.Ports, f.ToPort, f.In = netip.MustParseAddr("2001:db8::5"), UDP, Anyone(), PortRange{53, 54}, 5353, "GUEST"
	f.Dst = End{Kind: EndIfAddr, Name: "GUEST"}
	c, err := UpdateForward{f}.Apply(c)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Rules[0]; r.ID != "01R" || r.String() != "pass udp from any to 2001:db8::5 port 5353-5354 on GUEST, IPv6 only, at most 7 open per source, the excess is dropped, logged, off" || r.Descr != "mine" {
		t.Errorf("%s %+v", r, r)
	}
	if ps := c.Validate(); ps != nil {
		t.Error(ps)
	}
	edited := c.Rules[0]
	edited.DstPorts = nil
	wrong, _ := UpdateRule{edited}.Apply(c)
	if own, _ := wrong.Validate().Of(Ref{"rule", "01R"}); own["forward"] != "This rule is made by the forward “web”; change it there." {
		t.Errorf("an edit of what the forward owns: %v", own)
	}
	f.Rule = ""
	if c, err = (UpdateForward{f}).Apply(c); err != nil || order(c) != "ABCD" {
		t.Errorf("unlinked: %s, %v", order(c), err)
	}
	f.Rule = "01Q"
	if c, err = (UpdateForward{f}).Apply(c); err != nil || order(c) != "ABCDQ" {
		t.Errorf("linked anew: %s, %v", order(c), err)
	}
	if c, err = (DeleteForward{ID: "01F"}).Apply(c); err != nil || order(c) != "ABCD" {
		t.Errorf("deleted: %s, %v", order(c), err)
	}
}

// After a rename no use of the old name is left, and all is valid.
func TestRenameFollowsEveryUse(t *testing.T) {
	c := sample()
	for _, n := range []Name{"WEB", "MORE", "PORTS", "OTHERS"} {
		a, _ := c.Alias(n)
		a.Name += "_2"
		c, _ = UpdateAlias{n, a}.Apply(c)
	}
	for _, n := range []Name{"WAN", "LAN", "GUEST"} {
		in, _ := c.Interface(n)
		in.Name += "_2"
		c, _ = UpdateInterface{n, in}.Apply(c)
	}
	if ps := c.Validate(); ps != nil {
		t.Fatal(ps)
	}
	text := string(encode(t, c))
	for _, n := range []string{"WEB", "MORE", "PORTS", "OTHERS", "WAN", "LAN", "GUEST"} {
		if before, after := strings.Count(string(encode(t, sample())), n), strings.Count(text, n+"_2"); before != after || strings.Count(text, n) != after {
			t.Errorf("%s stood %d times, %s_2 stands %d times", n, before, n, after)
		}
	}
}

func TestDeleteInterfaceTakesItsOwnAlong(t *testing.T) {
	c, err := DeleteInterface{"WAN"}.Apply(sample())
	if err != nil || order(c) != "ABCD" || len(c.Forwards) != 0 || len(c.Scopes) != 1 {
		t.Errorf("%s %v %v", order(c), c.Forwards, err)
	}
	if c, _ = (DeleteInterface{"LAN"}).Apply(sample()); len(c.Scopes) != 0 || order(c) != "ACDR" {
		t.Errorf("%s %v", order(c), c.Scopes)
	}
	if own, _ := c.Validate().Of(Ref{"rule", "01D"}); own["dst"] != "There is no interface `LAN`." {
		t.Errorf("a use elsewhere is told: %v", own)
	}
}

func TestPutScopeKeepsStaticMappings(t *testing.T) {
	c, err := PutScope{Scope{In: "LAN"}}.Apply(sample())
	if s, _ := c.Scope("LAN"); err != nil || len(s.Statics) != 1 || s.On {
		t.Errorf("%+v, %v", s, err)
	}
}

// A renamed alias stays the one that a limit never punishes.
func TestRenameFollowsNever(t *testing.T) {
	c, err := UpdateAlias{"WEB", Alias{Name: "SERVERS", Kind: Addresses}}.Apply(sample())
	if err != nil {
		t.Fatal(err)
	}
	if r, _ := c.Rule("01B"); r.Limit.Never != "SERVERS" {
		t.Errorf("the limit spares %q", r.Limit.Never)
	}
	if r, _ := sample().Rule("01B"); r.Limit.Never != "WEB" {
		t.Error("the configuration it was given was written to")
	}
}
