// Package firewall is what the box should be: the configuration as values,
// whether it is valid, and the typed changes that lead from one configuration
// to the next. It is pure: no clock, no disk, no network.
package firewall

import "net/netip"

// Schema is the version of the document that this program writes and reads.
const Schema = 1

// ID is a ULID: 26 characters of Crockford's base 32, minted by services/commit.
// It names a rule, forward or static lease for ever; positions never do.
type ID string

// Name is the key of an interface or alias: a letter, then letters, digits or
// underscores. A rename is a change that rewrites every use.
type Name string

// Config is the whole configuration of one box: one document per revision.
type Config struct {
	Schema     int         `json:"schema"`
	System     System      `json:"system"`
	Admin      Admin       `json:"admin"`
	Interfaces []Interface `json:"interfaces,omitempty"`
	Aliases    []Alias     `json:"aliases,omitempty"`
	Rules      []Rule      `json:"rules,omitempty"`
	Forwards   []Forward   `json:"forwards,omitempty"`
	Scopes     []Scope     `json:"scopes,omitempty"`
	Sources    Sources     `json:"sources,omitzero"`
}

// System says how the box calls itself.
type System struct {
	Host   string `json:"host"`   // one LDH label, 1-63 characters
	Domain string `json:"domain"` // default home.arpa (RFC 8375)
	Zone   string `json:"zone"`   // IANA time zone, "UTC" when unknown
}

// Admin says where the web pages answer. They are open on interfaces of role
// LAN only (the anti-lockout rule); everything else needs a rule.
type Admin struct {
	HTTPS uint16   `json:"https"`           // default 443
	HTTP  uint16   `json:"http"`            // redirects to HTTPS; default 80, 0 = off
	SSH   bool     `json:"ssh"`             // the anti-lockout rule opens tcp/22 too
	Hosts []string `json:"hosts,omitempty"` // further host names that the pages answer to
}

// Role says on which side of the box an interface is.
type Role string

// The roles. Only a LAN gets the anti-lockout rule; only a WAN masquerades.
const (
	LAN   Role = "lan"
	WAN   Role = "wan"
	Other Role = "other"
)

// Interface is one port with a role.
type Interface struct {
	Name         Name   `json:"name"`   // what people call it: LAN, WAN, GUEST; 1-15 characters
	Device       string `json:"device"` // what the kernel calls it: eth0
	Role         Role   `json:"role"`
	On           bool   `json:"on"`
	V4           V4     `json:"v4"`
	V6           V6     `json:"v6"`
	MTU          int    `json:"mtu,omitempty"`           // 576-9000, 0 = as the port is
	BlockPrivate bool   `json:"block_private,omitempty"` // drop RFC 1918, 100.64/10, fc00::/7 sources
	BlockBogons  bool   `json:"block_bogons,omitempty"`  // drop sources that nobody may use
}

// V4 is how an interface gets its IPv4 address.
type V4 struct {
	Mode    Mode         `json:"mode"`
	Addr    netip.Prefix `json:"addr,omitzero"`    // Static: address and length
	Gateway netip.Addr   `json:"gateway,omitzero"` // Static on a WAN: default route
	DNS     []netip.Addr `json:"dns,omitempty"`    // resolvers; empty with DHCP = the provider's
}

