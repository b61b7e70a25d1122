package web

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/dhcp"
	"gatehouse/services/link"
	"gatehouse/services/link/wan"
	"gatehouse/web/draft"
	"gatehouse/web/interfaces"
	"gatehouse/web/leases"
	"gatehouse/web/page"
)

// network is a DHCP server and ports that do what a test wants.
type network struct {
	mu     sync.Mutex // guards rows and did
	rows   []dhcp.Lease
	did    []string // release or delete, and the address
	serves []string
	failed map[string]string
	ports  []link.Port
}

func (n *network) routes(d draft.Desk) []page.Route {
	return append(leases.New(leases.Deps{Desk: d, Server: n}),
		interfaces.New(interfaces.Deps{Desk: d, Ports: func() []link.Port { return n.ports }})...)
}

func (n *network) List() []dhcp.Lease {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.rows)
}

func (n *network) Serving() ([]string, map[string]string) { return n.serves, n.failed }

func (n *network) Release(_ context.Context, a netip.Addr) error { return n.act("release", a) }
func (n *network) Delete(_ context.Context, a netip.Addr) error  { return n.act("delete", a) }

func (n *network) act(verb string, a netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := slices.IndexFunc(n.rows, func(l dhcp.Lease) bool { return l.Addr == a })
	if at < 0 {
		return dhcp.ErrNoLease
	}
	n.did = append(n.did, verb+" "+a.String())
	if n.rows[at].State = dhcp.Released; verb == "delete" {
		n.rows = slices.Delete(n.rows, at, at+1)
	}
	return nil
}

// busy is a network in use: every state of a lease, a hostile name, a dead cable.
func busy(now time.Time) *network {
	lease := func(addr, mac, host string, state dhcp.State, first, last, until time.Duration) dhcp.Lease {
		return dhcp.Lease{Addr: netip.MustParseAddr(addr), In: "LAN", Client: "hw:" + mac, MAC: firewall.MAC(mac), Host: host, State: state,
			First: now.Add(first), Last: now.Add(last), Until: now.Add(until)}
	}
	hour, day := time.Hour, 24*time.Hour
	n := &network{serves: []string{"eth1"}}
	n.rows = []dhcp.Lease{
		{Addr: netip.MustParseAddr("192.168.1.10"), In: "LAN", MAC: "02:00:00:00:00:01", Host: "nas", State: dhcp.Active, First: now.Add(-90 * day), Last: now.Add(-20 * time.Minute), Until: now.Add(100 * time.Minute), Pinned: true},
		lease("192.168.1.101", "52:54:00:3a:01:77", "laptop-anna", dhcp.Active, -3*day, -12*time.Minute, 108*time.Minute),
		lease("192.168.1.102", "a4:83:e7:00:10:22", "phone", dhcp.Active, -2*hour, -2*time.Minute, 118*time.Minute),
		lease("192.168.1.103", "00:1e:8f:55:66:77", "", dhcp.Active, -40*day, -time.Hour, hour),
		lease("192.168.1.104", "de:ad:be:ef:00:01", "printer", dhcp.Expired, -9*day, -2*day, -46*hour),
		lease("192.168.1.105", "52:54:00:99:99:99", "", dhcp.Declined, -10*time.Minute, -10*time.Minute, 50*time.Minute),
		lease("192.168.1.106", "52:54:00:12:34:56", "", dhcp.Offered, 0, 0, 8*time.Second),
		lease("192.168.1.107", "b8:27:eb:10:20:30", "raspberrypi", dhcp.Released, -3*hour, -2*hour, -hour),
	}
	n.rows[3].RawHost = []byte(`<img src=x onerror=alert(1)>` + "\x1b\u202e")
	n.rows[6].First, n.rows[6].Last = time.Time{}, time.Time{}
	pre := netip.MustParsePrefix
	n.ports = []link.Port{
		{Device: "eth0", Present: true, Up: true, Link: true, MAC: "52:54:00:00:00:10", Driver: "igc", Speed: 2500, Addrs: []netip.Prefix{pre("203.0.113.24/24"), pre("fe80::1/64")},
			Name: "WAN", Role: firewall.WAN, DHCP: true, State: wan.Bound, Lease: wan.Lease{Addr: pre("203.0.113.24/24"), Server: netip.MustParseAddr("203.0.113.1"),
				Router: netip.MustParseAddr("203.0.113.1"), DNS: []netip.Addr{netip.MustParseAddr("203.0.113.53")}, Until: now.Add(5 * hour)}},
		{Device: "eth1", Present: true, Up: true, Link: true, MAC: "52:54:00:00:00:11", Driver: "igc", Speed: 1000, Addrs: []netip.Prefix{pre("192.168.1.1/24")}, Name: "LAN", Role: firewall.LAN},
		{Device: "eth2", Present: true, Up: true, MAC: "52:54:00:00:00:12", Driver: "igc", Addrs: []netip.Prefix{pre("192.168.2.1/24")}, Name: "GUEST", Role: firewall.Other},
		{Device: "eth3", Present: true, Up: true, Link: true, MAC: "52:54:00:00:00:13", Driver: "igc", Speed: 1000},
		{Device: "eth4", Present: true, MAC: "52:54:00:00:00:14", Driver: "e1000e"},
	}
	return n
}

// use puts the desk on a network.
func (d *desk) use(n *network) {
	d.network.rows, d.network.serves, d.network.failed, d.network.ports = n.rows, n.serves, n.failed, n.ports
}
