package setup

import (
	"net/http"
	"net/netip"
	"strings"

	"gatehouse/firewall"
	"gatehouse/web/page"
)

// internetForm is step 3 as it is shown and sent.
type internetForm struct {
	Device        string // "" = there is no internet port
	Type          string // dhcp, static, later
	Addr, GW, DNS string
	MTU           string
	BlockPrivate  bool
	Hash          string
	Offer         Offer
	Tested        []Line
	Problems      firewall.Problems
}

func (w *wizard) showInternet(rw http.ResponseWriter, r *http.Request) error {
	c := w.Drafts.View(who(r).Account).Config
	wan, known := find(c, firewall.WAN)
	if !known {
		return w.renderInternet(rw, r, http.StatusOK, internetForm{})
	}
	f := internetForm{Device: wan.Device, Type: kind(wan.V4.Mode), DNS: join(wan.V4.DNS), BlockPrivate: wan.BlockPrivate,
		Hash: c.Hash(firewall.Ref{Kind: "interface", Key: string(wan.Name)}), Offer: w.offer(wan.Device)}
	if wan.V4.Mode == firewall.Static {
		f.Addr = wan.V4.Addr.String()
		if wan.V4.Gateway.IsValid() {
			f.GW = wan.V4.Gateway.String()
		}
	}
	if wan.MTU != 0 {
		f.MTU = number(wan.MTU)
	}
	return w.renderInternet(rw, r, http.StatusOK, f)
}

func (w *wizard) renderInternet(rw http.ResponseWriter, r *http.Request, status int, f internetForm) error {
	return page.Render(rw, r, status, internetView(frame(r), f))
}

func (w *wizard) offer(device string) Offer {
	for _, p := range w.Ports.Ports() {
		if p.Device == device {
			return p.Offer
		}
	}
	return Offer{}
}

// internet saves the way to the internet, or tries it.
func (w *wizard) internet(rw http.ResponseWriter, r *http.Request) error {
	form, err := page.ReadForm(r)
	if err != nil {
		return err
	}
	c := w.Drafts.View(who(r).Account).Config
	wan, known := find(c, firewall.WAN)
	f := internetForm{Device: wan.Device, Type: form.Get("type"), Addr: form.Get("addr"), GW: form.Get("gw"), DNS: form.Get("dns"),
		MTU: form.Get("mtu"), BlockPrivate: form.On("block_private"), Hash: form.Get("hash"), Offer: w.offer(wan.Device)}
	test := form.Get("op") == "test"
	if err := form.Done(); err != nil {
		return err
	}
	if !known {
		return page.Go(rw, r, "/setup/4")
	}
	now := f.parse(wan)
	if len(f.Problems) > 0 {
		return w.renderInternet(rw, r, http.StatusUnprocessableEntity, f)
	}
	if test {
		f.Tested = w.Ports.Test(r.Context(), wan.Device)
		return w.renderInternet(rw, r, http.StatusOK, f)
	}
	ref := firewall.Ref{Kind: "interface", Key: string(wan.Name)}
	ps, err := w.save(r, f.Hash, put(c, wan, known, now), fieldsOf(ref, "addr", "gw", "dns", "mtu"))
	if err != nil {
		return err
	}
	if f.Problems = ps; len(ps) > 0 {
		return w.renderInternet(rw, r, http.StatusUnprocessableEntity, f)
	}
	return page.Go(rw, r, "/setup/4")
}

// parse gives the interface that the form describes, with every problem of its text.
func (f *internetForm) parse(wan firewall.Interface) firewall.Interface {
	add := func(field, text string) {
		f.Problems = append(f.Problems, firewall.Problem{Field: field, Text: text})
	}
	wan.BlockPrivate = f.BlockPrivate
	wan.V4 = firewall.V4{}
	switch f.Type {
	case "dhcp":
		wan.V4.Mode = firewall.DHCP
	case "later":
		wan.V4.Mode = firewall.None
	case "static":
		wan.V4.Mode = firewall.Static
		wan.V4.Addr = prefix(f.Addr, func(text string) { add("addr", text) })
		if f.GW == "" {
			add("gw", "Write the gateway's address; your provider tells it.")
		} else if gw, err := firewall.ParseAddr(f.GW); err != nil {
			add("gw", page.Sentence(err))
		} else {
			wan.V4.Gateway = gw
		}
	default:
		add("type", "Choose how the Internet port gets its address.")
	}
	var err error
	if wan.V4.DNS, err = addrs(f.DNS); err != nil {
		add("dns", page.Sentence(err))
	}
	wan.MTU = 0
	if f.MTU != "" {
		n, ok := whole(f.MTU)
		if !ok {
			add("mtu", "Enter a whole number from 576 to 9000.")
		}
		wan.MTU = n
	}
	return wan
}

func kind(m firewall.Mode) string {
	if m == firewall.None {
		return "later"
	}
	return string(m)
}

// prefix reads address/length and tells what is wrong with it.
func prefix(s string, tell func(string)) netip.Prefix {
	p, err := firewall.ParsePrefix(s)
	if err != nil {
		tell(page.Sentence(err))
	}
	return p
}

func addrs(s string) (out []netip.Addr, err error) {
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == ';' || r == '\r' }) {
		a, err := firewall.ParseAddr(part)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func join(as []netip.Addr) string {
	parts := make([]string, len(as))
	for i, a := range as {
		parts[i] = a.String()
	}
	return strings.Join(parts, ", ")
}

// fieldsOf maps the fields of an object's problems to form fields of the same name.
func fieldsOf(ref firewall.Ref, names ...string) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		out[ref.String()+"."+n] = n
	}
	return out
}
