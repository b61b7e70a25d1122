package main

import (
	"net/netip"
	"strings"
	"sync"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
	"gatehouse/services/quarantine"
)

// spoofed-syn-locks-out-nobody: who sends SYNs in the name of others gets none of
// them shut out, whatever they make of the answers.
func TestSpoofedSYNLocksOutNobody(t *testing.T) {
	t.Parallel()
	const answers, silent, resolver, thief = far1, far2, "203.0.113.8", "203.0.113.9"
	strict := firewall.Limit{Open: 20, New: 20, Window: 10, Over: firewall.Quarantine, LockFor: 300}
	wan := home()[0].(firewall.AddInterface).Interface
	wan.V4.DNS = []netip.Addr{netip.MustParseAddr(resolver)}
	s, _ := athome(t, append(limited("STRICT", 8080, 80, strict), firewall.UpdateInterface{Name: "WAN", Interface: wan})...)
	s.echo(s.lab.LAN1, 80)
	// Half-open connections count until they are given up: here soon.
	s.runs(s.lab.Box, "sysctl", "-q", "net.netfilter.nf_conntrack_tcp_timeout_syn_recv=5")
	s.runs(s.lab.LAN1, "sysctl", "-q", "net.ipv4.tcp_synack_retries=1")
	// One victim is a host that drops what it did not ask for.
	s.runs(s.lab.Inet, "nft", "table inet quiet {\nchain in {\ntype filter hook prerouting priority -400;\nip daddr "+silent+" tcp flags & (syn|ack) == syn|ack drop\n}\n}")

	victims := []string{answers, silent, netlab.Gateway4, resolver}
	own := map[string]*talk{} // what they have open themselves goes on
	for _, v := range victims {
		if v != silent {
			own[v] = s.talkFrom(s.lab.Inet, v, outside)
		}
	}
	was := s.hits("over_STRICT")
	var wait sync.WaitGroup
	for _, v := range victims {
		wait.Go(func() {
			// It fails when nothing is answered, as it should be.
			out, _ := s.lab.Inet.Run(s.ctx, "hping3", "-q", "-S", "-c", "500", "-i", "u1000", "-p", "8080", "-a", v, wanAddr)
			if !strings.Contains(out, "500 packets transmitted") {
				t.Errorf("the flood of %s: %s", v, out)
			}
		})
	}
	wait.Wait()
	if n := s.hits("over_STRICT") - was; n == 0 {
		t.Error("the flood never reached the limit: nothing was shown")
	}
	// Who is behind his connections is judged after all that came before.
	stop := s.offend(s.lab.Inet, thief, outside, 40)
	s.isShutOut(thief, quarantine.Quarantine, 1)
	stop()
	if all := s.shutOut(); len(all) != 1 {
		t.Errorf("others are shut out, too: %+v", all)
	}
	s.runs(s.lab.Inet, "nft", "delete", "table", "inet", "quiet")
	for _, v := range victims {
		if c := own[v]; c != nil {
			c.ping("of " + v + " after the flood")
		}
		t.Logf("%s connects after %v", v, s.connects(s.lab.Inet, v, outside))
		if _, err := s.reaches(s.lab.Inet, "tcp", as(v).String(), outside); err != nil {
			t.Errorf("%s is not answered: %v", v, err)
		}
	}
}
