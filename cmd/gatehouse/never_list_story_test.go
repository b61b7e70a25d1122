package main

import (
	"net/netip"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
	"gatehouse/services/quarantine"
)

// never-list: some are limited like everybody and never shut out.
func TestNeverList(t *testing.T) {
	t.Parallel()
	const friend, resolver, thief = "203.0.113.7", "203.0.113.8", "203.0.113.9"
	strict := firewall.Limit{New: 10, Window: 60, Over: firewall.Quarantine, LockFor: 300, Never: "FRIENDS"}
	wan := home()[0].(firewall.AddInterface).Interface
	wan.V4.DNS = []netip.Addr{netip.MustParseAddr(resolver)}
	more := []firewall.Change{firewall.UpdateInterface{Name: "WAN", Interface: wan},
		firewall.AddAlias{Alias: firewall.Alias{Name: "FRIENDS", Kind: firewall.Addresses, Addrs: []firewall.Entry{{End: firewall.End{Kind: firewall.EndAddr, Addr: netip.MustParseAddr(friend)}}}}}}
	more = append(more, limited("STRICT", 8081, 81, strict)...)
	inside := pass("INSIDE", "LAN", "any", netlab.Gateway4)
	inside.Proto, inside.Limit = firewall.TCP, firewall.Limit{New: 10, Window: 60, Over: firewall.Quarantine, LockFor: 300}
	more = append(more, firewall.AddRule{Rule: inside, Place: firewall.Place{Before: "LANANY"}})
	s, owner := athome(t, more...)
	s.echo(s.lab.Inet, 7000)
	s.echo(s.lab.LAN1, 81)

	for _, source := range []string{netlab.Gateway4, resolver, friend} {
		was := s.hits("over_STRICT")
		stop := s.offend(s.lab.Inet, source, wanAddr+":8081", 20)
		s.until(source+" is limited", func() bool { return s.hits("over_STRICT") >= was+10 })
		stop()
	}
	// Whoever is at the pages now, and whoever is not.
	was := s.hits("over_INSIDE")
	stop := s.offend(s.lab.LAN1, lan1Addr, netlab.Gateway4+":7000", 20)
	s.until("the owner's host is limited", func() bool { return s.hits("over_INSIDE") >= was+10 })
	stop()
	owner.get("/rules")
	defer s.offend(s.lab.LAN2, lan2Addr, netlab.Gateway4+":7000", 20)()
	s.isShutOut(lan2Addr, quarantine.Quarantine, 1)
	defer s.offend(s.lab.Inet, thief, wanAddr+":8081", 20)()
	s.isShutOut(thief, quarantine.Quarantine, 1)
	if all := s.shutOut(); len(all) != 2 {
		t.Errorf("those who never may be are shut out: %+v", all)
	}
	// Nor by hand; not even as a part of a network.
	for address, words := range map[string]string{lan1Addr: "That is the address you are using.", lanAddr: "That is this box.", netlab.Gateway4: "That is a gateway of this box.",
		resolver: "That is a name server of this box.", "192.168.1.0/24": "the address you are using"} {
		owner.wrong(words, "/tables/add", fields("address", address, "reason", "a mistake", "duration", ""))
	}
}
