package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// bufferSize is the limit of a socket's two buffers. The default takes no batch
// of more than a few hundred rules, and loses the answers of smaller ones
// although they took effect (kernel fact 2).
const bufferSize = 64 << 20

// sock is one netlink socket of the NETLINK_NETFILTER family.
type sock struct {
	conn *netlink.Conn
	raw  syscall.RawConn
	buf  []byte
	seq  uint32
}

// dial opens a socket in the kernel's network namespace.
func (k *Kernel) dial() (*sock, error) {
	s := &sock{buf: make([]byte, 128<<10)}
	err := k.inside(func() error {
		conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
		if err != nil {
			return fmt.Errorf("open a netfilter socket: %w", err)
		}
		s.conn = conn
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.raw, err = s.conn.SyscallConn(); err == nil {
		err = errors.Join(s.conn.SetReadBuffer(bufferSize), s.conn.SetWriteBuffer(bufferSize))
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("set up a netfilter socket: %w", err)
	}
	// Both only make errors better and smaller; kernels before 4.12 lack them.
	_ = s.conn.SetOption(netlink.ExtendedAcknowledge, true)
	_ = s.conn.SetOption(netlink.CapAcknowledge, true)
	return s, nil
}

func (s *sock) close() { _ = s.conn.Close() }

// port is the port id by which the kernel tells our change events from others'.
func (s *sock) port() uint32 { return s.conn.PID() }

// stopWith makes every blocked receive return once ctx is done.
func (s *sock) stopWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) })
}

// send hands the messages in b to the kernel, which works on all of them before it returns.
func (s *sock) send(b []byte) error {
	var err error
	if cerr := s.raw.Control(func(fd uintptr) {
		err = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}); cerr != nil {
		return cerr
	}
	return err
}

// receive waits for one datagram; with nowait it returns EAGAIN when there is none.
func (s *sock) receive(nowait bool) ([]byte, error) {
	var n int
	var err error
	try := func(fd uintptr) bool {
		n, _, err = unix.Recvfrom(int(fd), s.buf, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		return err != unix.EAGAIN
	}
	var cerr error
	if nowait {
		cerr = s.raw.Control(func(fd uintptr) { try(fd) })
	} else {
		cerr = s.raw.Read(try)
	}
	switch {
	case cerr != nil:
		return nil, cerr
	case err != nil:
		return nil, err
	case n > len(s.buf):
		return nil, fmt.Errorf("netlink datagram of %d bytes: %w", n, unix.EMSGSIZE)
	}
	return s.buf[:n], nil
}

// message is one netlink message as received; body comes after the nfgenmsg
// header (or is the raw payload of an error), whose family stands beside it.
type message struct {
	typ    uint16
	flags  uint16
	family uint8
	seq    uint32
	port   uint32
	body   []byte
}

// messages calls fn for each netlink message of a datagram.
func messages(b []byte, fn func(message) error) error {
	for len(b) >= unix.NLMSG_HDRLEN {
		n := int(binary.NativeEndian.Uint32(b))
		if n < unix.NLMSG_HDRLEN || n > len(b) {
			return errAttr
		}
		m := message{
			typ:   binary.NativeEndian.Uint16(b[4:]),
			flags: binary.NativeEndian.Uint16(b[6:]),
			seq:   binary.NativeEndian.Uint32(b[8:]),
			port:  binary.NativeEndian.Uint32(b[12:]),
			body:  b[unix.NLMSG_HDRLEN:n],
		}
		if err := fn(m); err != nil {
			return err
		}
		b = b[min((n+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
	}
	return nil
}

// genmsg is the length of struct nfgenmsg, the head of every netfilter message.
const genmsg = 4

// appendMessage appends a netfilter message: family, and res, which is zero but in a batch's borders.
func appendMessage(b []byte, typ, flags uint16, seq uint32, family uint8, res uint16, body []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(unix.NLMSG_HDRLEN+genmsg+len(body)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, family, unix.NFNETLINK_V0)
	b = binary.BigEndian.AppendUint16(b, res)
	return append(b, body...)
}

// errChanged says that the ruleset changed while it was read: read again.
var errChanged = errors.New("the ruleset changed while it was read")

// request sends one message and calls fn for each message of the answer: one,
// or with NLM_F_DUMP all until the end of the dump, as they come, or with
// NLM_F_ACK all until the acknowledgement.
func (s *sock) request(typ, flags uint16, family uint8, body attrs, fn func(message) error) error {
	s.seq++
	seq := s.seq
	if err := s.send(appendMessage(nil, typ, flags, seq, family, 0, body)); err != nil {
		return err
	}
	for done := false; !done; {
		b, err := s.receive(false)
		if err != nil {
			return err
		}
		err = messages(b, func(m message) error {
			if m.seq != seq {
				return nil // a late answer of a request that was given up
			}
			done = done || flags&(unix.NLM_F_DUMP|unix.NLM_F_ACK) == 0
			switch {
			case m.flags&unix.NLM_F_DUMP_INTR != 0:
				return errChanged
			case m.typ == unix.NLMSG_DONE:
				done = true
				return nil
			case m.typ == unix.NLMSG_ERROR:
				done = true
				return ackError(m.body)
			case len(m.body) < genmsg:
				return errAttr
			}
			m.family, m.body = m.body[0], m.body[genmsg:]
			return fn(m)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ackError is the error that an NLMSG_ERROR message carries, nil for an acknowledgement.
func ackError(body []byte) error {
	if len(body) < 4 {
		return errAttr
	}
	if n := int32(binary.NativeEndian.Uint32(body)); n != 0 {
		return syscall.Errno(-n)
	}
	return nil
}
