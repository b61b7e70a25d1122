package leases

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/dhcp"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// staticForm is the fields of a static mapping as a person typed them.
type staticForm struct {
	In              string // its scope; fixed once it is there
	MAC, Addr, Host string
	Descr           string
}

// showStatic gives the fields of a mapping; it and staticForm.static undo each other.
func showStatic(in firewall.Name, s firewall.StaticLease) staticForm {
	return staticForm{In: string(in), MAC: string(s.MAC), Addr: text(s.Addr), Host: s.Host, Descr: s.Descr}
}

func readStatic(p *page.Form) staticForm {
	return staticForm{In: p.Get("in"), MAC: p.Get("mac"), Addr: p.Get("addr"), Host: p.Get("host"), Descr: p.Raw("descr")}
}

// static reads the fields; what cannot be read is told.
func (f staticForm) static(id firewall.ID) (firewall.StaticLease, firewall.Problems) {
	var ps firewall.Problems
	s := firewall.StaticLease{ID: id, Host: f.Host, Descr: f.Descr}
	var err error
	if s.MAC, err = firewall.ParseMAC(f.MAC); err != nil {
		ps = append(ps, firewall.Problem{Field: "mac", Text: page.Sentence(err)})
	}
	if s.Addr, err = firewall.ParseAddr(f.Addr); err != nil {
		ps = append(ps, firewall.Problem{Field: "addr", Text: "Write the address that it always gets, for example 192.168.1.10."})
	}
	return s, ps
}

// title is what a sentence calls a mapping.
func title(s firewall.StaticLease) string {
	if s.Host != "" {
		return s.Host
	}
	return string(s.MAC)
}

// staticEditor is the page of one mapping.
type staticEditor struct {
	draft.Editor
	staticForm
	Old    firewall.StaticLease // as it is in the draft; without ID: a new one
	Scopes []page.Option
	Taken  []string // known hosts, as suggestions for the MAC
	Names  []string // what Taken are called
}

func (p *pages) newStatic(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	q := r.URL.Query()
	f := staticForm{In: q.Get("in"), MAC: q.Get("mac"), Addr: q.Get("addr"), Host: q.Get("host")}
	if f.In == "" && len(v.Config.Scopes) > 0 {
		f.In = string(v.Config.Scopes[0].In)
	}
	return p.renderStatic(w, r, http.StatusOK, v, staticEditor{staticForm: f})
}

// makeStatic is the path of a new mapping for the client of a lease.
func makeStatic(l dhcp.Lease) string {
	q := url.Values{"in": {string(l.In)}, "mac": {string(l.MAC)}, "addr": {l.Addr.String()}, "host": {l.Host}}
	return "/leases/static/new?" + q.Encode()
}

func (p *pages) editStatic(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	in, old, ok := v.Config.Static(firewall.ID(r.PathValue("id")))
	if !ok {
		return page.NotFound{What: "This static mapping"}
	}
	e := staticEditor{staticForm: showStatic(in, old), Old: old}
	e.Hash = v.Config.Hash(staticRef(old.ID))
	return p.renderStatic(w, r, http.StatusOK, v, e)
}

