// Package netlab builds throw-away networks for tests, benches and `gatelab try`: an internet side, the box, a LAN
// with two clients and a guest net, each a small machine of its own made of kernel namespaces. Nothing it sends leaves
// them, and nothing of it outlives the process that made it.
//
//	           segment 0 (WAN)            segment 1 (LAN)
//	inet eth0 ───── switch ───── eth0 box eth1 ───── switch ───── eth0 lan1, eth0 lan2
//	203.0.113.1                       box eth2 ───── switch ───── eth0 guest
//	                                           segment 2 (guest)
//
// Every machine has its own network, mount, process, host name and IPC namespace, a fresh /proc, /sys and /run and a
// resolv.conf of its own. It is held by a child process that leaves when its parent is gone, however that ended; the
// kernel then ends every process of that machine. A program that uses the package calls Main first.
package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// The addresses of the internet side (RFC 5737 and RFC 3849 documentation nets). A box that wants to be found by IPv6
// takes BoxWAN6 on its WAN port: the internet side sends InsideNet6 there.
const (
	Gateway4   = "203.0.113.1"       // inet eth0, /24, the gateway of the WAN segment
	Gateway6   = "2001:db8:1::1"     // inet eth0, /64
	BoxWAN6    = "2001:db8:1::2"     // where inet sends InsideNet6
	InsideNet6 = "2001:db8:100::/48" // for nets behind the box
	Web4       = "198.51.100.10"     // www.example.test, behind inet
	Web6       = "2001:db8:99::10"   // www.example.test, behind inet
)

// NearHosts4 and FarHosts4 are further internet hosts: addresses of inet in the WAN segment and behind it.
// Each answers on every port on which inet listens, and can be the source of Host.DialFrom.
func NearHosts4() []string { return []string{"203.0.113.7", "203.0.113.8", "203.0.113.9"} }

// FarHosts4 lists the internet hosts behind inet; see NearHosts4.
func FarHosts4() []string { return []string{Web4, "198.51.100.11", "198.51.100.12"} }

// Hosts6 lists further internet hosts with IPv6 addresses; see NearHosts4.
func Hosts6() []string { return []string{"2001:db8:1::7", "2001:db8:1::8", Web6, "2001:db8:99::11"} }

// Options say what to build. The zero value is the network in the package comment.
type Options struct {
	// Ports is how many ports the box has, 2 to 16; 0 means 3. Port n is ethN on segment n. Segments from 3 on have
	// nobody else on them until AddHost. The box's ports are down, as on a machine nobody has configured.
	Ports int
}

// Lab is one network. Its methods may be called from several goroutines.
type Lab struct {
	// Dir is a folder of this lab, removed by Close.
	Dir string
	// Inet is the internet side: gateway, name server, web server, DHCP server. Box is where Gatehouse runs, LAN1 and
	// LAN2 are on the segment of eth1, Guest is on that of eth2 (nil when the box has only two ports).
	Inet, Box, LAN1, LAN2, Guest *Host

	name   string
	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	sw     *Host // holds the bridges

	mu     sync.Mutex // guards hosts
	hosts  []*Host
	closed sync.Once
}

// New removes what dead runs left behind and builds a network. ctx bounds the building only. The caller must Close it.
func New(ctx context.Context, o Options) (*Lab, error) {
	if os.Getenv(holderEnv) != "" {
		return nil, errors.New("netlab: call netlab.Main first thing in main or TestMain")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("netlab: needs root to make namespaces")
	}
	if o.Ports == 0 {
		o.Ports = 3
	}
	if o.Ports < 2 || o.Ports > 16 {
		return nil, fmt.Errorf("netlab: %d ports: want 2 to 16", o.Ports)
	}
	if err := Sweep(); err != nil {
		return nil, err
	}
	name, dir, err := claimName()
	if err != nil {
		return nil, err
	}
	l := &Lab{Dir: dir, name: name}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if err := l.build(ctx, o); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// T is the part of testing.TB that Start needs.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
}

// Start is New for tests: it fails the test on error and closes the lab at its end.
func Start(t T, o Options) *Lab {
	t.Helper()
	l, err := New(t.Context(), o)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Fatalf("close the lab: %v", err)
		}
	})
	return l
}

// build starts all machines at once, then lays the cables and starts the internet's services.
func (l *Lab) build(ctx context.Context, o Options) error {
	names := []string{"switch", "inet", "box", "lan1", "lan2"}
	if o.Ports > 2 {
		names = append(names, "guest")
	}
	hosts := make([]*Host, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, n := range names {
		wg.Go(func() { hosts[i], errs[i] = l.boot(ctx, n) })
	}
	wg.Wait()
	for _, h := range hosts {
		if h != nil {
			l.hosts = append(l.hosts, h)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	l.sw, l.Inet, l.Box, l.LAN1, l.LAN2 = hosts[0], hosts[1], hosts[2], hosts[3], hosts[4]
	if err := l.layBridges(o.Ports); err != nil {
		return err
	}
	cables := []cable{{l.Inet, "eth0", 0, true}, {l.LAN1, "eth0", 1, true}, {l.LAN2, "eth0", 1, true}}
	if o.Ports > 2 {
		l.Guest = hosts[5]
		cables = append(cables, cable{l.Guest, "eth0", 2, true})
	}
	for n := range o.Ports {
		cables = append(cables, cable{l.Box, fmt.Sprintf("eth%d", n), n, false})
	}
	for _, c := range cables {
		if err := l.lay(c); err != nil {
			return err
		}
	}
	return l.openInternet(ctx)
}

// AddHost boots one more machine with its port eth0 on a segment (its number is that of the box's port).
func (l *Lab) AddHost(ctx context.Context, name string, segment int) (*Host, error) {
	h, err := l.boot(ctx, name)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.hosts = append(l.hosts, h)
	l.mu.Unlock()
	return h, l.lay(cable{h, "eth0", segment, true})
}

// Close ends every process of the lab and removes its folder. Calling it again does nothing.
func (l *Lab) Close() (err error) {
	l.closed.Do(func() {
		l.cancel()
		l.mu.Lock()
		hosts := slices.Clone(l.hosts)
		l.mu.Unlock()
		var wg sync.WaitGroup
		for _, h := range hosts {
			wg.Go(h.off)
		}
		wg.Wait()
		err = os.RemoveAll(l.Dir)
	})
	return err
}

// boot makes a machine without cables.
func (l *Lab) boot(ctx context.Context, name string) (*Host, error) {
	dir := filepath.Join(l.Dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	h := &Host{Name: name, Dir: dir, lab: l}
	m, err := power(ctx, l.name, name, dir)
	if err != nil {
		return nil, fmt.Errorf("netlab: boot %s: %w", name, err)
	}
	h.machine = m
	return h, h.loopback()
}

// mac gives every port the same address in every lab, so that stories can name it.
func mac(host, port string, segment int) net.HardwareAddr {
	if host == "box" {
		return net.HardwareAddr{2, 0, 0, 0, 0, byte(segment)}
	}
	m := net.HardwareAddr{2, 0, byte(segment) + 1, 0, 0, 0}
	for i, c := range []byte(host + port) { // names are short and few: an order-dependent sum tells them apart
		m[3+i%3] = m[3+i%3]*31 + c
	}
	return m
}
