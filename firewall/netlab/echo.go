package netlab

import (
	"bufio"
	"context"
	"fmt"
	"net"
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
