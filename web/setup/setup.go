// Package setup is the wizard: claim, ports, internet, local, review, confirm.
// Every step is a form over the account's draft, so a power cut, a reload or
// the Back button loses nothing; review and confirm are the ones of every
// change. Only step 1 dies with the first administrator.
package setup

import (
	"context"
	"net/http"
	"net/netip"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/auth"
	"gatehouse/web/page"
)

// Port is what the wizard shows of an Ethernet port.
type Port struct {
	Device string
	Driver string
	MAC    string
	Up     bool         // a cable with something at its other end
	Mbit   int          // 0 = unknown
	Addr   netip.Prefix // the address it has now
	Probed bool         // a DHCP probe has ended since the cable came
	Offer  Offer        // what the probe saw
	Router bool         // a router advertisement was seen: not our network
}

// Offer is what a DHCP server offered to the probe; Server is invalid when none did.
type Offer struct {
	Server, Router netip.Addr
	Addr           netip.Prefix
	DNS            []netip.Addr
}

// Line is one result of Test now.
type Line struct {
	Name string
	OK   bool
	Text string
}

// Ports is the box's Ethernet ports.
type Ports interface {
	Ports() []Port
	// Test tries the way to the internet through a port, a few seconds at most.
	Test(ctx context.Context, device string) []Line
}

// Drafts is where the answers go.
type Drafts interface {
	View(account string) commit.View
	Save(ctx context.Context, who commit.Who, hash string, changes ...firewall.Change) error
}

// Accounts makes the first administrator and signs him in.
type Accounts interface {
	Any() (bool, error)
	Create(ctx context.Context, name, password string) (auth.Account, error)
	Begin(w http.ResponseWriter, r *http.Request, acc auth.Account, from netip.Addr) (auth.Session, error)
}

// Deps is everything that New needs.
type Deps struct {
	Ports    Ports
	Drafts   Drafts
	Accounts Accounts
	Code     func() string  // the setup code on the console; "" when there is none
	Throttle *auth.Throttle // of the code: 5 tries, then 60 s
	NewID    func() firewall.ID
}

type wizard struct{ Deps }

// New gives the routes of the wizard.
func New(d Deps) []page.Route {
	w := &wizard{d}
	return []page.Route{
		{Method: http.MethodGet, Path: "/setup", Open: true, Serve: w.start},
		{Method: http.MethodGet, Path: "/setup/1", Open: true, Serve: w.showClaim},
		{Method: http.MethodPost, Path: "/setup/1", Open: true, Serve: w.claim},
		{Method: http.MethodGet, Path: "/setup/2", Serve: w.showPorts},
		{Method: http.MethodPost, Path: "/setup/2", Serve: w.ports},
		{Method: http.MethodGet, Path: "/setup/3", Serve: w.showInternet},
		{Method: http.MethodPost, Path: "/setup/3", Serve: w.internet},
		{Method: http.MethodGet, Path: "/setup/4", Serve: w.showLocal},
		{Method: http.MethodPost, Path: "/setup/4", Serve: w.local},
		{Method: http.MethodGet, Path: "/setup/5", Serve: func(rw http.ResponseWriter, r *http.Request) error {
			return page.Go(rw, r, "/review")
		}},
	}
}

// start leads to the first step that makes sense.
func (w *wizard) start(rw http.ResponseWriter, r *http.Request) error {
	any, err := w.Accounts.Any()
	if err != nil {
		return err
	}
	if !any {
		return page.Go(rw, r, "/setup/1")
	}
	return page.Go(rw, r, "/setup/2")
}

// frame is the frame of a step behind the login. The bar does not count the
// draft: it is half an answer, and the review comes as step 5.
func frame(r *http.Request) page.Frame {
	f := page.FrameFor(r, "Set up gatehouse", "/setup")
	f.Bar.Pending = 0
	return f
}

func who(r *http.Request) commit.Who {
	s, _ := auth.SessionOf(r.Context())
	return commit.Who{Account: s.Account, Door: "web", Addr: page.ConnOf(r.Context()).Peer}
}

// find gives the first interface of a role, and false when there is none yet.
func find(c firewall.Config, role firewall.Role) (firewall.Interface, bool) {
	for _, in := range c.Interfaces {
		if in.Role == role {
			return in, true
		}
	}
	return firewall.Interface{Role: role, On: true, V4: firewall.V4{Mode: firewall.None}, V6: firewall.V6{Mode: firewall.None}}, false
}

// put is the change that makes an interface what it should be: nil when it is already.
func put(c firewall.Config, was firewall.Interface, known bool, now firewall.Interface) []firewall.Change {
	if !known {
		return []firewall.Change{firewall.AddInterface{Interface: now}}
	}
	next, err := firewall.UpdateInterface{Name: was.Name, Interface: now}.Apply(c)
	if err == nil && next.Stamp() == c.Stamp() {
		return nil
	}
	return []firewall.Change{firewall.UpdateInterface{Name: was.Name, Interface: now}}
}

// save puts the changes of a step into the draft. The hash is of the first
// change's object as the form showed it. What it gives back is problems by the
// step's own field names, or another error.
func (w *wizard) save(r *http.Request, hash string, changes []firewall.Change, fields map[string]string) (firewall.Problems, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	err := w.Drafts.Save(r.Context(), who(r), hash, changes...)
	ps, ok := err.(firewall.Problems)
	if !ok {
		return nil, err
	}
	for i, p := range ps {
		if name, known := fields[p.Field]; known {
			ps[i].Field = name
		}
	}
	return ps, nil
}
