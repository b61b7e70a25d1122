package link

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/link/wan"
)

// TestMain runs all tests again in a network namespace and mount namespace of
// their own: the box. Both vanish with the process, whatever the tests do.
func TestMain(m *testing.M) {
	const mark = "GATEHOUSE_LINK_BOX"
	if os.Getenv(mark) == "" {
		c := exec.Command("/proc/self/exe", os.Args[1:]...)
		c.Env = append(os.Environ(), mark+"=1")
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		runtime.LockOSThread() // Pdeathsig means the thread
		err := c.Run()
		if c.ProcessState == nil {
			fmt.Fprintln(os.Stderr, "tests need root and namespaces:", err)
			os.Exit(1)
		}
		os.Exit(c.ProcessState.ExitCode())
	}
	for _, mount := range [][3]string{{"none", "/", ""}, {"tmpfs", "/run", "tmpfs"}, {"sysfs", "/sys", "sysfs"}} {
		flags := uintptr(0)
		if mount[2] == "" {
			flags = syscall.MS_REC | syscall.MS_PRIVATE
		}
		if err := syscall.Mount(mount[0], mount[1], mount[2], flags, ""); err != nil {
			fmt.Fprintln(os.Stderr, "mount", mount[1], err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// ip runs iproute2 in the box.
func ip(t *testing.T, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", args, err, out)
	}
}

// far is the network namespace at the other end of a port's cable; its end is
// called far0 and is up.
type far struct {
	*testing.T
	ns   string
	port string
}

// cable makes the port in the box and what is at the other end.
func cable(t *testing.T, port string) *far {
	t.Helper()
	f := &far{t, "far-" + port, port}
	ip(t, "netns add "+f.ns)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", f.ns).Run() })
	f.plug()
	return f
}

func (f *far) plug() {
	f.Helper()
	ip(f.T, fmt.Sprintf("link add dev %s type veth peer name far0 netns %s", f.port, f.ns))
	f.Cleanup(func() { _ = exec.Command("ip", "link", "del", "dev", f.port).Run() })
	f.ip("link set dev lo up")
	f.ip("link set dev far0 up")
}

// ip runs iproute2 at the far end.
func (f *far) ip(args string) { f.Helper(); ip(f.T, "-n "+f.ns+" "+args) }

// run starts a program at the far end, and ends it with the test.
func (f *far) run(args ...string) {
	f.Helper()
	c := exec.Command("ip", append([]string{"netns", "exec", f.ns}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
}

// dnsmasq serves addresses of 10.66.0.0/24 from 10.66.0.1 and returns its lease file.
func (f *far) dnsmasq(more ...string) string {
	f.Helper()
	f.ip("addr add 10.66.0.1/24 dev far0")
	leases := f.TempDir() + "/leases"
	f.run(append([]string{"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--interface=far0", "--bind-dynamic",
		"--dhcp-authoritative", "--dhcp-range=10.66.0.100,10.66.0.150,255.255.255.0,3600", "--dhcp-option=option:dns-server,10.66.0.53",
		"--dhcp-leasefile=" + leases, "--pid-file=", "--user=root", "--no-ping", "--log-facility=/dev/null"}, more...)...)
	return leases
}

// within calls f on a thread that is in the far namespace.
func (f *far) within(do func()) {
	f.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		fd, err := os.Open("/run/netns/" + f.ns)
		if err == nil {
			err = unix.Setns(int(fd.Fd()), unix.CLONE_NEWNET)
			fd.Close()
		}
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		f.Fatal(err)
	}
}

// box is a service in the test's namespace with everything that it tells.
type box struct {
	*Service
	t      *testing.T
	mu     sync.Mutex // guards the rest
	sets   map[string][]string
	fills  int
	stored map[string]wan.Lease
	events []Event
	stop   func()
}

func newBox(t *testing.T, stored map[string]wan.Lease) *box {
	b := &box{t: t, sets: map[string][]string{}, stored: stored}
	if stored == nil {
		b.stored = map[string]wan.Lease{}
	}
	b.Service = New(slog.New(slog.NewTextHandler(testLog{t}, nil)), b, b, func(e Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	})
	return b
}

// run starts the service and ends it with the test, or by b.stop.
func (b *box) run() *box {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := b.Run(ctx); err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}()
	b.stop = sync.OnceFunc(func() { cancel(); <-ended })
	b.t.Cleanup(b.stop)
	return b
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func (b *box) Fill(_ context.Context, set string, members []ruleset.Element) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	typ := ruleset.IPv4Addr
	if strings.HasSuffix(set, "6") {
		typ = ruleset.IPv6Addr
	}
	texts := []string{}
	for _, m := range members {
		texts = append(texts, typ.RangeText(m.Key[0]))
	}
	b.sets[set] = texts
	b.fills++
	return nil
}

func (b *box) Get(device string) (wan.Lease, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.stored[device]
	return l, ok, nil
}

func (b *box) Put(device string, l wan.Lease) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored[device] = l
	return nil
}

func (b *box) Delete(devices ...string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range devices {
		delete(b.stored, d)
	}
	return nil
}

func (b *box) set(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.sets[name], " ")
}

func (b *box) told(k Kind, addr string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.events, func(e Event) bool { return e.Kind == k && (addr == "" || e.Addr.String() == addr) })
}

// port is the status of one device.
func (b *box) port(device string) Port {
	for _, p := range b.Status() {
		if p.Device == device {
			return p
		}
	}
	return Port{}
}

// has reports whether the kernel has the address on the device.
func (b *box) has(device, addr string) bool {
	return slices.Contains(b.port(device).Addrs, netip.MustParsePrefix(addr))
}

// way is the default or other route to dst, as "via device metric"; empty: none.
func (b *box) way(dst string) string {
	for _, r := range b.Facts().Routes {
		if r.Dst == netip.MustParsePrefix(dst) {
			return fmt.Sprintf("%s %s %d", r.Via, r.Device, r.Metric)
		}
	}
	return ""
}

// await waits until cond holds, long enough for a loaded machine.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.After(40 * time.Second)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for !cond() {
		select {
		case <-limit:
			t.Fatalf("waited in vain for: %s", what)
		case <-again.C:
		}
	}
}

func (b *box) reload(c firewall.Config) {
	b.t.Helper()
	if err := b.Reload(context.Background(), c); err != nil {
		b.t.Fatalf("Reload: %v", err)
	}
}

func config(ifs ...firewall.Interface) firewall.Config {
	return firewall.Config{Schema: firewall.Schema, Interfaces: ifs}
}

func static(name, device string, role firewall.Role, addr, gateway string) firewall.Interface {
	i := firewall.Interface{Name: firewall.Name(name), Device: device, Role: role, On: true,
		V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix(addr)}, V6: firewall.V6{Mode: firewall.None}}
	if gateway != "" {
		i.V4.Gateway = netip.MustParseAddr(gateway)
	}
	return i
}

func dynamicWAN(device string) firewall.Interface {
	return firewall.Interface{Name: "WAN", Device: device, Role: firewall.WAN, On: true,
		V4: firewall.V4{Mode: firewall.DHCP}, V6: firewall.V6{Mode: firewall.None}}
}
