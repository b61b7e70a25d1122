// Package wan is the DHCPv4 client of a port (RFC 2131 §4.4): a pure machine
// that decides (state.go), packets read without trust (packet.go), sockets that
// are open only during an exchange (wire.go) and a loop that joins them.
// It sets no address and no route: services/link does what it reports.
package wan

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Lease is what a server granted, as it is remembered over a restart. Times are
// wall-clock: a stored lease must mean the same after a reboot.
type Lease struct {
	Addr    netip.Prefix  `json:"addr"`   // ours, with the length of option 1
	Server  netip.Addr    `json:"server"` // option 54: renewals go there
	Router  netip.Addr    `json:"router,omitzero"`
	DNS     []netip.Addr  `json:"dns,omitempty"`
	Domain  string        `json:"domain,omitempty"` // cleaned: letters, digits, dash, dot
	MTU     int           `json:"mtu,omitempty"`    // 576-9216; 0 = the server named none that is usable
	Routes  []Route       `json:"routes,omitempty"` // option 121; when not empty Router is not used (RFC 3442)
	Since   time.Time     `json:"since"`
	Renew   time.Time     `json:"renew"`  // T1
	Rebind  time.Time     `json:"rebind"` // T2
	Until   time.Time     `json:"until"`
	Granted time.Duration `json:"granted"` // the whole length
}

// Route is one classless static route (RFC 3442).
type Route struct {
	Dst netip.Prefix `json:"dst"`
	Via netip.Addr   `json:"via,omitzero"` // zero: the destination is on the link
}

// Held reports whether the lease names an address and is not over at now.
func (l Lease) Held(now time.Time) bool { return l.Addr.IsValid() && now.Before(l.Until) }

// Ways are the routes to set for the lease: those of option 121, else a default
// route to the router, else none.
func (l Lease) Ways() []Route {
	if len(l.Routes) > 0 {
		return l.Routes
	}
	if l.Router.IsValid() {
		return []Route{{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: l.Router}}
	}
	return nil
}

// Beside returns the lease as it may be used beside the networks inside, and
// what had to be left out. A stranger on the outside must not take over a
// network of ours: routes that overlap one are dropped (a default route and its
// two halves lose to every connected network and stay), and an address whose
// network overlaps one of ours is used alone, as /32.
func (l Lease) Beside(inside []netip.Prefix) (Lease, []string) {
	var problems []string
	overlaps := func(p netip.Prefix) (netip.Prefix, bool) {
		i := slices.IndexFunc(inside, func(in netip.Prefix) bool { return in.Overlaps(p) })
		if i < 0 {
			return netip.Prefix{}, false
		}
		return inside[i].Masked(), true
	}
	if in, bad := overlaps(l.Addr); bad {
		problems = append(problems, fmt.Sprintf("The provider's network %s overlaps %s inside. Choose another network inside.", l.Addr.Masked(), in))
		l.Addr = netip.PrefixFrom(l.Addr.Addr(), 32)
	}
	kept := make([]Route, 0, len(l.Routes))
	for _, r := range l.Routes {
		if in, bad := overlaps(r.Dst); bad && r.Dst.Bits() > 1 {
			problems = append(problems, fmt.Sprintf("The provider's route to %s is not used: it overlaps %s inside.", r.Dst, in))
			continue
		}
		kept = append(kept, r)
	}
	l.Routes = kept
	return l, problems
}

// Same reports whether the two leases set the same things on a port: only their
// times may differ.
func (l Lease) Same(o Lease) bool {
	return l.Addr == o.Addr && l.Router == o.Router && l.Domain == o.Domain && l.MTU == o.MTU &&
		slices.Equal(l.DNS, o.DNS) && slices.Equal(l.Routes, o.Routes)
}
