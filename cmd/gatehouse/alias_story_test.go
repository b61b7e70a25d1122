package main

import (
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// alias is the form of a new alias of addresses; its list has one entry a line.
func alias(name, items string) url.Values {
	return fields("hash", "", "name", name, "kind", "addresses", "descr", "", "items", items, "then", "save")
}

// passes wants that connections from some addresses of the internet reach a
// port, and that those from others do not.
func (s *story) passes(when, to string, yes, no []string) {
	s.Helper()
	var done sync.WaitGroup
	source := func(addr string) string { return netip.AddrPortFrom(netip.MustParseAddr(addr), 0).String() }
	for _, from := range yes {
		done.Go(func() {
			if line, err := s.reaches(s.lab.Inet, "tcp", source(from), to); err != nil {
				s.Errorf("%s: %s does not get through to %s: %q %v", when, from, to, line, err)
			}
		})
	}
	for _, from := range no {
		done.Go(func() {
			if !s.refused(s.lab.Inet, "tcp", source(from), to) {
				s.Errorf("%s: %s gets through to %s", when, from, to)
			}
		})
	}
	done.Wait()
}

// alias-ranges (C02, C03): lists that overlap, and ranges that are not on bit
// borders, typed in the form; then packets from each address.
func TestAliasesMatchWhatWasTyped(t *testing.T) {
	t.Parallel()
	s, owner := athome(t)
	s.echo(s.lab.LAN1, 22)
	const byA, byRanges, six = wanAddr + ":2202", wanAddr + ":2203", "[2001:db8:100:1::20]:22"
	in := func(net string, hosts ...string) (list []string) {
		for _, h := range hosts {
			list = append(list, net+h)
		}
		return list
	}
	a, notA := in("198.51.", "100.1", "100.7", "100.250", "101.10"), in("198.51.", "101.11", "99.255")
	ranges := append(in("198.18.", "220.0", "221.77", "222.200", "234.124", "230.9"), in("192.0.2.", "10", "11", "12")...)
	notRanges := append(in("198.18.", "222.201", "219.255", "240.0"), in("192.0.2.", "9", "13")...)
	for _, list := range [][]string{a, notA, ranges, notRanges} {
		for _, from := range list {
			if err := s.lab.Inet.AddAddr("eth0", from+"/32"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.lab.Inet.AddAddr("eth0", "2001:db8:1::9/64"); err != nil {
		t.Fatal(err)
	}

	owner.post("/aliases/new", alias("A", "198.51.100.0/24, 198.51.100.7, 198.51.100.200-198.51.101.10"))
	owner.post("/aliases/new", alias("B", "2001:db8:1::/64\r\n2001:db8:1::9"))
	owner.post("/aliases/new", alias("RANGES", "198.18.220.0-198.18.222.200\r\n198.18.234.124\r\n198.18.224.0/20\r\n198.18.230.0/24\r\n 192.0.2.10 - 192.0.2.12 \r\n"))
	for name, dport := range map[string]string{"A": "2202", "RANGES": "2203"} {
		owner.post("/forwards/new", forward("dport", dport, "to", lan1Addr, "to_port", "22", "only", "1", "from", name, "then", "save"))
	}
	owner.post("/rules/new", rule("in", "WAN", "family", "v6", "src", "B", "dst", "2001:db8:100:1::20", "dport", "22", "then", "save"))
	owner.apply()
	s.passes("C02 all three", byA, a, notA)
	s.passes("C02 IPv6", six, []string{"2001:db8:1::9", "2001:db8:1::7"}, []string{"2001:db8:99::11"})
	s.passes("C03", byRanges, ranges, notRanges)
	page := text(owner.get("/aliases/RANGES").body)
	for _, want := range []string{"5 entries, 2 redundant", "4,812 IPv4 addresses", "198.18.220.0-198.18.222.200 198.18.234.124 198.18.224.0/20 198.18.230.0/24 192.0.2.10-192.0.2.12"} {
		if !strings.Contains(page, want) {
			t.Errorf("C03: the page does not say %q:\n%s", want, page)
		}
	}

	// C02: without the wide one, the others still match; also after a restart.
	form := alias("A", "198.51.100.7\r\n198.51.100.200-198.51.101.10\r\n")
	form.Set("hash", hidden(s, owner.get("/aliases/A").body, "hash"))
	owner.runNow("/aliases/A", form)
	left, gone := in("198.51.", "100.7", "100.250", "101.10"), append(in("198.51.", "100.1"), notA...)
	s.passes("C02 without the /24", byA, left, gone)
	set := func() string { return s.runs(s.lab.Box, "nft", "list", "set", "inet", "gatehouse", "alias_A4") }
	was := set()
	s.kill()
	s.serve()
	s.passes("C02 after a restart", byA, left, gone)
	s.passes("C03 after a restart", byRanges, ranges[:2], notRanges[:2])
	if is := set(); is != was {
		t.Errorf("nft lists another set after the restart:\n%s\nbefore:\n%s", is, was)
	}
	s.rules() // all of it, without an error
}
