package firewall

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func mustEnds(s string) Ends {
	e, err := ParseEnds(s)
	if err != nil {
		panic(err)
	}
	return e
}

func limited(do func(*Limit)) func(*Config) { return func(c *Config) { do(&c.Rules[1].Limit) } }

func mustEnd(s string) End { return mustEnds(s).Of[0] }

// wrongs is one configuration for every sentence that Validate can say: what
// was done to the sample, the field and the whole text.
var wrongs = []struct {
	field, text string
	do          func(*Config)
}{
	{"system.host", "Host name: use 1–63 letters, digits and dashes, no dot.", func(c *Config) { c.System.Host = "fw.1" }},
	{"system.domain", "Domain: use letters, digits, dashes and dots, for example home.arpa.", func(c *Config) { c.System.Domain = "a..b" }},
	{"system.domain", "Domain: names ending in .local are used by mDNS. Try home.arpa.", func(c *Config) { c.System.Domain = "my.local" }},
	{"system.zone", "Choose a time zone from the list.", func(c *Config) { c.System.Zone = "../etc/passwd" }},
	{"admin.https", "Port must be 1–65535.", func(c *Config) { c.Admin.HTTPS = 0 }},
	{"admin.http", "HTTP and HTTPS cannot share port 443.", func(c *Config) { c.Admin.HTTP = 443 }},
	{"admin.hosts", "`a b` is not a host name.", func(c *Config) { c.Admin.Hosts = []string{"a b"} }},

	{"interface/1st.name", "Name: start with a letter, then letters, digits or _; at most 15.", func(c *Config) { rename(c, "1st") }},
	{"interface/tcp.name", "`tcp` is a reserved or protocol name; choose another.", func(c *Config) { rename(c, "tcp") }},
	{"interface/HTTP.name", "`HTTP` is a service name; choose another.", func(c *Config) { rename(c, "HTTP") }},
	{"interface/lan.name", "LAN is already an interface.", func(c *Config) { rename(c, "lan") }},
	{"interface/GUEST.device", "Choose a port from the list.", func(c *Config) { c.Interfaces[2].Device = "eth0;reboot" }},
	{"interface/GUEST.device", "eth1 is already used by LAN.", func(c *Config) { c.Interfaces[2].Device = "eth1" }},
	{"interface/GUEST.role", "Choose WAN, LAN or other.", func(c *Config) { c.Interfaces[2].Role = "dmz" }},
	{"interface/GUEST.mtu", "MTU must be 576–9000; leave it empty for automatic.", func(c *Config) { c.Interfaces[2].MTU = 9001 }},
	{"interface/WAN.mtu", "IPv6 needs an MTU of at least 1280.", func(c *Config) { c.Interfaces[0].MTU = 1279 }},
	{"interface/GUEST.addr", "192.168.0.0/16 is already used by LAN (192.168.1.1/24). Choose another network.", func(c *Config) { c.Interfaces[2].V4.Addr = netip.MustParsePrefix("192.168.2.1/16") }},
	{"interface/GUEST.mode", "Only a WAN can ask for its address by DHCP.", func(c *Config) { c.Interfaces[2].V4.Mode = DHCP }},
	{"interface/GUEST.mode", "Choose none, static or DHCP.", func(c *Config) { c.Interfaces[2].V4.Mode = "ppp" }},
	{"interface/GUEST.mode6", "Choose none or static.", func(c *Config) { c.Interfaces[2].V6.Mode = DHCP }},
	{"interface/WAN.dns", "At most 4 resolvers.", func(c *Config) { c.Interfaces[0].V4.DNS = make([]netip.Addr, 5) }},
	{"interface/GUEST.addr", "Write an address with its length, for example 192.168.1.1/24.", func(c *Config) { c.Interfaces[2].V4.Addr = netip.Prefix{} }},
	{"interface/WAN.addr6", "Write an address with its length, for example 2001:db8:1::1/64.", func(c *Config) { c.Interfaces[0].V6.Addr = netip.MustParsePrefix("10.0.0.1/8") }},
	{"interface/GUEST.addr", "127.0.0.1/8 cannot be the address of a port.", func(c *Config) { c.Interfaces[2].V4.Addr = netip.MustParsePrefix("127.0.0.1/8") }},
	{"interface/GUEST.addr", "This is the network's own address; choose one between 192.168.2.1 and 192.168.2.254.", func(c *Config) { c.Interfaces[2].V4.Addr = netip.MustParsePrefix("192.168.2.0/24") }},
	{"interface/GUEST.addr", "This is the network's broadcast address; choose one between 192.168.2.1 and 192.168.2.254.", func(c *Config) { c.Interfaces[2].V4.Addr = netip.MustParsePrefix("192.168.2.255/24") }},
	{"interface/WAN.gw", "The gateway cannot be the port's own address.", func(c *Config) { c.Interfaces[0].V4.Gateway = netip.MustParseAddr("203.0.113.2") }},
	{"interface/WAN.gw", "Gateway must be inside 203.0.113.0/24.", func(c *Config) { c.Interfaces[0].V4.Gateway = netip.MustParseAddr("203.0.114.1") }},

	{"alias/a b.name", "Name: start with a letter, then letters, digits or _; at most 31.", func(c *Config) { c.Aliases = append(c.Aliases, Alias{Name: "a b", Kind: PortList}) }},
	{"alias/web.name", "WEB is already an alias.", func(c *Config) { c.Aliases = append(c.Aliases, Alias{Name: "web", Kind: PortList}) }},
	{"alias/Lan.name", "LAN is already an interface.", func(c *Config) { c.Aliases = append(c.Aliases, Alias{Name: "Lan", Kind: PortList}) }},
	{"alias/MORE.kind", "Choose addresses or ports.", func(c *Config) { c.Aliases = append(c.Aliases[:1:1], Alias{Name: "MORE", Kind: "hosts"}) }},
	{"alias/WEB.items", "The whole configuration would take 23 MiB; at most 16 fit. Shorten this list or its notes.", func(c *Config) {
		c.Aliases[0].Addrs = slices.Repeat([]Entry{{c.Aliases[0].Addrs[0].End, strings.Repeat("n", 200)}}, 100_000)
	}},
	{"alias/WEB.items", "Ports cannot contain addresses, nor addresses ports.", func(c *Config) { c.Aliases[0].Ports = []PortEntry{{End: PortEnd{Range: PortRange{1, 1}}}} }},
	{"alias/WEB.items", "At most 100,000 entries; this has 100001.", func(c *Config) { c.Aliases[0].Addrs = repeat(Entry{End: mustEnd("10.0.0.1")}, 100_001) }},
	{"alias/WEB.items", "Line 1: `LAN net` cannot stand in an alias.", func(c *Config) { c.Aliases[0].Addrs[0].End = mustEnd("LAN net") }},
	{"alias/WEB.items", "There is no alias `NONE`.", func(c *Config) { c.Aliases[0].Addrs[0].End = mustEnd("NONE") }},
	{"alias/WEB.items", "PORTS holds ports, not addresses.", func(c *Config) { c.Aliases[0].Addrs[0].End = mustEnd("PORTS") }},
	{"alias/WEB.items", "WEB contains MORE, which contains WEB.", func(c *Config) { c.Aliases[1].Addrs[0].End = mustEnd("WEB") }},
	{"alias/WEB.descr", "Remove the line break.", func(c *Config) { c.Aliases[0].Descr = "a\nb" }},
	{"alias/WEB.items", "Remove the control character U+001B.", func(c *Config) { c.Aliases[0].Addrs[0].Note = "\x1b[2J" }},

	{"rule/01A.id", "The id is missing, malformed or used twice.", func(c *Config) { c.Rules[1].ID = "01A" }},
	{"rule.id", "The id is missing, malformed or used twice.", func(c *Config) { c.Rules[1].ID = "" }},
	{"rule/default.id", "The id is missing, malformed or used twice.", func(c *Config) { c.Rules[1].ID = "default" }},
	{"rule/a\"b.id", "The id is missing, malformed or used twice.", func(c *Config) { c.Rules[1].ID = "a\"b" }},
	{"forward/01A.id", "The id is missing, malformed or used twice.", func(c *Config) { c.Forwards[0].ID = "01A" }},
	{"static/01A.id", "The id is missing, malformed or used twice.", func(c *Config) { c.Scopes[0].Statics[0].ID = "01A" }},
	{"rule/01A.action", "Choose pass, block or reject.", func(c *Config) { c.Rules[0].Action = "drop" }},
	{"rule/01A.in", "There is no interface DMZ.", func(c *Config) { c.Rules[0].In = "DMZ" }},
	{"rule/01A.family", "Choose IPv4, IPv6 or both.", func(c *Config) { c.Rules[0].Family = "" }},
	{"rule/01A.section", "Use at most 200 characters; this has 201.", func(c *Config) { c.Rules[0].Section = strings.Repeat("é", 201) }},
	{"rule/01A.descr", "This is not valid UTF-8 text.", func(c *Config) { c.Rules[0].Descr = "\xff" }},
	{"rule/01A.proto", "Choose a protocol from the list or write a number from 0 to 255.", func(c *Config) { c.Rules[0].Proto = "256" }},
	{"rule/01A.icmp", "ICMP types need the protocol ICMP.", func(c *Config) { c.Rules[0].ICMP = []string{"redirect"} }},
	{"rule/01C.icmp", "`ping` is not an ICMP type.", func(c *Config) { c.Rules[2].ICMP = []string{"ping"} }},
	{"rule/01C.icmp", "packet-too-big exists in IPv6 only.", func(c *Config) { c.Rules[2].ICMP, c.Rules[2].Family = []string{"packet-too-big"}, IPv4 }},
	{"rule/01C.icmp", "timestamp-reply exists in IPv4 only.", func(c *Config) { c.Rules[2].ICMP, c.Rules[2].Family = []string{"timestamp-reply"}, IPv6 }},
	{"rule/01A.dport", "Ports need TCP, UDP or SCTP.", func(c *Config) { c.Rules[0].DstPorts = Ports{{Range: PortRange{1, 1}}} }},
	{"rule/01B.sport", "At most 15 ports; make a port alias of them.", func(c *Config) { c.Rules[1].SrcPorts = repeat(PortEnd{Range: PortRange{1, 1}}, 16) }},
	{"rule/01B.sport", "The range ends (81) before it starts (86).", func(c *Config) { c.Rules[1].SrcPorts = Ports{{Range: PortRange{86, 81}}} }},
	{"rule/01B.dport", "There is no alias `NONE`.", func(c *Config) { c.Rules[1].DstPorts = Ports{{Alias: "NONE"}} }},
	{"rule/01B.dport", "WEB holds addresses, not ports.", func(c *Config) { c.Rules[1].DstPorts = Ports{{Alias: "WEB"}} }},
	{"rule/01A.dst", "Name at least one address, network or alias, or choose any.", func(c *Config) { c.Rules[0].Dst = Ends{} }},
	{"rule/01A.dst", "Use *not* with a single entry.", func(c *Config) { c.Rules[0].Dst.Not = true }},
	{"rule/01A.dst", "'any' already covers the rest.", func(c *Config) { c.Rules[0].Dst = mustEnds("any, 10.0.0.1") }},
	{"rule/01A.dst", "*not any* would match nobody.", func(c *Config) { c.Rules[0].Dst = Ends{Not: true, Of: []End{{Kind: EndAny}}} }},
	{"rule/01A.dst", "There is no alias or interface `NONE`.", func(c *Config) { c.Rules[0].Dst = mustEnds("NONE") }},
	{"rule/01A.dst", "PORTS holds ports, not addresses.", func(c *Config) { c.Rules[0].Dst = mustEnds("PORTS") }},
	{"rule/01A.dst", "There is no interface `DMZ`.", func(c *Config) { c.Rules[0].Dst = mustEnds("DMZ net") }},
	{"rule/01A.src", "*this box* can only be a destination: rules decide what enters.", func(c *Config) { c.Rules[0].Src = mustEnds("this box") }},
	{"rule/01A.dst", "Source is IPv4, destination is IPv6.", func(c *Config) { c.Rules[0].Src, c.Rules[0].Dst = mustEnds("10.0.0.1"), mustEnds("fd00::1") }},
	{"rule/01A.src", "These addresses are IPv6, but the rule is for IPv4 only.", func(c *Config) { c.Rules[0].Src, c.Rules[0].Family = mustEnds("fd00::1"), IPv4 }},
	{"rule/01B.limit_open", "Give a number of open or of new connections, or clear the rest of the limit.", limited(func(l *Limit) { l.Open, l.New, l.Window = 0, 0, 0 })},
	{"rule/01B.limit_open", "Limits work on pass rules.", func(c *Config) { c.Rules[1].Action = Block }},
	{"rule/01B.limit_open", "Enter a whole number from 1 to 1 000 000.", limited(func(l *Limit) { l.Open = 1_000_001 })},
	{"rule/01B.limit_new", "Give both numbers or none.", limited(func(l *Limit) { l.Window = 0 })},
	{"rule/01B.limit_new", "Enter a whole number from 1 to 1 000 000.", limited(func(l *Limit) { l.New = -1 })},
	{"rule/01B.limit_window", "The time must be 1 second to 1 day.", limited(func(l *Limit) { l.Window = 86401 })},
	{"rule/01B.over", "Choose what happens when the limit is exceeded.", limited(func(l *Limit) { l.Over = "" })},
	{"rule/01B.over", "Lock-out needs TCP: other protocols can only drop the excess.", limited(func(l *Limit) { l.Over, l.LockFor = LockOut, 60 })},
	{"rule/01B.lock_for", "A lock-out lasts 10 seconds to 1 day.", limited(func(l *Limit) { l.Over, l.LockFor = Quarantine, 9 })},
	{"rule/01B.strikes", "Enter a whole number from 1 to 100, or 0 for never.", limited(func(l *Limit) { l.Strikes = 101 })},
	{"rule/01B.strike_window", "The time must be 1 minute to 30 days.", limited(func(l *Limit) { l.Strikes = 1 })},
	{"rule/01B.never", "There is no alias `NONE`.", limited(func(l *Limit) { l.Never = "NONE" })},
	{"rule/01B.never", "PORTS holds ports, not addresses.", limited(func(l *Limit) { l.Never = "PORTS" })},
	{"sources.prefix6", "The prefix length must be 48 to 128.", func(c *Config) { c.Sources.Prefix6 = 47 }},
	{"sources.meter", "Enter a whole number from 4 to 1 000 000.", func(c *Config) { c.Sources.Meter = 3 }},
	{"sources.meter", "At most 4000 rules can have a limit; this has 4001.", func(c *Config) {
		c.Rules = nil
		for i := range 4001 {
			c.Rules = append(c.Rules, Rule{ID: ID(fmt.Sprintf("X%d", i)), Limit: Limit{Open: 1}})
		}
	}},
	{"rule/01A.forward", "The forward that made this rule is gone.", func(c *Config) { c.Rules[0].Forward = "01Z" }},
	{"rule/01R.forward", "This rule is made by the forward “web”; change it there.", func(c *Config) { c.Rules[4].Proto = TCPUDP }},

	{"forward/01G.in", "There is no interface DMZ.", func(c *Config) { c.Forwards[0].In = "DMZ" }},
	{"forward/01G.proto", "A forward needs TCP or UDP.", func(c *Config) { c.Forwards[0].Proto = ICMP }},
	{"forward/01G.from", "Name at least one address, network or alias, or choose any.", func(c *Config) { c.Forwards[0].From = Ends{} }}, // C05
	{"forward/01G.from", "Source is IPv6, the target is not.", func(c *Config) { c.Forwards[0].From = mustEnds("fd00::1") }},
	{"forward/01G.to", "Destination and target must be of one family.", func(c *Config) { c.Forwards[0].Dst = mustEnd("fd00::1") }},
	{"forward/01G.dst", "Choose WAN address, or write one address.", func(c *Config) { c.Forwards[0].Dst = mustEnd("LAN address") }},
	{"forward/01G.dport", "Port must be 1–65535.", func(c *Config) { c.Forwards[0].Ports = PortRange{} }},
	{"forward/01G.to_port", "Port must be 1–65535.", func(c *Config) { c.Forwards[0].ToPort = 0 }},
	{"forward/01G.to_port", "The range would end at 65536.", func(c *Config) { c.Forwards[0].Ports, c.Forwards[0].ToPort = PortRange{53, 54}, 65535 }}, // C06
	{"forward/01G.to", "Write the address of a host inside.", func(c *Config) { c.Forwards[0].To = netip.MustParseAddr("224.0.0.1") }},
	{"forward/01G.to", "192.168.2.1 is this box itself; write a rule with destination *this box* instead.", func(c *Config) { c.Forwards[0].To = netip.MustParseAddr("192.168.2.1") }},
	{"forward/01G.to", "192.168.1.255 is the network or broadcast address of LAN.", func(c *Config) { c.Forwards[0].To = netip.MustParseAddr("192.168.1.255") }},
	{"forward/01G.rule", "The linked rule is missing.", func(c *Config) { c.Forwards[0].Rule = "01Z" }},
	{"forward/01T.dport", "Port 53 is already forwarded by “udp 203.0.113.9 port 53 to 192.168.1.11 port 53 from not 10.0.0.0/8”.", func(c *Config) {
		c.Forwards[0].On = true
		twin := c.Forwards[0]
		twin.ID, twin.Dst = "01T", mustEnd("WAN address")
		c.Forwards = append(c.Forwards, twin)
	}},

	{"scope/LAN.in", "LAN has two scopes.", func(c *Config) { c.Scopes = append(c.Scopes, Scope{In: "LAN"}) }},
	{"scope/DMZ.in", "There is no interface DMZ.", func(c *Config) { c.Scopes = append(c.Scopes, Scope{In: "DMZ", On: true}) }},
	{"scope/WAN.on", "The DHCP server never runs on a WAN.", func(c *Config) { c.Scopes = append(c.Scopes, Scope{In: "WAN", On: true}) }},
	{"scope/LAN.on", "LAN has no fixed address.", func(c *Config) { c.Interfaces[1].V4 = V4{Mode: None} }},
	{"scope/LAN.lease", "The lease time must be 60 seconds to 7 days.", func(c *Config) { c.Scopes[0].Lease = 59 }},
	{"scope/LAN.gw", "Gateway must be inside 192.168.1.0/24.", func(c *Config) { c.Scopes[0].Gateway = netip.MustParseAddr("192.168.2.1") }},
	{"scope/LAN.dns", "At most 4 IPv4 addresses.", func(c *Config) { c.Scopes[0].DNS = []netip.Addr{netip.MustParseAddr("fd00::1")} }},
	{"scope/LAN.domain", "Domain: use letters, digits, dashes and dots, for example home.arpa.", func(c *Config) { c.Scopes[0].Domain = "-" }},
	{"scope/LAN.from", "The range must lie inside 192.168.1.0/24.", func(c *Config) { c.Scopes[0].From = netip.MustParseAddr("192.168.0.255") }},
	{"scope/LAN.from", "192.168.1.0 is the network's own address.", func(c *Config) { pool(c, "192.168.1.0", "192.168.1.0") }},
	{"scope/LAN.to", "192.168.1.255 is the network's broadcast address.", func(c *Config) { pool(c, "192.168.1.9", "192.168.1.255") }},
	{"scope/LAN.to", "The range ends (192.168.1.5) before it starts (192.168.1.9).", func(c *Config) { pool(c, "192.168.1.9", "192.168.1.5") }},
	{"scope/LAN.from", "The range contains the box's own address 192.168.1.1.", func(c *Config) { pool(c, "192.168.1.1", "192.168.1.5") }},
	{"static/01S.mac", "A MAC has 12 hex digits.", func(c *Config) { c.Scopes[0].Statics[0].MAC = "02" }},
	{"static/01S.descr", "Remove the line break.", func(c *Config) { c.Scopes[0].Statics[0].Descr = "a\rb" }},
	{"static/01S.addr", "The address must lie inside 192.168.1.0/24.", func(c *Config) { c.Scopes[0].Statics[0].Addr = netip.MustParseAddr("192.168.2.20") }},
	{"static/01S.addr", "192.168.1.1 is the box's own address.", func(c *Config) { c.Scopes[0].Statics[0].Addr = netip.MustParseAddr("192.168.1.1") }},
	{"static/01S.addr", "192.168.1.255 is the network or broadcast address.", func(c *Config) { c.Scopes[0].Statics[0].Addr = netip.MustParseAddr("192.168.1.255") }},
	{"static/01S.host", "Host name: use 1–63 letters, digits and dashes, no dot.", func(c *Config) { c.Scopes[0].Statics[0].Host = "-x" }},
	{"static/01T.mac", "02:00:00:00:00:01 already has 192.168.1.20 (printer).", func(c *Config) { second(c).Host = "x" }},
	{"static/01T.addr", "192.168.1.20 already belongs to printer.", func(c *Config) { s := second(c); s.MAC = "02:00:00:00:00:02"; s.Host = "x" }},
	{"static/01T.host", "printer is already the name of 02:00:00:00:00:01.", func(c *Config) {
		s := second(c)
		s.MAC, s.Addr = "02:00:00:00:00:02", netip.MustParseAddr("192.168.1.21")
	}},
}

