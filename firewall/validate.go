package firewall

import (
	"net/netip"
	"strings"
)

// Validate gives every problem of the configuration, each with its field; none
// means that it can be compiled. A configuration is taken whole or not at all.
func (c Config) Validate() Problems {
	var ps Problems
	c.validateSystem(&ps)
	for i, in := range c.Interfaces {
		c.validateInterface(checker{&ps, Ref{"interface", string(in.Name)}}, i)
	}
	for i, a := range c.Aliases {
		c.validateAlias(checker{&ps, Ref{"alias", string(a.Name)}}, i)
	}
	seen := map[ID]bool{}
	for _, r := range c.Rules {
		k := checker{&ps, Ref{"rule", string(r.ID)}}
		k.id(seen, r.ID)
		c.validateRule(k, r)
	}
	for i, f := range c.Forwards {
		k := checker{&ps, Ref{"forward", string(f.ID)}}
		k.id(seen, f.ID)
		c.validateForward(k, i)
	}
	c.validateSources(checker{&ps, Ref{Kind: "sources"}})
	c.validateSize(&ps)
	scopes := map[Name]bool{}
	for _, s := range c.Scopes {
		k := checker{&ps, Ref{"scope", string(s.In)}}
		if scopes[s.In] {
			k.add("in", "%s has two scopes.", s.In)
		}
		scopes[s.In] = true
		c.validateScope(k, s, seen)
	}
	return ps
}

func (k checker) id(seen map[ID]bool, id ID) {
	if !id.valid() || seen[id] {
		k.add("id", "The id is missing, malformed or used twice.")
	}
	seen[id] = true
}

// valid holds for what can name objects in the kernel beside those of automatic
// rules, which are in small letters: 26 letters and digits at most, not all of them small letters.
func (id ID) valid() bool {
	distinct := false
	for _, r := range id {
		small := r >= 'a' && r <= 'z'
		if !small && (r < '0' || r > '9') && (r < 'A' || r > 'Z') {
			return false
		}
		distinct = distinct || !small
	}
	return distinct && len(id) <= 26
}

func (c Config) validateSystem(ps *Problems) {
	k := checker{ps, Ref{Kind: "system"}}
	if !label(c.System.Host) {
		k.add("host", "Host name: use 1–63 letters, digits and dashes, no dot.")
	}
	switch {
	case !DomainName(c.System.Domain):
		k.add("domain", "Domain: use letters, digits, dashes and dots, for example home.arpa.")
	case c.System.Domain == "local" || strings.HasSuffix(c.System.Domain, ".local"):
		k.add("domain", "Domain: names ending in .local are used by mDNS. Try home.arpa.")
	}
	if c.System.Zone == "" || strings.ContainsAny(c.System.Zone, ". \\") || c.System.Zone[0] == '/' {
		k.add("zone", "Choose a time zone from the list.")
	}
	k = checker{ps, Ref{Kind: "admin"}}
	if c.Admin.HTTPS == 0 {
		k.add("https", "Port must be 1–65535.")
	}
	if c.Admin.HTTP == c.Admin.HTTPS {
		k.add("http", "HTTP and HTTPS cannot share port %d.", c.Admin.HTTPS)
	}
	for _, h := range c.Admin.Hosts {
		if !DomainName(h) {
			k.add("hosts", "`%s` is not a host name.", h)
		}
	}
}

// reserved names mean something else where an alias or interface can stand.
var reserved = map[string]bool{"any": true, "self": true, "this": true, "box": true, "net": true, "address": true, "not": true, "all": true,
	"tcp": true, "udp": true, "icmp": true, "icmpv6": true, "esp": true, "ah": true, "gre": true, "igmp": true, "sctp": true, "ip": true}

