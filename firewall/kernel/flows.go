package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"gatehouse/firewall"

	"golang.org/x/sys/unix"
)

// Numbers of linux/netfilter/nfnetlink_conntrack.h.
const (
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaProtoInfo  = 4
	ctaMark       = 8
	ctaID         = 12
	ctaZone       = 18
	ctaLabels     = 22
	ctaFilter     = 25

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

	ctaProtoInfoTCP  = 1
	ctaTCPState      = 1
	ctaTCPFlagsReply = 5
	tcpEstablished   = 3 // of enum tcp_conntrack
	tcpFinWait       = 4
	tcpCloseWait     = 5
	tcpCloseInit     = 4 // IP_CT_TCP_FLAG_CLOSE_INIT: this side closed first
	ctaFilterOrig    = 1 // CTA_FILTER_ORIG_FLAGS
	filterSource     = 1 // CTA_FILTER_F_CTA_IP_SRC
)

// Flows calls fn for each entry of the connection table while the kernel lists
// it, which a flood may make long; an error of fn ends it and is returned. Entries
// that come or go meanwhile may be missing.
func (k *Kernel) Flows(ctx context.Context, fn func(firewall.Flow) error) error {
	devices := map[uint32]string{}
	return k.listFlows(ctx, unix.AF_UNSPEC, nil, func(m message) error {
		f, ok := readFlow(m.family, m.body)
		if !ok {
			return nil
		}
		name, known := devices[f.InIndex]
		if !known {
			name = k.device(f.InIndex)
			devices[f.InIndex] = name
		}
		f.In = name
		return fn(f)
	})
}

// FlowsOf is Flows for the entries whose first packet came from src, by its
// address on the wire. Those of a single address are picked out by the kernel.
func (k *Kernel) FlowsOf(ctx context.Context, src netip.Prefix, fn func(firewall.Flow) error) error {
	return k.flowsOf(ctx, src, func(m message) error {
		f, ok := readFlow(m.family, m.body)
		if !ok {
			return nil
		}
		f.In = k.device(f.InIndex)
		return fn(f)
	})
}

// CutFrom deletes the entries whose first packet came from src, in both
// directions, as Cut does. n is how many there were. It holds a few hundred at a
// time in memory, however many there are.
func (k *Kernel) CutFrom(ctx context.Context, src netip.Prefix) (n int, err error) {
	s, err := k.dial()
	if err != nil {
		return 0, err
	}
	defer s.close()
	var keys [][]byte
	cut := func() error {
		some, err := s.cut(keys)
		n, keys = n+some, keys[:0]
		return err
	}
	// Not the kernel's own flush by filter: 6.1 refuses it, and a kernel that
	// did not know the filter would flush the connections of everybody.
	err = k.flowsOf(ctx, src, func(m message) error {
		if keys = append(keys, flowKey(m.family, m.body)); len(keys) < cutAtOnce {
			return nil
		}
		return cut()
	})
	if err == nil {
		err = cut()
	}
	if err != nil {
		return n, fmt.Errorf("cut the connections of %s: %w", src, err)
	}
	return n, nil
}

// flowsOf calls fn with the entries whose original source is in src. The kernel
// is told which address they should have; it is looked at here all the same: a
// kernel before 5.8 does not know the filter and lists everything.
func (k *Kernel) flowsOf(ctx context.Context, src netip.Prefix, fn func(message) error) error {
	if !src.IsValid() {
		return fmt.Errorf("connections of %s: %w", src, unix.EINVAL)
	}
	src = src.Masked()
	family, filter := uint8(unix.AF_INET6), attrs(nil)
	if src.Addr().Is4() {
		family = unix.AF_INET
	}
	if src.Addr().Is4() && src.IsSingleIP() { // of IPv6 the kernel lists all but that one (6.1, 6.18)
		filter = sourceFilter(src.Addr())
	}
	return k.listFlows(ctx, family, filter, func(m message) error {
		if from, ok := netip.AddrFromSlice(flowSource(m.body)); !ok || !src.Contains(from) {
			return nil
		}
		return fn(m)
	})
}