// rename calls GUEST otherwise, everywhere.
func rename(c *Config, to Name) {
	in := c.Interfaces[2]
	in.Name = to
	*c, _ = UpdateInterface{"GUEST", in}.Apply(*c)
}

func repeat[T any](v T, n int) (out []T) {
	for range n {
		out = append(out, v)
	}
	return out
}

func pool(c *Config, from, to string) {
	c.Scopes[0].From, c.Scopes[0].To = netip.MustParseAddr(from), netip.MustParseAddr(to)
}

// second adds a twin of the static mapping.
func second(c *Config) *StaticLease {
	s := &c.Scopes[0].Statics
	twin := (*s)[0]
	twin.ID = "01T"
	*s = append(*s, twin)
	return &(*s)[1]
}

// Each wrong thing is told beside its field, and nothing else about that field.
func TestValidateSaysWhatIsWrong(t *testing.T) {
	for _, w := range wrongs {
		c := sample()
		w.do(&c)
		told := false
		for _, p := range c.Validate() {
			told = told || p == Problem{w.field, w.text}
			if p.Field == w.field && p.Text != w.text && !strings.Contains(p.Text, "already") {
				t.Errorf("%s: also %q", w.text, p.Text)
			}
		}
		if !told {
			t.Errorf("%s: %q is not among %v", w.field, w.text, c.Validate())
		}
	}
}

