package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"text/tabwriter"

	"gatehouse/firewall/netlab"

	"golang.org/x/sys/unix"
)

// A way is one way of filtering. Each has a box of its own, so that nothing of
// another way is left in it:
//
//	inet ───── wan0 box lan0 ───── lan1
//
// It lets every connection through to insideHost, except from the sources of shut.
type way struct {
	name string
	load func(ctx context.Context, box *netlab.Host) error
	only []string // the works it is good for; nil = all
	deaf bool     // it drops every packet
}

// A work is one kind of packets that a box has to deal with.
type work struct {
	name    string
	rounds  int
	first   []packet // sent before, to no account
	packets []packet
	unit    int  // how many packets are one connection, and what is measured is the cost of one; 0 = 1
	anew    bool // they must find no connections but those of first
	blocked bool // they come from the sources of shut
}

// The ends of every box. What arrives there is for the hardware address of
// nobody, so that it ends right behind the cable.
const (
	insideHost  = client // whom all connections go to, behind lan0
	servicePort = 8080
	outsideHop  = netlab.Gateway4 // the next hop of wan0
	boxMAC      = "02:00:00:00:00:02"
	nobodyMAC   = "02:00:00:00:00:09"
)

// burst is how many packets one sample sends: a hundredth of a second's work, so
// that most samples run through.
const burst = 2000

// works is all kinds of packets.
func works() []work {
	sources := addrsAfter("198.18.0.0", burst)
	known := flow{sources[0], 40_000}
	begun := spread(sources, 11*burst, flow.syn)
	return []work{
		{name: "established", rounds: 201, first: known.handshake(), packets: slices.Repeat([]packet{known.tcp(false, ack)}, burst)},
		{name: "new TCP", rounds: 31, anew: true, packets: begun[:burst]},
		{name: "new TCP, 10 open", rounds: 11, anew: true, first: begun[:10*burst], packets: begun[10*burst:]},
		{name: "TCP handshake", rounds: 31, anew: true, packets: spread(sources, burst/3, flow.handshake), unit: 3},
		{name: "new UDP", rounds: 31, anew: true, packets: spread(sources, burst, flow.datagram)},
		{name: "blocked", rounds: 31, anew: true, packets: spread(shut(), burst, flow.syn), blocked: true},
	}
}

// shut is the sources that every way shuts out.
func shut() []netip.Addr { return addrsAfter("198.18.128.0", 2000) }

// addrsAfter is the n addresses after one.
func addrsAfter(a string, n int) (out []netip.Addr) {
	addr := netip.MustParseAddr(a)
	for range n {
		addr = addr.Next()
		out = append(out, addr)
	}
	return out
}

// spread is the packets of n flows from the sources in turn: the first packet of
// some flows, then the second of all these, and so on.
func spread(sources []netip.Addr, n int, of func(flow) []packet) (out []packet) {
	flows := make([][]packet, n)
	for i := range flows {
		flows[i] = of(flow{sources[i%len(sources)], uint16(10_000 + i/len(sources))})
	}
	for some := range slices.Chunk(flows, 50) {
		for step := range some[0] {
			for _, f := range some {
				out = append(out, f[step])
			}
		}
	}
	return out
}

// trio is a box between its two ends.
type trio struct {
	way
	box             *netlab.Host
	port            string // of its cables at both ends
	outside, inside int    // sockets that send there
	conns           int    // a socket to its conntrack
}

// meter measures what packets cost.
type meter struct {
	lab  *netlab.Lab
	bare trio // plain routing: no rules, no conntrack
	ways []trio
}

