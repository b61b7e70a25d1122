package netlab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Host is one machine of a lab. Its methods may be called from several goroutines.
type Host struct {
	// Name is also its host name. Dir is a folder for its files, kept over Reboot; resolv.conf in it is what its
	// processes see as /etc/resolv.conf (write into the file, do not replace it).
	Name, Dir string

	lab     *Lab
	mu      sync.Mutex // guards the fields below
	machine *machine
	cables  []cable
}

func (h *Host) now() *machine {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.machine
}

func (h *Host) off() { h.now().off() }

// Pid is the process that holds the machine: `nsenter -a -t PID` is a shell in there.
func (h *Host) Pid() int { return h.now().pid }

// Reboot pulls the plug: every process ends without a word, then the machine comes back with fresh namespaces, the
// same cables and hardware addresses, nothing configured, and its folder as it was.
func (h *Host) Reboot(ctx context.Context) error {
	h.off()
	m, err := power(ctx, h.lab.name, h.Name, h.Dir)
	if err != nil {
		return fmt.Errorf("netlab: reboot %s: %w", h.Name, err)
	}
	h.mu.Lock()
	h.machine = m
	cables := slices.Clone(h.cables)
	h.mu.Unlock()
	if err := h.loopback(); err != nil {
		return err
	}
	for _, c := range cables {
		if err := h.lab.plug(c); err != nil {
			return fmt.Errorf("netlab: cable %s: %w", c.far(), err)
		}
	}
	return nil
}

// Do runs fn inside the host's network and mount namespaces, on a thread of its own. Sockets that fn opens stay in the
// host for their whole life; goroutines that fn starts are not in there. /proc/self does not exist for fn.
func (h *Host) Do(fn func() error) error {
	return h.now().on(unix.CLONE_NEWNET|unix.CLONE_NEWNS, fn)
}

// Dial connects from the host. network is "tcp" or "udp".
func (h *Host) Dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	return h.DialFrom(ctx, network, netip.AddrPort{}, to)
}

// DialFrom is Dial from one of the host's addresses; port 0 means any, the zero AddrPort leaves the choice to the kernel.
func (h *Host) DialFrom(ctx context.Context, network string, from, to netip.AddrPort) (conn net.Conn, err error) {
	d := net.Dialer{}
	if from.IsValid() {
		if d.LocalAddr = net.Addr(net.TCPAddrFromAddrPort(from)); network == "udp" {
			d.LocalAddr = net.UDPAddrFromAddrPort(from)
		}
	}
	// An address as text needs no resolver, so the socket is made on this very thread.
	err = h.now().on(unix.CLONE_NEWNET, func() (err error) {
		conn, err = d.DialContext(ctx, network, to.String())
		return err
	})
	return conn, err
}

// Listen listens for TCP in the host, on an address such as ":80" or "203.0.113.7:80". Close the listener; the end of
// the lab does it too.
func (h *Host) Listen(addr string) (l net.Listener, err error) {
	err = h.now().on(unix.CLONE_NEWNET, func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(h.lab.ctx, "tcp", addr)
		return err
	})
	if err == nil {
		context.AfterFunc(h.lab.ctx, func() { l.Close() })
	}
	return l, err
}

// ListenPacket is Listen for UDP.
func (h *Host) ListenPacket(addr string) (c net.PacketConn, err error) {
	err = h.now().on(unix.CLONE_NEWNET, func() (err error) {
		c, err = (&net.ListenConfig{}).ListenPacket(h.lab.ctx, "udp", addr)
		return err
	})
	if err == nil {
		context.AfterFunc(h.lab.ctx, func() { c.Close() })
	}
	return c, err
}
