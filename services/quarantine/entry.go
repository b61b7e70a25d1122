// Package quarantine knows who is shut out, why and until when. The kernel shuts
// sources out by itself within a packet's time; this service learns of it, keeps
// it over a restart, counts strikes and promotes, and lets people release.
package quarantine

import (
	"net/netip"
	"time"

	"gatehouse/firewall"
)

// Kind is how a source is shut out.
type Kind string

// The kinds: for a time, or until somebody releases it.
const (
	LockOut    Kind = "lock-out"
	Quarantine Kind = "quarantine"
)

// Entry is one source that is shut out or, with Would, that a rule which only
// counts would have shut out.
type Entry struct {
	Source  netip.Prefix   `json:"source"` // a host, an IPv6 prefix, or a network added by hand
	Kind    Kind           `json:"kind"`
	Would   bool           `json:"would,omitempty"`
	Rule    firewall.ID    `json:"rule,omitempty"`   // "" when added by hand
	What    string         `json:"what,omitempty"`   // firewall.OverNew or OverOpen; "" when added by hand
	Limit   firewall.Limit `json:"limit,omitzero"`   // as it was then
	Open    int            `json:"open,omitempty"`   // connections that were open, for OverOpen
	Reason  string         `json:"reason,omitempty"` // by hand: what the person wrote
	By      string         `json:"by,omitempty"`     // by hand: the account
	Times   int            `json:"times"`            // lock-outs of this source within the strike window, this one included
	Since   time.Time      `json:"since"`
	Until   time.Time      `json:"until,omitzero"`    // zero: until it is released
	Packets uint64         `json:"packets,omitempty"` // dropped since it is shut out
	Bytes   uint64         `json:"bytes,omitempty"`
	Last    time.Time      `json:"last,omitzero"` // when a dropped packet was last noticed
}

// The lists that a Query can ask for.
const (
	InQuarantine = "quarantine"
	InLockOuts   = "lock-outs"
	InWould      = "would" // what rules that only count would have shut out
)

// Query asks for a part of one list.
type Query struct {
	Set    string // InQuarantine, InLockOuts or InWould
	Search string // part of an address or of a reason, or the id of a rule
	Sort   string // address, rule, times, since, leaves, packets, last; "" = since
	Desc   bool
	From   int // entries to leave out
	Max    int // entries to give; 0 = 200
}

// List is the answer to a Query.
type List struct {
	Entries []Entry
	Total   int // in the list
	Matched int // of Search
	Updated time.Time
}

// Counts is how many sources each list holds.
type Counts struct{ Quarantine, LockOuts, Would int }

// Who acts, and from where.
type Who struct {
	Account string     `json:"account"`
	Door    string     `json:"door"` // web, console
	Addr    netip.Addr `json:"addr,omitzero"`
}

// Options of a release.
type Options struct {
	KeepStrikes bool          // the next offence counts on
	Exempt      time.Duration // not punished again for so long; 0 = at once
}

// Receipt is what a release did, and for 10 seconds the way back.
type Receipt struct {
	Token    string
	Released []Entry // without those that were gone already
}

// Act is one line of the audit.
type Act struct {
	Time   time.Time    `json:"time"`
	Who    Who          `json:"who"` // zero: the box by itself
	What   string       `json:"what"`
	Source netip.Prefix `json:"source,omitzero"` // zero: Count sources at once
	Count  int          `json:"count,omitempty"`
	Reason string       `json:"reason,omitempty"`
}

// What an Act can be.
const (
	Released    = "released"
	Added       = "added"
	Kept        = "kept"
	Undone      = "undone"      // a release was
	LockedOut   = "locked out"  // by a limit
	Quarantined = "quarantined" // by a limit, until somebody releases it
	Vanished    = "vanished"    // somebody took it out of the kernel by hand
)

// Exemption is a source that limits do not punish, beside the aliases that they name.
type Exemption struct {
	Source netip.Prefix `json:"source"`
	Why    string       `json:"why"`            // box, gateway, resolver, admin, released
	Until  time.Time    `json:"until,omitzero"` // zero: as long as it is what it is
}

// Alarm is a meter that is nearly full, or was: sources that do not fit share one.
// Without a Rule it is the list of those that are shut out: what does not fit
// is only dropped in excess.
type Alarm struct {
	Rule firewall.ID
	What string // firewall.OverNew or OverOpen; "" without a rule
	V6   bool   // it is that of the IPv6 sources
	Used int
	Size int
	Time time.Time // when a source last did not fit; zero: not yet
}
