package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// await waits for the condition that some event will make true.
func await(t *testing.T, what string, tick func(), ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		if tick != nil {
			tick()
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestSwapsUnderFloodLeakNothing(t *testing.T) {
	inside(t, func(t *testing.T) {
		client, server := lab(t)
		k := open(t)
		var leaks, marks atomic.Int64 // received packets of the flood; and those that mark its begin and end
		receiver := server.listen(t, "10.2.0.2:9")
		go func() {
			b := make([]byte, 100)
			for {
				if _, _, err := receiver.ReadFromUDP(b); err != nil {
					return
				}
				if b[0] == 'm' {
					marks.Add(1)
				} else {
					leaks.Add(1)
				}
			}
		}()
		floods := []net.Conn{client.dial(t, "10.2.0.2:9"), client.dial(t, "10.2.0.2:9")}
		// What comes through an open firewall was read when a mark sent after it was read.
		mark := func() {
			t.Helper()
			apply(t, k, filter(rule(udp, accept)))
			before := marks.Load()
			await(t, "the mark", func() { send(t, floods[0], "m") }, func() bool { return marks.Load() > before })
		}
		mark()

		deny := []ruleset.Ruleset{
			filter(rule(v4, in(ruleset.IPSaddr, "nets4"), accept), rule(udp, is(ruleset.UDPDport, port(9)), drop), rule(accept)),
			filter(rule(ruleset.VMap{Field: ruleset.IIFName, Arms: []ruleset.Arm{{Key: ruleset.Iface("vs"), Verdict: accept}}}), rule(ruleset.Verdict{Kind: ruleset.Goto, Chain: "z"})),
		}
		deny[1].Chains = append(deny[1].Chains, ruleset.Chain{Name: "z", Rules: []ruleset.Rule{rule(tcp, accept), rule(ruleset.Count{Name: "c"}, drop)}})
		apply(t, k, deny[0])
		stop := make(chan struct{})
		var flooding sync.WaitGroup
		var sent atomic.Int64
		for _, flood := range floods {
			flooding.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						if _, err := flood.Write([]byte("x")); err == nil {
							sent.Add(1)
						}
					}
				}
			})
		}
		for i := range 200 {
			apply(t, k, deny[(i+1)%2])
		}
		close(stop)
		flooding.Wait()
		mark()
		if leaks.Load() != 0 {
			t.Errorf("%d of %d packets leaked", leaks.Load(), sent.Load())
		}
		if sent.Load() < 1_000 {
			t.Errorf("only %d packets were sent: no flood", sent.Load())
		}
		t.Logf("0 of %d packets leaked", sent.Load())
	})
}

func TestFlowsCarryTheirLabelAndCanBeCut(t *testing.T) {
	inside(t, func(t *testing.T) {
		client, server := lab(t)
		k := open(t)
		receiver := server.listen(t, "10.2.0.2:9")
		apply(t, k, ruleset.Ruleset{Chains: []ruleset.Chain{
			{Name: "pre", Hook: &ruleset.Hook{Type: "nat", Name: "prerouting", Priority: -100}, Rules: []ruleset.Rule{
				rule(v4, udp, is(ruleset.UDPDport, port(90)), ruleset.DNAT{To: ip("10.2.0.2"), Port: 9})}},
			{Name: "forward", Hook: &ruleset.Hook{Type: "filter", Name: "forward", Drop: true}, Rules: []ruleset.Rule{
				rule(is(ruleset.CTStateField, bits(ruleset.StateEstablished)), accept),
				rule(udp, is(ruleset.UDPDport, port(9)), ruleset.Label{Rule: 4_000_000_007, Revision: 42}, accept)}},
			{Name: "post", Hook: &ruleset.Hook{Type: "nat", Name: "postrouting", Priority: 100}, Rules: []ruleset.Rule{
				rule(is(ruleset.OIFName, dev("vs")), ruleset.Masquerade{})}},
		}})
		sender := client.dial(t, "10.1.0.1:90")
		send(t, sender, "hello")
		if _, _, err := receiver.ReadFromUDP(make([]byte, 9)); err != nil {
			t.Fatal(err)
		}
		f := onlyFlow(t, k)
		from := sender.LocalAddr().(*net.UDPAddr).AddrPort()
		vc, err := net.InterfaceByName("vc")
		if err != nil {
			t.Fatal(err)
		}
		want := firewall.Flow{
			Packet:  firewall.Packet{In: "vc", Src: from.Addr(), Dst: ip("10.1.0.1"), Proto: 17, SrcPort: from.Port(), DstPort: 90},
			InIndex: uint32(vc.Index), To: ip("10.2.0.2"), ToPort: 9, As: ip("10.2.0.1"), AsPort: from.Port(), Rule: 4_000_000_007, Revision: 42,
		}
		key := f.Key
		f.Key = nil
		if fmt.Sprint(f) != fmt.Sprint(want) {
			t.Errorf("flow %+v\nwant %+v", f, want)
		}
		f.Key = key
		for _, want := range []int{1, 0} { // the second time it is gone
			if n, err := k.Cut(t.Context(), []firewall.Flow{f}); n != want || err != nil {
				t.Errorf("cut %d, %v; want %d", n, err, want)
			}
		}
		if out, _ := exec.Command("conntrack", "-L").CombinedOutput(); strings.Contains(string(out), "dport=90") {
			t.Errorf("still there: %s", out)
		}
	})
}

