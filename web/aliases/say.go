package aliases

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"gatehouse/firewall"
	"gatehouse/web/page"
)

// summary is what the page says of a list.
type summary struct {
	Head string   // "412 entries, 3 duplicates removed, 1 problem: line 17 `10.0.0.300`"
	Size string   // "4,812 IPv4 addresses"
	More []string // sentences: what is redundant, was saved differently, is not kept
	Bad  bool     // something cannot be read
	Skip bool     // and is to be left out
}

// say reads the list of the form.
func (f form) say(c firewall.Config) summary {
	it := firewall.ParseItems(f.kind(), f.Items, f.known(c))
	a := firewall.Alias{Name: firewall.Name(f.Name), Kind: f.kind(), Addrs: it.Addrs, Ports: it.Ports}
	inside := a.Redundant()
	s := summary{Head: head(it, len(inside)), Size: size(c, a), Bad: len(it.Bad) > 0, Skip: f.Skip}
	if len(inside) > 0 {
		var list []string
		for _, r := range inside[:min(len(inside), 5)] {
			list = append(list, fmt.Sprintf("`%s` is inside `%s`", nth(a, r.Entry), nth(a, r.In)))
		}
		s.More = append(s.More, "Redundant, and kept: "+andMore(list, len(inside))+".")
	}
	s.More = append(s.More, remarks(it)...)
	return s
}

// remarks is what was read otherwise than it was written, or is not kept.
func remarks(it firewall.Items) (list []string) {
	if n := len(it.Masked); n > 0 {
		var nets []string
		for _, m := range it.Masked[:min(n, 5)] {
			if end, err := firewall.ParseEnd(m); err == nil {
				nets = append(nets, fmt.Sprintf("`%s` is saved as `%s`", m, end))
			}
		}
		list = append(list, "Without host bits: "+andMore(nets, n)+".")
	}
	if it.Words > 0 {
		list = append(list, "The words behind the value became its note on "+number(it.Words, "line")+".")
	}
	if len(it.Left) > 0 {
		list = append(list, "Not kept: "+strings.Join(it.Left, ", ")+".")
	}
	return list
}

// head is the counts of a list, and where the first problem is.
func head(it firewall.Items, redundant int) string {
	parts := []string{entries(len(it.Addrs) + len(it.Ports))}
	if it.Twice > 0 {
		parts = append(parts, number(it.Twice, "duplicate")+" removed")
	}
	if redundant > 0 {
		parts = append(parts, digits(uint64(redundant))+" redundant")
	}
	if n := len(it.Bad); n > 0 {
		var lines []string
		for _, b := range it.Bad[:min(n, 3)] {
			lines = append(lines, fmt.Sprintf("line %s `%s`", digits(uint64(b.Line)), b.Value))
		}
		parts = append(parts, number(n, "problem")+": "+andMore(lines, n))
	}
	return strings.Join(parts, ", ")
}

// andMore joins the first of n things.
func andMore(first []string, n int) string {
	s := strings.Join(first, ", ")
	if n > len(first) {
		s += " and " + digits(uint64(n-len(first))) + " more"
	}
	return s
}

// nth is the value of an entry.
func nth(a firewall.Alias, i int) string {
	if a.Kind == firewall.PortList {
		return a.Ports[i].End.String()
	}
	return a.Addrs[i].End.String()
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return digits(uint64(n)) + " entries"
}

// number is page.Count with the digits of a large number in groups.
func number(n int, noun string) string {
	if n == 1 {
		return page.Count(n, noun)
	}
	return digits(uint64(n)) + " " + noun + "s"
}

// digits writes 4812 as 4,812.
func digits(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// size is how much an alias stands for in the configuration, with the aliases
// in it: addresses by family, or ports.
func size(c firewall.Config, a firewall.Alias) string { return strings.Join(sizes(c, a), ", ") }

func sizes(c firewall.Config, a firewall.Alias) (list []string) {
	if a.Kind == firewall.PortList {
		n := 0
		for _, r := range ports(c, a) {
			n += r.Len()
		}
		if n > 0 {
			list = append(list, number(n, "port"))
		}
		return list
	}
	v4, v6 := count{}, count{}
	for _, r := range addrs(c, a) {
		if r.From.Is4() {
			v4 = v4.plus(r)
		} else {
			v6 = v6.plus(r)
		}
	}
	if v4 != (count{}) {
		list = append(list, v4.String()+" IPv4 "+plural(v4, "address"))
	}
	if v6 != (count{}) {
		list = append(list, v6.String()+" IPv6 "+plural(v6, "address"))
	}
	return list
}

func plural(n count, noun string) string {
	if n == (count{lo: 1}) {
		return noun
	}
	return noun + "es"
}

// addrs is what a stands for although the configuration may hold another of that name.
func addrs(c firewall.Config, a firewall.Alias) []firewall.AddrRange {
	var out []firewall.AddrRange
	for _, e := range a.Addrs {
		if r, ok := e.End.Range(); ok {
			out = append(out, r)
		} else if e.End.Name != a.Name {
			out = append(out, c.AliasAddrs(e.End.Name)...)
		}
	}
	return firewall.Merge(out)
}

func ports(c firewall.Config, a firewall.Alias) []firewall.PortRange {
	var out []firewall.PortRange
	for _, e := range a.Ports {
		if e.End.Alias == "" {
			out = append(out, e.End.Range)
		} else if e.End.Alias != a.Name {
			out = append(out, c.AliasPorts(e.End.Alias)...)
		}
	}
	return firewall.MergePorts(out)
}

// count is a number of addresses. All IPv6 addresses do not fit: 2^128 is all ones.
type count struct{ hi, lo uint64 }

func (n count) plus(r firewall.AddrRange) count {
	from, to := halves(r.From.As16()), halves(r.To.As16())
	lo, borrow := bits.Sub64(to.lo, from.lo, 0)
	hi, _ := bits.Sub64(to.hi, from.hi, borrow)
	lo, carry := bits.Add64(lo, n.lo, 1)
	hi, over := bits.Add64(hi, n.hi, carry)
	if over > 0 {
		return count{^uint64(0), ^uint64(0)}
	}
	return count{hi, lo}
}

func halves(b [16]byte) (n count) {
	for i := range 8 {
		n.hi, n.lo = n.hi<<8|uint64(b[i]), n.lo<<8|uint64(b[8+i])
	}
	return n
}

// String is 4,812, or a power of two when the number is beyond reading.
func (n count) String() string {
	if n.hi == 0 && n.lo < 1e12 {
		return digits(n.lo)
	}
	log := bits.Len64(n.lo) - 1
	if n.hi > 0 {
		log = 63 + bits.Len64(n.hi)
	}
	switch {
	case n == count{^uint64(0), ^uint64(0)}:
		return "2^128"
	case bits.OnesCount64(n.hi)+bits.OnesCount64(n.lo) > 1:
		return fmt.Sprintf("more than 2^%d", log)
	}
	return fmt.Sprintf("2^%d", log)
}
