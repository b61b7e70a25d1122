package interfaces

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"gatehouse/firewall"
	"gatehouse/services/link"
	"gatehouse/web/page"
)

// form is the fields of an interface as a person typed them.
type form struct {
	Name          string
	Device        string
	Role          string
	On            bool
	Mode          string // none, static, dhcp
	Addr, Gw, DNS string // Addr and Gw count only with static
	Mode6         string // none, static
	Addr6, Gw6    string // count only with static
	MTU           string // empty: automatic
	BlockPrivate  bool
	BlockBogons   bool
	Along         bool // the DHCP server follows the address
}

// blank is a new interface on the first free port: the WAN when there is none
// yet, else a network of its own that nothing else uses.
func blank(c firewall.Config, ports []link.Port) form {
	f := form{On: true, Role: string(firewall.WAN), Name: "WAN", Mode: string(firewall.DHCP), Mode6: string(firewall.None), BlockPrivate: true, BlockBogons: true}
	for _, p := range ports {
		if _, used := c.ByDevice(p.Device); !used && p.Present {
			f.Device = p.Device
			break
		}
	}
	if slices.ContainsFunc(c.Interfaces, func(i firewall.Interface) bool { return i.Role == firewall.WAN }) {
		f.Role, f.Name, f.Mode = string(firewall.Other), "", string(firewall.Static)
		f.BlockPrivate, f.BlockBogons = false, false
		f.Addr = free(c, ports)
	}
	return f
}

// free is an address of a network that neither the configuration nor a port has.
func free(c firewall.Config, ports []link.Port) string {
	for third := range 255 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(third + 1), 1}), 24)
		used := slices.ContainsFunc(c.Interfaces, func(i firewall.Interface) bool { return i.V4.Addr.IsValid() && i.V4.Addr.Overlaps(p) }) ||
			slices.ContainsFunc(ports, func(q link.Port) bool { return slices.ContainsFunc(q.Addrs, p.Overlaps) })
		if !used {
			return p.String()
		}
	}
	return ""
}

// show gives the fields of an interface; show and form.value undo each other.
func show(i firewall.Interface) form {
	f := form{Name: string(i.Name), Device: i.Device, Role: string(i.Role), On: i.On, Mode: string(i.V4.Mode), Mode6: string(i.V6.Mode),
		Addr: prefix(i.V4.Addr), Gw: addr(i.V4.Gateway), DNS: addrs(i.V4.DNS), Addr6: prefix(i.V6.Addr), Gw6: addr(i.V6.Gateway),
		BlockPrivate: i.BlockPrivate, BlockBogons: i.BlockBogons}
	if i.MTU != 0 {
		f.MTU = strconv.Itoa(i.MTU)
	}
	return f
}

func read(p *page.Form) form {
	return form{Name: p.Get("name"), Device: p.Get("device"), Role: p.Get("role"), On: p.On("on"), Mode: p.Get("mode"),
		Addr: p.Get("addr"), Gw: p.Get("gw"), DNS: p.Raw("dns"), Mode6: p.Get("mode6"), Addr6: p.Get("addr6"), Gw6: p.Get("gw6"), MTU: p.Get("mtu"),
		BlockPrivate: p.On("block_private"), BlockBogons: p.On("block_bogons"), Along: p.On("along")}
}