// The table above holds every sentence that stands in the source.
func TestValidateEverySentenceIsTried(t *testing.T) {
	for _, file := range []string{"validate.go", "validate_rule.go", "problem.go"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			lit, ok := call.Args[1].(*ast.BasicLit)
			if sel, isSel := call.Fun.(*ast.SelectorExpr); !isSel || sel.Sel.Name != "add" || !ok {
				return true
			}
			format, _ := strconv.Unquote(lit.Value)
			pattern := regexp.MustCompile("^" + regexp.MustCompile(`%\w+`).ReplaceAllString(regexp.QuoteMeta(format), "(?s).+") + "$")
			for _, w := range wrongs {
				if pattern.MatchString(w.text) {
					return true
				}
			}
			t.Errorf("%s: no case for %q", file, format)
			return true
		})
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	c := sample()
	for _, do := range []func(*Config){wrongs[0].do, wrongs[4].do} {
		do(&c)
	}
	c.Rules[0].Action, c.Rules[1].Family, c.Scopes[0].Lease = "x", "x", 1
	ps := c.Validate()
	if len(ps) != 5 || ps.Or() == nil || Problems(nil).Or() != nil {
		t.Errorf("%v", ps)
	}
	own, rest := ps.Of(Ref{"rule", "01A"})
	if len(own) != 1 || own["action"] == "" || len(rest) != 4 {
		t.Errorf("%v %v", own, rest)
	}
}

