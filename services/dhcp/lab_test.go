package dhcp

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gatehouse/firewall"
)

// patience is how long a test waits for an event before it gives up.
const patience = 60 * time.Second

var labs atomic.Int32

// lab is a box with a LAN bridge (lan0, 192.168.25.1/24), a guest port (guest0),
// a WAN port (wan0), and clients on them, each in a namespace of its own.
type lab struct {
	t   *testing.T
	id  string
	dir string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, id: fmt.Sprintf("dh%d-%d", os.Getpid(), labs.Add(1)), dir: t.TempDir()}
	l.space("box")
	l.in("box", "ip link add lan0 type bridge && ip link set lan0 up && ip addr add 192.168.25.1/24 dev lan0")
	return l
}

// space makes a namespace, taken away at the end of the test.
func (l *lab) space(name string) {
	l.t.Helper()
	full := l.id + name
	l.run("ip", "netns", "add", full)
	l.t.Cleanup(func() { l.run("ip", "netns", "del", full) })
	l.in(name, "ip link set lo up")
}

func (l *lab) run(arg ...string) string {
	l.t.Helper()
	out, err := exec.Command(arg[0], arg[1:]...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("%s: %v\n%s", strings.Join(arg, " "), err, out)
	}
	return string(out)
}

// in runs a shell line in a namespace.
func (l *lab) in(space, line string) string {
	l.t.Helper()
	return l.run("ip", "netns", "exec", l.id+space, "sh", "-ec", line)
}

// join makes a client namespace with eth0 on the LAN bridge.
func (l *lab) join(name string, mac firewall.MAC) {
	l.t.Helper()
	l.space(name)
	l.in("box", fmt.Sprintf("ip link add p-%s type veth peer name eth0 address %s netns %s", name, mac, l.id+name))
	l.in("box", fmt.Sprintf("ip link set p-%s master lan0 up", name))
	l.in(name, "ip link set eth0 up")
}

// wire makes a client namespace with eth0 straight on a new port of the box.
func (l *lab) wire(name, port, addr string, mac firewall.MAC) {
	l.t.Helper()
	l.space(name)
	l.plug(name, port, addr, mac)
}

func (l *lab) plug(name, port, addr string, mac firewall.MAC) {
	l.t.Helper()
	l.in("box", fmt.Sprintf("ip link add %s type veth peer name eth0 address %s netns %s", port, mac, l.id+name))
	l.in("box", fmt.Sprintf("ip link set %s up && ip addr add %s dev %s", port, addr, port))
	l.in(name, "ip link set eth0 up")
}

// config is the LAN with a pool .100-.199, and what else the test adds.
func (l *lab) config(lease int, statics ...firewall.StaticLease) firewall.Config {
	return firewall.Config{
		System: firewall.System{Host: "gatehouse", Domain: "home.arpa"},
		Interfaces: []firewall.Interface{
			{Name: "LAN", Device: "lan0", Role: firewall.LAN, On: true, V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix("192.168.25.1/24")}},
		},
		Scopes: []firewall.Scope{{In: "LAN", On: true, From: ip(100), To: ip(199), Lease: lease, Statics: statics}},
	}
}

// addScope adds an interface with a scope to a configuration.
func addScope(c firewall.Config, name firewall.Name, dev string, role firewall.Role, net, from, to string) firewall.Config {
	c.Interfaces = append(c.Interfaces, firewall.Interface{Name: name, Device: dev, Role: role, On: true,
		V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix(net)}})
	c.Scopes = append(c.Scopes, firewall.Scope{In: name, On: true, From: netip.MustParseAddr(from), To: netip.MustParseAddr(to), Lease: 3600})
	return c
}

// serverProc is the server as a process in the box.
type serverProc struct {
	l   *lab
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
}

