package netlab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
)

// Echo is a server on one TCP and UDP port of a host. It greets every TCP connection, and answers every line and every
// UDP packet, with one line: whom it sees, where it was reached, and what it got.
type Echo struct {
	Port uint16

	tcp net.Listener
	udp net.PacketConn

	mu    sync.Mutex // guards what follows
	open  map[net.Conn]bool
	total int
	most  int
}

// Echo starts an echo server on a port of every address of the host. It ends with Close or with the lab.
func (h *Host) Echo(port uint16) (*Echo, error) {
	addr := fmt.Sprintf(":%d", port)
	tcp, err := h.Listen(addr)
	if err != nil {
		return nil, err
	}
	udp, err := h.ListenPacket(addr)
	if err != nil {
		tcp.Close()
		return nil, err
	}
	e := &Echo{Port: port, tcp: tcp, udp: udp, open: map[net.Conn]bool{}}
	go e.accept()
	go e.packets()
	context.AfterFunc(h.lab.ctx, e.Close)
	return e, nil
}

// Close stops the server and cuts its connections.
func (e *Echo) Close() {
	e.tcp.Close()
	e.udp.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.open {
		c.Close()
	}
}

// Connections counts TCP connections: those open now, the most that were open at a time, all there ever were.
func (e *Echo) Connections() (open, most, total int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.open), e.most, e.total
}

func (e *Echo) accept() {
	for {
		c, err := e.tcp.Accept()
		if err != nil {
			return
		}
		e.mu.Lock()
		e.open[c] = true
		e.total++
		e.most = max(e.most, len(e.open))
		e.mu.Unlock()
		go e.talk(c)
	}
}

func (e *Echo) talk(c net.Conn) {
	defer func() {
		c.Close()
		e.mu.Lock()
		delete(e.open, c)
		e.mu.Unlock()
	}()
	greet := func(text string) error {
		_, err := fmt.Fprintf(c, "peer=%s port=%d at=%s got=%s\n", c.RemoteAddr(), e.Port, c.LocalAddr(), text)
		return err
	}
	if greet("") != nil {
		return
	}
	for s := bufio.NewScanner(c); s.Scan(); {
		if greet(s.Text()) != nil {
			return
		}
	}
}

func (e *Echo) packets() {
	buf := make([]byte, 65536)
	for {
		n, from, err := e.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		// The asker may be gone, which is no reason to stop.
		_, _ = fmt.Fprintf(udpWriter{e.udp, from}, "peer=%s port=%d at=:%d got=%s\n", from, e.Port, e.Port, strings.TrimSpace(string(buf[:n])))
	}
}

type udpWriter struct {
	net.PacketConn
	to net.Addr
}

func (w udpWriter) Write(b []byte) (int, error) { return w.WriteTo(b, w.to) }

// Publish listens on an address of the machine the lab runs on (loopback, please: "127.0.0.1:0") and carries every TCP
// connection into the host, from where it goes to what target returns then. It ends with Close or with the lab.
func (h *Host) Publish(addr string, target func() (netip.AddrPort, error)) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(h.lab.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(h.lab.ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go h.carry(c, target)
		}
	}()
	return l, nil
}

// carry joins a connection with a new one from inside the host; the asker sees a closed connection if that fails.
func (h *Host) carry(outer net.Conn, target func() (netip.AddrPort, error)) {
	defer outer.Close()
	to, err := target()
	if err != nil {
		return
	}
	inner, err := h.Dial(h.lab.ctx, "tcp", to)
	if err != nil {
		return
	}
	defer inner.Close()
	stop := context.AfterFunc(h.lab.ctx, func() { outer.Close(); inner.Close() })
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{inner, outer}, {outer, inner}} {
		both.Go(func() {
			_, err := io.Copy(way[0], way[1])
			if err != nil { // broken, not just finished in this direction
				outer.Close()
				inner.Close()
				return
			}
			if half, ok := way[0].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // fails only when it is closed already
			}
		})
	}
	both.Wait()
}
