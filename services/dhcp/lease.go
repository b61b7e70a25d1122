package dhcp

import (
	"context"
	"encoding/hex"
	"net/netip"
	"time"

	"gatehouse/firewall"
)

// State is where a lease stands. Active, Released and Declined are stored; the
// others are found out when somebody looks.
type State string

// The states of a lease.
const (
	Active   State = "active"   // its client may use it until Until
	Released State = "released" // given back by its client or by an administrator; kept as affinity
	Declined State = "declined" // in use by a stranger: nobody gets it until Until
	Offered  State = "offered"  // promised for a few seconds, in memory only
	Expired  State = "expired"  // was active; kept as affinity until another client needs it
	Static   State = "static"   // a static lease whose client is not here
)

// Lease is what is remembered of one address: one row per address, for ever the
// same key, so that two rows for one address cannot exist.
//
// Times in memory carry Go's monotonic reading, so a step of the wall clock
// moves no expiry; on disk they are wall-clock times.
type Lease struct {
	Addr    netip.Addr    `json:"addr"`
	In      firewall.Name `json:"in"`                // the interface it was given on
	Client  string        `json:"client,omitempty"`  // client identifier as hex (RFC 4361), or "hw:" and the MAC
	MAC     firewall.MAC  `json:"mac,omitempty"`     // chaddr; of a Declined lease: who declined or who sits there
	Host    string        `json:"host,omitempty"`    // one clean LDH label, or empty
	RawHost []byte        `json:"rawHost,omitempty"` // what the client called itself: hostile until escaped
	State   State         `json:"state"`
	First   time.Time     `json:"first,omitzero"` // first seen at this address
	Last    time.Time     `json:"last,omitzero"`  // when Until was promised
	Until   time.Time     `json:"until,omitzero"` // end of the lease or of the quarantine

	// Pinned and Moves are filled in by Server.List only.
	Pinned bool       `json:"-"` // a static lease names this client and this address
	Moves  netip.Addr `json:"-"` // a static lease gives the client this address at its next renewal

	durable time.Time // the Until that is on disk for this Client; zero: none
}

// Key is the key of the row in a store: the address as text.
func (l Lease) Key() string { return l.Addr.String() }

// At is the state at now: an Active lease past its end is Expired, a Declined
// one past its quarantine is Released.
func (l Lease) At(now time.Time) State {
	over := !now.Before(l.Until)
	switch {
	case l.State == Active && over:
		return Expired
	case l.State == Declined && over:
		return Released
	}
	return l.State
}

// live reports whether the address is its client's at now.
func (l Lease) live(now time.Time) bool { return l.State == Active && now.Before(l.Until) }

// loaded is the row as memory holds it: Until gets a monotonic reading, and
// never lies further ahead than was once promised, so that a box that starts
// without a clock (in 1970) does not keep every address for decades.
func (l Lease) loaded(now time.Time) Lease {
	left, promised := l.Until.Sub(now), l.Until.Sub(l.Last)
	l.Until = now.Add(min(left, promised))
	l.Last = l.Until.Add(-promised)
	l.Pinned, l.Moves = false, netip.Addr{}
	l.durable = l.Until
	return l
}

// Leases keeps the rows. A method that returns nil has reached the disk: an ACK
// goes out only then.
type Leases interface {
	// All returns every row, in any order.
	All(ctx context.Context) ([]Lease, error)
	// Put stores the rows, all or none, each under its address.
	Put(ctx context.Context, rows []Lease) error
	// Delete forgets the rows of the addresses, all or none; an address without a row is no error.
	Delete(ctx context.Context, addrs []netip.Addr) error
}

// clientKey names a client: option 61 when it has one (RFC 4361), else its MAC.
// An option 61 that only repeats the MAC is the MAC: the same machine with and
// without the option is one client.
func clientKey(id []byte, mac firewall.MAC) string {
	if len(id) < 2 || len(id) > 255 || hex.EncodeToString(id) == "01"+macHex(mac) {
		return "hw:" + string(mac)
	}
	return hex.EncodeToString(id)
}

func macHex(m firewall.MAC) string {
	out := make([]byte, 0, 12)
	for i := range len(m) {
		if m[i] != ':' {
			out = append(out, m[i])
		}
	}
	return string(out)
}
