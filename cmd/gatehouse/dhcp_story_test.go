package main

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
)

// minute is the home network with the shortest lease there is on the LAN.
func minute() []firewall.Change {
	from, to := firewall.DefaultPool(netip.MustParsePrefix(lanAddr + "/24"))
	return append(home(), firewall.PutScope{Scope: firewall.Scope{In: "LAN", On: true, From: from, To: to, Lease: 60}})
}

// client waits for an event of a DHCP client and gives the address it is about.
func (s *story) client(c *netlab.Client, reasons ...string) string {
	s.Helper()
	ctx, stop := context.WithTimeout(s.ctx, patience)
	defer stop()
	e, err := c.Await(ctx, reasons...)
	if err != nil {
		s.Fatalf("the client never did %v: %v\n%s", reasons, err, c.Output())
	}
	return e.Addr.Addr().String()
}

// Real clients against the whole box: new, renew, reboot, a net that moved, a
// static mapping made in the browser.
func TestDHCPClientsGetWhatTheyAskFor(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.seed(minute()...)
	s.serve()

	dhclient := s.lease(s.lab.LAN1)
	first := s.address(s.lab.LAN1)
	if !strings.HasPrefix(first, "192.168.1.") {
		t.Fatalf("dhclient got %s", first)
	}
	udhcpc, err := s.lab.LAN2.Udhcpc(s.ctx, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	other := s.client(udhcpc, "bound")
	if other == first || !strings.HasPrefix(other, "192.168.1.") {
		t.Fatalf("udhcpc got %s, dhclient has %s", other, first)
	}
	if got := s.client(udhcpc, "renew"); got != other { // by its own timer, half a minute later
		t.Errorf("udhcpc renewed %s to %s", other, got)
	}
	if got := s.client(dhclient, "RENEW"); got != first {
		t.Errorf("dhclient renewed %s to %s", first, got)
	}

	// A client that was switched off asks for what it had.
	if err := s.lab.LAN1.Reboot(s.ctx); err != nil {
		t.Fatal(err)
	}
	again, err := s.lab.LAN1.DHClient(s.ctx, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.client(again, "REBOOT", "BOUND"); got != first {
		t.Errorf("after a reboot dhclient got %s, had %s", got, first)
	}

	// A static mapping, made in the browser, moves the client at its next renewal.
	owner := s.from(s.lab.LAN1, lanAddr+":443")
	owner.login(ownerName, ownerPassword)
	mac, err := s.lab.LAN2.Run(s.ctx, "cat", "/sys/class/net/eth0/address")
	if err != nil {
		t.Fatal(err)
	}
	owner.post("/leases/static/new", fields("in", "LAN", "mac", strings.TrimSpace(mac), "addr", "192.168.1.5", "host", "printer", "descr", ""))
	owner.apply()
	if err := udhcpc.Renew(); err != nil {
		t.Fatal(err)
	}
	if got := s.client(udhcpc, "bound"); got != "192.168.1.5" {
		t.Errorf("with a static mapping udhcpc got %s", got)
	}

	// The LAN is another net after a restart: the remembered address is refused at once.
	s.box.Stop(s.ctx)
	moved := netip.MustParsePrefix("192.168.50.1/24")
	from, to := firewall.DefaultPool(moved)
	cfg := firewall.Factory()
	for _, c := range append(home(), firewall.UpdateInterface{Name: "LAN", Interface: firewall.Interface{Name: "LAN", Device: "eth1", Role: firewall.LAN, On: true,
		V4: firewall.V4{Mode: firewall.Static, Addr: moved}, V6: firewall.V6{Mode: firewall.None}}},
		firewall.PutScope{Scope: firewall.Scope{In: "LAN", On: true, From: from, To: to, Lease: 60}}) {
		if cfg, err = c.Apply(cfg); err != nil {
			t.Fatal(err)
		}
	}
	s.seed(firewall.ReplaceAll{Config: cfg})
	s.serve()
	if err := s.lab.LAN1.Reboot(s.ctx); err != nil {
		t.Fatal(err)
	}
	third, err := s.lab.LAN1.DHClient(s.ctx, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.client(third, "REBOOT", "BOUND"); !strings.HasPrefix(got, "192.168.50.") {
		t.Errorf("on the moved net dhclient got %s\n%s", got, third.Output())
	}
	if !strings.Contains(third.Output(), "DHCPNAK") {
		t.Errorf("dhclient was never told that its address is wrong:\n%s", third.Output())
	}
}

// address is the IPv4 address of a host's port.
func (s *story) address(h *netlab.Host) string {
	s.Helper()
	addrs, err := h.Addrs("eth0")
	if err != nil {
		s.Fatal(err)
	}
	for _, a := range addrs {
		if a.Addr().Is4() {
			return a.Addr().String()
		}
	}
	return ""
}
