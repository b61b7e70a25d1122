package kernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"gatehouse/firewall"

	"golang.org/x/sys/unix"
)

// Numbers of linux/netfilter/nfnetlink_conntrack.h.
const (
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaID         = 12
	ctaZone       = 18
	ctaLabels     = 22

	ctaTupleIP    = 1
	ctaTupleProto = 2

	ctaIPv4Src = 1
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3
	ctaICMPType     = 5
	ctaICMPv6Type   = 8
)

// Flows calls fn for each entry of the connection table while the kernel lists
// it, which a flood may make long; an error of fn ends it and is returned. Entries
// that come or go meanwhile may be missing.
func (k *Kernel) Flows(ctx context.Context, fn func(firewall.Flow) error) error {
	s, err := k.dial()
	if err != nil {
		return err
	}
	defer s.close()
	defer s.stopWith(ctx)()
	var stopped error
	err = s.request(ctGet, unix.NLM_F_DUMP, unix.AF_UNSPEC, nil, func(m message) error {
		f, ok := readFlow(m.family, m.body)
		if !ok {
			return nil
		}
		f.In = k.device(f.InIndex)
		stopped = fn(f)
		return stopped
	})
	switch {
	case stopped != nil:
		return stopped
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("list connections: %w", err)
	}
	return nil
}

// readFlow reads one entry; ok is false when it has no tuples.
func readFlow(family uint8, b []byte) (f firewall.Flow, ok bool) {
	orig, reply := find(b, ctaTupleOrig), find(b, ctaTupleReply)
	if orig == nil || reply == nil {
		return f, false
	}
	f.Packet = readTuple(orig)
	back := readTuple(reply)
	f.To, f.ToPort, f.As, f.AsPort = back.Src, back.SrcPort, back.Dst, back.DstPort
	if l := find(b, ctaLabels); len(l) >= 12 { // the words of ruleset.Label
		f.Rule, f.InIndex, f.Revision = binary.NativeEndian.Uint32(l), binary.NativeEndian.Uint32(l[4:]), binary.NativeEndian.Uint32(l[8:])
	}
	key := attrs{family}
	key = append(key, attrOf(ctaTupleOrig|unix.NLA_F_NESTED, orig)...)
	for _, typ := range []uint16{ctaZone, ctaID} {
		if v := find(b, typ); v != nil {
			key.raw(typ, v)
		}
	}
	f.Key = key
	return f, true
}

func readTuple(b []byte) (p firewall.Packet) {
	ip, proto := find(b, ctaTupleIP), find(b, ctaTupleProto)
	_ = each(ip, func(typ uint16, v []byte) {
		a, _ := netip.AddrFromSlice(bytes.Clone(v))
		switch typ {
		case ctaIPv4Src, ctaIPv6Src:
			p.Src = a
		case ctaIPv4Dst, ctaIPv6Dst:
			p.Dst = a
		}
	})
	_ = each(proto, func(typ uint16, v []byte) {
		switch typ {
		case ctaProtoNum:
			p.Proto = uint8(num(v))
		case ctaProtoSrcPort:
			p.SrcPort = uint16(num(v))
		case ctaProtoDstPort:
			p.DstPort = uint16(num(v))
		case ctaICMPType, ctaICMPv6Type:
			p.ICMP = uint8(num(v))
		}
	})
	return p
}

// cutAtOnce is how many deletions go in one datagram.
const cutAtOnce = 500

// Cut deletes the entries of the connection table, so that their next packet
// is a new connection to the rules. n is how many were still there.
func (k *Kernel) Cut(ctx context.Context, flows []firewall.Flow) (n int, err error) {
	s, err := k.dial()
	if err != nil {
		return 0, err
	}
	defer s.close()
	for len(flows) > 0 && err == nil {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		some := flows[:min(len(flows), cutAtOnce)]
		var cut int
		cut, err = s.cut(some)
		n, flows = n+cut, flows[len(some):]
	}
	if err != nil {
		return n, fmt.Errorf("cut connections: %w", err)
	}
	return n, nil
}

func (s *sock) cut(flows []firewall.Flow) (n int, err error) {
	var msgs []byte
	for i, f := range flows {
		if len(f.Key) > 0 {
			msgs = appendMessage(msgs, ctDelete, unix.NLM_F_ACK, uint32(i+1), f.Key[0], 0, f.Key[1:])
		}
	}
	if len(msgs) == 0 {
		return 0, nil
	}
	if err := s.send(msgs); err != nil {
		return 0, err
	}
	for {
		b, err := s.receive(true)
		if errors.Is(err, unix.EAGAIN) { // every answer was there when the send returned
			return n, nil
		}
		if err != nil {
			return n, err
		}
		err = messages(b, func(m message) error {
			if m.typ != unix.NLMSG_ERROR {
				return nil
			}
			err := ackError(m.body)
			if err == nil {
				n++
			}
			if errors.Is(err, unix.ENOENT) { // it ended by itself
				return nil
			}
			return err
		})
		if err != nil {
			return n, err
		}
	}
}