// serve starts the server with the disk of earlier ones of this lab. probe is
// how long it asks before it offers; 0 for not at all. It returns when lan0 is
// served.
func (l *lab) serve(probe time.Duration, c firewall.Config) *serverProc {
	l.t.Helper()
	s := l.boot("leases", probe)
	if r := s.do(command{Config: &c}); r.Err != "" {
		l.t.Logf("reload: %s", r.Err)
	}
	l.await("the server to serve lan0", func() bool { return len(s.do(command{}).Devices) > 0 })
	return s
}

// newSecond starts a second server in the same box and returns what its reload says.
func newSecond(l *lab, c firewall.Config) report {
	l.t.Helper()
	s := l.boot("leases2", 0)
	var r report
	l.await("the second server to run", func() bool {
		r = s.do(command{Config: &c})
		return r.Err != ""
	})
	return r
}

func (l *lab) boot(disk string, probe time.Duration) *serverProc {
	l.t.Helper()
	cmd := l.command("box", os.Args[0], filepath.Join(l.dir, disk))
	cmd.Env = append(os.Environ(), childEnv+"=server", childEnv+"_PROBE="+probe.String())
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		l.t.Fatal(err1, err2)
	}
	l.start(cmd, "server")
	return &serverProc{l: l, cmd: cmd, in: json.NewEncoder(in), out: json.NewDecoder(out)}
}

func (s *serverProc) do(c command) report {
	s.l.t.Helper()
	var r report
	if err := s.in.Encode(c); err != nil {
		s.l.t.Fatalf("server: %v", err)
	}
	if err := s.out.Decode(&r); err != nil {
		s.l.t.Fatalf("server: %v", err)
	}
	return r
}

func (s *serverProc) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// lease is the row of an address; State is empty when there is none.
func (s *serverProc) lease(a netip.Addr) Lease {
	s.l.t.Helper()
	for _, l := range s.do(command{}).Leases {
		if l.Addr == a {
			return l
		}
	}
	return Lease{}
}

// awaitState waits until the row of an address is in a state.
func (s *serverProc) awaitState(a netip.Addr, want State) {
	s.l.t.Helper()
	s.l.await(fmt.Sprintf("%s to be %s", a, want), func() bool { return s.lease(a).State == want })
}

