package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/kernel"
	"gatehouse/firewall/netlab"
	"gatehouse/services/link"
)

// router is a plain home network in the lab with n rules on its LAN, none of
// which matches before the last one.
func router(n int) firewall.Config {
	c := firewall.Factory()
	face := func(name firewall.Name, device string, role firewall.Role, addr string) firewall.Interface {
		return firewall.Interface{Name: name, Device: device, Role: role, On: true,
			V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix(addr)}, V6: firewall.V6{Mode: firewall.None}}
	}
	c.Interfaces = []firewall.Interface{face("WAN", "eth0", firewall.WAN, boxWAN+"/24"), face("LAN", "eth1", firewall.LAN, boxLAN+"/24")}
	for i := range n - 1 {
		host := netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})
		c.Rules = append(c.Rules, firewall.Rule{ID: firewall.ID(fmt.Sprintf("BENCH%06d", i)), On: true, Action: firewall.Pass, In: "LAN",
			Family: firewall.IPv4, Proto: firewall.TCP, Src: firewall.Anyone(), Dst: firewall.Ends{Of: []firewall.End{{Kind: firewall.EndAddr, Addr: host}}},
			DstPorts: firewall.Ports{{Range: firewall.PortRange{From: 443, To: 443}}}, Descr: "bench"})
	}
	c.Rules = append(c.Rules, firewall.Rule{ID: "BENCHLAST", On: true, Action: firewall.Pass, In: "LAN", Family: firewall.Both,
		Proto: firewall.AnyProto, Src: firewall.Anyone(), Dst: firewall.Anyone()})
	return c
}

// apply measures what an Apply of 1,000 rules costs from the configuration to
// the verified ruleset: compile, dry run, swap, read back. Median of nine.
func apply(ctx context.Context, m *measurement) error {
	out, err := m.inside(ctx, m.Lab.Box, "apply")
	if err != nil {
		return err
	}
	var took []float64
	for _, line := range strings.Fields(out) {
		d, err := time.ParseDuration(line)
		if err != nil {
			return err
		}
		took = append(took, float64(d.Microseconds())/1000)
	}
	m.figure("apply 1,000 rules to verified", median(took), 500, "ms")
	return nil
}

// The kernel is spoken to from a process inside the box: it must be at home in
// the box's namespaces.
const insideKey = "GATELAB_INSIDE"

// inside runs one of the acts below in a box and gives what it printed.
func (m *measurement) inside(ctx context.Context, box *netlab.Host, act string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return box.Run(ctx, "env", insideKey+"="+act, self)
}

func acts() map[string]func(context.Context, *kernel.Kernel) error {
	return map[string]func(context.Context, *kernel.Kernel) error{
		"apply":      applyNine,
		"load":       loadFull,
		"limits off": loadLimit(firewall.Limit{}),
		"limits on":  loadLimit(everything),
	}
}

// insideMain does an act and exits, in a process that inside started.
func insideMain() {
	act, ok := acts()[os.Getenv(insideKey)]
	if !ok {
		return
	}
	k, err := kernel.Open(slog.New(slog.DiscardHandler))
	if err == nil {
		err = act(context.Background(), k)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func applyNine(ctx context.Context, k *kernel.Kernel) error {
	for i := range 9 {
		c := router(1000)
		c.Rules[i].Descr = "changed" // each is another revision
		began := time.Now()
		rs := compile.Compile(c)
		if err := k.DryRun(ctx, rs); err != nil {
			return err
		}
		if err := k.Apply(ctx, rs); err != nil { // verifies
			return err
		}
		fmt.Println(time.Since(began))
	}
	return nil
}

// loadFull loads a ruleset of twenty rules and fills its sets.
func loadFull(ctx context.Context, k *kernel.Kernel) error { return loadAll(ctx, k, router(20)) }

// loadAll loads a configuration and fills its sets.
func loadAll(ctx context.Context, k *kernel.Kernel, c firewall.Config) error {
	if err := k.Apply(ctx, compile.Compile(c)); err != nil {
		return err
	}
	return link.New(slog.New(slog.DiscardHandler), k, nil, func(link.Event) {}).Reload(ctx, c)
}
