package main

import (
	"log/slog"
	"net/netip"
	"testing"

	"gatehouse/firewall"
	"gatehouse/services/link"
)

// chosenBefore is the addresses that setup gave the ports earlier.
type chosenBefore map[string]netip.Prefix

func (c chosenBefore) Put(device string, p netip.Prefix) error { c[device] = p; return nil }
func (c chosenBefore) All() (map[string]netip.Prefix, error)   { return c, nil }

// usedPorts is a box that finds an outside address on eth0 and a local one on eth1.
func usedPorts(own chosenBefore) *setupPorts {
	s := newSetupPorts(slog.New(slog.DiscardHandler), nil)
	s.owned = own
	for device, a := range map[string]string{"eth0": "10.9.9.2/24", "eth1": "192.168.77.1/24"} {
		s.ports[device] = found(device, []netip.Prefix{netip.MustParsePrefix(a)}, own[device])
	}
	s.gw["eth0"] = netip.MustParseAddr("10.9.9.1")
	return s
}

func atHome() firewall.Config {
	c := firewall.Factory()
	c.Interfaces = []firewall.Interface{
		{Name: "WAN", Device: "eth0", Role: firewall.WAN, On: true, V4: firewall.V4{Mode: firewall.DHCP}, V6: firewall.V6{Mode: firewall.None}},
		{Name: "LAN", Device: "eth1", Role: firewall.LAN, On: true,
			V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix("192.168.77.1/24")}, V6: firewall.V6{Mode: firewall.None}}}
	from, to := firewall.DefaultPool(netip.MustParsePrefix("192.168.77.1/24"))
	c.Scopes = []firewall.Scope{{In: "LAN", On: true, From: from, To: to, Lease: 7200}}
	return c
}

func ports(t *testing.T, c firewall.Config) (eth0, eth1 firewall.Interface) {
	t.Helper()
	if ps := c.Validate(); ps != nil {
		t.Fatalf("not valid: %v", ps)
	}
	eth0, _ = c.ByDevice("eth0")
	eth1, _ = c.ByDevice("eth1")
	return eth0, eth1
}

func TestSetupKeepsTheWayIntoAMachineInUse(t *testing.T) {
	c := usedPorts(chosenBefore{}).config()
	eth0, eth1 := ports(t, c)
	if eth0.Role != firewall.Other || eth0.V4.Gateway != netip.MustParseAddr("10.9.9.1") || eth1.Role != firewall.LAN || len(c.Rules) != 2 || len(c.Scopes) != 0 {
		t.Errorf("%+v", c)
	}
}

// `gatehouse restore 0` after a restart: what the WAN has is the provider's, and
// no way in for ssh from there.
func TestSetupAfterAConfigurationOpensNothingOutside(t *testing.T) {
	s := usedPorts(chosenBefore{})
	s.ran(atHome())
	c := s.config()
	eth0, eth1 := ports(t, c)
	if eth0.Role == firewall.LAN || eth0.V4.Mode != firewall.None || len(c.Rules) != 0 {
		t.Errorf("outside: %+v, rules %v", eth0, c.Rules)
	}
	if eth1.Role != firewall.LAN || eth1.V4.Addr != netip.MustParsePrefix("192.168.77.1/24") || len(c.Scopes) != 1 || c.Scopes[0].In != eth1.Name {
		t.Errorf("inside: %+v, scopes %v", eth1, c.Scopes)
	}
}

func TestSetupAfterACrashInTheFirstTestServesAgain(t *testing.T) {
	own := netip.MustParsePrefix("192.168.1.1/24")
	s := usedPorts(chosenBefore{"eth1": own})
	if err := s.tried(atHome()); err != nil {
		t.Fatal(err)
	}
	for device, p := range s.ports {
		if p.InUse {
			t.Errorf("%s is taken for a port in use", device)
		}
	}
	p := s.ports["eth1"]
	p.asked, p.Serve = true, true // the probe heard nobody
	s.ports["eth1"] = p
	c := s.config()
	if _, eth1 := ports(t, c); eth1.V4.Addr != own || eth1.Role != firewall.LAN || len(c.Scopes) != 1 {
		t.Errorf("%+v, scopes %v", eth1, c.Scopes)
	}
}

func TestSetupShowsNoPagesBeforeTheProbe(t *testing.T) {
	s := newSetupPorts(slog.New(slog.DiscardHandler), nil)
	s.ports["eth0"] = seen{Candidate: link.Candidate{Device: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.1.1/24")}}, up: true, probing: true}
	if eth0, _ := ports(t, s.config()); eth0.Role == firewall.LAN {
		t.Error("the pages answer on a port that may lead to the internet")
	}
	p := s.ports["eth0"]
	p.asked = true
	s.ports["eth0"] = p
	if eth0, _ := ports(t, s.config()); eth0.Role != firewall.LAN {
		t.Error("the pages answer nowhere after the probe")
	}
}

func TestSetupNamesEveryPort(t *testing.T) {
	names := map[firewall.Name]bool{}
	for i := range 100 {
		n := portName(i)
		if names[n] || !n.Valid(15) {
			t.Fatalf("port %d is called %s", i, n)
		}
		names[n] = true
	}
}

// Somebody who is no neighbour can be shut out, too.
func TestDeviceOfAnAdministratorBehindARouter(t *testing.T) {
	lan, far := netip.MustParsePrefix("192.168.77.1/24"), netip.MustParsePrefix("172.16.0.0/12")
	f := firewall.Facts{Addrs: map[string][]netip.Prefix{"eth1": {lan}, "lo": {netip.MustParsePrefix("127.0.0.1/8")}},
		Routes: []firewall.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Device: "eth0"}, {Dst: far, Device: "eth1"}}}
	for a, want := range map[string]string{"192.168.77.9": "eth1", "172.20.1.1": "eth1", "8.8.8.8": "eth0", "127.0.0.1": "", "2001:db8::1": ""} {
		if got := deviceOf(f, netip.MustParseAddr(a)); got != want {
			t.Errorf("%s comes by %q, want %q", a, got, want)
		}
	}
	if got := deviceOf(f, netip.Addr{}); got != "" {
		t.Errorf("the console comes by %q", got)
	}
}

func TestSetupKeepsEveryAddressOfAMachineInUse(t *testing.T) {
	s := usedPorts(chosenBefore{})
	second, six := netip.MustParsePrefix("10.8.8.2/24"), netip.MustParsePrefix("2001:db8:5::2/64")
	s.ports["eth0"] = found("eth0", []netip.Prefix{netip.MustParsePrefix("10.9.9.2/24"), second, six, netip.MustParsePrefix("fe80::1/64")}, netip.Prefix{})
	got := s.beside()
	if len(got) != 2 || got[0].V4.Addr != second || got[1].V6.Addr != six || got[0].Device != "eth0" {
		t.Errorf("%+v", got)
	}
	if s.ran(atHome()); len(s.beside()) != 0 {
		t.Error("what a WAN had from its provider stays")
	}
}
