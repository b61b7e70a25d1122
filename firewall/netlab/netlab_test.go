package netlab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const abandonMe = "NETLAB_TEST_ABANDON"

func TestMain(m *testing.M) {
	Main()
	if os.Getenv(abandonMe) != "" {
		abandon()
	}
	os.Exit(m.Run())
}

// abandon plays a run that is killed: it makes a lab with a busy machine, says so and waits.
func abandon() {
	l, err := New(context.Background(), Options{Ports: 2})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	p, err := l.LAN1.Start(context.Background(), "sh", "-c", "sleep 1000 & setsid sleep 1000 & echo up; wait")
	if err == nil {
		_, err = p.Find(context.Background(), "up")
	}
	fmt.Println(l.Dir, l.Inet.Pid(), l.LAN1.Pid(), p.Pid(), err)
	select {}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// route makes the box what it will be: a router between the three nets, without a firewall.
func route(t *testing.T, l *Lab) {
	t.Helper()
	b := l.Box
	must(t, b.SetUp("eth0", true), b.SetUp("eth1", true), b.SetUp("eth2", true),
		b.AddAddr("eth0", "203.0.113.2/24", BoxWAN6+"/64"), b.AddAddr("eth1", "192.168.1.1/24", "2001:db8:100:1::1/64"),
		b.AddAddr("eth2", "192.168.2.1/24"), b.AddRoute("default", Gateway4), b.AddRoute("default6", Gateway6),
		b.Sysctl("net.ipv4.ip_forward", "1"), b.Sysctl("net.ipv6.conf.all.forwarding", "1"),
		l.Inet.AddRoute("192.168.0.0/16", "203.0.113.2"),
		l.LAN1.AddAddr("eth0", "192.168.1.10/24", "2001:db8:100:1::10/64"), l.LAN1.AddRoute("default", "192.168.1.1"), l.LAN1.AddRoute("default6", "2001:db8:100:1::1"),
		l.LAN2.AddAddr("eth0", "192.168.1.11/24"), l.LAN2.AddRoute("default", "192.168.1.1"),
		l.Guest.AddAddr("eth0", "192.168.2.10/24"), l.Guest.AddRoute("default", "192.168.2.1"))
}

// line dials, sends a word and returns the first line that answers.
func line(ctx context.Context, t *testing.T, h *Host, network, from, to string) string {
	t.Helper()
	var src netip.AddrPort
	if from != "" {
		src = netip.MustParseAddrPort(from)
	}
	c, err := h.DialFrom(ctx, network, src, netip.MustParseAddrPort(to))
	must(t, err)
	defer c.Close()
	d, _ := ctx.Deadline()
	must(t, c.SetDeadline(d))
	_, err = fmt.Fprintln(c, "hello")
	must(t, err)
	s, err := bufio.NewReader(c).ReadString('\n')
	must(t, err)
	return s
}

func TestLabJoinsInternetBoxLANAndGuest(t *testing.T) {
	l := Start(t, Options{})
	ctx := within(t)
	route(t, l)
	e, err := l.Inet.Echo(7000)
	must(t, err)
	le, err := l.LAN1.Echo(7001)
	must(t, err)

	for _, c := range []struct {
		host                    *Host
		network, from, to, want string
	}{
		{l.LAN1, "tcp", "", "198.51.100.10:7000", "peer=192.168.1.10:"},
		{l.LAN2, "tcp", "", "203.0.113.8:7000", "peer=192.168.1.11:"},
		{l.Guest, "udp", "", "203.0.113.1:7000", "peer=192.168.2.10:"},
		{l.LAN1, "tcp", "", "[2001:db8:99::10]:7000", "peer=[2001:db8:100:1::10]:"},
		{l.Inet, "tcp", "203.0.113.9:0", "192.168.1.10:7001", "peer=203.0.113.9:"},
		{l.Inet, "tcp", "198.51.100.11:4444", "192.168.1.10:7001", "peer=198.51.100.11:4444"},
		{l.Inet, "udp", "198.51.100.12:5555", "192.168.1.10:7001", "peer=198.51.100.12:5555"},
		{l.Inet, "tcp", "[2001:db8:1::7]:0", "[2001:db8:100:1::10]:7001", "peer=[2001:db8:1::7]:"},
		{l.LAN2, "tcp", "", "192.168.1.10:7001", "peer=192.168.1.11:"},
	} {
		if got := line(ctx, t, c.host, c.network, c.from, c.to); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %s to %s: %q, want %q", c.host.Name, c.network, c.to, got, c.want)
		}
	}
	if _, _, total := e.Connections(); total != 3 {
		t.Errorf("the internet's echo server counted %d TCP connections, want 3", total)
	}
	le.Close()
	if _, err := l.Inet.Dial(ctx, "tcp", netip.MustParseAddrPort("192.168.1.10:7001")); err == nil {
		t.Error("a closed echo server still answers")
	}
}

