package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// street is the box between an internet and a server, with compiled limits. The
// internet is one host that answers for 198.51.100.0/24, 2001:db8:bad::/48 and
// its own addresses; nobody answers for 198.51.101.0/24.
type street struct {
	t        *testing.T
	k        *kernel.Kernel
	cfg      firewall.Config
	inet     *peer // 10.1.0.2, 2001:db8:1::2, beyond vc (WAN)
	host     *peer // 10.2.0.2, 2001:db8:2::2, beyond vs (LAN)
	mu       sync.Mutex
	accepted map[netip.Addr]int // connections that the server was given, by source
	logged   map[string]int     // lines of limits, by prefix
	conns    []net.Conn         // of the server
}

const (
	server4 = "10.2.0.2"
	server6 = "2001:db8:2::2"
)

// limited runs the test in a street with one pass rule for TCP port 80 of the
// server, which has the limit, and a client beside it.
func limited(t *testing.T, l firewall.Limit, test func(s *street)) {
	limitedBy(t, config(l), test)
}

func limitedBy(t *testing.T, c firewall.Config, test func(s *street)) {
	inside(t, func(t *testing.T) {
		s := &street{t: t, k: open(t), accepted: map[netip.Addr]int{}, logged: map[string]int{}}
		s.inet, s.host = lab(t)
		settings(t, map[string]string{"ipv6/conf/all/forwarding": "1", "netfilter/nf_conntrack_tcp_loose": "0"})
		err := ipAll(`
			addr add 2001:db8:1::1/64 dev vc nodad
			addr add 2001:db8:2::1/64 dev vs nodad
			route add 198.51.100.0/23 via 10.1.0.2
			route add 2001:db8:bad::/48 via 2001:db8:1::2`)
		if err != nil {
			t.Fatal(err)
		}
		s.inet.do(t, func() error {
			// A local route alone does not let an IPv6 address be used.
			if err := os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0); err != nil {
				return err
			}
			return ipAll(`
				addr add 2001:db8:1::2/64 dev eth0 nodad
				route add default via 2001:db8:1::1
				route add local 198.51.100.0/24 dev lo
				route add local 2001:db8:bad::/48 dev lo`)
		})
		s.host.do(t, func() error {
			return ipAll("addr add 2001:db8:2::2/64 dev eth0 nodad\nroute add default via 2001:db8:2::1")
		})
		s.apply(c)
		s.serve()
		s.listen()
		test(s)
	})
}

func settings(t *testing.T, values map[string]string) {
	t.Helper()
	for name, value := range values {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// theRule is the id of the rule that has the limit.
const theRule = "01A"

func config(l firewall.Limit) firewall.Config {
	ends := func(s string) firewall.Ends { e, _ := firewall.ParseEnds(s); return e }
	ports, _ := firewall.ParsePorts("80")
	static := func(v4, v6 string) (firewall.V4, firewall.V6) {
		return firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix(v4)}, firewall.V6{Mode: firewall.Static, Addr: netip.MustParsePrefix(v6)}
	}
	wan := firewall.Interface{Name: "WAN", Device: "vc", Role: firewall.WAN, On: true}
	lan := firewall.Interface{Name: "LAN", Device: "vs", Role: firewall.LAN, On: true}
	wan.V4, wan.V6 = static("10.1.0.1/24", "2001:db8:1::1/64")
	lan.V4, lan.V6 = static("10.2.0.1/24", "2001:db8:2::1/64")
	return firewall.Config{Schema: firewall.Schema, System: firewall.System{Host: "fw1", Domain: "home.arpa", Zone: "UTC"}, Admin: firewall.Admin{HTTPS: 443},
		Interfaces: []firewall.Interface{wan, lan},
		Rules: []firewall.Rule{
			{ID: theRule, On: true, Action: firewall.Pass, In: "WAN", Family: firewall.Both, Proto: firewall.TCP, Src: firewall.Anyone(),
				Dst: ends(server4 + ", " + server6), DstPorts: ports, Limit: l},
			{ID: "01B", On: true, Action: firewall.Pass, In: "LAN", Family: firewall.Both, Proto: firewall.AnyProto, Src: firewall.Anyone(), Dst: firewall.Anyone()}},
		Scopes: []firewall.Scope{{In: "LAN", On: true, From: ip("10.2.0.100"), To: ip("10.2.0.199"), Lease: 7200}}}
}

// apply puts the compiled configuration into the kernel.
func (s *street) apply(c firewall.Config) {
	s.t.Helper()
	if ps := c.Validate(); ps != nil {
		s.t.Fatal(ps)
	}
	s.cfg = c
	apply(s.t, s.k, compile.Compile(c))
}

// serve accepts connections to port 80 of the server and sends back what comes.
func (s *street) serve() {
	s.t.Helper()
	var l net.Listener
	s.host.do(s.t, func() (err error) {
		l, err = net.Listen("tcp", ":80")
		return err
	})
	s.t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.conns {
			_ = c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.accepted[c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()]++
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			go func() {
				defer c.Close()
				b := make([]byte, 100)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					_, _ = c.Write(b[:n])
				}
			}()
		}
	}()
}

