package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gatehouse/firewall/netlab"
	"gatehouse/firewall/ruleset"
)

const (
	boxWAN = "203.0.113.2"
	boxLAN = "192.168.1.1"
	client = "192.168.1.20"
)

// passAll is what an engineer writes by hand: stateful, everything passes, NAT.
const passAll = `table inet hand {
	chain forward { type filter hook forward priority 0; policy drop; ct state established,related accept; accept; }
	chain post { type nat hook postrouting priority 100; oifname "eth0" meta nfproto ipv4 masquerade; }
}
`

// throughput compares TCP through the full ruleset with a hand-written stateful
// pass-all and with plain routing, in shuffled rounds of one run: only ratios count.
func throughput(ctx context.Context, m *measurement) error {
	if err := wire(m.Lab); err != nil {
		return err
	}
	server, err := m.Lab.Inet.Start(ctx, "iperf3", "-s", "--forceflush")
	if err != nil {
		return err
	}
	defer server.Stop(ctx)
	if _, err := server.Find(ctx, "Server listening"); err != nil {
		return err
	}
	ways := []string{"routing", "hand", "gatehouse"}
	got := map[string][]float64{}
	for range rounds {
		rand.Shuffle(len(ways), func(i, j int) { ways[i], ways[j] = ways[j], ways[i] })
		for _, way := range ways {
			if err := load(ctx, m, way); err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			rate, err := iperf(ctx, m.Lab.LAN1)
			if err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			got[way] = append(got[way], rate)
		}
	}
	for way, rates := range got {
		fmt.Fprintf(m.Out, "%s: %.2f Gbit/s (median of %d)\n", way, median(rates)/1e9, len(rates))
	}
	m.least("through gatehouse / hand-written pass-all", ratio(got["gatehouse"], got["hand"]), 0.95)
	m.least("through gatehouse / plain routing", ratio(got["gatehouse"], got["routing"]), 0.85)
	return nil
}

// rounds is how often each way is measured.
const rounds = 9

// ratio is the median of the ratios within each round, so that a neighbour's
// work that lasts for a round falls out.
func ratio(a, b []float64) float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return median(out)
}

// wire gives the box and a client their addresses and turns forwarding on.
func wire(l *netlab.Lab) error {
	return errors.Join(
		l.Box.SetUp("eth0", true), l.Box.SetUp("eth1", true),
		l.Box.AddAddr("eth0", boxWAN+"/24"), l.Box.AddAddr("eth1", boxLAN+"/24"), l.Box.AddRoute("default", netlab.Gateway4),
		l.Box.Sysctl("net.ipv4.ip_forward", "1"),
		l.LAN1.SetUp("eth0", true), l.LAN1.AddAddr("eth0", client+"/24"), l.LAN1.AddRoute("default", boxLAN),
		l.Inet.AddRoute("192.168.1.0/24", boxWAN)) // plain routing has no NAT
}

// load puts one way of filtering in place of the one before.
func load(ctx context.Context, m *measurement, way string) error {
	for _, table := range []string{"hand", ruleset.Table} {
		if out, err := m.Lab.Box.Run(ctx, "nft", "delete", "table", "inet", table); err != nil && !strings.Contains(out, "No such file") {
			return err
		}
	}
	switch way {
	case "hand":
		_, err := m.Lab.Box.Run(ctx, "nft", passAll)
		return err
	case "gatehouse":
		_, err := m.inside(ctx, m.Lab.Box, "load")
		return err
	}
	return nil
}

// iperf gives the bits a second of one TCP stream of two seconds.
func iperf(ctx context.Context, from *netlab.Host) (float64, error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	out, err := from.Run(ctx, "iperf3", "-J", "-t", "2", "-c", netip.MustParseAddr(netlab.Gateway4).String())
	if err != nil {
		return 0, err
	}
	var r struct {
		End struct {
			Received struct {
				Bits float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return 0, fmt.Errorf("read iperf3's report: %w", err)
	}
	return r.End.Received.Bits, nil
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}
