package leases

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/draft"
	"gatehouse/web/page"
)

// usualLease is the lease time of a new scope, in seconds.
const usualLease = 7200

// scopeForm is the fields of a scope as a person typed them.
type scopeForm struct {
	On       bool
	From, To string
	Lease    string
	Gw       string // empty: this box
	DNS      string // empty: the WAN's resolvers
	Domain   string // empty: the system's
}

// showScope gives the fields of a scope; it and scopeForm.scope undo each other.
func showScope(s firewall.Scope) scopeForm {
	f := scopeForm{On: s.On, From: text(s.From), To: text(s.To), Gw: text(s.Gateway), Domain: s.Domain}
	if s.Lease != 0 {
		f.Lease = firewall.Seconds(s.Lease)
	}
	var dns []string
	for _, a := range s.DNS {
		dns = append(dns, a.String())
	}
	f.DNS = strings.Join(dns, ", ")
	return f
}

func readScope(p *page.Form) scopeForm {
	return scopeForm{On: p.On("on"), From: p.Get("from"), To: p.Get("to"), Lease: p.Get("lease"),
		Gw: p.Get("gw"), DNS: p.Raw("dns"), Domain: p.Get("domain")}
}

// text is an address, or nothing.
func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// scope reads the fields; what cannot be read is told.
func (f scopeForm) scope(in firewall.Name) (firewall.Scope, firewall.Problems) {
	var ps firewall.Problems
	s := firewall.Scope{In: in, On: f.On, Lease: usualLease, Domain: f.Domain}
	addr := func(field, typed string, needed bool) (a netip.Addr) {
		if typed == "" && !needed {
			return a
		}
		a, err := firewall.ParseAddr(typed)
		switch {
		case typed == "":
			ps = append(ps, firewall.Problem{Field: field, Text: "Write an IPv4 address."})
		case err != nil:
			ps = append(ps, firewall.Problem{Field: field, Text: page.Sentence(err)})
		}
		return a
	}
	s.From, s.To, s.Gateway = addr("from", f.From, f.On), addr("to", f.To, f.On), addr("gw", f.Gw, false)
	for _, one := range strings.FieldsFunc(f.DNS, func(r rune) bool { return r == ',' || r == ';' || r == ' ' || r == '\n' || r == '\r' || r == '\t' }) {
		if a := addr("dns", one, false); a.IsValid() {
			s.DNS = append(s.DNS, a)
		}
	}
	n, err := firewall.ParseSeconds(f.Lease)
	if err != nil {
		ps = append(ps, firewall.Problem{Field: "lease", Text: page.Sentence(err)})
		return s, ps
	}
	s.Lease = n
	return s, ps
}

// scopeEditor is the page of one scope.
type scopeEditor struct {
	draft.Editor
	scopeForm
	In      firewall.Interface
	Statics int
	Usual   firewall.AddrRange // the range that suits the network; invalid: there is none
	System  string             // the box's own domain
}

// scopeOf finds the interface of a request, and its scope if there is one.
func scopeOf(r *http.Request, v commit.View) (in firewall.Interface, s firewall.Scope, known bool, err error) {
	in, ok := v.Config.Interface(firewall.Name(r.PathValue("in")))
	if !ok {
		return in, s, false, page.NotFound{What: "This interface"}
	}
	s, known = v.Config.Scope(in.Name)
	return in, s, known, nil
}

func (p *pages) editScope(w http.ResponseWriter, r *http.Request) error {
	v := p.View(r)
	in, s, known, err := scopeOf(r, v)
	if err != nil {
		return err
	}
	e := scopeEditor{scopeForm: showScope(s)}
	if !known {
		from, to := firewall.DefaultPool(in.V4.Addr)
		e.scopeForm = showScope(firewall.Scope{From: from, To: to, Lease: usualLease})
	}
	e.On = e.On || r.URL.Query().Has("on")
	e.Hash = v.Config.Hash(scopeRef(in.Name))
	return p.renderScope(w, r, http.StatusOK, v, e)
}

func (p *pages) saveScope(w http.ResponseWriter, r *http.Request) error {
	in, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	e := scopeEditor{scopeForm: readScope(in), Editor: draft.Read(in)}
	if err := in.Done(); err != nil {
		return err
	}
	v := p.View(r)
	port, _, _, err := scopeOf(r, v)
	if err != nil {
		return err
	}
	value, ps := e.scope(port.Name)
	change := firewall.PutScope{Scope: value}
	if len(ps) > 0 {
		if next, err := change.Apply(v.Config); err == nil {
			ps = page.And(ps, page.Found(v.Config, next, change.Ref()))
		}
		e.Problems = ps
		return p.renderScope(w, r, http.StatusUnprocessableEntity, v, e)
	}
	said := fmt.Sprintf("Saved: DHCP on %s, %s to %s.", port.Name, value.From, value.To)
	if !value.On {
		said = fmt.Sprintf("Saved: DHCP on %s is off.", port.Name)
	}
	status, err := p.Save(w, r, v, &e.Editor, draft.Edit{Changes: []firewall.Change{change}, Stale: scopeStale, Said: said, Back: "/leases"})
	if status != 0 {
		return p.renderScope(w, r, status, v, e)
	}
	return err
}

// scopeStale turns commit's error into the page's.
func scopeStale(err *commit.StaleError) page.StaleError {
	in := firewall.Name(err.Ref.Key)
	theirs, _ := err.Theirs.Scope(in)
	yours, _ := err.Yours.Scope(in)
	list := func(s firewall.Scope) []string {
		f := showScope(s)
		return []string{page.YesNo(f.On), f.From, f.To, f.Lease, f.Gw, f.DNS, f.Domain}
	}
	return page.StaleError{What: "DHCP on " + string(in), Back: "/leases/scope/" + string(in),
		Fields: page.Differ([]string{"On", "From", "To", "Lease time", "Gateway", "Resolvers", "Domain"}, list(theirs), list(yours))}
}

func (p *pages) renderScope(w http.ResponseWriter, r *http.Request, status int, v commit.View, e scopeEditor) error {
	in, s, _, err := scopeOf(r, v)
	if err != nil {
		return err
	}
	e.In, e.Statics = in, len(s.Statics)
	e.System = v.Config.System.Domain
	if in.V4.Mode == firewall.Static {
		e.Usual.From, e.Usual.To = firewall.DefaultPool(in.V4.Addr)
	}
	e.Open(r, v, scopeRef(in.Name), "DHCP on "+string(in.Name), "/leases")
	return page.Render(w, r, status, scopePage(e))
}

// rangeHint says what the range may be.
func (e scopeEditor) rangeHint() string {
	if !e.Usual.From.IsValid() {
		return "Addresses of the network of " + string(e.In.Name) + "."
	}
	return fmt.Sprintf("Inside %s, without the box itself. Usual here: %s to %s.", e.In.V4.Addr.Masked(), e.Usual.From, e.Usual.To)
}

// cannot says why there can be no DHCP server here; empty: there can.
func (e scopeEditor) cannot() string {
	switch {
	case e.In.Role == firewall.WAN:
		return "The DHCP server never runs on a WAN."
	case e.In.V4.Mode != firewall.Static:
		return string(e.In.Name) + " has no fixed IPv4 address. A DHCP server needs one."
	}
	return ""
}
