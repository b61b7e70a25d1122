package setup

import (
	"net/http"
	"net/netip"
	"slices"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// portsForm is step 2 as it is shown and sent.
type portsForm struct {
	WAN, LAN string // devices; WAN "none" = single port
	Here     string // the port that this browser is connected to
	Ports    []Port
	Problems firewall.Problems
}

const single = "none"

func (w *wizard) showPorts(rw http.ResponseWriter, r *http.Request) error {
	view := w.Drafts.View(who(r).Account)
	f := portsForm{Ports: w.Ports.Ports(), WAN: single}
	f.Here = here(r, f.Ports)
	wan, hasWAN := find(view.Config, firewall.WAN)
	lan, hasLAN := find(view.Config, firewall.LAN)
	f.WAN, f.LAN = suggest(f.Ports, f.Here)
	if hasWAN {
		f.WAN = wan.Device
	}
	if hasLAN {
		f.LAN = lan.Device
	}
	// The live fragment sends what is chosen in the browser, so that a cable
	// plugged in does not undo a click.
	if q := r.URL.Query(); q.Has("wan") || q.Has("lan") {
		f.WAN, f.LAN = q.Get("wan"), q.Get("lan")
	}
	return w.renderPorts(rw, r, http.StatusOK, f)
}

func (w *wizard) renderPorts(rw http.ResponseWriter, r *http.Request, status int, f portsForm) error {
	return page.Render(rw, r, status, portsView(frame(r), f))
}

// here is the port with the address that this connection came in by.
func here(r *http.Request, ports []Port) string {
	local := page.ConnOf(r.Context()).Local
	for _, p := range ports {
		if p.Addr.IsValid() && p.Addr.Addr() == local {
			return p.Device
		}
	}
	return ""
}

// suggest proposes the ports: for WAN one with an offer, then one with a cable,
// then the first, never the browser's own; for LAN the browser's own, then one
// with a cable.
func suggest(ports []Port, here string) (wan, lan string) {
	free := slices.DeleteFunc(slices.Clone(ports), func(p Port) bool { return p.Device == here })
	slices.SortStableFunc(free, func(a, b Port) int { return rank(b) - rank(a) })
	if len(free) == 0 {
		return single, here
	}
	wan, free = free[0].Device, free[1:]
	if here != "" {
		return wan, here
	}
	for _, p := range free {
		if p.Up {
			return wan, p.Device
		}
	}
	if len(free) > 0 {
		return wan, free[0].Device
	}
	return single, wan
}

func rank(p Port) int {
	switch {
	case p.Offer.Server.IsValid():
		return 2
	case p.Up:
		return 1
	}
	return 0
}

// ports gives the two ports their roles.
func (w *wizard) ports(rw http.ResponseWriter, r *http.Request) error {
	form, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	f := portsForm{WAN: form.Get("wan"), LAN: form.Get("lan"), Ports: w.Ports.Ports()}
	if err := form.Done(); err != nil {
		return err
	}
	f.Here = here(r, f.Ports)
	f.check()
	if len(f.Problems) > 0 {
		return w.renderPorts(rw, r, http.StatusUnprocessableEntity, f)
	}
	view := w.Drafts.View(who(r).Account)
	changes := w.roles(view.Config, f)
	changes = append(changes, never(view, changes, page.ConnOf(r.Context()).Peer)...)
	ps, err := w.save(r, commit.AnyHash, changes, nil)
	if err != nil {
		return err
	}
	if f.Problems = ps; len(ps) > 0 {
		return w.renderPorts(rw, r, http.StatusUnprocessableEntity, f)
	}
	return page.Go(rw, r, "/setup/3")
}

func (f *portsForm) check() {
	add := func(field, text string) {
		f.Problems = append(f.Problems, firewall.Problem{Field: field, Text: text})
	}
	known := func(device string) bool {
		return slices.ContainsFunc(f.Ports, func(p Port) bool { return p.Device == device })
	}
	switch {
	case f.WAN != single && !known(f.WAN):
		add("wan", "Choose the port that leads to the Internet, or “No Internet port”.")
	case f.WAN == f.Here && f.Here != "":
		add("wan", "You are connected through "+f.Here+". Making it the Internet port would cut you off. Move your cable or pick another port.")
	}
	switch {
	case !known(f.LAN):
		add("lan", "Choose at least one local port.")
	case f.LAN == f.WAN:
		add("lan", "One port cannot be both the Internet and the local network.")
	}
}

// roles is the changes that give the chosen ports their roles: only what differs.
func (w *wizard) roles(c firewall.Config, f portsForm) []firewall.Change {
	var out []firewall.Change
	port := func(device string) Port {
		i := slices.IndexFunc(f.Ports, func(p Port) bool { return p.Device == device })
		return f.Ports[i]
	}
	wan, known := find(c, firewall.WAN)
	switch {
	case f.WAN == single && known:
		out = append(out, firewall.DeleteInterface{Name: wan.Name})
	case f.WAN != single:
		now := wan
		now.Device = f.WAN
		if !known {
			now.Name, now.V4.Mode = "WAN", firewall.DHCP
			now.BlockPrivate = !private(port(f.WAN).Offer.Addr)
		}
		out = append(out, put(c, wan, known, now)...)
	}
	lan, known := find(c, firewall.LAN)
	now := lan
	now.Device = f.LAN
	if known {
		return append(out, put(c, lan, known, now)...)
	}
	now.Name = "LAN"
	now.V4 = firewall.V4{Mode: firewall.Static, Addr: lanAddr(port(f.LAN), f.Ports)}
	from, to := firewall.DefaultPool(now.V4.Addr)
	return append(out, firewall.AddInterface{Interface: now},
		firewall.PutScope{Scope: firewall.Scope{In: now.Name, On: true, From: from, To: to, Lease: 7200}},
		firewall.AddRule{Rule: firewall.Rule{ID: w.NewID(), On: true, Action: firewall.Pass, In: now.Name, Family: firewall.Both,
			Proto: firewall.AnyProto, Src: firewall.Anyone(), Dst: firewall.Anyone(), Descr: "Allow LAN to any"}})
}

// lanAddr keeps the address that the port has; else the first free default.
func lanAddr(p Port, all []Port) netip.Prefix {
	if p.Addr.IsValid() && p.Addr.Addr().Is4() && private(p.Addr) {
		return p.Addr
	}
	return free(all)
}

// free is the first 192.168.N.1/24 that no offer or address overlaps.
func free(ports []Port) netip.Prefix {
	for n := 1; ; n++ {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(n), 1}), 24)
		taken := slices.ContainsFunc(ports, func(o Port) bool { return overlaps(p, o.Offer.Addr) || overlaps(p, o.Addr) })
		if !taken || n == 254 {
			return p
		}
	}
}

func overlaps(a, b netip.Prefix) bool { return a.IsValid() && b.IsValid() && a.Overlaps(b) }

// private reports whether an address is one that block_private would drop.
func private(p netip.Prefix) bool {
	return p.IsValid() && slices.ContainsFunc(firewall.MustMerge(firewall.PrivateNets), func(r firewall.AddrRange) bool {
		return r.Contains(p.Addr())
	})
}
