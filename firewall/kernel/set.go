package kernel

import (
	"bytes"
	"fmt"
	"slices"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// Numbers of linux/netfilter/nf_tables.h that x/sys lacks.
const (
	nftaSetExpr        = 17
	nftaSetExpressions = 18
	nftaSetElemKeyEnd  = 10
	nftaFieldLen       = 1
	nftSetConcat       = 0x80
	nftDataVerdict     = 0xffffff00
)

// typeID is nft's number of a type, by which nft knows how to list a set
// (nftables, include/datatype.h).
var typeID = map[ruleset.Type]uint32{
	ruleset.NFProto: 2, ruleset.Integer8: 4, ruleset.IPv4Addr: 7, ruleset.IPv6Addr: 8, ruleset.InetProto: 12,
	ruleset.InetService: 13, ruleset.ICMPType: 14, ruleset.TCPFlag: 15, ruleset.Mark: 19, ruleset.CTState: 26, ruleset.CTDir: 27,
	ruleset.CTStatus: 28, ruleset.ICMPv6Type: 29, ruleset.AddrType: 38, ruleset.IfName: 41,
}

// hostOrder reports whether values of the type are numbers in the machine's
// byte order, which intervals cannot be made of.
func hostOrder(t ruleset.Type) bool {
	switch t {
	case ruleset.IfName, ruleset.NFProto, ruleset.CTState, ruleset.CTStatus, ruleset.Mark, ruleset.AddrType, ruleset.Integer8,
		ruleset.TCPFlag, ruleset.CTDir:
		return true
	}
	return false
}

// definition is what of a set cannot change while it lives.
type definition struct {
	flags             uint32
	keyType, keyLen   uint32
	dataType, dataLen uint32
	size              uint32
	fields            string // lengths of the parts of a concatenated interval key
	expr              string // what each element carries: "counter" or nothing
}

// define is the definition of a set.
func define(s ruleset.Set) definition {
	d := definition{size: s.Size}
	d.keyType, d.keyLen = concat(s.Key)
	if s.Interval {
		d.flags |= unix.NFT_SET_INTERVAL
		if len(s.Key) > 1 {
			d.flags |= nftSetConcat
			for _, t := range s.Key {
				d.fields += string(rune(t.Len()))
			}
		}
	}
	if s.Timeout {
		d.flags |= unix.NFT_SET_TIMEOUT
	}
	if s.Dynamic {
		d.flags |= unix.NFT_SET_EVAL
	}
	if s.Counter {
		d.expr = "counter"
	}
	if len(s.Data) > 0 {
		d.flags |= unix.NFT_SET_MAP
		d.dataType, d.dataLen = concat(s.Data)
	}
	return d
}

// concat is the type number and the length of a concatenation: six bits, and a
// multiple of four bytes, for each part.
func concat(types []ruleset.Type) (id, length uint32) {
	if len(types) == 1 {
		return typeID[types[0]], uint32(types[0].Len())
	}
	for _, t := range types {
		id = id<<6 | typeID[t]
		length += uint32(t.Len()+3) &^ 3
	}
	return id, length
}

// paired reports whether the kernel keeps the members of a set with these flags
// as beginnings and ends (rbtree) and not each as one element.
func (d definition) paired() bool {
	return d.flags&unix.NFT_SET_INTERVAL != 0 && d.flags&nftSetConcat == 0
}

// newSet is the body of NFT_MSG_NEWSET. order is nft's byte orders, kept as user data.
func newSet(name string, id uint32, d definition, order attrs) attrs {
	var a, desc attrs
	a.text(unix.NFTA_SET_TABLE, ruleset.Table)
	a.text(unix.NFTA_SET_NAME, name)
	a.u32(unix.NFTA_SET_FLAGS, d.flags)
	a.u32(unix.NFTA_SET_KEY_TYPE, d.keyType)
	a.u32(unix.NFTA_SET_KEY_LEN, d.keyLen)
	if d.flags&unix.NFT_SET_MAP != 0 {
		a.u32(unix.NFTA_SET_DATA_TYPE, d.dataType)
		if d.dataLen > 0 {
			a.u32(unix.NFTA_SET_DATA_LEN, d.dataLen)
		}
	}
	a.u32(unix.NFTA_SET_ID, id)
	if d.size > 0 {
		desc.u32(unix.NFTA_SET_DESC_SIZE, d.size)
	}
	if d.fields != "" {
		var fields attrs
		for _, n := range d.fields {
			var f attrs
			f.u32(nftaFieldLen, uint32(n))
			fields.nest(unix.NFTA_LIST_ELEM, f)
		}
		desc.nest(2 /* NFTA_SET_DESC_CONCAT */, fields)
	}
	if len(desc) > 0 {
		a.nest(unix.NFTA_SET_DESC, desc)
	}
	if len(order) > 0 {
		a.raw(unix.NFTA_SET_USERDATA, order)
	}
	if d.expr != "" {
		a.nest(nftaSetExpr, counterExpr(0, 0))
	}
	return a
}

// counterExpr is a counter that has the values already.
func counterExpr(packets, bytes uint64) attrs {
	var a, data attrs
	data.u64(unix.NFTA_COUNTER_BYTES, bytes)
	data.u64(unix.NFTA_COUNTER_PACKETS, packets)
	a.text(unix.NFTA_EXPR_NAME, "counter")
	a.nest(unix.NFTA_EXPR_DATA, data)
	return a
}

// userOrder is the user data that nft puts on a set so that it can list it:
// the byte order of key and data (libnftnl, enum nftnl_udata_set_types).
func userOrder(key, data []ruleset.Type) attrs {
	u := append(attrs{}, byteOrder(0, key)...)
	if len(data) > 0 {
		u = append(u, byteOrder(1, data)...)
	}
	return u
}

func byteOrder(typ byte, types []ruleset.Type) []byte {
	order := byte(2) // big endian
	switch {
	case len(types) > 1:
		order = 0
	case len(types) == 1 && hostOrder(types[0]):
		order = 1
	}
	return append([]byte{typ, 4}, ruleset.U32(uint32(order))...)
}

// element is one element as the kernel keeps it.
type element struct {
	key, end []byte // end of a concatenated range
	isEnd    bool   // of a paired set: the first value after a member
	open     bool   // of a paired set: the member reaches to the last value and has no end
	data     []byte
	verdict  *ruleset.Verdict
	counts   bool            // it has a counter
	member   ruleset.Element // its timeouts and counts
}

// same names the element by all that counts when two are compared.
func (e element) same() string {
	return fmt.Sprintf("%x %x %t %x", e.key, e.end, e.isEnd, e.data)
}

// elementsOf turns members into elements. A paired set gets them in order, and
// before them, as from nft, an end at zero.
func elementsOf(s ruleset.Set, members []ruleset.Element) ([]element, error) {
	d := define(s)
	var out []element
	for _, m := range members {
		if len(m.Key) != len(s.Key) || len(m.Data) != len(s.Data) {
			return nil, fmt.Errorf("member of %d+%d fields, want %d+%d", len(m.Key), len(m.Data), len(s.Key), len(s.Data))
		}
		e := element{member: m, data: joinValues(m.Data), counts: s.Counter}
		var lo, hi []ruleset.Value
		for i, r := range m.Key {
			if len(r.Lo) != s.Key[i].Len() || len(r.Hi) != s.Key[i].Len() || r.Lo > r.Hi ||
				!s.Interval && !r.Single() || !r.Single() && hostOrder(s.Key[i]) {
				return nil, fmt.Errorf("member %x-%x does not fit the key", string(r.Lo), string(r.Hi))
			}
			lo, hi = append(lo, r.Lo), append(hi, r.Hi)
		}
		e.key = joinValues(lo)
		if d.flags&nftSetConcat != 0 {
			e.end = joinValues(hi)
		}
		if d.paired() {
			e.end = []byte(hi[0]) // for pairs below
		}
		out = append(out, e)
	}
	if d.paired() {
		return pairs(out), nil
	}
	return out, nil
}

// pairs splits members from key to end into beginnings and ends.
func pairs(members []element) []element {
	slices.SortFunc(members, func(a, b element) int { return bytes.Compare(a.key, b.key) })
	var out []element
	for i, m := range members {
		if i == 0 && !zero(m.key) {
			out = append(out, element{key: make([]byte, len(m.key)), isEnd: true})
		}
		after, more := next(m.end)
		m.end, m.open = nil, !more
		out = append(out, m)
		if more {
			out = append(out, element{key: after, isEnd: true})
		}
	}
	return out
}

func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// next is the value after b in network order; ok is false after the last.
func next(b []byte) (v []byte, ok bool) {
	v = bytes.Clone(b)
	for i := len(v) - 1; i >= 0; i-- {
		if v[i]++; v[i] != 0 {
			return v, true
		}
	}
	return v, false
}

// before is the value in front of b in network order.
func before(b []byte) []byte {
	v := bytes.Clone(b)
	for i := len(v) - 1; i >= 0; i-- {
		if v[i]--; v[i] != 0xff {
			break
		}
	}
	return v
}

// joinValues is the values as they lie in registers: of several, each begins at
// a multiple of four bytes.
func joinValues(values []ruleset.Value) []byte {
	if len(values) == 1 {
		return []byte(values[0])
	}
	var b []byte
	for _, v := range values {
		b = append(b, v...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	return b
}

// body is the element as attributes.
func (e element) body() attrs {
	var a attrs
	a.value(unix.NFTA_SET_ELEM_KEY, e.key)
	if e.end != nil {
		a.value(nftaSetElemKeyEnd, e.end)
	}
	switch {
	case e.verdict != nil:
		a.nest(unix.NFTA_SET_ELEM_DATA, verdictData(*e.verdict))
	case e.data != nil:
		a.value(unix.NFTA_SET_ELEM_DATA, e.data)
	}
	if e.isEnd {
		a.u32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	if e.open { // nft's note to itself (libnftnl, NFTNL_UDATA_SET_ELEM_FLAGS)
		a.raw(unix.NFTA_SET_ELEM_USERDATA, append([]byte{1, 4}, ruleset.U32(1)...))
	}
	if e.counts {
		a.nest(unix.NFTA_SET_ELEM_EXPR, counterExpr(e.member.Packets, e.member.Bytes))
	}
	if ms := e.member.Timeout.Milliseconds(); ms > 0 {
		a.u64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(ms))
		if left := e.member.Left.Milliseconds(); left > 0 && left < ms {
			a.u64(unix.NFTA_SET_ELEM_EXPIRATION, uint64(left))
		}
	}
	return a
}

func verdictData(v ruleset.Verdict) attrs {
	var a, data attrs
	a.u32(unix.NFTA_VERDICT_CODE, verdictCode(v))
	if v.Chain != "" {
		a.text(unix.NFTA_VERDICT_CHAIN, v.Chain)
	}
	data.nest(unix.NFTA_DATA_VERDICT, a)
	return data
}

// Chunks of elements: the length of their common attribute has 16 bits only.
const (
	maxElements     = 1000
	maxElementBytes = 60_000
)

// elements appends messages of type msg for the elements; id is the set's when it is of this batch.
func (b *batch) elements(msg, flags uint16, origin ruleset.Origin, set string, id uint32, list []element) {
	var chunk attrs
	n := 0
	flush := func() {
		if n == 0 {
			return
		}
		body := setElems(set, id)
		body.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, chunk)
		b.add(msg, flags, origin, "members of set "+set, body)
		chunk, n = chunk[:0], 0
	}
	for _, e := range list {
		one := e.body()
		if n == maxElements || len(chunk)+len(one) > maxElementBytes {
			flush()
		}
		chunk.nest(unix.NFTA_LIST_ELEM, one)
		n++
	}
	flush()
}

// setElems is the head of a message about a set's elements.
func setElems(set string, id uint32) attrs {
	var a attrs
	a.text(unix.NFTA_SET_ELEM_LIST_TABLE, ruleset.Table)
	a.text(unix.NFTA_SET_ELEM_LIST_SET, set)
	if id != 0 {
		a.u32(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
	}
	return a
}