func (k checker) name(field string, n Name, max int) {
	low := strings.ToLower(string(n))
	_, service := services[low]
	switch {
	case !n.Valid(max):
		k.add(field, "Name: start with a letter, then letters, digits or _; at most %d.", max)
	case reserved[low]:
		k.add(field, "`%s` is a reserved or protocol name; choose another.", n)
	case service:
		k.add(field, "`%s` is a service name; choose another.", n)
	}
}

func (c Config) validateInterface(k checker, at int) {
	in := c.Interfaces[at]
	k.name("name", in.Name, 15)
	if !deviceName(in.Device) {
		k.add("device", "Choose a port from the list.")
	}
	if in.Role != LAN && in.Role != WAN && in.Role != Other {
		k.add("role", "Choose WAN, LAN or other.")
	}
	if in.MTU != 0 && (in.MTU < 576 || in.MTU > 9000) {
		k.add("mtu", "MTU must be 576–9000; leave it empty for automatic.")
	}
	if in.MTU != 0 && in.MTU < 1280 && in.V6.Mode != None {
		k.add("mtu", "IPv6 needs an MTU of at least 1280.")
	}
	for _, other := range c.Interfaces[:at] {
		if strings.EqualFold(string(other.Name), string(in.Name)) {
			k.add("name", "%s is already an interface.", other.Name)
		}
		if other.Device == in.Device {
			k.add("device", "%s is already used by %s.", in.Device, other.Name)
		}
		k.overlap("addr", in.V4.Addr, in.V4.Mode == Static && other.V4.Mode == Static, other.V4.Addr, other.Name)
		k.overlap("addr6", in.V6.Addr, in.V6.Mode == Static && other.V6.Mode == Static, other.V6.Addr, other.Name)
	}
	switch in.V4.Mode {
	case None:
	case DHCP:
		if in.Role != WAN {
			k.add("mode", "Only a WAN can ask for its address by DHCP.")
		}
	case Static:
		k.static("addr", "gw", in.V4.Addr, in.V4.Gateway, false)
	default:
		k.add("mode", "Choose none, static or DHCP.")
	}
	switch in.V6.Mode {
	case None:
	case Static:
		k.static("addr6", "gw6", in.V6.Addr, in.V6.Gateway, true)
	default:
		k.add("mode6", "Choose none or static.")
	}
	if len(in.V4.DNS) > 4 {
		k.add("dns", "At most 4 resolvers.")
	}
}

// static checks an address with its length and the gateway beside it.
func (k checker) static(field, gwField string, p netip.Prefix, gw netip.Addr, v6 bool) {
	a := p.Addr()
	switch {
	case !p.IsValid() || a.Is6() != v6:
		k.add(field, "Write an address with its length, for example %s.", map[bool]string{false: "192.168.1.1/24", true: "2001:db8:1::1/64"}[v6])
		return
	case p.Bits() == 0 || a.IsMulticast() || a.IsLoopback() || a.IsUnspecified():
		k.add(field, "%s cannot be the address of a port.", p)
		return
	case p.Bits() < a.BitLen()-1 && a == p.Masked().Addr():
		k.add(field, "This is the network's own address; choose one between %s and %s.", a.Next(), usableLast(p))
	case !v6 && p.Bits() < 31 && a == LastAddr(p):
		k.add(field, "This is the network's broadcast address; choose one between %s and %s.", p.Masked().Addr().Next(), usableLast(p))
	}
	if !gw.IsValid() {
		return
	}
	linkLocal := v6 && gw.IsLinkLocalUnicast()
	switch {
	case gw == a:
		k.add(gwField, "The gateway cannot be the port's own address.")
	case !linkLocal && !p.Contains(gw):
		k.add(gwField, "Gateway must be inside %s.", p.Masked())
	}
}

// usableLast is the last address of a network that a host may have.
func usableLast(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() && p.Bits() < 31 {
		return LastAddr(p).Prev()
	}
	return LastAddr(p)
}

func (k checker) overlap(field string, p netip.Prefix, both bool, q netip.Prefix, name Name) {
	if both && p.IsValid() && q.IsValid() && p.Overlaps(q) {
		k.add(field, "%s is already used by %s (%s). Choose another network.", p.Masked(), name, q)
	}
}

