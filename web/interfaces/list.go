package interfaces

import (
	"slices"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/link"
	"gatehouse/web/page"
)

// list is the page of interfaces.
type list struct {
	Frame page.Frame
	Rows  []row
	Free  []link.Port // without a role
}

// row is one interface as it is shown.
type row struct {
	firewall.Interface
	State string        // "", new, changed, deleted
	Was   firewall.Name // what it is called now, when the draft renames it
	Port  link.Port     // as it is now
	DHCP  string        // what its DHCP server does: on, off, or empty where there can be none
}

// find puts the rows together: the draft, with what the ports say now.
func find(v commit.View, ports []link.Port) list {
	var l list
	used := map[string]bool{}
	renamed := map[firewall.Name]bool{}
	port := func(device string) link.Port {
		used[device] = true
		if i := slices.IndexFunc(ports, func(p link.Port) bool { return p.Device == device }); i >= 0 {
			return ports[i]
		}
		return link.Port{Device: device}
	}
	for _, in := range v.Config.Interfaces {
		r := row{Interface: in, Port: port(in.Device)}
		switch was := v.Head.Hash(ref(in.Name)); {
		case was != "" && was != v.Config.Hash(ref(in.Name)):
			r.State = "changed"
		case was == "":
			r.State = "new"
			if old, ok := v.Head.ByDevice(in.Device); ok {
				if _, there := v.Config.Interface(old.Name); !there {
					r.State, r.Was = "changed", old.Name
					renamed[old.Name] = true
				}
			}
		}
		if in.Role != firewall.WAN && in.V4.Mode == firewall.Static {
			r.DHCP = "off"
			if s, ok := v.Config.Scope(in.Name); ok && s.On {
				r.DHCP = "on"
			}
		}
		l.Rows = append(l.Rows, r)
	}
	for _, in := range v.Head.Interfaces {
		if _, there := v.Config.Interface(in.Name); !there && !renamed[in.Name] {
			l.Rows = append(l.Rows, row{Interface: in, State: "deleted", Port: port(in.Device)})
		}
	}
	for _, p := range ports {
		if !used[p.Device] {
			l.Free = append(l.Free, p)
		}
	}
	return l
}

func (r row) class() string {
	c := map[string]string{"new": "new", "changed": "changed", "deleted": "gone"}[r.State]
	if !r.On {
		c += " off"
	}
	return c
}

// pill is the state of the port in a word.
func (r row) pill() (page.Kind, string) {
	p := r.Port
	switch {
	case !p.Present:
		return page.Block, "not there"
	case !r.On:
		return page.Off, "off"
	case !p.Link:
		return page.Block, "no cable"
	case p.Name == "":
		return page.Info, "after Apply"
	case p.DHCP && !p.Lease.Addr.IsValid():
		return page.Reject, "no address"
	}
	return page.Pass, "up"
}

// now is the addresses that the port has, without link-local ones.
func (r row) now() (out []string) {
	for _, a := range r.Port.Addrs {
		if !a.Addr().IsLinkLocalUnicast() {
			out = append(out, a.String())
		}
	}
	return out
}

// wanted is what the configuration says of addresses.
func (r row) wanted() (out []string) {
	switch r.V4.Mode {
	case firewall.Static:
		out = append(out, r.V4.Addr.String())
	case firewall.DHCP:
		out = append(out, "IPv4 by DHCP")
	}
	if r.V6.Mode == firewall.Static {
		out = append(out, r.V6.Addr.String())
	}
	if len(out) == 0 {
		out = append(out, "no address")
	}
	return out
}

// differs reports whether the port has not what the configuration says.
func (r row) differs() bool {
	have := r.now()
	for _, a := range r.wanted() {
		if a != "IPv4 by DHCP" && a != "no address" && !slices.Contains(have, a) {
			return true
		}
	}
	return false
}
