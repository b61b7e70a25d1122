package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

func TestTableKeepsAcrossReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gatehouse.db")
	db := open(t, path)
	things := NewTable[thing](db, "things")
	if all, err := things.All(); len(all) != 0 || err != nil {
		t.Fatal(all, err)
	}
	if err := things.PutAll(map[string]thing{"a": {"a", 1}, "b": {"b", 2}, "c": {"c", 3}}); err != nil {
		t.Fatal(err)
	}
	if err := things.Delete("b", "never there"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	things = NewTable[thing](open(t, path), "things")
	all, err := things.All()
	if len(all) != 2 || all["a"].N != 1 || all["c"].N != 3 || err != nil {
		t.Fatal(all, err)
	}
	if _, ok, err := things.Get("b"); ok || err != nil {
		t.Fatal(ok, err)
	}
}

// scribble changes one byte of a stored value, as a failing disk would.
func scribble(t *testing.T, db *DB, bucket string, key []byte) {
	t.Helper()
	err := db.bolt.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		v := bytes.Clone(b.Get(key))
		v[len(v)/2] ^= 1
		return b.Put(key, v)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRecordDamageIsToldAndTheRestIsRead(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "gatehouse.db"))
	things, log := NewTable[thing](db, "things"), NewLog[thing](db, "log")
	if err := things.PutAll(map[string]thing{"a": {"a", 1}, "b": {"b", 2}}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := log.Append(thing{"x", i}); err != nil {
			t.Fatal(err)
		}
	}
	scribble(t, db, "things", []byte("b"))
	scribble(t, db, "log", seqKey(2))

	var bad *ErrDamaged
	if _, ok, err := things.Get("b"); ok || !errors.As(err, &bad) || bad.What != "things/b" {
		t.Fatal(ok, err)
	}
	if all, err := things.All(); len(all) != 1 || !errors.As(err, &bad) {
		t.Fatal(all, err)
	}
	if _, ok, err := log.Get(2); ok || !errors.As(err, &bad) || bad.What != "log/2" {
		t.Fatal(ok, err)
	}
	if err := log.Trim(func(uint64, thing) bool { return false }); err != nil {
		t.Fatal(err)
	}
	var left []uint64
	log.Range(func(seq uint64, _ thing, err error) bool {
		left = append(left, seq)
		return errors.As(err, &bad)
	})
	if !slices.Equal(left, []uint64{2}) {
		t.Fatalf("after trimming all: %v, want the damaged one kept", left)
	}
}

func TestLogRangesNewestFirstAndNumbersAreNotReused(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "gatehouse.db"))
	log := NewLog[thing](db, "log")
	for i := range 100 {
		if seq, err := log.Append(thing{"x", i}); seq != uint64(i+1) || err != nil {
			t.Fatal(seq, err)
		}
	}
	if err := log.Trim(func(seq uint64, v thing) bool { return v.N >= 40 && seq < 100 }); err != nil {
		t.Fatal(err)
	}
	if seq, err := log.Append(thing{"y", 100}); seq != 101 || err != nil {
		t.Fatal(seq, err)
	}
	if err := log.Update(50, thing{"changed", 50}); err != nil {
		t.Fatal(err)
	}
	if err := log.Update(7, thing{}); err == nil {
		t.Fatal("Update of a trimmed number was accepted")
	}
	var got []string
	err := log.Range(func(seq uint64, v thing, err error) bool {
		got = append(got, fmt.Sprintf("%d %s", seq, v.Name))
		// yield may write: no transaction is open while it runs.
		return err == nil && log.Update(seq, v) == nil
	})
	if err != nil || len(got) != 60 || got[0] != "101 y" || got[1] != "99 x" || got[59] != "41 x" || !slices.Contains(got, "50 changed") {
		t.Fatal(len(got), got, err)
	}
}

func TestSnapshotsNewestVerifiedFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	s := NewSnapshots(dir)
	if all, err := s.Snapshots(); len(all) != 0 || err != nil {
		t.Fatal(all, err)
	}
	for i := range 25 {
		if err := s.Snapshot([]byte(fmt.Sprint("config ", i))); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(files) != 20 {
		t.Fatalf("%d files, want 20: %v", len(files), files)
	}
	for i, damage := range []func(string) error{
		func(p string) error { return os.Truncate(p, 0) },
		func(p string) error { return os.Truncate(p, 70) },
		func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("0", 64)+"\nconfig 22"), 0o600) },
	} {
		if err := damage(files[19-i]); err != nil {
			t.Fatal(err)
		}
	}
	// A write that power loss cut short is a .tmp file: never seen as a snapshot.
	os.WriteFile(filepath.Join(dir, "0000000099.snap.tmp"), []byte("half"), 0o600)
	all, err := s.Snapshots()
	var bad *ErrDamaged
	if len(all) != 17 || string(all[0]) != "config 21" || string(all[16]) != "config 5" || !errors.As(err, &bad) {
		t.Fatalf("%d, first %q, %v", len(all), all[0], err)
	}
	if err := s.Snapshot([]byte("next")); err != nil {
		t.Fatal(err)
	}
	if all, _ := s.Snapshots(); string(all[0]) != "next" {
		t.Fatalf("first is %q", all[0])
	}
}