func TestInternetServesNamesAndPages(t *testing.T) {
	l := Start(t, Options{})
	ctx := within(t)
	route(t, l)
	must(t, os.WriteFile(filepath.Join(l.LAN1.Dir, "resolv.conf"), []byte("nameserver "+Gateway4+"\n"), 0o644))
	out, err := l.LAN1.Run(ctx, "curl", "-sS", "-4", "http://www.example.test/")
	must(t, err)
	if want := "This is the internet at 198.51.100.10:80. You are 192.168.1.10:"; !strings.HasPrefix(out, want) {
		t.Errorf("page says %q, want %q", out, want)
	}
}

func TestHostIsAMachineOfItsOwn(t *testing.T) {
	l := Start(t, Options{Ports: 4})
	ctx := within(t)
	for cmd, want := range map[string]string{
		"ls -C -w 80 /sys/class/net":                 "eth0  eth1  eth2  eth3\tlo",
		"hostname":                                   "box",
		"cat /etc/resolv.conf":                       "",
		"ls /run":                                    "lock",
		"cat /sys/class/net/eth3/address":            "02:00:00:00:00:03",
		"readlink /proc/1/exe | grep -c netlab.test": "1",
	} {
		out, err := l.Box.Run(ctx, "sh", "-c", cmd)
		must(t, err)
		if strings.Join(strings.Fields(out), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s prints %q, want %q", cmd, out, want)
		}
	}
	must(t, l.Box.Do(func() error {
		ifs, err := net.Interfaces()
		if len(ifs) != 5 {
			t.Errorf("Do sees %d interfaces, want 5", len(ifs))
		}
		if b, _ := os.ReadFile("/sys/class/net/eth3/address"); string(b) != "02:00:00:00:00:03\n" {
			t.Errorf("Do sees hardware address %q in /sys", b)
		}
		return err
	}))
	// Nothing of it may stick to the test's own process.
	if name, _ := os.Hostname(); name == "box" {
		t.Error("the test itself became the box")
	}
	if _, err := net.InterfaceByName("eth3"); err == nil {
		t.Error("the test itself moved into the box")
	}
}

func TestDoReportsAFunctionThatDoesNotReturn(t *testing.T) {
	l := Start(t, Options{Ports: 2})
	done := make(chan error, 1)
	go func() { done <- l.Box.Do(func() error { runtime.Goexit(); return nil }) }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error")
		}
	case <-within(t).Done():
		t.Error("Do hangs")
	}
}

func TestUnplugTakesTheCarrier(t *testing.T) {
	l := Start(t, Options{})
	ctx := within(t)
	route(t, l)
	mon, err := l.Box.Start(ctx, "ip", "monitor", "link", "dev", "eth1")
	must(t, err)
	// The monitor says nothing when it is ready, so ask until it hears.
	for heard := false; !heard; {
		must(t, l.Box.SetUp("eth1", false), l.Box.SetUp("eth1", true))
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err := mon.Next(short, `eth1.* state UP`)
		cancel()
		heard = err == nil
	}
	must(t, l.Box.Unplug("eth1"))
	_, err = mon.Next(ctx, `NO-CARRIER.*state (DOWN|LOWERLAYERDOWN)`)
	must(t, err)
	must(t, l.Box.Plug("eth1"))
	_, err = mon.Next(ctx, `LOWER_UP.*state UP`)
	must(t, err)
	before, err := l.Box.Counters("eth1")
	must(t, err)
	_, err = l.LAN1.Run(ctx, "ping", "-c", "3", "-i", "0.1", "192.168.1.1")
	must(t, err)
	after, err := l.Box.Counters("eth1")
	must(t, err)
	if after.RxPackets < before.RxPackets+3 || after.TxBytes < before.TxBytes+3*98 {
		t.Errorf("counters went from %+v to %+v over three pings", before, after)
	}
}

func TestRebootKeepsCablesAndFilesOnly(t *testing.T) {
	l := Start(t, Options{})
	ctx := within(t)
	route(t, l)
	p, err := l.Box.Start(ctx, "sleep", "1000")
	must(t, err, os.WriteFile(filepath.Join(l.Box.Dir, "state"), []byte("kept"), 0o600))
	must(t, l.Box.Reboot(ctx))
	if err := p.Wait(); err == nil {
		t.Error("a process outlived the reboot with code 0")
	}
	if as, err := l.Box.Addrs("eth1"); err != nil || len(as) > 0 {
		t.Errorf("after the reboot eth1 has %v, %v", as, err)
	}
	if b, err := os.ReadFile(filepath.Join(l.Box.Dir, "state")); string(b) != "kept" {
		t.Errorf("the folder was lost: %v", err)
	}
	route(t, l)
	_, err = l.LAN1.Run(ctx, "ping", "-c", "1", "-W", "20", Gateway4)
	must(t, err)
}