// listen counts what limits tell.
func (s *street) listen() {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error)
	go func() {
		done <- s.k.Logs(ctx, compile.LimitGroup, func(l kernel.LogLine) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.logged[l.Prefix]++
		})
	}()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			s.t.Errorf("logs ended with %v", err)
		}
	})
	await(s.t, "the log listener", nil, func() bool {
		b, err := os.ReadFile("/proc/thread-self/net/netfilter/nfnetlink_log")
		if err != nil {
			s.t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 0 && f[0] == fmt.Sprint(compile.LimitGroup) {
				return true
			}
		}
		return false
	})
}

// told is how many lines of a limit came.
func (s *street) told(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logged[firewall.LimitPrefix(what, theRule)]
}

// got is how many connections the server was given from the networks, or in all.
func (s *street) got(nets ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, m := range s.accepted {
		if len(nets) == 0 {
			n += m
		}
		for _, p := range nets {
			if netip.MustParsePrefix(p).Contains(a) {
				n += m
			}
		}
	}
	return n
}

func (s *street) count(counter string) int {
	s.t.Helper()
	return int(counters(s.t, s.k)[counter])
}

// over is how often the limit was exceeded.
func (s *street) over() int { s.t.Helper(); return s.count(compile.OverCounter(theRule)) }

// blocked is who is shut out.
func (s *street) blocked() (out []ruleset.Element) {
	s.t.Helper()
	for _, v6 := range []bool{false, true} {
		members, err := s.k.Members(s.t.Context(), compile.BlockedSet(v6))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, m := range members {
			out = append(out, m.Element)
		}
	}
	return out
}

// shutOut checks that just these sources are shut out.
func (s *street) shutOut(want ...string) {
	s.t.Helper()
	var got []string
	for _, e := range s.blocked() {
		a, _ := netip.AddrFromSlice([]byte(e.Key[0].Lo))
		got = append(got, a.String())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		s.t.Errorf("shut out: %v, want %v", got, want)
	}
}

// call begins n connections at once, from an address of the internet to port 80
// of the server, and does not wait for them.
func (s *street) call(from string, n int) []*call {
	s.t.Helper()
	to := server4
	if ip(from).Is6() {
		to = server6
	}
	return s.callTo(from, netip.AddrPortFrom(ip(to), 80), n)
}

func (s *street) callTo(from string, to netip.AddrPort, n int) (calls []*call) {
	s.t.Helper()
	s.inet.do(s.t, func() error {
		for range n {
			c, err := dialNow(netip.AddrPortFrom(ip(from), 0), to)
			if err != nil {
				return fmt.Errorf("connect from %s: %w", from, err)
			}
			calls = append(calls, c)
		}
		return nil
	})
	for _, c := range calls {
		s.t.Cleanup(c.hangUp)
	}
	return calls
}

// call is a TCP connection of the internet.
type call struct{ fd int }

func dialNow(from, to netip.AddrPort) (*call, error) {
	family, domain := func(a netip.AddrPort) unix.Sockaddr {
		if a.Addr().Is4() {
			return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
		}
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}, unix.AF_INET
	if to.Addr().Is6() {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err = unix.Bind(fd, family(from)); err == nil {
		if err = unix.Connect(fd, family(to)); errors.Is(err, unix.EINPROGRESS) {
			err = nil
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &call{fd}, nil
}

func (c *call) hangUp() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
		c.fd = -1
	}
}

// works sends something and waits until it comes back.
func (c *call) works(t *testing.T) {
	t.Helper()
	b := make([]byte, 1)
	sent := false
	await(t, "an answer", nil, func() bool {
		if !sent {
			_, err := unix.Write(c.fd, []byte("x"))
			sent = err == nil
		}
		n, err := unix.Read(c.fd, b)
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOTCONN) {
			t.Fatal(err)
		}
		return n == 1
	})
}

// decided waits until the limit has let through or refused n connections in all.
func (s *street) decided(n int) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("%d decisions", n), nil, func() bool { return s.got()+s.over() >= n })
}

// connects waits until the source can connect: its connections may end at the limit for a time.
func (s *street) connects(from string) {
	s.t.Helper()
	before := s.got()
	end := time.Now().Add(30 * time.Second)
	for s.got() == before {
		if time.Now().After(end) {
			s.t.Fatalf("%s cannot connect", from)
		}
		c := s.call(from, 1)[0]
		for tries := 0; tries < 50 && s.got() == before; tries++ {
			<-time.After(10 * time.Millisecond)
		}
		if s.got() == before {
			c.hangUp()
		}
	}
}

// hears waits for one byte.
func (c *call) hears(t *testing.T) {
	t.Helper()
	await(t, "a byte", nil, func() bool {
		n, _ := unix.Read(c.fd, make([]byte, 1))
		return n == 1
	})
}

// ping is how many of one echo request are answered.
func ping(to string) int {
	if exec.Command("ping", "-n", "-c", "1", "-W", "1", to).Run() == nil {
		return 1
	}
	return 0
}
