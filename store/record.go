package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"

	"go.etcd.io/bbolt"
)

// A record is one byte of format, four of CRC-32C over bucket, key and JSON,
// then the JSON. The key is in the sum so that a value under a wrong key is noticed.
const (
	format = 1
	header = 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(bucket string, key, body []byte) uint32 {
	s := crc32.Update(0, castagnoli, []byte(bucket))
	s = crc32.Update(s, castagnoli, key)
	return crc32.Update(s, castagnoli, body)
}

func pack[T any](bucket string, key []byte, v T) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %s/%x: %w", bucket, key, err)
	}
	b := make([]byte, header, header+len(body))
	b[0] = format
	binary.BigEndian.PutUint32(b[1:], sum(bucket, key, body))
	return append(b, body...), nil
}

func unpack[T any](bucket string, key, b []byte) (v T, err error) {
	damaged := func(why string) (T, error) {
		var none T
		return none, &ErrDamaged{What: fmt.Sprintf("%s/%s", bucket, printable(key)), Why: why}
	}
	switch {
	case len(b) < header:
		return damaged("it is too short")
	case b[0] != format:
		return damaged(fmt.Sprintf("format %d is unknown", b[0]))
	case binary.BigEndian.Uint32(b[1:]) != sum(bucket, key, b[header:]):
		return damaged("its checksum is wrong")
	}
	if err := json.Unmarshal(b[header:], &v); err != nil {
		return damaged(err.Error())
	}
	return v, nil
}

// printable is a key as a person may read it: text, or a number of a log.
func printable(key []byte) string {
	if len(key) == 8 && key[0] == 0 {
		return fmt.Sprint(binary.BigEndian.Uint64(key))
	}
	return string(key)
}

// within runs fn on the bucket, which a read finds empty when nobody wrote to it yet.
func within(tx *bbolt.Tx, bucket string) *bbolt.Bucket { return tx.Bucket([]byte(bucket)) }

func making(tx *bbolt.Tx, bucket string) (*bbolt.Bucket, error) {
	return tx.CreateBucketIfNotExists([]byte(bucket))
}