// sourceFilter asks for the entries of one original source, an IPv4 address.
func sourceFilter(a netip.Addr) attrs {
	var ip, tuple, filter, all attrs
	ip.raw(ctaIPv4Src, a.AsSlice())
	tuple.nest(ctaTupleIP, ip)
	all.nest(ctaTupleOrig, tuple)
	filter.raw(ctaFilterOrig, binary.NativeEndian.AppendUint32(nil, filterSource))
	all.nest(ctaFilter, filter)
	return all
}

// listFlows calls fn with each entry of the family that the filter lets through.
func (k *Kernel) listFlows(ctx context.Context, family uint8, filter attrs, fn func(message) error) error {
	s, err := k.dial()
	if err != nil {
		return err
	}
	defer s.close()
	defer s.stopWith(ctx)()
	var stopped error
	err = s.request(ctGet, unix.NLM_F_DUMP, family, filter, func(m message) error {
		stopped = fn(m)
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
	tuples := 0
	_ = each(b, func(typ uint16, v []byte) {
		switch typ {
		case ctaTupleOrig:
			f.Packet = readTuple(v)
			tuples++
		case ctaTupleReply:
			back := readTuple(v)
			f.To, f.ToPort, f.As, f.AsPort = back.Src, back.SrcPort, back.Dst, back.DstPort
			tuples++
		case ctaProtoInfo:
			f.Open = openTCP(find(v, ctaProtoInfoTCP))
		case ctaMark:
			f.Mark = uint32(num(v))
		case ctaLabels:
			if len(v) >= 12 { // the words of ruleset.Label
				f.Rule, f.InIndex, f.Revision = binary.NativeEndian.Uint32(v), binary.NativeEndian.Uint32(v[4:]), binary.NativeEndian.Uint32(v[8:])
			}
		}
	})
	if tuples < 2 {
		return f, false
	}
	f.Key = flowKey(family, b)
	return f, true
}

// openTCP reports whether the source of a TCP connection has it open: both have,
// or the other side has closed it and the source has not. It counts against its
// limit then; one that the source closed may do so for a moment more, and says nothing.
func openTCP(info []byte) bool {
	switch num(find(info, ctaTCPState)) {
	case tcpEstablished:
		return true
	case tcpFinWait, tcpCloseWait:
		flags := find(info, ctaTCPFlagsReply)
		return len(flags) > 0 && flags[0]&tcpCloseInit != 0
	}
	return false
}

// flowKey is how the kernel names the entry: the attributes to delete it by, and
// its family behind them, where it does not shift them off their alignment.
func flowKey(family uint8, b []byte) []byte {
	var key attrs
	key.nest(ctaTupleOrig, find(b, ctaTupleOrig))
	for _, typ := range []uint16{ctaZone, ctaID} {
		if v := find(b, typ); v != nil {
			key.raw(typ, v)
		}
	}
	return append(key, family)
}

// flowSource is the address that the first packet came from.
func flowSource(b []byte) []byte {
	ip := find(b, ctaTupleOrig, ctaTupleIP)
	if a := find(ip, ctaIPv4Src); a != nil {
		return a
	}
	return find(ip, ctaIPv6Src)
}

func readTuple(b []byte) (p firewall.Packet) {
	ip, proto := find(b, ctaTupleIP), find(b, ctaTupleProto)
	_ = each(ip, func(typ uint16, v []byte) {
		a, _ := netip.AddrFromSlice(v)
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
	for some := range slices.Chunk(flows, cutAtOnce) {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		keys := make([][]byte, len(some))
		for i, f := range some {
			keys[i] = f.Key
		}
		cut, err := s.cut(keys)
		n += cut
		if err != nil {
			return n, fmt.Errorf("cut connections: %w", err)
		}
	}
	return n, nil
}

// cut deletes the entries with the keys in one datagram.
func (s *sock) cut(keys [][]byte) (n int, err error) {
	var msgs []byte
	for i, key := range keys {
		if last := len(key) - 1; last > 0 {
			msgs = appendMessage(msgs, ctDelete, unix.NLM_F_ACK, uint32(i+1), key[last], 0, key[:last])
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
