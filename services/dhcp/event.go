package dhcp

import (
	"net/netip"
	"time"

	"gatehouse/firewall"
)

// EventKind is what happened.
type EventKind string

// The kinds of event.
const (
	None       EventKind = ""
	Given      EventKind = "given"       // a lease was given or extended, and is on disk
	Freed      EventKind = "freed"       // a client gave its address back
	Conflict   EventKind = "conflict"    // somebody else uses the address: quarantine; of our own probes once a minute and interface
	Exhausted  EventKind = "exhausted"   // a client got nothing; once a minute and interface
	StaticBusy EventKind = "static-busy" // a static lease's address is in use; once a minute and interface
	NotStored  EventKind = "not-stored"  // leases did not reach the disk, no ACK went out; once a minute
	Removed    EventKind = "removed"     // an administrator released or deleted the lease
)

// Event is one thing that people or other services want to know.
type Event struct {
	Kind EventKind
	In   firewall.Name
	Addr netip.Addr
	MAC  firewall.MAC `json:",omitempty"`
	Host string       // clean label
}

// Exchange is one message and what became of it, for the diagnostics page.
type Exchange struct {
	Time   time.Time
	In     firewall.Name
	MAC    firewall.MAC
	Type   string // DISCOVER, REQUEST ...
	Answer Answer
	Addr   netip.Addr
	Why    string
}
