package kernel

import (
	"gatehouse/firewall/ruleset"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// reg32 is the second of the 32-bit registers that lie under register 1.
const reg32 = unix.NFT_REG32_01

// stmt appends the expressions of one statement.
func (p *program) stmt(s ruleset.Stmt) {
	switch s := s.(type) {
	case ruleset.Match:
		p.match(s)
	case portPair:
		p.put(load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 4))
		p.cmp(expr.CmpOpEq, []byte(s))
	case ruleset.NoRouteBack:
		p.put(&expr.Fib{Register: unix.NFT_REG_1, FlagSADDR: true, FlagIIF: true, ResultOIF: true, FlagPRESENT: true})
		p.cmp(expr.CmpOpEq, make([]byte, 4))
	case ruleset.VMap:
		p.vmap(s)
	case ruleset.Verdict:
		p.put(&expr.Verdict{Kind: expr.VerdictKind(int32(verdictCode(s))), Chain: s.Chain})
	case ruleset.Count:
		p.put(&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: s.Name})
	case ruleset.Log:
		l := &expr.Log{Key: 1 << unix.NFTA_LOG_GROUP, Group: s.Group}
		if s.Prefix != "" {
			l.Key, l.Data = l.Key|1<<unix.NFTA_LOG_PREFIX, []byte(s.Prefix)
		}
		p.put(l)
	case ruleset.Limit:
		p.put(limit(s))
	case ruleset.Meter:
		p.meter(s)
	case ruleset.SetMark:
		p.setMark(s)
	case ruleset.RejectWith:
		if s.Reset {
			p.put(&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
			return
		}
		p.put(&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED})
	case ruleset.DNAT:
		p.dnat(s)
	case ruleset.Masquerade:
		p.put(&expr.Masq{})
	case ruleset.ClampMSS:
		p.put(&expr.Rt{Register: unix.NFT_REG_1, Key: expr.RtTCPMSS})
		p.put(&expr.Byteorder{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Op: expr.ByteorderHton, Len: 2, Size: 2})
		p.put(&expr.Exthdr{SourceRegister: unix.NFT_REG_1, Type: 2, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt})
	case ruleset.Label:
		p.label(s)
	default:
		p.fail("unknown statement %T", s)
	}
}

func limit(l ruleset.Limit) *expr.Limit {
	burst := l.Burst
	if burst == 0 {
		burst = 5
	}
	return &expr.Limit{Type: expr.LimitTypePkts, Rate: l.Rate, Unit: expr.LimitTime(l.Seconds()), Burst: burst, Over: l.Over}
}

// meter puts the key into the set; what is there runs its limit.
func (p *program) meter(m ruleset.Meter) {
	d := &expr.Dynset{SrcRegKey: unix.NFT_REG_1, SetName: m.Set, Operation: unix.NFT_DYNSET_OP_ADD, Timeout: m.Timeout}
	if m.Update {
		d.Operation = unix.NFT_DYNSET_OP_UPDATE
	}
	switch {
	case m.Open > 0 && m.Limit.Rate > 0:
		p.fail("two limits for set %s", m.Set)
	case m.Open > 0:
		d.Exprs = []expr.Any{&expr.Connlimit{Count: m.Open, Flags: expr.NFT_CONNLIMIT_F_INV}}
	case m.Limit.Rate > 0:
		l := limit(m.Limit)
		l.Over = true
		d.Exprs = []expr.Any{l}
	}
	p.loadMasked(m.Key, m.Mask)
	p.put(d)
}

func (p *program) setMark(m ruleset.SetMark) {
	p.put(&expr.Ct{Key: expr.CtKeyMARK, Register: unix.NFT_REG_1})
	p.put(&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: 4,
		Mask: []byte(ruleset.U32(m.Keep &^ m.Set)), Xor: []byte(ruleset.U32(m.Set))})
	p.put(&expr.Ct{Key: expr.CtKeyMARK, Register: unix.NFT_REG_1, SourceRegister: true})
}

// label fills register 1 with the label (design 7): rule, in-interface,
// revision, free; and writes all of it to the connection.
func (p *program) label(l ruleset.Label) {
	words := ruleset.U32(l.Rule) + ruleset.U32(0) + ruleset.U32(l.Revision) + ruleset.U32(0)
	p.put(&expr.Immediate{Register: unix.NFT_REG_1, Data: []byte(words)})
	p.put(&expr.Meta{Key: expr.MetaKeyIIF, Register: reg32})
	p.put(&expr.Ct{Key: expr.CtKeyLABELS, Register: unix.NFT_REG_1, SourceRegister: true})
}

