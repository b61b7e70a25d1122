package kernel

import (
	"encoding/binary"
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// attrs is a list of netlink attributes in the making. Numbers are written in
// network order, as all of nf_tables and ctnetlink wants them.
type attrs []byte

// maxAttr is the longest value that the 16 bits of an attribute's length can say.
const maxAttr = 0xffff - unix.NLA_HDRLEN

// raw adds one attribute. A longer value than maxAttr would wrap its length and
// lose elements in silence (kernel fact 2), so callers split before that.
func (a *attrs) raw(typ uint16, value []byte) {
	if len(value) > maxAttr {
		panic("kernel: netlink attribute too long")
	}
	b := binary.NativeEndian.AppendUint16(*a, uint16(unix.NLA_HDRLEN+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	for len(b)%unix.NLA_ALIGNTO != 0 {
		b = append(b, 0)
	}
	*a = b
}

func (a *attrs) nest(typ uint16, inner attrs)  { a.raw(typ|unix.NLA_F_NESTED, inner) }
func (a *attrs) text(typ uint16, s string)     { a.raw(typ, append([]byte(s), 0)) }
func (a *attrs) u32(typ uint16, n uint32)      { a.raw(typ, binary.BigEndian.AppendUint32(nil, n)) }
func (a *attrs) u64(typ uint16, n uint64)      { a.raw(typ, binary.BigEndian.AppendUint64(nil, n)) }
func (a *attrs) value(typ uint16, data []byte) { a.nest(typ, attrOf(unix.NFTA_DATA_VALUE, data)) }

// attrOf is a list of one attribute.
func attrOf(typ uint16, value []byte) attrs {
	var a attrs
	a.raw(typ, value)
	return a
}

var errAttr = errors.New("malformed netlink attribute")

// first is the first attribute of b, with the flag bits of its type taken off,
// and what comes after it. ok is false when b is not even one attribute long; it
// never reads past b, whatever b holds.
func first(b []byte) (typ uint16, value, rest []byte, ok bool) {
	if len(b) < unix.NLA_HDRLEN {
		return 0, nil, nil, false
	}
	n := int(binary.NativeEndian.Uint16(b))
	if n < unix.NLA_HDRLEN || n > len(b) {
		return 0, nil, b, false
	}
	typ = binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	return typ, b[unix.NLA_HDRLEN:n], b[min((n+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):], true
}

// each calls fn for every attribute of b.
func each(b []byte, fn func(typ uint16, value []byte)) error {
	for {
		typ, v, rest, ok := first(b)
		if !ok && rest != nil {
			return errAttr
		}
		if !ok {
			return nil
		}
		fn(typ, v)
		b = rest
	}
}

// find is the value of the first attribute of the type, nil when there is none.
func find(b []byte, path ...uint16) []byte {
	for _, want := range path {
		for {
			typ, v, rest, ok := first(b)
			if !ok {
				return nil
			}
			if b = rest; typ == want {
				b = v
				break
			}
		}
	}
	return b
}

// num is a number of 1, 2, 4 or 8 bytes in network order; 0 for anything else.
func num(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// str is a string up to its NUL.
func str(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