func TestProcessOutputCanBeAwaited(t *testing.T) {
	l := Start(t, Options{Ports: 2})
	ctx := within(t)
	p, err := l.Box.Start(ctx, "sh", "-c", "echo a 1; echo b 2 >&2; echo a 3; printf 'a 4'; exit 5")
	must(t, err)
	for _, want := range []string{"1", "3", "4"} {
		m, err := p.Next(ctx, `^a (\d)`)
		must(t, err)
		if m[1] != want {
			t.Errorf("got %q, want %q", m[1], want)
		}
	}
	if m, err := p.Find(ctx, `^b (\d)`); err != nil || m[1] != "2" {
		t.Errorf("b: %v %v", m, err)
	}
	if _, err := p.Next(ctx, `never`); err == nil || !strings.Contains(err.Error(), "a 4") {
		t.Errorf("a program that ended without the line: %v", err)
	}
	if _, err := l.Box.Run(ctx, "sh", "-c", "echo why; exit 5"); err == nil || !strings.Contains(err.Error(), "exit status 5\nwhy") {
		t.Errorf("a failed program: %v", err)
	}
	short, cancel := context.WithCancel(ctx)
	p, err = l.Box.Start(short, "sh", "-c", "sleep 1000 & echo child $!; wait")
	must(t, err)
	_, err = p.Find(ctx, "child")
	must(t, err)
	cancel()
	if p.Wait() == nil {
		t.Error("a cancelled program ended with code 0")
	}
	if out, err := l.Box.Run(ctx, "pgrep", "sleep"); err == nil {
		t.Errorf("the cancelled program's child lives on: %s", out)
	}
}

func TestPublishCarriesIntoTheHost(t *testing.T) {
	l := Start(t, Options{})
	route(t, l)
	_, err := l.Box.Echo(443)
	must(t, err)
	pub, err := l.Publish("127.0.0.1:0", func(ctx context.Context) (net.Conn, error) {
		gw, err := l.LAN1.Gateway()
		must(t, err)
		return l.LAN1.Dial(ctx, "tcp", netip.AddrPortFrom(gw, 443))
	})
	must(t, err)
	ask := func() string {
		c, err := net.Dial("tcp", pub.Addr().String())
		must(t, err)
		defer c.Close()
		s, err := bufio.NewReader(c).ReadString('\n')
		must(t, err)
		return s
	}
	if got := ask(); !strings.Contains(got, "peer=192.168.1.10:") || !strings.Contains(got, "at=192.168.1.1:443") {
		t.Errorf("got %q", got)
	}
	// The box moves to another address; the next connection follows the client's route.
	must(t, l.Box.AddAddr("eth1", "192.168.1.254/24"), l.LAN1.AddRoute("default", "192.168.1.254"))
	if got := ask(); !strings.Contains(got, "at=192.168.1.254:443") {
		t.Errorf("after the move: %q", got)
	}
}

func TestDeadRunLeavesNothing(t *testing.T) {
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), abandonMe+"=1")
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	text, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	f := strings.Fields(text)
	if len(f) != 5 || f[4] != "<nil>" {
		t.Fatalf("the lab said %q", text)
	}
	fds := map[string]int{}
	for _, pid := range f[1:4] {
		var n int
		_, err := fmt.Sscan(pid, &n)
		must(t, err)
		fd, err := unix.PidfdOpen(n, 0)
		must(t, err)
		defer unix.Close(fd)
		fds[pid] = fd
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for pid, fd := range fds { // a pidfd becomes readable at the end of its process
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30000); n != 1 {
			t.Errorf("process %s outlived the one that made the lab: %v", pid, err)
		}
	}
	if _, err := os.Stat(f[0]); err != nil {
		t.Fatalf("the test proves nothing, the folder is gone already: %v", err)
	}
	must(t, Sweep())
	if _, err := os.Stat(f[0]); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", f[0], err)
	}
}

func TestSweepEndsOrphanedHoldersAndSparesTheLiving(t *testing.T) {
	l := Start(t, Options{Ports: 2})
	orphan := func(pid int, start string) *exec.Cmd {
		cmd := exec.Command("sleep", "1000")
		cmd.Args[0] = fmt.Sprintf("%s%d-%s-1/box", namePrefix, pid, start)
		must(t, cmd.Start())
		return cmd
	}
	start, _ := startTime(os.Getpid())
	dead, reused, living := orphan(1<<22+1, "1"), orphan(os.Getpid(), start+"1"), orphan(os.Getpid(), start)
	must(t, Sweep())
	for _, c := range []*exec.Cmd{dead, reused} {
		if err := c.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("%s ended with %v", c.Args[0], err)
		}
	}
	if err := living.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("Sweep ended a holder whose lab lives: %v", err)
	}
	must(t, living.Process.Kill())
	_ = living.Wait()
	if _, err := os.Stat(l.Dir); err != nil {
		t.Errorf("Sweep took the folder of a living lab: %v", err)
	}
}