func addr(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func prefix(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func addrs(list []netip.Addr) string {
	var out []string
	for _, a := range list {
		out = append(out, a.String())
	}
	return strings.Join(out, ", ")
}

// value reads the fields; what cannot be read is told. Address and gateway
// count only with the mode that they stand under, on the page too.
func (f form) value(old firewall.Interface) (firewall.Interface, firewall.Problems) {
	var ps firewall.Problems
	add := func(field, text string) { ps = append(ps, firewall.Problem{Field: field, Text: text}) }
	one := func(field, typed string) netip.Addr {
		a, err := firewall.ParseAddr(typed)
		if err != nil {
			add(field, page.Sentence(err))
		}
		return a
	}
	network := func(field, typed, example string) netip.Prefix {
		p, err := firewall.ParsePrefix(typed)
		if err != nil {
			add(field, "Write an address with its length, for example "+example+".")
		}
		return p
	}
	i := firewall.Interface{Name: firewall.Name(f.Name), Device: f.Device, Role: firewall.Role(f.Role), On: f.On,
		V4: firewall.V4{Mode: firewall.Mode(f.Mode)}, V6: firewall.V6{Mode: firewall.Mode(f.Mode6)}, BlockPrivate: f.BlockPrivate, BlockBogons: f.BlockBogons}
	if f.Name == "new" {
		add("name", "`new` is a reserved name; choose another.") // the page of a new interface has this path
	}
	gateway := func(field, typed string, was netip.Addr) netip.Addr {
		if typed == "" {
			return netip.Addr{}
		}
		a := one(field, typed)
		if i.Role != firewall.WAN && a.IsValid() && a != was {
			add(field, "Only a WAN has a gateway. Clear this field.")
		}
		return a
	}
	if i.V4.Mode == firewall.Static {
		i.V4.Addr, i.V4.Gateway = network("addr", f.Addr, "192.168.1.1/24"), gateway("gw", f.Gw, old.V4.Gateway)
	}
	if i.V6.Mode == firewall.Static {
		i.V6.Addr, i.V6.Gateway = network("addr6", f.Addr6, "2001:db8:1::1/64"), gateway("gw6", f.Gw6, old.V6.Gateway)
	}
	for _, s := range strings.FieldsFunc(f.DNS, func(r rune) bool { return strings.ContainsRune(",; \t\r\n", r) }) {
		if a := one("dns", s); a.IsValid() {
			i.V4.DNS = append(i.V4.DNS, a)
		}
	}
	if typed := strings.ReplaceAll(f.MTU, " ", ""); typed != "" {
		n, err := strconv.ParseUint(typed, 10, 16)
		if i.MTU = int(n); err != nil || n == 0 {
			add("mtu", "MTU must be 576–9000; leave it empty for automatic.")
			i.MTU = 0
		}
	}
	return i, ps
}

// fields is two interfaces field by field, where they differ.
func fields(theirs, yours firewall.Interface) []page.Stale {
	list := func(i firewall.Interface) []string {
		f := show(i)
		return []string{f.Name, f.Device, strings.ToUpper(f.Role), page.YesNo(f.On), modeWord(i.V4.Mode), f.Addr, f.Gw, f.DNS, modeWord(i.V6.Mode), f.Addr6, f.Gw6, f.MTU,
			page.YesNo(f.BlockPrivate), page.YesNo(f.BlockBogons)}
	}
	return page.Differ([]string{"Name", "Port", "Role", "Active", "IPv4", "IPv4 address", "IPv4 gateway", "Resolvers", "IPv6", "IPv6 address", "IPv6 gateway", "MTU",
		"Block private sources", "Block bogons"}, list(theirs), list(yours))
}

func modeWord(m firewall.Mode) string {
	return map[firewall.Mode]string{firewall.None: "none", firewall.Static: "fixed address", firewall.DHCP: "DHCP"}[m]
}

// devices is the ports that the interface can have: its own, and those that no
// other one has. chosen is listed even when it is not there, so that nothing
// else is taken in its place.
func devices(c firewall.Config, ports []link.Port, own, chosen string) (list []page.Option) {
	listed := map[string]bool{}
	for _, p := range ports {
		if _, used := c.ByDevice(p.Device); p.Present && !used || p.Device == own {
			list = append(list, page.Option{Value: p.Device, Label: portWords(p)})
			listed[p.Device] = true
		}
	}
	for _, d := range []string{own, chosen} {
		if d != "" && !listed[d] {
			label := d + " (not there)"
			if in, used := c.ByDevice(d); used && d != own {
				label = fmt.Sprintf("%s (used by %s)", d, in.Name)
			}
			list = append(list, page.Option{Value: d, Label: label})
			listed[d] = true
		}
	}
	return list
}

// portWords is what a port is known by.
func portWords(p link.Port) string {
	words := []string{p.Device}
	switch {
	case !p.Present:
		words = append(words, "not there")
	case p.Link && p.Speed > 0:
		words = append(words, fmt.Sprintf("%d Mbit/s", p.Speed))
	case p.Link:
		words = append(words, "cable in")
	default:
		words = append(words, "no cable")
	}
	if p.Driver != "" {
		words = append(words, p.Driver)
	}
	if p.MAC != "" {
		words = append(words, string(p.MAC))
	}
	return strings.Join(words, " · ")
}