func verdictCode(v ruleset.Verdict) uint32 {
	var code expr.VerdictKind
	switch v.Kind {
	case ruleset.Accept:
		code = expr.VerdictAccept
	case ruleset.Drop:
		code = expr.VerdictDrop
	case ruleset.Return:
		code = expr.VerdictReturn
	case ruleset.Goto:
		code = expr.VerdictGoto
	case ruleset.Jump:
		code = expr.VerdictJump
	}
	return uint32(int32(code))
}

func load(base expr.PayloadBase, offset, length uint32) *expr.Payload {
	return &expr.Payload{DestRegister: unix.NFT_REG_1, Base: base, Offset: offset, Len: length}
}

func (p *program) cmp(op expr.CmpOp, data []byte) {
	p.put(&expr.Cmp{Op: op, Register: unix.NFT_REG_1, Data: data})
}

func (p *program) mask(m []byte) {
	p.put(&expr.Bitwise{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, Len: uint32(len(m)), Mask: m, Xor: make([]byte, len(m))})
}

// loadMasked puts the field's bits that are in the mask into register 1.
func (p *program) loadMasked(f ruleset.Field, mask ruleset.Value) {
	p.loadField(f)
	switch len(mask) {
	case 0:
	case f.Type().Len():
		p.mask([]byte(mask))
	default:
		p.fail("mask of %d bytes for %s", len(mask), f)
	}
}

// loadField puts the field into register 1.
func (p *program) loadField(f ruleset.Field) {
	switch f {
	case ruleset.IIFName:
		p.put(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: unix.NFT_REG_1})
	case ruleset.OIFName:
		p.put(&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: unix.NFT_REG_1})
	case ruleset.NFProtoField:
		p.put(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: unix.NFT_REG_1})
	case ruleset.L4Proto:
		p.put(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: unix.NFT_REG_1})
	case ruleset.CTStateField:
		p.put(&expr.Ct{Key: expr.CtKeySTATE, Register: unix.NFT_REG_1})
	case ruleset.CTStatusField:
		p.put(&expr.Ct{Key: expr.CtKeySTATUS, Register: unix.NFT_REG_1})
	case ruleset.CTMark:
		p.put(&expr.Ct{Key: expr.CtKeyMARK, Register: unix.NFT_REG_1})
	case ruleset.CTDirection:
		p.put(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: unix.NFT_REG_1})
	case ruleset.FibDaddrType:
		p.put(&expr.Fib{Register: unix.NFT_REG_1, FlagDADDR: true, ResultADDRTYPE: true})
	case ruleset.FibDaddrIIFType:
		p.put(&expr.Fib{Register: unix.NFT_REG_1, FlagDADDR: true, FlagIIF: true, ResultADDRTYPE: true})
	default:
		base, offset, ok := place(f)
		if !ok {
			p.fail("unknown field %d", f)
			return
		}
		p.put(load(base, offset, uint32(f.Type().Len())))
	}
}

// place is where in a header the field stands.
func place(f ruleset.Field) (base expr.PayloadBase, offset uint32, ok bool) {
	const network, transport = expr.PayloadBaseNetworkHeader, expr.PayloadBaseTransportHeader
	switch f {
	case ruleset.IPSaddr:
		return network, 12, true
	case ruleset.IPDaddr:
		return network, 16, true
	case ruleset.IP6HopLimit:
		return network, 7, true
	case ruleset.IP6Saddr:
		return network, 8, true
	case ruleset.IP6Daddr:
		return network, 24, true
	case ruleset.THSport, ruleset.TCPSport, ruleset.UDPSport, ruleset.SCTPSport, ruleset.ICMPTypeField, ruleset.ICMPv6TypeField:
		return transport, 0, true
	case ruleset.THDport, ruleset.TCPDport, ruleset.UDPDport, ruleset.SCTPDport:
		return transport, 2, true
	case ruleset.TCPFlagsField:
		return transport, 13, true
	}
	return 0, 0, false
}

func (p *program) match(m ruleset.Match) {
	eq := expr.CmpOpEq
	if m.Not {
		eq = expr.CmpOpNeq
	}
	bits := m.Field == ruleset.CTStateField || m.Field == ruleset.CTStatusField
	switch {
	case m.Set != "":
		p.loadMasked(m.Field, m.Mask)
		p.put(&expr.Lookup{SourceRegister: unix.NFT_REG_1, SetName: m.Set, Invert: m.Not})
	case len(m.In) == 0:
		p.fail("match of %s without values", m.Field)
	case len(m.In) > 1:
		p.matchAny(m)
	case len(m.In[0].Lo) != m.Field.Type().Len() || len(m.In[0].Hi) != m.Field.Type().Len():
		p.fail("value of %d bytes for %s", len(m.In[0].Lo), m.Field)
	case bits:
		p.loadField(m.Field)
		p.mask([]byte(m.In[0].Lo))
		p.cmp(expr.CmpOpNeq-eq, make([]byte, 4)) // any bit set, or none
	case m.In[0].Single():
		p.loadMasked(m.Field, m.Mask)
		p.cmp(eq, []byte(m.In[0].Lo))
	case m.Mask != "", hostOrder(m.Field.Type()) && m.Field.Type().Len() > 1:
		p.fail("range of %s", m.Field)
	default:
		p.matchRange(m.Field, m.In[0], eq)
	}
}