// deviceName is what the kernel allows and nft can quote.
func deviceName(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r) {
			return false
		}
	}
	return s != "" && len(s) <= 15 && s != "." && s != ".." && s != "lo"
}

// MaxEntries is how many entries an alias can have.
const MaxEntries = 100_000

func (c Config) validateAlias(k checker, at int) {
	a := c.Aliases[at]
	k.name("name", a.Name, 31)
	for _, other := range c.Aliases[:at] {
		if strings.EqualFold(string(other.Name), string(a.Name)) {
			k.add("name", "%s is already an alias.", other.Name)
		}
	}
	for _, in := range c.Interfaces {
		if strings.EqualFold(string(in.Name), string(a.Name)) {
			k.add("name", "%s is already an interface.", in.Name)
		}
	}
	k.text("descr", a.Descr)
	switch {
	case a.Kind != Addresses && a.Kind != PortList:
		k.add("kind", "Choose addresses or ports.")
	case a.Kind == Addresses && len(a.Ports) > 0, a.Kind == PortList && len(a.Addrs) > 0:
		k.add("items", "Ports cannot contain addresses, nor addresses ports.")
	case len(a.Addrs)+len(a.Ports) > MaxEntries:
		k.add("items", "At most 100,000 entries; this has %d.", len(a.Addrs)+len(a.Ports))
	}
	for _, e := range a.Ports {
		k.text("items", e.Note)
	}
	for i, e := range a.Addrs {
		k.text("items", e.Note)
		switch e.End.Kind {
		case EndAddr, EndNet, EndRange, EndAlias:
		default:
			k.add("items", "Line %d: `%s` cannot stand in an alias.", i+1, e.End)
		}
	}
	for _, n := range a.contains() {
		if in, ok := c.Alias(n); !ok {
			k.add("items", "There is no alias `%s`.", n)
		} else if in.Kind != a.Kind {
			k.add("items", "%s holds %s, not %s.", n, in.Kind, a.Kind)
		}
	}
	if path := c.loop(a.Name, nil, map[Name]bool{}); path != nil {
		k.add("items", "%s contains %s.", path[0], strings.Join(path[1:], ", which contains "))
	}
}

// validateSize refuses what Decode would not read again: a box that cannot
// read its own configuration starts in SAFE MODE. It is told at the largest alias.
func (c Config) validateSize(ps *Problems) {
	guess, at, most := 600*(len(c.Rules)+len(c.Forwards)), -1, 0
	for i, a := range c.Aliases {
		n := 100 * (len(a.Addrs) + len(a.Ports))
		for _, e := range a.Addrs {
			n += 6 * len(e.Note) // JSON may write one byte as six
		}
		for _, e := range a.Ports {
			n += 6 * len(e.Note)
		}
		if guess += n; n > most {
			at, most = i, n
		}
	}
	if guess < maxDocument || at < 0 {
		return
	}
	if doc, err := Encode(c); err == nil && len(doc) > maxDocument {
		checker{ps, Ref{"alias", string(c.Aliases[at].Name)}}.add("items",
			"The whole configuration would take %d MiB; at most 16 fit. Shorten this list or its notes.", (len(doc)+1<<20-1)>>20)
	}
}

// loop gives the way from an alias back to itself, nil when there is none.
// seen is the aliases from which there is no way back: each is looked at once.
func (c Config) loop(n Name, path []string, seen map[Name]bool) []string {
	if len(path) > 0 && path[0] == string(n) {
		return append(path, string(n))
	}
	a, ok := c.Alias(n)
	if !ok || seen[n] {
		return nil // a loop further in is told by its own members
	}
	seen[n] = true
	path = append(path[:len(path):len(path)], string(n))
	for _, in := range a.contains() {
		if found := c.loop(in, path, seen); found != nil {
			return found
		}
	}
	return nil
}
