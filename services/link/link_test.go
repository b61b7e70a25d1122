package link

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gatehouse/firewall"
)

func TestReloadSetsBothFamiliesAndDoesNothingTheSecondTime(t *testing.T) {
	cable(t, "wan0")
	cable(t, "lan0")
	b := newBox(t, nil).run()
	w := static("WAN", "wan0", firewall.WAN, "203.0.113.2/24", "203.0.113.1")
	w.V6 = firewall.V6{Mode: firewall.Static, Addr: netip.MustParsePrefix("2001:db8::2/64"), Gateway: netip.MustParseAddr("fe80::1")}
	w.V4.DNS = []netip.Addr{netip.MustParseAddr("9.9.9.9")}
	w.MTU = 1400
	c := config(w, static("LAN", "lan0", firewall.LAN, "192.168.1.1/24", ""))
	b.reload(c)
	p := b.port("wan0")
	if !p.Up || !p.Link || p.MTU != 1400 || p.Name != "WAN" || p.Driver != "veth" || len(p.Problems) != 0 || !p.Present {
		t.Errorf("wan0 is %+v", p)
	}
	for device, addr := range map[string]string{"wan0": "203.0.113.2/24", "lan0": "192.168.1.1/24"} {
		if !b.has(device, addr) {
			t.Errorf("%s has %v, want %s", device, b.port(device).Addrs, addr)
		}
	}
	if !b.has("wan0", "2001:db8::2/64") || b.way("0.0.0.0/0") != "203.0.113.1 wan0 100" || b.way("::/0") != "fe80::1 wan0 100" {
		t.Errorf("addresses %v, routes %q %q", p.Addrs, b.way("0.0.0.0/0"), b.way("::/0"))
	}
	if got := b.Resolvers(); len(got) != 1 || got[0].String() != "9.9.9.9" {
		t.Errorf("resolvers %v", got)
	}
	for set, want := range map[string]string{"addr_WAN4": "203.0.113.2", "net_WAN4": "203.0.113.0/24", "net_WAN6": "2001:db8::/64",
		"addr_LAN4": "192.168.1.1", "net_LAN4": "192.168.1.0/24", "net_LAN6": ""} {
		if got := b.set(set); got != want {
			t.Errorf("set %s holds %q, want %q", set, got, want)
		}
	}
	await(t, "the link-local address, which the kernel makes later, in addr_WAN6", func() bool {
		got := b.set("addr_WAN6")
		return strings.Contains(got, "2001:db8::2") && strings.Contains(got, "fe80::")
	})
	have, err := look()
	if err != nil {
		t.Fatal(err)
	}
	if todo := steps(b.wishes(), have, b.undo()); len(todo) != 0 {
		t.Errorf("a second time would do %v", todo)
	}
	w.MTU = 0
	b.reload(config(w, c.Interfaces[1]))
	if p := b.port("wan0"); p.MTU != 1500 {
		t.Errorf("MTU is %d after it was taken out, want what the port had", p.MTU)
	}
}

func TestReloadChangesAnAddressWithinItsNetwork(t *testing.T) {
	cable(t, "lan0")
	b := newBox(t, nil)
	b.reload(config(static("LAN", "lan0", firewall.LAN, "192.168.1.1/24", "")))
	ip(t, "addr add 192.168.1.77/24 dev lan0") // by hand
	b.reload(config(static("LAN", "lan0", firewall.LAN, "192.168.1.2/24", "")))
	if !b.has("lan0", "192.168.1.2/24") || b.has("lan0", "192.168.1.1/24") || b.has("lan0", "192.168.1.77/24") {
		t.Errorf("addresses %v, want 192.168.1.2/24 alone", b.port("lan0").Addrs)
	}
}

func TestTryKeepsTheOldAddressUntilReload(t *testing.T) {
	cable(t, "lan0")
	cable(t, "opt0")
	b := newBox(t, nil)
	old := config(static("LAN", "lan0", firewall.LAN, "192.168.1.1/24", ""))
	b.reload(old)
	next := config(static("LAN", "lan0", firewall.LAN, "10.9.0.1/24", ""))
	if err := b.Try(context.Background(), next, old); err != nil {
		t.Fatal(err)
	}
	if !b.has("lan0", "192.168.1.1/24") || !b.has("lan0", "10.9.0.1/24") || b.set("addr_LAN4") != "10.9.0.1 192.168.1.1" ||
		b.set("net_LAN4") != "10.9.0.0/24 192.168.1.0/24" {
		t.Errorf("in the window: %v, sets %q %q", b.port("lan0").Addrs, b.set("addr_LAN4"), b.set("net_LAN4"))
	}
	b.reload(next)
	if b.has("lan0", "192.168.1.1/24") || b.set("addr_LAN4") != "10.9.0.1" {
		t.Errorf("after it: %v, set %q", b.port("lan0").Addrs, b.set("addr_LAN4"))
	}
	b.reload(old)
	moved := config(static("LAN", "lan0", firewall.LAN, "10.9.0.1/24", ""), static("OPT", "opt0", firewall.Other, "192.168.1.9/24", ""))
	if err := b.Try(context.Background(), moved, old); err != nil {
		t.Fatal(err)
	}
	if b.has("lan0", "192.168.1.1/24") {
		t.Error("the old address stays although its network moved to another port: one of the two is dead")
	}
}

