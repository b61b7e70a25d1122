package commit

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"gatehouse/firewall"
)

// NewID mints a ULID: 48 bits of milliseconds, then 80 random bits, written in
// 26 characters of Crockford's base 32 (github.com/ulid/spec). Ids of one
// millisecond are in no order.
func NewID() firewall.ID {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(b[6:])
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	var out [26]byte
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = digits[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return firewall.ID(out[:])
}