// newMeter builds a box for each way and loads it.
func newMeter(ctx context.Context, lab *netlab.Lab, ways []way) (*meter, error) {
	m := &meter{lab: lab}
	var err error
	if m.bare, err = m.add(ctx, way{name: "bare routing"}, 0); err != nil {
		return nil, err
	}
	for i, w := range ways {
		t, err := m.add(ctx, w, i+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		m.ways = append(m.ways, t)
	}
	return m, nil
}

// add builds a box with cables right to both ends: the lab's switch would be dearer than the routing.
func (m *meter) add(ctx context.Context, w way, n int) (t trio, err error) {
	t = trio{way: w, port: fmt.Sprintf("way%d", n)}
	if t.box, err = m.lab.AddHost(ctx, fmt.Sprintf("box%d", n), 0); err != nil {
		return t, err
	}
	if err := t.box.SetUp("eth0", false); err != nil { // it leads to the switch
		return t, err
	}
	for port, end := range map[string]*netlab.Host{"wan0": m.lab.Inet, "lan0": m.lab.LAN1} {
		if err := t.wire(ctx, port, end); err != nil {
			return t, err
		}
	}
	if err := t.configure(ctx); err != nil {
		return t, err
	}
	if t.outside, err = sender(m.lab.Inet, t.port); err != nil {
		return t, err
	}
	if t.inside, err = sender(m.lab.LAN1, t.port); err != nil {
		return t, err
	}
	err = t.box.Do(func() (err error) {
		t.conns, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return err
	})
	return t, err
}

// wire lays a cable from a port of the box to one end.
func (t trio) wire(ctx context.Context, port string, end *netlab.Host) error {
	add := exec.CommandContext(ctx, "nsenter", "-t", strconv.Itoa(t.box.Pid()), "-n", "ip", "link", "add", port, "address", boxMAC,
		"type", "veth", "peer", "name", t.port, "netns", strconv.Itoa(end.Pid()))
	if text, err := add.CombinedOutput(); err != nil {
		return fmt.Errorf("lay a cable: %w\n%s", err, text)
	}
	if err := end.SetUp(t.port, true); err != nil {
		return err
	}
	return t.box.SetUp(port, true)
}

// configure makes the box a router, then a firewall.
func (t trio) configure(ctx context.Context) error {
	for _, port := range []struct{ name, addr, neighbour string }{{"wan0", boxWAN, outsideHop}, {"lan0", boxLAN, insideHost}} {
		if err := t.box.AddAddr(port.name, port.addr+"/24"); err != nil {
			return err
		}
		if _, err := t.box.Run(ctx, "ip", "neigh", "replace", port.neighbour, "lladdr", nobodyMAC, "dev", port.name, "nud", "permanent"); err != nil {
			return err
		}
	}
	if err := t.box.AddRoute("default", outsideHop); err != nil {
		return err
	}
	if err := t.box.Sysctl("net.ipv4.ip_forward", "1"); err != nil || t.load == nil {
		return err
	}
	return t.load(ctx, t.box)
}

// costs is what one unit of a work cost by a way, in packets of bare routing:
// costs[way][work] has a value for each round, in the order of the rounds.
type costs map[string]map[string][]float64

// measure has every way do every work in shuffled rounds. Each sample stands
// between two of bare routing, and its ratio to them is the result: what else the
// machine does falls out.
func (m *meter) measure(ctx context.Context, works []work) (costs, error) {
	got := costs{}
	for _, t := range m.ways {
		got[t.name] = map[string][]float64{}
	}
	for _, k := range works {
		for range k.rounds {
			if err := m.round(ctx, k, got); err != nil {
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
		}
	}
	return got, nil
}

func (m *meter) round(ctx context.Context, k work, got costs) error {
	rand.Shuffle(len(m.ways), func(i, j int) { m.ways[i], m.ways[j] = m.ways[j], m.ways[i] })
	before, err := m.sample(m.bare, k)
	if err != nil {
		return err
	}
	for _, t := range m.ways {
		if t.only != nil && !slices.Contains(t.only, k.name) {
			continue
		}
		cost, err := m.sample(t, k)
		if err != nil {
			return err
		}
		after, err := m.sample(m.bare, k)
		if err != nil {
			return err
		}
		got[t.name][k.name] = append(got[t.name][k.name], float64(max(k.unit, 1))*cost/((before+after)/2))
		before = after
	}
	return ctx.Err()
}

// sample sends a work through a box once, and sees that what ought to arrive does.
func (m *meter) sample(t trio, k work) (float64, error) {
	want := len(k.packets)
	if t.deaf || k.blocked && t.load != nil {
		want = 0
	}
	if t.load != nil {
		if _, err := burn(t.outside, t.inside, k.first); err != nil {
			return 0, err
		}
	}
	before, err := m.arrived(t)
	if err != nil {
		return 0, err
	}
	cost, err := burn(t.outside, t.inside, k.packets)
	if err != nil {
		return 0, err
	}
	after, err := m.arrived(t)
	if err != nil {
		return 0, err
	}
	// On a busy machine a queue may overflow, and the hosts themselves say a word now and then.
	if off := after - before - want; off < -burst/50 || off > burst/50 {
		return 0, fmt.Errorf("%s: %d packets arrived instead of %d", t.name, after-before, want)
	}
	if k.anew && t.load != nil {
		err = forget(t.conns)
	}
	return float64(cost), err
}

// arrived is how many packets have come out of the box.
func (m *meter) arrived(t trio) (n int, err error) {
	for _, end := range []*netlab.Host{m.lab.LAN1, m.lab.Inet} {
		c, err := end.Counters(t.port)
		if err != nil {
			return 0, err
		}
		n += int(c.RxPackets)
	}
	return n, nil
}

// forget empties conntrack, through a socket to it.
func forget(conns int) error {
	const deleteConns = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE; without a tuple, all
	m := make([]byte, unix.SizeofNlMsghdr+4)              // struct nfgenmsg is four bytes: any family
	binary.NativeEndian.PutUint32(m, uint32(len(m)))
	binary.NativeEndian.PutUint16(m[4:], deleteConns)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if _, err := unix.Write(conns, m); err != nil {
		return fmt.Errorf("empty conntrack: %w", err)
	}
	answer := make([]byte, 256)
	if _, err := unix.Read(conns, answer); err != nil {
		return fmt.Errorf("empty conntrack: %w", err)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return fmt.Errorf("empty conntrack: %w", unix.Errno(-code))
	}
	return nil
}

// more is how much dearer a work is by one way than by another: the median of the
// differences within each round.
func (c costs) more(way, than, work string) float64 {
	var out []float64
	for i, v := range c[way][work] {
		out = append(out, v-c[than][work][i])
	}
	return median(out)
}

// print shows all of it: medians, and the least and most of the rounds.
func (c costs) print(m *measurement, ways []way, works []work) {
	w := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprint(w, "in packets of bare routing")
	for _, y := range ways {
		fmt.Fprintf(w, "\t%s", y.name)
	}
	for _, k := range works {
		fmt.Fprintf(w, "\n%s", k.name)
		for _, y := range ways {
			cell := "-"
			if v := c[y.name][k.name]; len(v) > 0 {
				cell = fmt.Sprintf("%.2f (%.2f-%.2f)", median(v), slices.Min(v), slices.Max(v))
			}
			fmt.Fprintf(w, "\t%s", cell)
		}
	}
	fmt.Fprintln(w)
}