func TestReloadTakesFromRolelessPortsOnlyWhatWasOurs(t *testing.T) {
	cable(t, "lan0")
	cable(t, "opt0")
	cable(t, "mgmt0")
	ip(t, "addr add 172.31.0.5/24 dev mgmt0")
	ip(t, "link set dev mgmt0 up")
	b := newBox(t, nil)
	lan := static("LAN", "lan0", firewall.LAN, "192.168.1.1/24", "")
	b.reload(config(lan, static("OPT", "opt0", firewall.WAN, "192.168.5.1/24", "192.168.5.9")))
	ip(t, "route add 10.200.0.0/16 via 192.168.1.9 proto zebra") // a routing daemon's
	ip(t, "route add 10.201.0.0/16 via 192.168.1.9 proto static")
	b.reload(config(lan))
	if p := b.port("opt0"); p.Up || len(p.Addrs) != 0 || b.way("0.0.0.0/0") != "" {
		t.Errorf("opt0 without a role is %+v", p)
	}
	if p := b.port("mgmt0"); !p.Up || !b.has("mgmt0", "172.31.0.5/24") {
		t.Errorf("a port that was never ours is %+v", p)
	}
	if b.way("10.200.0.0/16") == "" || b.way("10.201.0.0/16") != "" {
		t.Errorf("routes on the LAN: daemon's %q, by hand %q", b.way("10.200.0.0/16"), b.way("10.201.0.0/16"))
	}
	off := lan
	off.On = false
	b.reload(config(off))
	if p := b.port("lan0"); p.Up || len(p.Addrs) != 0 {
		t.Errorf("an interface that is off is %+v", p)
	}
	b.reload(config())
	if p := b.port("mgmt0"); !p.Up {
		t.Error("a configuration without interfaces switched a port off")
	}
}

func TestRunPicksUpAPortThatAppearsLater(t *testing.T) {
	b := newBox(t, nil).run()
	lan := static("LAN", "eth0.10", firewall.LAN, "192.168.1.1/24", "")
	err := b.Reload(context.Background(), config(lan))
	if err == nil || !strings.Contains(err.Error(), "The port eth0.10 is not there.") {
		t.Errorf("Reload says %v", err)
	}
	if p := b.port("eth0.10"); p.Present || len(p.Problems) != 1 {
		t.Errorf("status %+v", p)
	}
	f := cable(t, "eth0.10")
	await(t, "the address on the new port", func() bool { return b.has("eth0.10", "192.168.1.1/24") && b.set("addr_LAN4") == "192.168.1.1" })
	await(t, "no more problems", func() bool { return len(b.port("eth0.10").Problems) == 0 })
	if v, err := os.ReadFile("/proc/sys/net/ipv4/conf/eth0.10/arp_ignore"); err != nil || strings.TrimSpace(string(v)) != "1" {
		t.Errorf("arp_ignore of a name with a dot is %q, %v", v, err)
	}
	ip(t, "link del dev eth0.10")
	await(t, "empty sets and a problem", func() bool {
		return b.set("addr_LAN4") == "" && len(b.port("eth0.10").Problems) == 1 && b.told(Gone, "") && b.told(AddrGone, "192.168.1.1/24")
	})
	f.plug()
	await(t, "the address on the replaced port", func() bool { return b.has("eth0.10", "192.168.1.1/24") && b.set("addr_LAN4") == "192.168.1.1" })
}

func TestRunPutsRightWhatSomebodyChanged(t *testing.T) {
	f := cable(t, "wan0")
	b := newBox(t, nil).run()
	b.reload(config(static("WAN", "wan0", firewall.WAN, "203.0.113.2/32", "203.0.113.1"))) // a gateway outside the network
	if b.way("0.0.0.0/0") != "203.0.113.1 wan0 100" {
		t.Fatalf("default route %q", b.way("0.0.0.0/0"))
	}
	right := func() bool {
		return b.has("wan0", "203.0.113.2/32") && b.way("0.0.0.0/0") == "203.0.113.1 wan0 100" && b.port("wan0").Up
	}
	for _, harm := range []string{"addr del 203.0.113.2/32 dev wan0", "route del default", "link set dev wan0 down"} {
		ip(t, harm)
		await(t, "right again after ip "+harm, right)
	}
	f.ip("link set dev far0 down")
	await(t, "cable out", func() bool { return b.told(Down, "") && !b.port("wan0").Link })
	if !right() {
		t.Error("a cable that is out took the address or the route along")
	}
	f.ip("link set dev far0 up")
	await(t, "cable in", func() bool { return b.port("wan0").Link })
}

