package store

import (
	"errors"

	"go.etcd.io/bbolt"
)

// Table keeps values of one type under text keys.
type Table[T any] struct {
	db     *DB
	bucket string
}

// NewTable is the table called bucket. Two tables of one bucket share their records.
func NewTable[T any](db *DB, bucket string) *Table[T] { return &Table[T]{db, bucket} }

// Get reads one value; false when there is none. Errors: *ErrDamaged.
func (t *Table[T]) Get(key string) (v T, ok bool, err error) {
	err = t.db.view(func(tx *bbolt.Tx) error {
		b := within(tx, t.bucket)
		if b == nil {
			return nil
		}
		raw := b.Get([]byte(key))
		if raw == nil {
			return nil
		}
		ok = true
		v, err = unpack[T](t.bucket, []byte(key), raw)
		return err
	})
	return v, ok && err == nil, err
}

// Put writes one value; it is on disk when nil is returned. Errors: ErrFull.
func (t *Table[T]) Put(key string, v T) error { return t.PutAll(map[string]T{key: v}) }

// PutAll writes all values in one transaction: all or none.
func (t *Table[T]) PutAll(all map[string]T) error {
	raw := make(map[string][]byte, len(all))
	for k, v := range all {
		b, err := pack(t.bucket, []byte(k), v)
		if err != nil {
			return err
		}
		raw[k] = b
	}
	return t.db.update(func(tx *bbolt.Tx) error {
		b, err := making(tx, t.bucket)
		if err != nil {
			return err
		}
		for k, v := range raw {
			if err := b.Put([]byte(k), v); err != nil {
				return err
			}
		}
		return nil
	})
}

// Delete removes the keys in one transaction; one that is not there is no error.
func (t *Table[T]) Delete(keys ...string) error {
	return t.db.update(func(tx *bbolt.Tx) error {
		b := within(tx, t.bucket)
		if b == nil {
			return nil
		}
		for _, k := range keys {
			if err := b.Delete([]byte(k)); err != nil {
				return err
			}
		}
		return nil
	})
}

// All reads every value. Damaged ones are left out and told by the error, which
// then joins one *ErrDamaged for each: the readable rest is returned with it.
func (t *Table[T]) All() (map[string]T, error) {
	all := map[string]T{}
	var bad []error
	err := t.db.view(func(tx *bbolt.Tx) error {
		b := within(tx, t.bucket)
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, raw []byte) error {
			v, err := unpack[T](t.bucket, k, raw)
			if err != nil {
				bad = append(bad, err)
				return nil
			}
			all[string(k)] = v
			return nil
		})
	})
	return all, errors.Join(append(bad, err)...)
}
