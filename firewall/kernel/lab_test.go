package kernel_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// peer is a host beside the box: a thread in a network namespace of its own.
type peer struct {
	tid   int
	tasks chan func()
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	p := &peer{tasks: make(chan func())}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		p.tid = unix.Gettid()
		err := unix.Unshare(unix.CLONE_NEWNET)
		started <- err
		for task := range p.tasks {
			task()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(p.tasks) })
	return p
}

// do runs task on the peer.
func (p *peer) do(t *testing.T, task func() error) {
	t.Helper()
	result := make(chan error)
	p.tasks <- func() { result <- task() }
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

// ip runs ip commands, one a line.
func ipAll(lines string) error {
	for line := range strings.Lines(lines) {
		if f := strings.Fields(line); len(f) > 0 {
			if out, err := exec.Command("ip", f...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
		}
	}
	return nil
}

// lab puts a client and a server beside the box of the calling thread:
// 10.1.0.2 - vc 10.1.0.1 [box] 10.2.0.1 vs - 10.2.0.2. The box forwards.
func lab(t *testing.T) (client, server *peer) {
	t.Helper()
	client, server = newPeer(t), newPeer(t)
	noDAD := func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0) } // IPv6 works at once
	client.do(t, noDAD)
	server.do(t, noDAD)
	if err := noDAD(); err != nil {
		t.Fatal(err)
	}
	err := ipAll(fmt.Sprintf(`
		link add vc type veth peer name eth0 netns %d
		link add vs type veth peer name eth0 netns %d
		addr add 10.1.0.1/24 dev vc
		addr add 10.2.0.1/24 dev vs
		link set vc up
		link set vs up`, client.tid, server.tid))
	if err == nil {
		err = os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []*peer{client, server} {
		n := strconv.Itoa(i + 1)
		p.do(t, func() error {
			// A host asks for routers some seconds after it came up: a packet that no test counts on.
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/router_solicitations", []byte("0"), 0); err != nil {
				return err
			}
			return ipAll("link set lo up\nlink set eth0 up\naddr add 10." + n + ".0.2/24 dev eth0\nroute add default via 10." + n + ".0.1")
		})
	}
	return client, server
}

// listen opens a UDP socket on the peer.
func (p *peer) listen(t *testing.T, address string) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	p.do(t, func() error {
		c, err := net.ListenPacket("udp4", address)
		if err == nil {
			conn = c.(*net.UDPConn)
		}
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// dial opens a UDP socket on the peer that sends to the address.
func (p *peer) dial(t *testing.T, address string) net.Conn {
	t.Helper()
	var conn net.Conn
	p.do(t, func() (err error) {
		conn, err = net.Dial("udp4", address)
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// send sends one datagram; that nobody listens is no error.
func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		t.Fatal(err)
	}
}
