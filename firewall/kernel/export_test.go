package kernel

import (
	"encoding/binary"
	"errors"

	"gatehouse/firewall"

	"golang.org/x/sys/unix"
)

// Insert puts entries into the connection table, as if they had been made by
// packets, 1,000 a datagram. All of them have an answer that comes from where
// the first packet went to.
func (k *Kernel) Insert(flows []firewall.Flow) error {
	const ctNew, ctaTimeout = unix.NFNL_SUBSYS_CTNETLINK << 8, 7
	s, err := k.dial()
	if err != nil {
		return err
	}
	defer s.close()
	for len(flows) > 0 {
		some := flows[:min(1000, len(flows))]
		flows = flows[len(some):]
		var msgs []byte
		for i, f := range some {
			var a, tcp, info attrs
			back := firewall.Packet{Src: f.Dst, Dst: f.Src, Proto: f.Proto, SrcPort: f.DstPort, DstPort: f.SrcPort}
			a.nest(ctaTupleOrig, tupleOf(f.Packet))
			a.nest(ctaTupleReply, tupleOf(back))
			a.u32(ctaTimeout, 3600)
			a.u32(ctaMark, f.Mark)
			if f.Proto == unix.IPPROTO_TCP {
				state := byte(1) // SYN_SENT
				if f.Open {
					state = tcpEstablished
				}
				tcp.raw(ctaTCPState, []byte{state})
				info.nest(ctaProtoInfoTCP, tcp)
				a.nest(ctaProtoInfo, info)
			}
			family := uint8(unix.AF_INET)
			if f.Src.Is6() {
				family = unix.AF_INET6
			}
			msgs = appendMessage(msgs, ctNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, uint32(i+1), family, 0, a)
		}
		if err := s.send(msgs); err != nil {
			return err
		}
		for {
			b, err := s.receive(true)
			if errors.Is(err, unix.EAGAIN) {
				break
			}
			if err != nil {
				return err
			}
			if err := messages(b, func(m message) error { return ackError(m.body) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func tupleOf(p firewall.Packet) attrs {
	var ip, proto, tuple attrs
	src, dst := uint16(ctaIPv4Src), uint16(ctaIPv4Dst)
	if p.Src.Is6() {
		src, dst = ctaIPv6Src, ctaIPv6Dst
	}
	ip.raw(src, p.Src.AsSlice())
	ip.raw(dst, p.Dst.AsSlice())
	proto.raw(ctaProtoNum, []byte{p.Proto})
	proto.raw(ctaProtoSrcPort, binary.BigEndian.AppendUint16(nil, p.SrcPort))
	proto.raw(ctaProtoDstPort, binary.BigEndian.AppendUint16(nil, p.DstPort))
	tuple.nest(ctaTupleIP, ip)
	tuple.nest(ctaTupleProto, proto)
	return tuple
}

// OpenTCP is what is made of the state of a TCP connection and the flags of the
// side that did not begin it.
func OpenTCP(state, flags byte) bool {
	var a attrs
	a.raw(ctaTCPState, []byte{state})
	a.raw(ctaTCPFlagsReply, []byte{flags, 0xff})
	return openTCP(a)
}