// A gateway may be link-local, networks of /31 have neither own nor broadcast address,
// and both may overlap what is not static.
func TestValidateAcceptsTheCorners(t *testing.T) {
	for name, do := range map[string]func(*Config){
		"/31":                 func(c *Config) { c.Interfaces[2].V4.Addr = netip.MustParsePrefix("192.168.2.0/31") },
		"/32":                 func(c *Config) { c.Interfaces[2].V4.Addr = netip.MustParsePrefix("192.168.2.7/32") },
		"/127":                func(c *Config) { c.Interfaces[0].V6.Addr = netip.MustParsePrefix("2001:db8::/127") },
		"protocol 0":          func(c *Config) { c.Rules[3].Proto = "0" },
		"ports 1 and 65535":   func(c *Config) { c.Rules[1].DstPorts = Ports{{Range: PortRange{1, 65535}}} },
		"the last port":       func(c *Config) { c.Forwards[0].ToPort = 65535 },
		"an empty alias":      func(c *Config) { c.Aliases[1].Addrs = nil },
		"overlapping entries": func(c *Config) { c.Aliases[1].Addrs = append(c.Aliases[1].Addrs, Entry{End: mustEnd("2001:db8::9")}) }, // C02
		"both families":       func(c *Config) { c.Aliases[1].Addrs = append(c.Aliases[1].Addrs, Entry{End: mustEnd("10.0.0.0/8")}) },  // C04
		"same port, other proto": func(c *Config) {
			f := c.Forwards[0]
			f.ID, f.On, f.Proto = "01T", true, TCP
			c.Forwards = append(c.Forwards, f)
		},
		"same port, other source": func(c *Config) {
			f := c.Forwards[0]
			f.ID, f.From = "01T", Anyone()
			c.Forwards = append(c.Forwards, f)
		},
		"a mapping in the pool": func(c *Config) { c.Scopes[0].Statics[0].Addr = netip.MustParseAddr("192.168.1.150") },
	} {
		c := sample()
		do(&c)
		if ps := c.Validate(); ps != nil {
			t.Errorf("%s: %v", name, ps)
		}
	}
}

