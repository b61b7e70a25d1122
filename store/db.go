// Package store keeps records on disk: a database with typed tables and logs,
// a marker beside it that tells a first start from a loss, and snapshots that
// do not depend on the database. It knows buckets and records, never what a
// rule or a lease is. It is the only door to bbolt.
package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// lockWait is how long Open waits for another process to let go (F09: at most 2 s).
const lockWait = 1500 * time.Millisecond

// own is the bucket that holds what the store knows about itself.
var own = []byte("store")

// DB is an open database. It may be used by several goroutines.
type DB struct {
	path string
	log  *slog.Logger
	bolt *bbolt.DB
	lock *os.File
}

// Open opens the database at path, or makes it at the very first start. Beside
// path it keeps path.lock (who has it open) and path.mark (that it was made,
// and its identity), because bbolt takes a file of 0 bytes for a new database
// (kernel fact 8). Errors: *ErrLocked when another process has it, *ErrDamaged
// when the file is missing, empty, cut, foreign or broken although it was made
// before, ErrFull when there is no room to make it.
func Open(path string, log *slog.Logger) (*DB, error) {
	lock, err := takeLock(path+".lock", lockWait)
	if err != nil {
		return nil, err
	}
	db, err := openLocked(path, log)
	if err != nil {
		lock.Close()
		return nil, err
	}
	db.lock = lock
	return db, nil
}

func openLocked(path string, log *slog.Logger) (*DB, error) {
	mark, err := readMark(path)
	if err != nil {
		return nil, err
	}
	first, err := isFirst(path, mark)
	if err != nil {
		return nil, err
	}
	if first {
		if mark, err = beginMark(path); err != nil {
			return nil, err
		}
	} else if err := checkFile(path); err != nil {
		return nil, err
	}
	b, err := openBolt(path)
	if err != nil {
		return nil, err
	}
	db := &DB{path: path, log: log, bolt: b}
	if first {
		err = db.begin(mark)
	} else {
		err = db.check(mark)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return db, nil
}

// isFirst reports whether nothing was ever kept at path. A marker that says
// "begun" is a first start that a crash cut short: nothing can be lost by
// starting over.
func isFirst(path string, m *mark) (bool, error) {
	st, err := os.Stat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return false, told(path, "look at database", err)
	case m != nil && !m.Made:
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, told(path, "start over", err)
		}
		return true, nil
	case m != nil && missing:
		return false, &ErrDamaged{What: path, Why: "the file is gone"}
	case m == nil && missing:
		return true, nil
	case st.Size() == 0:
		return false, &ErrDamaged{What: path, Why: "the file is empty"}
	}
	return false, nil
}

// openBolt opens the file and turns what bbolt panics about into ErrDamaged.
// It keeps hold of the file itself, since a panic inside Open leaves it locked.
func openBolt(path string) (b *bbolt.DB, err error) {
	var file *os.File
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if file != nil {
				// The mapping that bbolt leaves behind would keep the lock beyond Close.
				_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
				file.Close()
			}
			b, err = nil, &ErrDamaged{What: path, Why: fmt.Sprint(r)}
		}
	}()
	opts := *bbolt.DefaultOptions
	opts.Timeout = lockWait
	opts.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag, mode)
		file = f
		return f, err
	}
	b, err = bbolt.Open(path, 0o600, &opts)
	if err != nil {
		return nil, told(path, "open database", err)
	}
	return b, nil
}

// begin makes a new database durable before the marker says that it exists.
func (db *DB) begin(m *mark) error {
	err := db.update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(own)
		if err != nil {
			return err
		}
		return b.Put([]byte("id"), []byte(m.ID))
	})
	if err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(db.path)); err != nil {
		return told(db.path, "make database", err)
	}
	m.Made = true
	return writeMark(db.path, m)
}

// check runs bbolt's own check and compares the identity with the marker. A
// marker that got lost is written again: the database proves itself.
func (db *DB) check(m *mark) error {
	var id string
	err := db.view(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return &ErrDamaged{What: db.path, Why: err.Error()}
		}
		if b := tx.Bucket(own); b != nil {
			id = string(b.Get([]byte("id")))
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case id == "":
		return &ErrDamaged{What: db.path, Why: "it is not a database of this program"}
	case m == nil:
		db.log.Warn("store marker was missing, written again", "path", db.path)
		return writeMark(db.path, &mark{ID: id, Made: true})
	case m.ID != id:
		return &ErrDamaged{What: db.path, Why: "it belongs to another installation"}
	}
	return nil
}

// Close lets go of the database.
func (db *DB) Close() error {
	err := db.bolt.Close()
	db.lock.Close()
	return err
}

// ID is the identity of this database, for ever.
func (db *DB) ID() (string, error) {
	var id string
	err := db.view(func(tx *bbolt.Tx) error {
		id = string(tx.Bucket(own).Get([]byte("id")))
		return nil
	})
	return id, err
}

// SetAside moves a damaged database at path out of the way and takes back its
// marker, so that the next Open starts afresh. It returns where the old file
// is now ("" when there was none). The snapshots stay. Errors: *ErrLocked.
func SetAside(path string) (string, error) {
	lock, err := takeLock(path+".lock", lockWait)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	// The marker says "begun" first: a crash in between starts over, it does not report a loss again.
	if err := writeMark(path, &mark{ID: rand.Text(), Made: false}); err != nil {
		return "", err
	}
	aside := path + ".damaged-" + time.Now().UTC().Format("20060102-150405")
	err = os.Rename(path, aside)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", told(path, "set damaged database aside", err)
	}
	return aside, syncDir(filepath.Dir(path))
}

// view reads; a page that cannot be read is an error, not the end of the process.
func (db *DB) view(fn func(*bbolt.Tx) error) error { return db.guard("read", db.bolt.View, fn) }

// update writes in one transaction, on disk when it returns nil. After an error
// the outcome is unknown: the meta page may have reached the disk (F03). So it
// is done once more, which is safe since every fn here sets what it sets
// whatever was there before, and which writes fresh pages: a second fsync of
// the same ones would be believed wrongly.
func (db *DB) update(fn func(*bbolt.Tx) error) error {
	err := db.guard("write", db.bolt.Update, fn)
	if err == nil || !errors.Is(err, errUnknown) {
		return err
	}
	db.log.LogAttrs(context.Background(), slog.LevelWarn, "store write failed, trying once more", slog.Any("err", err))
	return db.guard("write", db.bolt.Update, fn)
}

func (db *DB) guard(doing string, run func(func(*bbolt.Tx) error) error, fn func(*bbolt.Tx) error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &ErrDamaged{What: db.path, Why: fmt.Sprint(r)}
		}
	}()
	var inside error
	err = run(func(tx *bbolt.Tx) error {
		inside = fn(tx)
		return inside
	})
	if err != nil && err == inside {
		return err // fn's own refusal: nothing was written
	}
	return told(db.path, doing, err)
}

// errUnknown marks an error after which the record may or may not be on disk.
var errUnknown = errors.New("outcome unknown")

// told gives an error of the system its type.
func told(path, doing string, err error) error {
	var damaged *ErrDamaged
	switch {
	case err == nil:
		return nil
	case errors.As(err, &damaged):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s %s: %w", doing, path, errors.Join(ErrFull, errUnknown))
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return &ErrDamaged{What: path, Why: err.Error()}
	}
	return fmt.Errorf("%s %s: %w (%w)", doing, path, err, errUnknown)
}
