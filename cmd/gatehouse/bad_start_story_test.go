package main

import (
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
)

// machine is what a start that is refused must leave as it was.
func (s *story) machine() string {
	s.Helper()
	// The kernel looks by itself whether a new IPv6 address is free, and ends when it likes.
	addrs := strings.ReplaceAll(s.runs(s.lab.Box, "ip", "-o", "addr"), " tentative", "")
	return s.runs(s.lab.Box, "nft", "list", "ruleset") + addrs + s.runs(s.lab.Box, "ip", "-d", "route") +
		s.runs(s.lab.Box, "sysctl", "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf.eth0.rp_filter") +
		s.runs(s.lab.Box, "ip", "-br", "link")
}

func TestBadStartChangesNothing(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.seed(append(home(), web8080())...)
	was := s.machine()
	unchanged := func(when string) {
		t.Helper()
		if is := s.machine(); is != was {
			t.Errorf("%s:\n%s\nbefore:\n%s", when, is, was)
		}
	}

	for _, port := range []string{":443", ":80"} {
		l, err := s.lab.Box.Listen(port)
		if err != nil {
			t.Fatal(err)
		}
		s.refuses(s.serveAlso(), "listen on port "+port[1:], "in use", "nothing was changed")
		unchanged("port " + port + " is taken")
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}

	for _, c := range []string{"net_admin", "net_raw", "net_bind_service"} {
		p, err := s.lab.Box.Start(s.ctx, "setpriv", "--bounding-set=-"+c, "--inh-caps=-"+c, product, "serve", "--state", s.state)
		if err != nil {
			t.Fatal(err)
		}
		name := "CAP_" + strings.ToUpper(c)
		s.refuses(p, "lacks "+name, "AmbientCapabilities="+name, "setcap cap_"+c+"+ep", "nothing was changed")
		unchanged("without " + name)
	}

	s.refuses(s.serveAlso("--ports", "eth0,eth9"), `there is no Ethernet port "eth9"`, "eth0, eth1, eth2")
	unchanged("a port that is not there")
	p, err := s.lab.Box.Start(s.ctx, product, "serve", "--state", "/dev/null/state")
	if err != nil {
		t.Fatal(err)
	}
	s.refuses(p, "make state folder", "not a directory")
	unchanged("a state folder that cannot be")

	client, err := s.lab.Box.DHClient(s.ctx, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Await(s.ctx, "BOUND"); err != nil {
		t.Fatal(err)
	}
	was = s.machine()
	pid := strings.TrimSpace(s.runs(s.lab.Box, "pidof", "dhclient"))
	s.refuses(s.serveAlso(), "another program manages our ports: dhclient (process "+pid+") on eth0", "nothing was changed")
	unchanged("beside a dhclient")
	client.Stop(s.ctx)

	s.serve() // nothing of all that is left behind
	s.hear(`verified: revision 1$`)
	s.settle()
	s.signedIn()
}

func TestBadStartWithoutAPortRunsTheRest(t *testing.T) {
	t.Parallel()
	s, owner := athome(t, web8080(), firewall.AddInterface{Interface: firewall.Interface{Name: "DMZ", Device: "eth9", Role: firewall.Other, On: true,
		V4: firewall.V4{Mode: firewall.None}, V6: firewall.V6{Mode: firewall.None}}})
	s.echo(s.lab.LAN1, 80)
	s.echo(s.lab.Inet, 7000)
	s.open("without eth9")
	if line, err := s.reaches(s.lab.LAN1, "tcp", "", netlab.Gateway4+":7000"); err != nil {
		t.Errorf("the LAN does not reach the internet: %q %v", line, err)
	}
	if said := s.verb("status"); !strings.Contains(said, "The port eth9 is not there.") {
		t.Errorf("status does not tell:\n%s", said)
	}
	if said := text(owner.get("/interfaces").body); !strings.Contains(said, "not there") {
		t.Errorf("the page does not tell:\n%s", said)
	}
	owner.wrong("There is no such port now", "/interfaces/new", fields("name", "DMZ2", "device", "eth8", "role", "other", "on", "1", "mode", "none", "mode6", "none", "hash", ""))
}

func TestForeignFlushIsPutRight(t *testing.T) {
	t.Parallel()
	s, owner := running(t)
	rules := s.rules()
	if s.hits("default") == 0 {
		t.Error("no packet of the flood was dropped: the story proves nothing")
	}
	talk := s.talk(s.lab.Inet, outside)
	healed := func(n int) {
		t.Helper()
		s.until("the rules are back", func() bool {
			out, err := s.lab.Box.Run(s.ctx, "nft", "-s", "list", "table", "inet", "gatehouse")
			return err == nil && same(exempts.ReplaceAllString(out, ""), rules)
		})
		s.until("the event is counted", func() bool { return s.status().Healed == n })
		if said := s.verb("status"); !strings.Contains(said, "foreign changes put right: "+num(uint64(n))) {
			t.Errorf("status does not tell:\n%s", said)
		}
		s.until("forwarding is on again", func() bool {
			return strings.Contains(s.runs(s.lab.Box, "sysctl", "net.ipv4.ip_forward"), "= 1")
		})
		talk.ping("after a foreign change")
		s.open("after a foreign change")
		leaked := s.count(s.lab.LAN1, "leak")
		t.Logf("%d packets of 1500 a second leaked before the rules were back", leaked)
		s.runs(s.lab.LAN1, "nft", "reset", "counters", "table", "inet", "watch")
		s.tight("after a foreign change")
	}
	s.runs(s.lab.Box, "nft", "flush", "ruleset")
	healed(1)
	s.runs(s.lab.Box, "nft", "delete", "table", "inet", "gatehouse")
	healed(2)
	s.runs(s.lab.Box, "nft", "flush", "chain", "inet", "gatehouse", "forward")
	healed(3)

	// Somebody else's table is his.
	other := "table inet other {\n set s { type ipv4_addr; elements = { 192.0.2.7 }\n }\n chain c { type filter hook forward priority 10;\n ip saddr @s drop\n }\n }\n" +
		"table ip docker {\n chain nat { type nat hook postrouting priority 100;\n ip saddr 172.17.0.0/16 masquerade\n }\n }\n"
	s.runs(s.lab.Box, "nft", other)
	list := func() string {
		return s.runs(s.lab.Box, "nft", "-a", "list", "table", "inet", "other") + s.runs(s.lab.Box, "nft", "-a", "list", "table", "ip", "docker")
	}
	was := list()
	for i := range 3 {
		owner.post("/rules/new", rule("descr", "beside others "+num(uint64(i)), "dst", "203.0.113.1"))
		owner.apply()
	}
	s.kill()
	s.serve()
	if is := list(); is != was {
		t.Errorf("somebody else's tables were touched:\n%s\nbefore:\n%s", is, was)
	}
	if n := s.status().Healed; n != 0 {
		t.Errorf("somebody else's tables were taken for a change of ours: %d", n)
	}
}