// onlyFlow is the one UDP connection to port 90.
func onlyFlow(t *testing.T, k *kernel.Kernel) (found firewall.Flow) {
	t.Helper()
	n := 0
	err := k.Flows(t.Context(), func(f firewall.Flow) error {
		if f.Proto == 17 && f.DstPort == 90 {
			found, n = f, n+1
		}
		return nil
	})
	if err != nil || n != 1 {
		t.Fatalf("%d flows, %v", n, err)
	}
	return found
}

func TestFlowsEndWithTheCallersError(t *testing.T) {
	inside(t, func(t *testing.T) {
		client, server := lab(t)
		k := open(t)
		receiver := server.listen(t, "10.2.0.2:9")
		apply(t, k, ruleset.Ruleset{Chains: []ruleset.Chain{{Name: "forward", Hook: &ruleset.Hook{Type: "filter", Name: "forward"},
			Rules: []ruleset.Rule{rule(is(ruleset.CTStateField, bits(ruleset.StateNew)), accept)}}}})
		for range 3 {
			send(t, client.dial(t, "10.2.0.2:9"), "x")
			if _, _, err := receiver.ReadFromUDP(make([]byte, 9)); err != nil {
				t.Fatal(err)
			}
		}
		enough := errors.New("enough")
		n := 0
		if err := k.Flows(t.Context(), func(firewall.Flow) error { n++; return enough }); !errors.Is(err, enough) || n != 1 {
			t.Errorf("%d flows, %v", n, err)
		}
	})
}

// marks are two changes of our table by another program.
func marks(t *testing.T) {
	t.Helper()
	run(t, "nft", "add", "counter", "inet", "gatehouse", "note")
	run(t, "nft", "delete", "counter", "inet", "gatehouse", "note")
}

// settled is the number of foreign changes after two marks: what was before them
// has been heard.
func settled(t *testing.T, foreign *atomic.Int64) int64 {
	t.Helper()
	marks(t)
	last, same := foreign.Load(), 0
	await(t, "the marks", nil, func() bool {
		now := foreign.Load()
		if same++; now != last {
			last, same = now, 0
		}
		return same == 20 && last >= 2
	})
	return last
}

func TestWatchNoticesOthersOnly(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		apply(t, k, filter(rule(drop)))
		var foreign atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- k.Watch(ctx, func() { foreign.Add(1) }) }()
		await(t, "the subscription", func() { run(t, "nft", "add", "rule", "inet", "gatehouse", "forward", "accept") },
			func() bool { return foreign.Load() > 0 })

		settled(t, &foreign)
		count := settled(t, &foreign)
		apply(t, k, filter(rule(accept), rule(drop)))
		if err := k.Add(ctx, member("lockout4", "10.0.0.1", time.Hour)); err != nil {
			t.Fatal(err)
		}
		nft(t, "table inet theirs { }")
		if after := settled(t, &foreign); after != count+2 {
			t.Errorf("%d foreign changes of our table reported, want only the 2 marks", after-count)
		}
		count = foreign.Load()
		run(t, "nft", "flush", "ruleset")
		await(t, "the flush", nil, func() bool { return foreign.Load() > count })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended with %v", err)
		}
	})
}

func TestLoggedPacketsArriveAtOnce(t *testing.T) {
	inside(t, func(t *testing.T) {
		client, _ := lab(t)
		k := open(t)
		apply(t, k, filter(rule(udp, ruleset.Log{Group: 7, Prefix: "deny 01J"}, drop)))
		lines := make(chan kernel.LogLine, 1000)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- k.Logs(ctx, 7, func(l kernel.LogLine) { lines <- l }) }()
		sender := client.dial(t, "10.2.0.2:9")
		await(t, "a first line", func() { send(t, sender, "x") }, func() bool { return len(lines) > 0 })
		var l kernel.LogLine
		big := client.dial(t, "10.2.0.2:10")
		start := time.Now()
		for range 20 { // each waits for the one before
			send(t, big, strings.Repeat("y", 1000))
			for l = <-lines; l.Packet.DstPort != 10; l = <-lines {
			}
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("20 lines took %v: the kernel keeps each back for a second", took)
		}
		from := big.LocalAddr().(*net.UDPAddr).AddrPort()
		want := kernel.LogLine{Time: l.Time, Prefix: "deny 01J", In: "vc", Out: "vs", Length: 1028,
			Packet: firewall.Packet{In: "vc", Src: from.Addr(), Dst: ip("10.2.0.2"), Proto: 17, SrcPort: from.Port(), DstPort: 10}}
		if l != want {
			t.Errorf("line %+v\nwant %+v", l, want)
		}
		if age := time.Since(l.Time); age < 0 || age > time.Minute {
			t.Errorf("line of %v", l.Time)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("logs ended with %v", err)
		}
	})
}

func TestOpenSaysWhichCapabilityIsMissing(t *testing.T) {
	inside(t, func(t *testing.T) {
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := unix.Capget(&head, &caps[0]); err != nil {
			t.Fatal(err)
		}
		caps[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&head, &caps[0]); err != nil { // of this thread only, which ends with the test
			t.Fatal(err)
		}
		_, err := kernel.Open(nil)
		if err == nil || !strings.Contains(err.Error(), "CAP_NET_ADMIN") || !errors.Is(err, unix.EPERM) {
			t.Errorf("open: %v", err)
		}
	})
}