// saveStatic keeps a new mapping, or one that is there.
func (p *pages) saveStatic(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	e := staticEditor{staticForm: readStatic(in), Editor: draft.Read(in)}
	if err := in.Done(); err != nil {
		return err
	}
	v := p.View(r)
	id := firewall.ID(r.PathValue("id"))
	if id != "" {
		var ok bool
		var scope firewall.Name
		if scope, e.Old, ok = v.Config.Static(id); !ok {
			return page.NotFound{What: "This static mapping"}
		}
		e.In = string(scope)
	}
	value, ps := e.static(e.Old.ID)
	var change firewall.Change = firewall.UpdateStatic{Static: value}
	if e.Old.ID == "" {
		value.ID = commit.NewID()
		change = firewall.AddStatic{In: firewall.Name(e.In), Static: value}
		if _, ok := v.Config.Scope(firewall.Name(e.In)); !ok {
			ps = append(ps, firewall.Problem{Field: "in", Text: "Choose a network that has a DHCP scope."})
		}
	}
	if len(ps) > 0 {
		e.Problems = page.And(ps, collisions(v.Config, change))
		return p.renderStatic(w, r, http.StatusUnprocessableEntity, v, e)
	}
	said := fmt.Sprintf("Saved: %s always gets %s.", title(value), value.Addr)
	status, err := p.Save(w, r, v, &e.Editor, draft.Edit{Changes: []firewall.Change{change}, Stale: staleStatic, Said: said, Back: "/leases"})
	if status == http.StatusUnprocessableEntity {
		if ps := collisions(v.Config, change); len(ps) > 0 {
			e.Problems = ps
		}
	}
	if status != 0 {
		return p.renderStatic(w, r, status, v, e)
	}
	return err
}

// collisions is what a change of a mapping makes wrong. The mapping is looked
// at as the last of its scope: of two that collide the later one is told, and
// here the person edits this one.
func collisions(c firewall.Config, change firewall.Change) firewall.Problems {
	next, err := change.Apply(c)
	if err != nil {
		return nil // the form tells what it is about
	}
	key := change.Ref().Key
	next.Scopes = slices.Clone(next.Scopes)
	for i, s := range next.Scopes {
		at := slices.IndexFunc(s.Statics, func(s firewall.StaticLease) bool { return string(s.ID) == key })
		if at >= 0 {
			own := s.Statics[at]
			next.Scopes[i].Statics = append(slices.Delete(slices.Clone(s.Statics), at, at+1), own)
		}
	}
	return page.Found(c, next, change.Ref())
}

func staleStatic(err *commit.StaleError) page.StaleError {
	list := func(s firewall.StaticLease) []string { return []string{string(s.MAC), text(s.Addr), s.Host, s.Descr} }
	return draft.Kind[firewall.StaticLease, firewall.ID]{Word: "Mapping", Home: "/leases", Path: "/leases/static/",
		Get: func(c firewall.Config, id firewall.ID) (firewall.StaticLease, bool) {
			_, s, ok := c.Static(id)
			return s, ok
		},
		Name: func(s firewall.StaticLease) string { return "The static mapping of " + title(s) },
		Line: func(s firewall.StaticLease) string { return fmt.Sprintf("%s gets %s", title(s), s.Addr) },
		Fields: func(theirs, yours firewall.StaticLease) []page.Stale {
			return page.Differ([]string{"MAC", "Address", "Host name", "Description"}, list(theirs), list(yours))
		}}.Stale(err)
}

func (p *pages) renderStatic(w http.ResponseWriter, r *http.Request, status int, v commit.View, e staticEditor) error {
	name := "New static mapping"
	if e.Old.ID != "" {
		name = "Static mapping of " + title(e.Old)
	}
	now := time.Now()
	for _, s := range v.Config.Scopes {
		e.Scopes = append(e.Scopes, page.Option{Value: string(s.In), Label: string(s.In)})
	}
	for _, l := range p.Server.List() {
		if l.MAC == "" || l.State == dhcp.Declined {
			continue
		}
		e.Taken, e.Names = append(e.Taken, string(l.MAC)), append(e.Names, l.Addr.String()+" "+name64(l))
		mac, err := firewall.ParseMAC(e.MAC)
		if l.Addr.String() == e.Addr && l.At(now) == dhcp.Active && err == nil && l.MAC != mac {
			e.Warnings = append(e.Warnings, fmt.Sprintf("%s is leased now to %s until %s.", l.Addr, whose(l), clock(l.Until, now)))
		}
	}
	e.Open(r, v, staticRef(e.Old.ID), name, "/leases")
	return page.Render(w, r, status, staticPage(e))
}

func (e staticEditor) action() string {
	if e.Old.ID == "" {
		return "/leases/static/new"
	}
	return "/leases/static/" + string(e.Old.ID)
}
