package main

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
)

func TestAntiLockoutNeverOpensTheOutside(t *testing.T) { // C08
	t.Parallel()
	s := begin(t)
	const third = "192.0.2."
	for _, err := range []error{
		s.lab.LAN1.SetUp("eth0", true), s.lab.LAN1.AddAddr("eth0", lan1Addr+"/24"), s.lab.LAN1.AddRoute("default", lanAddr),
		s.lab.Guest.SetUp("eth0", true), s.lab.Guest.AddAddr("eth0", third+"20/24"), s.lab.Guest.AddRoute("default", third+"1"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	face := func(name, device string, role firewall.Role, addr, gw string) firewall.Interface {
		in := firewall.Interface{Name: firewall.Name(name), Device: device, Role: role, On: true,
			V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix(addr)}, V6: firewall.V6{Mode: firewall.None}}
		if gw != "" {
			in.V4.Gateway = netip.MustParseAddr(gw)
		}
		return in
	}
	l, err := s.lab.Box.Listen(":22") // an sshd of the machine
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ports := []int{22, 80, 443}
	all := []string{wanAddr, lanAddr, third + "1"} // every address, from every side
	step := func(name string, from []string, changes ...firewall.Change) {
		t.Helper()
		if s.box != nil {
			s.kill()
		}
		s.seed(changes...)
		s.serve()
		var wait sync.WaitGroup
		var got [3][]string
		for i, h := range []*netlab.Host{s.lab.Inet, s.lab.LAN1, s.lab.Guest} {
			wait.Go(func() { got[i] = s.answers(h, ports, all...) })
		}
		wait.Wait()
		for i, host := range []string{"inet", "lan1", "guest"} {
			open := got[i]
			switch inside := slices.Contains(from, host); {
			case !inside && len(open) > 0:
				t.Errorf("%s: %s, which is outside, reaches %v", name, host, open)
			case inside && (len(open) != 2 || !strings.HasSuffix(open[0], ":443") || !strings.HasSuffix(open[1], ":80")):
				t.Errorf("%s: %s, which is inside, reaches %v", name, host, open)
			}
		}
	}
	if err := errors.Join(s.lab.Inet.AddRoute("192.168.1.0/24", wanAddr), s.lab.Inet.AddRoute("192.0.2.0/24", wanAddr)); err != nil {
		t.Fatal(err)
	}
	wan0, lan0 := face("wan0", "eth0", firewall.WAN, wanAddr+"/24", "203.0.113.1"), face("lan0", "eth1", firewall.LAN, lanAddr+"/24", "")
	step("at first", []string{"lan1"}, firewall.AddInterface{Interface: wan0}, firewall.AddInterface{Interface: lan0})
	wan1 := face("wan1", "eth2", firewall.WAN, third+"1/24", "")
	step("a second WAN", []string{"lan1"}, firewall.AddInterface{Interface: wan1})
	// The local network is made anew under another name, the first WAN goes.
	lan1 := face("lan1", "eth1", firewall.LAN, lanAddr+"/24", "")
	step("new ones only", []string{"lan1"}, firewall.DeleteInterface{Name: "lan0"}, firewall.AddInterface{Interface: lan1}, firewall.DeleteInterface{Name: "wan0"})
	// Inside and outside change their places.
	lan1.Device, wan1.Device = "eth2", "eth1"
	lan1.V4, wan1.V4 = wan1.V4, lan1.V4
	step("swapped", []string{"guest"}, firewall.UpdateInterface{Name: "wan1", Interface: firewall.Interface{Name: "wan1", Device: "eth3", Role: firewall.WAN, On: false, V4: firewall.V4{Mode: firewall.None}, V6: wan1.V6}},
		firewall.UpdateInterface{Name: "lan1", Interface: lan1}, firewall.UpdateInterface{Name: "wan1", Interface: wan1}, firewall.AddInterface{Interface: wan0})
	// No local interface at all: nowhere but the console.
	lan1.Role = firewall.Other
	step("no LAN", nil, firewall.UpdateInterface{Name: "lan1", Interface: lan1})
	if said := s.verb("status"); strings.Contains(said, "web page: ") {
		t.Errorf("a page is promised:\n%s", said)
	}
	s.hear(`warning: No interface has the role LAN: the web pages answer nowhere`)
}
