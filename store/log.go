package store

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"
)

// batch is how many records Range reads in one transaction, so that a slow
// reader holds no transaction open.
const batch = 32

// Log keeps values of one type in the order they came, numbered from 1. A
// number is never used twice, even after Trim.
type Log[T any] struct {
	db     *DB
	bucket string
}

// NewLog is the log called bucket.
func NewLog[T any](db *DB, bucket string) *Log[T] { return &Log[T]{db, bucket} }

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// Append adds a value and returns its number; it is on disk when the error is
// nil. After an error the number may be used or not: read again.
func (l *Log[T]) Append(v T) (seq uint64, err error) {
	err = l.db.update(func(tx *bbolt.Tx) error {
		b, err := making(tx, l.bucket)
		if err != nil {
			return err
		}
		// A second try after an unknown outcome goes to the same number.
		if seq == 0 {
			if seq, err = b.NextSequence(); err != nil {
				return err
			}
		} else if b.Sequence() < seq {
			if err := b.SetSequence(seq); err != nil {
				return err
			}
		}
		raw, err := pack(l.bucket, seqKey(seq), v)
		if err != nil {
			return err
		}
		return b.Put(seqKey(seq), raw)
	})
	return seq, err
}

// Get reads the value numbered seq; false when there is none. Errors: *ErrDamaged.
func (l *Log[T]) Get(seq uint64) (v T, ok bool, err error) {
	err = l.db.view(func(tx *bbolt.Tx) error {
		b := within(tx, l.bucket)
		if b == nil {
			return nil
		}
		raw := b.Get(seqKey(seq))
		if raw == nil {
			return nil
		}
		ok = true
		v, err = unpack[T](l.bucket, seqKey(seq), raw)
		return err
	})
	return v, ok && err == nil, err
}

// Update replaces the value numbered seq, which must be there.
func (l *Log[T]) Update(seq uint64, v T) error {
	raw, err := pack(l.bucket, seqKey(seq), v)
	if err != nil {
		return err
	}
	return l.db.update(func(tx *bbolt.Tx) error {
		b := within(tx, l.bucket)
		if b == nil || b.Get(seqKey(seq)) == nil {
			return fmt.Errorf("update %s: there is no number %d", l.bucket, seq)
		}
		return b.Put(seqKey(seq), raw)
	})
}

// Range calls yield with each value, newest first, until it returns false. A
// damaged record comes with its *ErrDamaged and a zero value. yield may write to the store.
func (l *Log[T]) Range(yield func(seq uint64, v T, err error) bool) error {
	type record struct {
		seq uint64
		v   T
		err error
	}
	for before := uint64(0); ; {
		var part []record
		err := l.db.view(func(tx *bbolt.Tx) error {
			b := within(tx, l.bucket)
			if b == nil {
				return nil
			}
			for k, raw := step(b.Cursor(), before); k != nil && len(part) < batch; k, raw = step(b.Cursor(), part[len(part)-1].seq) {
				v, err := unpack[T](l.bucket, k, raw)
				part = append(part, record{binary.BigEndian.Uint64(k), v, err})
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, r := range part {
			if !yield(r.seq, r.v, r.err) {
				return nil
			}
		}
		if len(part) < batch {
			return nil
		}
		before = part[len(part)-1].seq
	}
}

// step finds the newest record before seq; 0 = the newest of all.
func step(c *bbolt.Cursor, seq uint64) (key, raw []byte) {
	if seq == 0 {
		return c.Last()
	}
	if k, _ := c.Seek(seqKey(seq)); k == nil {
		return c.Last()
	}
	return c.Prev()
}

// Trim deletes, in one transaction, the records that keep says no to. Damaged
// ones stay: they are evidence, and whoever reads them must notice.
func (l *Log[T]) Trim(keep func(seq uint64, v T) bool) error {
	return l.db.update(func(tx *bbolt.Tx) error {
		b := within(tx, l.bucket)
		if b == nil {
			return nil
		}
		var drop [][]byte
		err := b.ForEach(func(k, raw []byte) error {
			v, err := unpack[T](l.bucket, k, raw)
			if err == nil && !keep(binary.BigEndian.Uint64(k), v) {
				drop = append(drop, append([]byte(nil), k...))
			}
			return nil
		})
		for _, k := range drop {
			if err == nil {
				err = b.Delete(k)
			}
		}
		return err
	})
}
