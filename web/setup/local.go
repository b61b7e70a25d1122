package setup

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"gatehouse/firewall"
	"gatehouse/web/page"
)

// localForm is step 4 as it is shown and sent.
type localForm struct {
	Device   string
	Addr     string
	Was      string // the address that From and To were computed for
	DHCP     bool
	From, To string
	Hash     string
	Problems firewall.Problems
}

func (w *wizard) showLocal(rw http.ResponseWriter, r *http.Request) error {
	c := w.Drafts.View(who(r).Account).Config
	lan, known := find(c, firewall.LAN)
	if !known {
		return page.Go(rw, r, "/setup/2")
	}
	f := localForm{Device: lan.Device, Hash: c.Hash(firewall.Ref{Kind: "interface", Key: string(lan.Name)})}
	if lan.V4.Addr.IsValid() {
		f.Addr = lan.V4.Addr.String()
	}
	f.Was = f.Addr
	s, ok := c.Scope(lan.Name)
	f.DHCP = ok && s.On
	if ok {
		f.From, f.To = s.From.String(), s.To.String()
	}
	return w.renderLocal(rw, r, http.StatusOK, f)
}

func (w *wizard) renderLocal(rw http.ResponseWriter, r *http.Request, status int, f localForm) error {
	return page.Render(rw, r, status, localView(frame(r), f))
}

// local saves the address of the local network and its DHCP range.
func (w *wizard) local(rw http.ResponseWriter, r *http.Request) error {
	form, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	view := w.Drafts.View(who(r).Account)
	c := view.Config
	lan, known := find(c, firewall.LAN)
	f := localForm{Device: lan.Device, Addr: form.Get("addr"), Was: form.Get("was"), DHCP: form.On("dhcp"),
		From: form.Get("from"), To: form.Get("to"), Hash: form.Get("hash")}
	if err := form.Done(); err != nil {
		return err
	}
	if !known {
		return page.Go(rw, r, "/setup/2")
	}
	changes := w.localChanges(&f, c, lan)
	if len(f.Problems) > 0 {
		return w.renderLocal(rw, r, http.StatusUnprocessableEntity, f)
	}
	changes = append(changes, never(view, changes, page.ConnOf(r.Context()).Peer)...)
	hash := f.Hash
	if len(changes) > 0 && changes[0].Ref().Kind != "interface" {
		hash = c.Hash(changes[0].Ref())
	}
	fields := fieldsOf(firewall.Ref{Kind: "interface", Key: string(lan.Name)}, "addr")
	for k, v := range fieldsOf(firewall.Ref{Kind: "scope", Key: string(lan.Name)}, "from", "to") {
		fields[k] = v
	}
	ps, err := w.save(r, hash, changes, fields)
	if err != nil {
		return err
	}
	if f.Problems = ps; len(ps) > 0 {
		return w.renderLocal(rw, r, http.StatusUnprocessableEntity, f)
	}
	return page.Go(rw, r, "/setup/5")
}

// localChanges is what step 4 changes; it fills in the range that follows from
// a new address, and every problem of the texts.
func (w *wizard) localChanges(f *localForm, c firewall.Config, lan firewall.Interface) (out []firewall.Change) {
	add := func(field, text string) {
		f.Problems = append(f.Problems, firewall.Problem{Field: field, Text: text})
	}
	addr := prefix(f.Addr, func(text string) { add("addr", text) })
	if !addr.IsValid() {
		return nil
	}
	for _, p := range w.Ports.Ports() {
		if p.Device != lan.Device && overlaps(addr, p.Offer.Addr) {
			add("addr", fmt.Sprintf("%s is already used on the Internet side. Use for example %s.", addr.Masked(), free(w.Ports.Ports())))
		}
	}
	now := lan
	now.V4 = firewall.V4{Mode: firewall.Static, Addr: addr}
	out = put(c, lan, true, now)
	scope, known := c.Scope(lan.Name)
	if !known {
		scope = firewall.Scope{In: lan.Name, Lease: 7200}
	}
	was := scope
	scope.On = f.DHCP
	if !f.DHCP && !known {
		return out
	}
	// A range that was computed for the old address, and not touched, follows the new one.
	old, err := firewall.ParsePrefix(f.Was)
	untouched := false
	if err == nil {
		from, to := firewall.DefaultPool(old)
		untouched = f.From == from.String() && f.To == to.String() && f.Addr != f.Was
	}
	if f.From == "" && f.To == "" || untouched {
		from, to := firewall.DefaultPool(addr)
		f.From, f.To = from.String(), to.String()
	}
	if scope.From, err = firewall.ParseAddr(f.From); err != nil {
		add("from", page.Sentence(err))
	}
	if scope.To, err = firewall.ParseAddr(f.To); err != nil {
		add("to", page.Sentence(err))
	}
	if scope.On != was.On || scope.From != was.From || scope.To != was.To {
		out = append(out, firewall.PutScope{Scope: scope})
	}
	return out
}

func number(n int) string { return strconv.Itoa(n) }

func whole(s string) (int, bool) {
	n, err := strconv.Atoi(strings.ReplaceAll(s, " ", ""))
	return n, err == nil && n > 0
}

func net4(s string) netip.Prefix {
	p, _ := firewall.ParsePrefix(s) // only for a hint: an empty one shows nothing
	return p
}
