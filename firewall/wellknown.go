package firewall

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
)

// PrivateNets is what nobody on the internet can be (RFC 1918, RFC 6598, RFC 4193).
var PrivateNets = []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"}

// BogonNets is sources that no host has (RFC 6890): this-network, loopback,
// link-local, protocol and documentation blocks, multicast, reserved.
var BogonNets = []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3", "::/8", "100::/64", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10", "ff00::/8"}

// MustMerge is the merged ranges of nets that are written in the program.
func MustMerge(nets []string) []AddrRange {
	var out []AddrRange
	for _, n := range nets {
		out = append(out, PrefixRange(netip.MustParsePrefix(n)))
	}
	return Merge(out)
}

// Ports is the TCP ports that the anti-lockout rule opens on LANs.
func (a Admin) Ports() []PortRange {
	out := []PortRange{{a.HTTPS, a.HTTPS}}
	if a.HTTP != 0 {
		out = append(out, PortRange{a.HTTP, a.HTTP})
	}
	if a.SSH {
		out = append(out, PortRange{22, 22})
	}
	return out
}

// LogPrefix is what a log line of the kernel starts with: the action and the
// rule's Ref, or auto/... for an automatic rule. ParseLogPrefix reads it.
func LogPrefix(rule string, a Action) string { return string(a) + " " + rule }

// ParseLogPrefix gives the action and rule of a log line; false when it is not ours.
func ParseLogPrefix(s string) (rule string, a Action, ok bool) {
	act, rule, ok := strings.Cut(s, " ")
	return rule, Action(act), ok && (strings.HasPrefix(rule, "rule/") || strings.HasPrefix(rule, "auto/"))
}

// LimitPrefix is what a log line of a limit starts with: what was exceeded
// (OverNew, OverOpen), or MeterFull, and the rule's Ref. ParseLimitPrefix reads it.
func LimitPrefix(what string, rule ID) string { return what + " rule/" + string(rule) }

// What a log line of a limit is about.
const (
	OverNew   = "new"  // more new connections than New in Window
	OverOpen  = "open" // more than Open connections at once
	MeterFull = "full" // a source did not fit into a meter of the rule
)

// ParseLimitPrefix gives the parts of a log line of a limit; false when it is not ours.
func ParseLimitPrefix(s string) (what string, rule ID, ok bool) {
	what, id, ok := strings.Cut(s, " rule/")
	return what, ID(id), ok && (what == OverNew || what == OverOpen || what == MeterFull)
}

// StampNumber is the part of a Stamp that a ct label has room for.
func StampNumber(stamp string) uint32 {
	b, err := hex.DecodeString(stamp)
	if err != nil || len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}