// await asks again and again: the thing looked at is in another process.
func (l *lab) await(what string, ok func() bool) {
	l.t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			l.t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// command prepares a process in a namespace that dies with the test.
func (l *lab) command(space string, arg ...string) *exec.Cmd {
	cmd := exec.Command("ip", append([]string{"netns", "exec", l.id + space}, arg...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start runs the process until the end of the test; what it says is shown when
// the test fails.
func (l *lab) start(cmd *exec.Cmd, name string) {
	l.t.Helper()
	said := &syncBuffer{}
	cmd.Stderr = said
	if cmd.Stdout == nil {
		cmd.Stdout = said
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if l.t.Failed() {
			l.t.Logf("%s said:\n%s", name, said.String())
		}
	})
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// client is a real DHCP client in a namespace; its script writes what it is
// told as lines "reason|address|lease|dns|routers|domain" into a pipe.
type client struct {
	l      *lab
	space  string
	cmd    *exec.Cmd
	told   chan []string
	script string
}

const udhcpcScript = `#!/bin/sh
case "$1" in
deconfig) ip -4 addr flush dev $interface ;;
bound|renew) ip -4 addr flush dev $interface; ip addr add $ip/$mask dev $interface ;;
esac
echo "$1|$ip|$lease|$dns|$router|$domain" >PIPE
`

const dhclientScript = `#!/bin/sh
case "$reason" in
PREINIT) ip link set $interface up ;;
EXPIRE|FAIL|RELEASE|STOP) ip -4 addr flush dev $interface ;;
BOUND|RENEW|REBIND|REBOOT) ip -4 addr flush dev $interface; ip addr add $new_ip_address/$new_subnet_mask dev $interface ;;
esac
echo "$reason|$new_ip_address|$new_dhcp_lease_time|$new_domain_name_servers|$new_routers|$new_domain_name" >PIPE
`

func (l *lab) newClient(space, script string) *client {
	l.t.Helper()
	c := &client{l: l, space: space, told: make(chan []string, 100)}
	n := labs.Add(1)
	pipe := filepath.Join(l.dir, fmt.Sprintf("%s-%d.pipe", space, n))
	c.script = filepath.Join(l.dir, fmt.Sprintf("%s-%d.sh", space, n))
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(c.script, []byte(strings.ReplaceAll(script, "PIPE", pipe)), 0o700); err != nil {
		l.t.Fatal(err)
	}
	f, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { f.Close() })
	go func() {
		sc := bufio.NewScanner(f)
		for sc.Scan() {
			c.told <- strings.Split(sc.Text(), "|")
		}
	}()
	return c
}

// udhcpc starts busybox's client.
func (l *lab) udhcpc(space string, arg ...string) *client {
	l.t.Helper()
	c := l.newClient(space, udhcpcScript)
	c.cmd = l.command(space, append([]string{"udhcpc", "-f", "-i", "eth0", "-s", c.script, "-t", "20", "-T", "1"}, arg...)...)
	l.start(c.cmd, "udhcpc "+space)
	return c
}

// dhclient starts ISC's client with the lease file of the namespace.
func (l *lab) dhclient(space, conf string, arg ...string) *client {
	l.t.Helper()
	c := l.newClient(space, dhclientScript)
	file := func(ext string) string { return filepath.Join(l.dir, space+ext) }
	if err := os.WriteFile(file(".conf"), []byte(conf), 0o600); err != nil {
		l.t.Fatal(err)
	}
	c.cmd = l.command(space, append([]string{"dhclient", "-d", "-4", "-sf", c.script, "-lf", file(".leases"), "-pf", file(".pid"),
		"-cf", file(".conf")}, append(arg, "eth0")...)...)
	l.start(c.cmd, "dhclient "+space)
	return c
}

// settle waits until dhclient has written its lease file, which it does after
// its script ran.
func (c *client) settle(a netip.Addr) {
	c.l.t.Helper()
	c.l.await("dhclient's lease file", func() bool {
		b, err := os.ReadFile(filepath.Join(c.l.dir, c.space+".leases"))
		return err == nil && strings.Contains(string(b), "fixed-address "+a.String()+";")
	})
}

// kill ends the client without a word to the server, and takes its address.
func (c *client) kill() {
	c.l.t.Helper()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	c.l.in(c.space, "ip -4 addr flush dev eth0")
}

func (c *client) signal(s syscall.Signal) {
	c.l.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.l.t.Fatal(err)
	}
}

// said is what a client's script was told.
type said struct {
	addr                       netip.Addr
	lease, dns, router, domain string
}

// await waits until the script is told one of the reasons.
func (c *client) await(reasons ...string) said {
	c.l.t.Helper()
	for end := time.After(patience); ; {
		select {
		case f := <-c.told:
			for _, r := range reasons {
				if f[0] == r {
					a, _ := netip.ParseAddr(f[1])
					return said{a, f[2], f[3], f[4], f[5]}
				}
			}
		case <-end:
			c.l.t.Fatalf("%s: the client was not told %s", c.space, reasons)
		}
	}
}

// rawClient sends packets of the test's making and returns what comes back.
func (l *lab) rawClient(space string) (send func([]byte), got chan []byte) {
	l.t.Helper()
	cmd := l.command(space, os.Args[0], "eth0")
	cmd.Env = append(os.Environ(), childEnv+"=client")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		l.t.Fatal(err1, err2)
	}
	l.start(cmd, "raw client "+space)
	got = make(chan []byte, 1000)
	go func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if b, err := hex.DecodeString(sc.Text()); err == nil {
				got <- b
			}
		}
	}()
	return func(pkt []byte) {
		l.t.Helper()
		if _, err := fmt.Fprintln(in, hex.EncodeToString(pkt)); err != nil {
			l.t.Fatal(err)
		}
	}, got
}
