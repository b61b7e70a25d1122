package firewall

import "net/netip"

// Packet is the first packet of a connection as it enters the box.
type Packet struct {
	In      string     // device it came in by; "" = sent by the box itself
	Src     netip.Addr // as on the wire, before any translation
	Dst     netip.Addr
	Proto   uint8 // IP protocol number
	SrcPort uint16
	DstPort uint16
	ICMP    uint8 // ICMP or ICMPv6 type
}

// Flow is one conntrack entry: what the first packet was, what came of it.
type Flow struct {
	Packet              // original direction; In from the label's ifindex, "" when unknown
	InIndex  uint32     // interface index from the ct label, 0 = unknown
	To       netip.Addr // destination after translation (source of the reply tuple)
	ToPort   uint16
	As       netip.Addr // source after translation (destination of the reply tuple)
	AsPort   uint16
	Rule     uint32 // rule number from the ct label, 0 = none
	Revision uint32 // of the configuration whose rule it was, from the ct label
	Mark     uint32 // ct mark: firewall.Mark... of limits
	Open     bool   // a TCP connection that both sides opened and its source has not closed
	Key      []byte // how the kernel names it: kept opaque, to delete it by
}

// Facts is what changes without an edit and still decides packets.
type Facts struct {
	Addrs   map[string][]netip.Prefix // by device: its addresses with their lengths
	Routes  []Route                   // the main table
	Blocked []netip.Prefix            // sources that are locked out or in quarantine, and networks blocked by hand
}

// Route is one route of the main table, both families.
type Route struct {
	Dst    netip.Prefix
	Via    netip.Addr // zero: directly connected
	Device string
	Metric int
}