func TestWarningsTellOfEmptyAliasesAndLostPages(t *testing.T) {
	c := sample()
	c.Aliases[0].Addrs = nil
	c.Interfaces[1].On = false
	c.Forwards[1].Ports, c.Forwards[1].Dst = PortRange{443, 443}, mustEnd("WAN address")
	var lines []string
	for _, p := range c.Warnings() {
		lines = append(lines, p.Field)
	}
	if got := strings.Join(lines, " "); got != "admin.https rule/01A.src rule/01B.dst rule/01R.src forward/01F.from forward/01F.dport" {
		t.Error(got)
	}
	if ps := sample().Warnings(); ps != nil {
		t.Error(ps)
	}
	if ps := Factory().Validate(); ps != nil {
		t.Error(ps)
	}
}

// Aliases that stand in each other many times over are looked at once each:
// by every path it would be 2^60 of them.
func TestValidateAliasesNestedManyTimesOver(t *testing.T) {
	c := sample()
	for i := range 60 {
		a := Alias{Name: Name("N" + strconv.Itoa(i)), Kind: Addresses}
		for range 2 {
			a.Addrs = append(a.Addrs, Entry{End: End{Kind: EndAlias, Name: Name("N" + strconv.Itoa(i+1))}})
		}
		c.Aliases = append(c.Aliases, a)
	}
	c.Aliases = append(c.Aliases, Alias{Name: "N60", Kind: Addresses, Addrs: []Entry{{End: mustEnd("10.0.0.1")}}})
	if ps := c.Validate(); ps != nil {
		t.Error(ps)
	}
	if rs := c.AliasAddrs("N0"); len(rs) != 1 {
		t.Error(rs)
	}
}