// V6 is how an interface gets its IPv6 address: static only, for now.
type V6 struct {
	Mode    Mode         `json:"mode"`
	Addr    netip.Prefix `json:"addr,omitzero"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
}

// Mode is where an address comes from.
type Mode string

// The modes. DHCP is IPv4 on a WAN only.
const (
	None   Mode = "none"
	Static Mode = "static"
	DHCP   Mode = "dhcp"
)

// Alias is a named list of addresses or of ports.
type Alias struct {
	Name  Name        `json:"name"` // 1-31 characters
	Kind  AliasKind   `json:"kind"`
	Descr string      `json:"descr,omitempty"`
	Addrs []Entry     `json:"addrs,omitempty"` // Kind Addresses: addr, net, range or alias
	Ports []PortEntry `json:"ports,omitempty"` // Kind PortList: port, range or alias
}

// AliasKind is what an alias holds.
type AliasKind string

// The alias kinds.
const (
	Addresses AliasKind = "addresses"
	PortList  AliasKind = "ports"
)

// Entry is one line of an address alias.
type Entry struct {
	End  End    `json:"end"`
	Note string `json:"note,omitempty"`
}

// PortEntry is one line of a port alias.
type PortEntry struct {
	End  PortEnd `json:"end"`
	Note string  `json:"note,omitempty"`
}

// Rule decides new connections that enter by an interface, or by any of them.
type Rule struct {
	ID       ID       `json:"id"`
	On       bool     `json:"on"`
	Action   Action   `json:"action"`
	In       Name     `json:"in,omitempty"` // empty: floating, all interfaces, before the lists
	Family   Family   `json:"family"`
	Proto    Proto    `json:"proto"`
	ICMP     []string `json:"icmp,omitempty"` // ICMP type names (ICMPTypes); empty = all
	Src      Ends     `json:"src"`
	SrcPorts Ports    `json:"sport,omitempty"` // empty = any
	Dst      Ends     `json:"dst"`
	DstPorts Ports    `json:"dport,omitempty"` // empty = any
	Log      bool     `json:"log,omitempty"`
	Descr    string   `json:"descr,omitempty"`
	Section  string   `json:"section,omitempty"` // the separator above it
	Limit    Limit    `json:"limit,omitzero"`    // what one source may do by it; pass only
	Forward  ID       `json:"forward,omitempty"` // made by this forward, which owns family to ports
}

// Action is what a rule does.
type Action string

// The actions. Reject answers with a TCP reset or an ICMP error.
const (
	Pass   Action = "pass"
	Block  Action = "block"
	Reject Action = "reject"
)

// Family is which IP versions a rule is for.
type Family string

// The families.
const (
	IPv4 Family = "v4"
	IPv6 Family = "v6"
	Both Family = "both"
)

// Proto is a transport protocol: any, tcp, udp, tcp+udp, icmp (ICMPv6 for
// IPv6), esp, ah, gre, igmp, sctp or a number 0-255 as text.
type Proto string

// The protocols that have a name here.
const (
	AnyProto Proto = "any"
	TCP      Proto = "tcp"
	UDP      Proto = "udp"
	TCPUDP   Proto = "tcp+udp"
	ICMP     Proto = "icmp"
	ESP      Proto = "esp"
	AH       Proto = "ah"
	GRE      Proto = "gre"
	IGMP     Proto = "igmp"
	SCTP     Proto = "sctp"
)

// Forward sends connections to an outside port on to a host inside (DNAT).
type Forward struct {
	ID      ID         `json:"id"`
	On      bool       `json:"on"`
	Descr   string     `json:"descr,omitempty"`
	In      Name       `json:"in"`    // the outside interface
	Proto   Proto      `json:"proto"` // tcp, udp, tcp+udp
	From    Ends       `json:"from"`  // sources that may use it
	Dst     End        `json:"dst"`   // EndIfAddr of In, or an address
	Ports   PortRange  `json:"dport"`
	To      netip.Addr `json:"to"`
	ToPort  uint16     `json:"to_port"` // first port inside; ranges shift one to one
	Rule    ID         `json:"rule"`    // the linked pass rule; empty: translate only
	Reflect bool       `json:"reflect"` // also for clients inside that use the outside address
}

// Scope is the DHCP server of one interface.
type Scope struct {
	In      Name          `json:"in"`
	On      bool          `json:"on"`
	From    netip.Addr    `json:"from"`              // first address of the pool
	To      netip.Addr    `json:"to"`                // last address of the pool
	Lease   int           `json:"lease"`             // seconds, 60-604800; default 7200
	Gateway netip.Addr    `json:"gateway,omitzero"`  // zero = this box
	DNS     []netip.Addr  `json:"dns,omitempty"`     // empty = the WAN's resolvers
	Domain  string        `json:"domain,omitempty"`  // empty = the system's
	Statics []StaticLease `json:"statics,omitempty"` // static mappings
}

// StaticLease always gives one client the same address, inside the pool or not.
type StaticLease struct {
	ID    ID         `json:"id"`
	MAC   MAC        `json:"mac"`
	Addr  netip.Addr `json:"addr"`
	Host  string     `json:"host,omitempty"`
	Descr string     `json:"descr,omitempty"`
}
