package firewall

import (
	"fmt"
	"net/netip"
	"strings"
)

// EndKind says what an End stands for.
type EndKind uint8

// The kinds of End.
const (
	EndAny    EndKind = iota
	EndAddr           // one address
	EndNet            // a network
	EndRange          // from Addr to Last, both included
	EndAlias          // the alias called Name
	EndIfNet          // "LAN net": every network on the interface called Name, but link-local IPv6
	EndIfAddr         // "LAN address": every address of the interface called Name
	EndSelf           // "this box": any address of the box
)

// End is one member of a source or destination. It is comparable.
type End struct {
	Kind EndKind
	Addr netip.Addr // EndAddr, and the first of EndRange
	Last netip.Addr // the last of EndRange
	Net  netip.Prefix
	Name Name
}

// Ends is a source or destination: a packet matches when it matches one of Of,
// or none of it when Not is set. An empty Of matches nobody and is not valid.
type Ends struct {
	Not bool  `json:"not,omitempty"`
	Of  []End `json:"of"`
}

// Anyone is the Ends that every packet matches.
func Anyone() Ends { return Ends{Of: []End{{Kind: EndAny}}} }

// IsAny reports whether every packet matches.
func (e Ends) IsAny() bool { return !e.Not && len(e.Of) == 1 && e.Of[0].Kind == EndAny }

// ParseEnd reads one member as a person writes it: any, this box, 10.0.0.1,
// 10.0.0.0/24, 10.0.0.5-10.0.0.9, LAN net, LAN address, or an alias name.
// Host bits of a network are kept out: 10.0.0.5/24 becomes 10.0.0.0/24.
func ParseEnd(s string) (End, error) {
	s = strings.Join(strings.Fields(s), " ")
	low := strings.ToLower(s)
	switch {
	case s == "":
		return End{}, fmt.Errorf("write an address, a network, a range or an alias")
	case low == "any":
		return End{Kind: EndAny}, nil
	case low == "this box":
		return End{Kind: EndSelf}, nil
	case strings.HasSuffix(low, " net"):
		return namedEnd(EndIfNet, s[:len(s)-4])
	case strings.HasSuffix(low, " address"):
		return namedEnd(EndIfAddr, s[:len(s)-8])
	}
	if first, last, ok := strings.Cut(strings.ReplaceAll(s, " ", ""), "-"); ok && looksNumeric(first) {
		return parseRange(first, last)
	}
	if strings.Contains(s, "/") {
		p, err := ParsePrefix(s)
		if err != nil {
			return End{}, err
		}
		return End{Kind: EndNet, Net: p.Masked()}, nil
	}
	if looksNumeric(s) {
		a, err := ParseAddr(s)
		if err != nil {
			return End{}, err
		}
		return End{Kind: EndAddr, Addr: a}, nil
	}
	return namedEnd(EndAlias, s)
}

func namedEnd(k EndKind, s string) (End, error) {
	n := Name(strings.TrimSpace(s))
	if !n.Valid(31) {
		return End{}, fmt.Errorf("`%s` is not an address, a network, a range or a name", s)
	}
	return End{Kind: k, Name: n}, nil
}

func parseRange(first, last string) (End, error) {
	a, err := ParseAddr(first)
	if err != nil {
		return End{}, err
	}
	b, err := ParseAddr(last)
	if err != nil {
		return End{}, err
	}
	if a.Is4() != b.Is4() {
		return End{}, fmt.Errorf("the range mixes IPv4 and IPv6")
	}
	if b.Less(a) {
		return End{}, fmt.Errorf("the range ends (%s) before it starts (%s)", b, a)
	}
	return End{Kind: EndRange, Addr: a, Last: b}, nil
}

// looksNumeric tells an address, even a wrong one, from a name: names start with a letter and hold no colon.
func looksNumeric(s string) bool {
	return s != "" && (s[0] >= '0' && s[0] <= '9' || strings.Contains(s, ":"))
}

// ParseAddr reads an IPv4 or IPv6 address without zone; IPv4 in IPv6 is refused.
func ParseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(strings.TrimSpace(s))
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Addr{}, fmt.Errorf("`%s` is not an IP address", strings.TrimSpace(s))
	}
	return a, nil
}

// ParsePrefix reads address/length and keeps the host bits.
func ParsePrefix(s string) (netip.Prefix, error) {
	s = strings.TrimSpace(s)
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("`%s` is not a network; write for example 192.168.1.0/24", s)
	}
	return p, nil
}

// String is what ParseEnd reads.
func (e End) String() string {
	switch e.Kind {
	case EndAny:
		return "any"
	case EndAddr:
		return e.Addr.String()
	case EndNet:
		return e.Net.String()
	case EndRange:
		return e.Addr.String() + "-" + e.Last.String()
	case EndIfNet:
		return string(e.Name) + " net"
	case EndIfAddr:
		return string(e.Name) + " address"
	case EndSelf:
		return "this box"
	}
	return string(e.Name)
}

// MarshalText writes String.
func (e End) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads what ParseEnd reads.
func (e *End) UnmarshalText(b []byte) (err error) {
	*e, err = ParseEnd(string(b))
	return err
}

// ParseEnds reads a list of members, divided by commas or line breaks. An empty
// text gives an empty list, which Validate refuses: nothing is never any.
func ParseEnds(s string) (Ends, error) {
	var out Ends
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '\n' || r == ';' }) {
		if strings.TrimSpace(part) == "" {
			continue
		}
		e, err := ParseEnd(part)
		if err != nil {
			return Ends{}, err
		}
		out.Of = append(out.Of, e)
	}
	return out, nil
}