// C03: what is shown is what was typed; what is counted is each address once.
func TestAliasAddrsC03CountsEachAddressOnce(t *testing.T) {
	var c Config
	a := Alias{Name: "A", Kind: Addresses}
	for _, s := range []string{"198.18.220.0-198.18.222.200", "198.18.234.124", "198.18.224.0/20", "198.18.230.0/24", " 192.0.2.10 - 192.0.2.12 "} {
		a.Addrs = append(a.Addrs, Entry{End: mustEnd(s)})
	}
	c.Aliases = []Alias{a}
	n := 0
	for _, r := range c.AliasAddrs("A") {
		for at := r.From; !r.To.Less(at); at = at.Next() {
			n++
		}
	}
	if n != 713+4096+3 || len(c.AliasAddrs("A")) != 3 {
		t.Errorf("%d addresses in %v", n, c.AliasAddrs("A"))
	}
}

func TestMergeEndsAtTheLastAddress(t *testing.T) {
	got := MustMerge([]string{"255.255.255.255/32", "255.255.255.0/24", "0.0.0.0/1", "128.0.0.0/1", "ffff::/16", "::/0"})
	if len(got) != 2 || got[0].To.String() != "255.255.255.255" || got[0].From.String() != "0.0.0.0" || got[1].To != netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff") {
		t.Errorf("%v", got)
	}
	if ports := MergePorts([]PortRange{{65535, 65535}, {1, 80}, {81, 90}, {40, 50}, {1000, 65534}}); len(ports) != 2 || ports[1] != (PortRange{1000, 65535}) || ports[0] != (PortRange{1, 90}) {
		t.Errorf("%v", ports)
	}
}