// matchAny matches an anonymous set.
func (p *program) matchAny(m ruleset.Match) {
	set := ruleset.Set{Key: []ruleset.Type{m.Field.Type()}}
	var members []ruleset.Element
	for _, r := range m.In {
		set.Interval = set.Interval || !r.Single()
		members = append(members, ruleset.Element{Key: []ruleset.Range{r}})
	}
	elements, err := elementsOf(set, members)
	if err != nil {
		p.fail("%w", err)
		return
	}
	def := define(set)
	def.flags |= unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT
	def.size = uint32(len(elements))
	p.loadMasked(m.Field, m.Mask)
	p.lookupAnon(anonSet{def, userOrder(set.Key, nil), elements}, m.Not)
}

// matchRange matches a network by its prefix, any other range by its borders.
func (p *program) matchRange(f ruleset.Field, r ruleset.Range, eq expr.CmpOp) {
	base, offset, ok := place(f)
	if t := f.Type(); ok && (t == ruleset.IPv4Addr || t == ruleset.IPv6Addr) {
		if net, ok := ruleset.PrefixOf(r); ok {
			n := net.Bits() / 8
			if n > 0 && net.Bits()%8 == 0 {
				p.put(load(base, offset, uint32(n)))
				p.cmp(eq, []byte(r.Lo[:n]))
				return
			}
			p.loadField(f)
			p.mask(netMask(net.Bits(), t.Len()))
			p.cmp(eq, []byte(r.Lo))
			return
		}
	}
	p.loadField(f)
	if eq == expr.CmpOpNeq {
		p.put(&expr.Range{Op: expr.CmpOpNeq, Register: unix.NFT_REG_1, FromData: []byte(r.Lo), ToData: []byte(r.Hi)})
		return
	}
	p.cmp(expr.CmpOpGte, []byte(r.Lo))
	p.cmp(expr.CmpOpLte, []byte(r.Hi))
}

func netMask(bits, length int) []byte {
	m := make([]byte, length)
	for i := range bits {
		m[i/8] |= 1 << (7 - i%8)
	}
	return m
}

func (p *program) vmap(v ruleset.VMap) {
	t := v.Field.Type()
	set := anonSet{order: userOrder([]ruleset.Type{t}, nil)}
	set.def = define(ruleset.Set{Key: []ruleset.Type{t}, Size: uint32(len(v.Arms))})
	set.def.flags = unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT | unix.NFT_SET_MAP
	set.def.dataType = nftDataVerdict
	for _, a := range v.Arms {
		if len(a.Key) != t.Len() {
			p.fail("value of %d bytes for %s", len(a.Key), v.Field)
			return
		}
		set.elements = append(set.elements, element{key: []byte(a.Key), verdict: &a.Verdict})
	}
	p.loadMasked(v.Field, v.Mask)
	p.lookupAnon(set, false)
}

// dnat rewrites to a fixed place, or to what the map says of the port.
func (p *program) dnat(d ruleset.DNAT) {
	n := &expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: unix.NFT_REG_1}
	if d.IPv6 || d.To.Is6() {
		n.Family = unix.NFPROTO_IPV6
	}
	switch {
	case d.Map != "":
		p.put(load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2))
		p.put(&expr.Lookup{SourceRegister: unix.NFT_REG_1, DestRegister: unix.NFT_REG_1, IsDestRegSet: true, SetName: d.Map})
		n.RegProtoMin = reg32 // the port lies behind the address
		if n.Family == unix.NFPROTO_IPV6 {
			n.RegProtoMin = unix.NFT_REG_2
		}
	case !d.To.IsValid():
		p.fail("dnat without address")
	default:
		p.put(&expr.Immediate{Register: unix.NFT_REG_1, Data: d.To.AsSlice()})
		if d.Port != 0 {
			p.put(&expr.Immediate{Register: unix.NFT_REG_2, Data: []byte(ruleset.Port(d.Port))})
			n.RegProtoMin, n.Specified = unix.NFT_REG_2, true
		}
	}
	p.put(n)
}