// List is the members as ParseEnds reads them, without Not.
func (e Ends) List() string {
	parts := make([]string, len(e.Of))
	for i, m := range e.Of {
		parts[i] = m.String()
	}
	return strings.Join(parts, ", ")
}

// String is for people: "not LAN net" or "10.0.0.1, WEB".
func (e Ends) String() string {
	if e.Not {
		return "not " + e.List()
	}
	return e.List()
}

// PortRange is a port or a range of ports, both ends included.
type PortRange struct {
	From uint16 `json:"from"`
	To   uint16 `json:"to"`
}

// ParsePortRange reads 80 or 8000-8010 (also with a colon).
func ParsePortRange(s string) (PortRange, error) {
	first, last, isRange := strings.Cut(strings.ReplaceAll(s, ":", "-"), "-")
	a, err := parsePort(first)
	if err != nil {
		return PortRange{}, err
	}
	if !isRange {
		return PortRange{a, a}, nil
	}
	b, err := parsePort(last)
	if err != nil {
		return PortRange{}, err
	}
	if b < a {
		return PortRange{}, fmt.Errorf("the range ends (%d) before it starts (%d)", b, a)
	}
	return PortRange{a, b}, nil
}

func parsePort(s string) (uint16, error) {
	s = strings.TrimSpace(s)
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' || n > 65535 {
			return 0, errPort
		}
		n = n*10 + int(r-'0')
	}
	if s == "" || n < 1 || n > 65535 {
		return 0, errPort
	}
	return uint16(n), nil
}

var errPort = fmt.Errorf("port must be 1–65535")

// Len is how many ports the range holds.
func (p PortRange) Len() int { return int(p.To) - int(p.From) + 1 }

// Overlaps reports whether a port is in both ranges.
func (p PortRange) Overlaps(q PortRange) bool { return p.From <= q.To && q.From <= p.To }

// String is 80 or 8000-8010.
func (p PortRange) String() string {
	if p.From == p.To {
		return fmt.Sprint(p.From)
	}
	return fmt.Sprintf("%d-%d", p.From, p.To)
}

// PortEnd is a port, a range of ports, or a port alias. It is comparable.
type PortEnd struct {
	Range PortRange
	Alias Name // when set, Range is not
}

// Ports is a list of ports; empty means any.
type Ports []PortEnd

// services are names that people type instead of numbers.
var services = map[string]uint16{
	"ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "dns": 53, "tftp": 69, "http": 80, "pop3": 110, "ntp": 123,
	"imap": 143, "snmp": 161, "ldap": 389, "https": 443, "submission": 587, "ldaps": 636, "imaps": 993, "pop3s": 995,
	"openvpn": 1194, "wireguard": 51820, "mysql": 3306, "rdp": 3389, "sip": 5060, "postgresql": 5432, "http-alt": 8080,
}

// ParsePortEnd reads a port, a range, a service name or an alias name.
func ParsePortEnd(s string) (PortEnd, error) {
	s = strings.TrimSpace(s)
	if n, ok := services[strings.ToLower(s)]; ok {
		return PortEnd{Range: PortRange{n, n}}, nil
	}
	if n := Name(s); n.Valid(31) {
		return PortEnd{Alias: n}, nil
	}
	r, err := ParsePortRange(s)
	return PortEnd{Range: r}, err
}

// String is what ParsePortEnd reads.
func (p PortEnd) String() string {
	if p.Alias != "" {
		return string(p.Alias)
	}
	return p.Range.String()
}

// MarshalText writes String.
func (p PortEnd) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what ParsePortEnd reads.
func (p *PortEnd) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePortEnd(string(b))
	return err
}

// ParsePorts reads a list of ports divided by commas or line breaks; "any" and "" give an empty list.
func ParsePorts(s string) (Ports, error) {
	if t := strings.ToLower(strings.TrimSpace(s)); t == "" || t == "any" {
		return nil, nil
	}
	var out Ports
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == '\n' || r == ';' }) {
		if strings.TrimSpace(part) == "" {
			continue
		}
		p, err := ParsePortEnd(part)
		if err != nil {
			return nil, fmt.Errorf("`%s`: %w", strings.TrimSpace(part), err)
		}
		out = append(out, p)
	}
	if out == nil { // commas and nothing else: not a way to say any
		return nil, errPort
	}
	return out, nil
}

// String is what ParsePorts reads.
func (p Ports) String() string {
	if len(p) == 0 {
		return "any"
	}
	parts := make([]string, len(p))
	for i, e := range p {
		parts[i] = e.String()
	}
	return strings.Join(parts, ", ")
}

// MAC is an Ethernet address, kept as 02:00:00:00:00:01.
type MAC string

// ParseMAC reads 12 hex digits with colons, dashes, dots or nothing between
// them. Addresses of groups (odd first byte) are refused.
func ParseMAC(s string) (MAC, error) {
	hex := strings.NewReplacer(":", "", "-", "", ".", "").Replace(strings.ToLower(strings.TrimSpace(s)))
	if len(hex) != 12 || strings.Trim(hex, "0123456789abcdef") != "" {
		return "", fmt.Errorf("a MAC has 12 hex digits")
	}
	if strings.ContainsRune("13579bdf", rune(hex[1])) {
		return "", fmt.Errorf("this is a multicast MAC; the first byte must be even")
	}
	var b strings.Builder
	for i := 0; i < 12; i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(hex[i : i+2])
	}
	return MAC(b.String()), nil
}

// UnmarshalText reads what ParseMAC reads.
func (m *MAC) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMAC(string(b))
	return err
}

// Valid reports whether n is a letter followed by letters, digits and
// underscores, max characters at most.
func (n Name) Valid(max int) bool {
	for i, r := range n {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r != '_' && (r < '0' || r > '9')) {
			return false
		}
	}
	return n != "" && len(n) <= max
}