func TestTwoDefaultRoutesDoNotReplaceEachOther(t *testing.T) {
	cable(t, "wan0")
	cable(t, "wan1")
	b := newBox(t, nil)
	b.reload(config(static("WAN", "wan0", firewall.WAN, "203.0.113.2/24", "203.0.113.1"),
		static("WAN2", "wan1", firewall.WAN, "198.51.100.2/24", "198.51.100.1")))
	var got []string
	for _, r := range b.Facts().Routes {
		if r.Dst.Bits() == 0 && r.Dst.Addr().Is4() {
			got = append(got, r.Device)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"wan0", "wan1"}) || b.way("0.0.0.0/0") != "203.0.113.1 wan0 100" {
		t.Errorf("default routes by %v, first %q", got, b.way("0.0.0.0/0"))
	}
}

func TestForwardingSwitchesBothFamiliesAndKeepsRedirectsOff(t *testing.T) {
	cable(t, "lan0")
	b := newBox(t, nil).run()
	b.reload(config(static("LAN", "lan0", firewall.LAN, "192.168.1.1/24", "")))
	get := func(path string) string {
		v, err := os.ReadFile("/proc/sys/" + path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(v))
	}
	for _, on := range []bool{true, false, true} {
		if err := b.SetForwarding(on); err != nil {
			t.Fatal(err)
		}
		want := map[bool]string{true: "1", false: "0"}[on]
		if get("net/ipv4/ip_forward") != want || get("net/ipv6/conf/all/forwarding") != want || b.Forwarding() != on {
			t.Errorf("forwarding %v is %s and %s", on, get("net/ipv4/ip_forward"), get("net/ipv6/conf/all/forwarding"))
		}
		await(t, "redirects refused again", func() bool {
			return get("net/ipv4/conf/all/accept_redirects") == "0" && get("net/ipv4/conf/lan0/accept_redirects") == "0" &&
				get("net/ipv4/conf/lan0/send_redirects") == "0"
		})
	}
	if s := b.Sysctls(); len(s) != 0 {
		t.Errorf("not as wanted: %+v", s)
	}
}

func TestReadOnlySettingsAreToldAndStopNothing(t *testing.T) {
	cable(t, "lan0")
	// As in a container: only the settings cannot be written.
	if err := syscall.Mount("/proc/sys", "/proc/sys", "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer syscall.Unmount("/proc/sys", syscall.MNT_DETACH)
	for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+path, []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("", "/proc/sys", "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	b := newBox(t, nil)
	b.reload(config(static("LAN", "lan0", firewall.LAN, "192.168.1.1/24", "")))
	i := slices.IndexFunc(b.Sysctls(), func(s Sysctl) bool { return s.Path == "net/ipv4/conf/lan0/arp_ignore" })
	if i < 0 || b.Sysctls()[i].Want != "1" || b.Sysctls()[i].Is != "0" || !strings.Contains(b.Sysctls()[i].Error, "read-only") {
		t.Errorf("told %+v", b.Sysctls())
	}
	if !b.has("lan0", "192.168.1.1/24") {
		t.Error("the address was not set")
	}
	if err := b.SetForwarding(true); err == nil || !strings.Contains(err.Error(), "net/ipv4/ip_forward") {
		t.Errorf("forwarding could not be switched on, but the error is %v", err)
	}
	if err := b.SetForwarding(false); err != nil {
		t.Errorf("forwarding is off already, but: %v", err)
	}
}

func TestPortsAreEthernetPortsOnly(t *testing.T) {
	cable(t, "lan0")
	cable(t, "member0")
	ip(t, "link add dev br7 type bridge")
	defer exec.Command("ip", "link", "del", "dev", "br7").Run()
	ip(t, "link set dev member0 master br7")
	if got := newBox(t, nil).Ports(); !slices.Equal(got, []string{"lan0"}) {
		t.Errorf("ports %v, want lan0 alone: no loopback, bridge or member of one", got)
	}
}

func TestManagersAreNamedWhenTheyAreHere(t *testing.T) {
	f := cable(t, "lan0")
	f.run("udhcpc", "-f", "-i", "far0", "-s", "/bin/true") // in another namespace: none of our business
	if got := Managers([]string{"lan0", "far0"}); len(got) != 0 {
		t.Errorf("named %v", got)
	}
	start := func(args ...string) {
		c := exec.Command(args[0], args[1:]...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	}
	ip(t, "link set dev lan0 up")
	start("udhcpc", "-f", "-i", "lan0", "-s", "/bin/true")
	await(t, "udhcpc to be named", func() bool {
		got := Managers([]string{"lan0", "wan0"})
		return len(got) == 1 && strings.HasPrefix(got[0], "udhcpc (process ") && strings.HasSuffix(got[0], " on lan0")
	})
	fake := t.TempDir() + "/systemd-networkd"
	if err := os.Symlink("/bin/sleep", fake); err != nil {
		t.Fatal(err)
	}
	start(fake, "600")
	have, err := look()
	if err != nil {
		t.Fatal(err)
	}
	d, _ := have.device("lan0")
	state := "/run/systemd/netif/links/" + strconv.Itoa(d.index)
	if err := os.MkdirAll("/run/systemd/netif/links", 0o755); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"ADMIN_STATE=unmanaged\n": 1, "ADMIN_STATE=configured\n": 2} {
		if err := os.WriteFile(state, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		await(t, text, func() bool { return len(Managers([]string{"lan0"})) == want })
	}
}
