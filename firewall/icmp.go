package firewall

import (
	"maps"
	"slices"
	"strconv"
)

// icmpTypes is the ICMP types that a rule can name: the number for IPv4 and for
// IPv6 (RFC 792, RFC 4443), -1 where the family has none.
var icmpTypes = map[string][2]int{
	"echo-request":            {8, 128},
	"echo-reply":              {0, 129},
	"destination-unreachable": {3, 1},
	"time-exceeded":           {11, 3},
	"parameter-problem":       {12, 4},
	"packet-too-big":          {-1, 2},
	"redirect":                {5, 137},
	"timestamp-request":       {13, -1},
	"timestamp-reply":         {14, -1},
	"router-solicitation":     {10, 133},
	"router-advertisement":    {9, 134},
	"neighbor-solicitation":   {-1, 135},
	"neighbor-advertisement":  {-1, 136},
}

// ICMPTypes lists the names that Rule.ICMP may hold, sorted.
func ICMPTypes() []string { return slices.Sorted(maps.Keys(icmpTypes)) }

// ICMPNumber is the type number of a name in one family (v6 or not); false when the family has none.
func ICMPNumber(name string, v6 bool) (uint8, bool) {
	pair, ok := icmpTypes[name]
	n := pair[0]
	if v6 {
		n = pair[1]
	}
	if !ok || n < 0 {
		return 0, false
	}
	return uint8(n), true
}

// HasPorts reports whether the protocol has ports to match.
func (p Proto) HasPorts() bool { return p == TCP || p == UDP || p == TCPUDP || p == SCTP }

var protoNumbers = map[Proto]uint8{TCP: 6, UDP: 17, ESP: 50, AH: 51, GRE: 47, IGMP: 2, SCTP: 132}

// Numbers is the IP protocol numbers in one family; nil for any. ICMP is 1 for
// IPv4 and 58 for IPv6. The last result is false for a text that is no protocol.
func (p Proto) Numbers(v6 bool) ([]uint8, bool) {
	switch p {
	case AnyProto:
		return nil, true
	case TCPUDP:
		return []uint8{6, 17}, true
	case ICMP:
		if v6 {
			return []uint8{58}, true
		}
		return []uint8{1}, true
	}
	if n, ok := protoNumbers[p]; ok {
		return []uint8{n}, true
	}
	n, err := strconv.ParseUint(string(p), 10, 8)
	if err != nil || strconv.FormatUint(n, 10) != string(p) {
		return nil, false
	}
	return []uint8{uint8(n)}, true
}
