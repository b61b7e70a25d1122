package main

import (
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
)

const (
	hostH = netlab.Web4     // the H of case C26
	other = "198.51.100.11" // another host of the internet
	hostG = "203.0.113.9"   // and one more
	probe = ":7000"         // where inet answers
)

// C26: what the lists show is what happens: floating rules before the list of
// the interface, each from the top.
func TestRulesRunInTheOrderShown(t *testing.T) {
	t.Parallel()
	ruled := func(id, in string, a firewall.Action, src, dst string) firewall.Change {
		r := pass(id, in, src, dst)
		r.Action = a
		return firewall.AddRule{Rule: r, Place: map[bool]firewall.Place{true: {Before: "LANANY"}}[in == "LAN"]}
	}
	s, owner := athome(t,
		ruled("LANBLOCK", "LAN", firewall.Block, "LAN net", hostG),
		ruled("FLOATLAN", "", firewall.Block, "LAN net", hostH),
		ruled("FLOATPASS", "", firewall.Pass, "any", hostH+", "+hostG),
		ruled("FLOATGUEST", "", firewall.Block, "GUEST net", "any"),
		ruled("GUESTANY", "GUEST", firewall.Pass, "GUEST net", "any"))
	s.echo(s.lab.Inet, 7000)
	page := owner.get("/rules?tab=all").body
	at := 0
	for _, id := range []string{"FLOATLAN", "FLOATPASS", "FLOATGUEST", "LANBLOCK", "LANANY", "GUESTANY"} {
		n := strings.Index(page, "r-"+id)
		if n < at {
			t.Errorf("the page shows %s out of order", id)
		}
		at = n
	}
	matrix := func(when string, want map[string]bool) {
		t.Helper()
		for who, h := range map[string]*netlab.Host{"lan": s.lab.LAN1, "guest": s.lab.Guest} {
			for dst, addr := range map[string]string{"H": hostH, "G": hostG, "other": other} {
				pair := who + " " + dst
				if want[pair] {
					if _, err := s.reaches(h, "tcp", "", addr+probe); err != nil {
						t.Errorf("%s: %s does not pass: %v", when, pair, err)
					}
				} else if !s.refused(h, "tcp", "", addr+probe) {
					t.Errorf("%s: %s passes", when, pair)
				}
			}
		}
	}
	matrix("as written", map[string]bool{"lan G": true, "lan other": true, "guest H": true, "guest G": true})
	owner.click("down", "any", "FLOATLAN") // now after the pass to H
	matrix("after moving the block below the pass", map[string]bool{"lan H": true, "lan G": true, "lan other": true, "guest H": true, "guest G": true})
	owner.click("top", "any", "FLOATGUEST")
	matrix("after moving the guests' block to the top", map[string]bool{"lan H": true, "lan G": true, "lan other": true})
	owner.click("toggle", "any", "FLOATPASS") // the LAN list decides about G again
	owner.click("delete", "any", "FLOATGUEST")
	matrix("without the floating pass", map[string]bool{"lan other": true, "guest H": true, "guest G": true, "guest other": true})
}

// C29: rules that differ in an address range, or in their log only, are all in
// the kernel, in order.
func TestRulesThatDifferInARange(t *testing.T) {
	t.Parallel()
	ruled := func(id string, a firewall.Action, log bool, src string) firewall.Change {
		r := pass(id, "WAN", src, lan1Addr)
		r.Action, r.Log, r.Proto, r.Family, r.DstPorts = a, log, firewall.TCP, firewall.IPv4, firewall.Ports{{Range: firewall.PortRange{From: 22, To: 22}}}
		return firewall.AddRule{Rule: r}
	}
	const first, second, third = "192.0.2.10-192.0.2.20", "192.0.2.30-192.0.2.40", "192.0.2.50-192.0.2.60"
	s, owner := athome(t, ruled("A", firewall.Pass, false, first), ruled("B", firewall.Pass, false, second), ruled("C", firewall.Block, true, third),
		ruled("ALOG", firewall.Pass, true, first), ruled("BLOG", firewall.Pass, true, second), ruled("CLOG", firewall.Block, false, third),
		ruled("REST", firewall.Pass, false, "192.0.2.0/24"))
	s.routed()
	s.echo(s.lab.LAN1, 22)
	sources := map[string]string{"192.0.2.15": "A", "192.0.2.35": "B", "192.0.2.55": "C", "192.0.2.25": "REST", "192.0.2.41": "REST"}
	for a := range sources {
		if err := s.lab.Inet.AddAddr("lo", a+"/32"); err != nil {
			t.Fatal(err)
		}
	}
	at := 0
	rules := s.rules()
	for _, id := range []string{"A", "B", "C", "ALOG", "BLOG", "CLOG", "REST"} {
		n := strings.Index(rules, "goto r_"+id+" ")
		if n < at {
			t.Errorf("%s is not in its place in the kernel", id)
		}
		at = n
	}
	meet := func() {
		t.Helper()
		for a, id := range sources {
			was := s.hits(id)
			if id[0] == 'C' {
				if !s.refused(s.lab.Inet, "tcp", a+":0", lan1Addr+":22") {
					t.Errorf("%s passes, though %s blocks it", a, id)
				}
			} else if _, err := s.reaches(s.lab.Inet, "tcp", a+":0", lan1Addr+":22"); err != nil {
				t.Errorf("%s does not pass: %v", a, err)
			}
			if s.hits(id) == was {
				t.Errorf("%s was not decided by %s", a, id)
			}
		}
	}
	meet()
	s.until("the home page shows the drop with its rule", func() bool { return strings.Contains(text(owner.get("/").body), "192.0.2.55") })
	for _, id := range []string{"A", "B", "C"} {
		page := owner.get("/rules?tab=WAN&menu=" + id)
		owner.post("/rules", fields("op", owner.op(page, "toggle", id), "tab", "WAN", "q", ""))
	}
	owner.apply()
	for a, id := range sources {
		if len(id) == 1 {
			sources[a] = id + "LOG"
		}
	}
	meet() // their twins, which differ in log only, were never merged away
}
