package forwards

import (
	"cmp"
	"fmt"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// list is the page of forwards.
type list struct {
	Frame page.Frame
	Rows  []row
	NoWAN bool // there is no interface that a forward could be for
}

// row is one forward as it is shown.
type row struct {
	firewall.Forward
	State    string // "", new, changed, deleted
	Hash     string
	Hits     string
	Warnings []string
	Blocked  bool // its linked rule is switched off
	Limit    firewall.Limit
}

// find puts together the rows, with the forwards that the draft deletes.
func (p *pages) find(v commit.View) list {
	var hits map[firewall.ID]uint64
	if p.Hits != nil {
		hits = p.Hits()
	}
	l := list{NoWAN: len(v.Config.Interfaces) == 0}
	warn := page.Warnings(v.Config)
	for _, f := range v.Config.Forwards {
		r := row{Forward: f, Hash: v.Config.Hash(ref(f.ID)), Warnings: warned(warn, f), Limit: ruleOf(v.Config, f).Limit}
		switch was := v.Head.Hash(ref(f.ID)); {
		case was == "":
			r.State = "new"
		case was != r.Hash, ruleOf(v.Head, f).Limit != r.Limit:
			r.State = "changed"
		}
		if n, ok := hits[f.ID]; ok {
			r.Hits = fmt.Sprint(n)
		}
		if rule, ok := v.Config.Rule(f.Rule); ok {
			r.Blocked = !rule.On
		}
		l.Rows = append(l.Rows, r)
	}
	for _, f := range v.Head.Forwards {
		if _, there := v.Config.Forward(f.ID); !there {
			l.Rows = append(l.Rows, row{Forward: f, State: "deleted"})
		}
	}
	return l
}

// title is what a button calls the forward.
func title(f firewall.Forward) string { return cmp.Or(f.Descr, f.String()) }

func (r row) class() string {
	c := map[string]string{"": "", "new": "new", "changed": "changed", "deleted": "gone"}[r.State]
	if !r.On {
		c += " off"
	}
	return c
}

func (r row) outside() string { return r.Dst.String() + " : " + r.Ports.String() }
func (r row) target() string  { return r.To.String() + " : " + inside(r.Forward).String() }

func (r row) from() string {
	if r.From.IsAny() {
		return "anyone"
	}
	return r.From.String()
}

func (e editor) action() string {
	if e.Old.ID == "" {
		return "/forwards/new"
	}
	return "/forwards/" + string(e.Old.ID)
}

func interfaces(c firewall.Config) (list []page.Option) {
	for _, role := range []firewall.Role{firewall.WAN, firewall.Other, firewall.LAN} {
		for _, in := range c.Interfaces {
			if in.Role == role {
				list = append(list, page.Option{Value: string(in.Name), Label: string(in.Name)})
			}
		}
	}
	return list
}

// outsideNames is the suggestions for the outside address.
func outsideNames(c firewall.Config) (list []string) {
	for _, o := range interfaces(c) {
		list = append(list, o.Value+" address")
	}
	return list
}

func (e editor) hostAddrs() (addrs, names []string) {
	for _, h := range e.Hosts {
		addrs, names = append(addrs, h.Addr.String()), append(names, h.Name)
	}
	return addrs, names
}

func (e editor) shiftHint() string {
	if s := e.becomes(); s != "" {
		return s
	}
	return "Empty: the same. For a range its first port; the rest follows one to one."
}
