package kernel_test

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"
)

// shut is a ruleset that drops what comes from the blocked sources, at the
// device's ingress and in prerouting, and lets everything else pass.
func shut(device string) ruleset.Ruleset {
	from := func(name, counter string, h ruleset.Hook) ruleset.Chain {
		return ruleset.Chain{Name: name, Hook: &h, Rules: []ruleset.Rule{rule(v4, in(ruleset.IPSaddr, "blocked4"), ruleset.Count{Name: counter}, drop)}}
	}
	return ruleset.Ruleset{
		Stamp:    "1",
		Counters: []ruleset.Counter{{Name: "ingress"}, {Name: "raw"}},
		Sets:     blocked(100).Sets[2:],
		Chains: []ruleset.Chain{
			from("ingress_A", "ingress", ruleset.Hook{Type: "filter", Name: "ingress", Priority: -500, Device: device}),
			from("raw", "raw", ruleset.Hook{Type: "filter", Name: "prerouting", Priority: -300}),
			{Name: "forward", Hook: &ruleset.Hook{Type: "filter", Name: "forward"}},
		},
	}
}

// counts is how many packets each chain of shut has dropped.
func counts(t *testing.T, k *kernel.Kernel) (ingress, raw uint64) {
	t.Helper()
	list, err := k.Counters(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("counters %v, %v", list, err)
	}
	return list[0].Packets, list[1].Packets
}

// C12 for the chain that drops a shut-out source early: it goes and comes with
// its device, the source stays shut out, and nobody takes it for a foreign change.
func TestC12IngressChainFollowsItsDevice(t *testing.T) {
	inside(t, func(t *testing.T) {
		client, server := lab(t)
		k := open(t)
		rs := shut("vc")
		apply(t, k, rs)
		if err := k.Add(t.Context(), member("blocked4", "10.1.0.2", 0)); err != nil {
			t.Fatal(err)
		}
		var foreign, leaks atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error)
		go func() { watched <- k.Watch(ctx, func() { foreign.Add(1) }) }()
		await(t, "the subscription", func() { marks(t) }, func() bool { return foreign.Load() > 0 })
		receiver := server.listen(t, "10.2.0.2:9")
		go func() {
			b := make([]byte, 9)
			for {
				if _, _, err := receiver.ReadFromUDP(b); err != nil {
					return
				}
				leaks.Add(1)
			}
		}()
		// dropped sends from the blocked source until one of the chains has dropped it, and says which.
		dropped := func(phase string) (at string) {
			t.Helper()
			if err := k.Verify(t.Context(), rs); err != nil {
				t.Errorf("%s: %v", phase, err)
			}
			ingress, raw := counts(t, k)
			await(t, "a drop "+phase, func() { sendFrom(t, client, "10.2.0.2:9") }, func() bool {
				i, r := counts(t, k)
				if i > ingress {
					at = "ingress"
				} else if r > raw {
					at = "raw"
				}
				return at != ""
			})
			return at
		}
		attach := func(phase string) {
			t.Helper()
			if err := k.Attach(t.Context(), rs); err != nil {
				t.Fatalf("%s: %v", phase, err)
			}
			if at := dropped(phase); at != "ingress" {
				t.Errorf("%s: dropped at %s", phase, at)
			}
			before := run(t, "nft", "-a", "list", "ruleset")
			if err := k.Attach(t.Context(), rs); err != nil {
				t.Fatal(err)
			}
			if after := run(t, "nft", "-a", "list", "ruleset"); noCounts(after) != noCounts(before) {
				t.Errorf("%s: attached once more: %s", phase, firstDifference(after, before))
			}
		}
		attach("at first")
		heard := settled(t, &foreign)

		run(t, "ip", "link", "del", "vc")
		if err := k.Verify(t.Context(), rs); err != nil {
			t.Errorf("while the device is gone: %v", err)
		}
		replug(t, client)
		dropped("after the device came back")
		attach("attached again")

		run(t, "ip", "link", "del", "vc")
		apply(t, k, rs)
		replug(t, client)
		dropped("after an apply without the device")
		attach("attached after an apply")

		rename := func(from, to string) error {
			return ipAll(fmt.Sprintf("link set %[1]s down\nlink set %[1]s name %[2]s\nlink set %[2]s up", from, to))
		}
		if err := rename("vc", "other"); err != nil {
			t.Fatal(err)
		}
		dropped("under another name")
		if err := k.Attach(t.Context(), rs); err != nil {
			t.Error(err)
		}
		dropped("under another name, attached")
		if err := rename("vs", "vc"); err != nil { // another device takes the name
			t.Fatal(err)
		}
		if err := k.Attach(t.Context(), rs); err != nil {
			t.Error(err)
		}
		dropped("beside another device of its name")
		if !strings.Contains(run(t, "nft", "list", "ruleset"), `hook ingress device "vc"`) {
			t.Error("the device of the name has no chain")
		}
		if err := ipAll("link set vc down\nlink set vc name vs\nlink set vs up"); err != nil {
			t.Fatal(err)
		}
		if err := rename("other", "vc"); err != nil {
			t.Fatal(err)
		}
		attach("under its own name again")

		if now := settled(t, &foreign); now != heard+2 {
			t.Errorf("%d foreign changes heard, want only the 2 marks", now-heard)
		}
		if leaks.Load() != 0 {
			t.Errorf("%d packets of a blocked source came through", leaks.Load())
		}
		cancel()
		<-watched
	})
}

// replug makes the client's port anew, after it was taken out.
func replug(t *testing.T, client *peer) {
	t.Helper()
	err := ipAll(fmt.Sprintf("link add vc type veth peer name eth0 netns %d\naddr add 10.1.0.1/24 dev vc\nlink set vc up", client.tid))
	if err != nil {
		t.Fatal(err)
	}
	client.do(t, func() error {
		return ipAll("link set eth0 up\naddr add 10.1.0.2/24 dev eth0\nroute add default via 10.1.0.1")
	})
}

// sendFrom sends a datagram from the peer, if it gets out: a port may just be coming up.
func sendFrom(t *testing.T, p *peer, to string) {
	t.Helper()
	p.do(t, func() error {
		if c, err := net.Dial("udp4", to); err == nil {
			_, _ = c.Write([]byte("x"))
			_ = c.Close()
		}
		return nil
	})
}

// noCounts leaves out what counters show.
func noCounts(text string) string {
	return regexp.MustCompile(`packets \d+ bytes \d+`).ReplaceAllString(text, "")
}
