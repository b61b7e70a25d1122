package store

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// mark is the file beside the database. Made turns true only after the
// database is on disk, so "begun" and "lost" are never mixed up.
type mark struct {
	ID   string `json:"id"`
	Made bool   `json:"made"`
}

func readMark(path string) (*mark, error) {
	b, err := os.ReadFile(path + ".mark")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, told(path, "read marker", err)
	}
	var m mark
	if json.Unmarshal(b, &m) != nil || m.ID == "" {
		return nil, nil // as good as lost; the database must prove itself
	}
	return &m, nil
}

func beginMark(path string) (*mark, error) {
	m := &mark{ID: rand.Text()}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, told(path, "make folder", err)
	}
	return m, writeMark(path, m)
}

func writeMark(path string, m *mark) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return told(path, "write marker", writeWhole(path+".mark", b))
}

// writeWhole puts b at path so that after a crash there is the old file or the
// new one, never a part: a new file, fsync, rename, fsync of the folder.
func writeWhole(path string, b []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		os.Remove(tmp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// takeLock takes the lock file for this process and writes its pid into it.
// The lock dies with the process, the pid in the file is only its label.
func takeLock(path string, wait time.Duration) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, told(path, "make folder", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, told(path, "open lock", err)
	}
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, told(path, "lock", err)
		}
		if time.Now().After(end) {
			b := make([]byte, 20)
			n, _ := f.ReadAt(b, 0)
			pid, _ := strconv.Atoi(string(bytes.TrimSpace(b[:n])))
			f.Close()
			return nil, &ErrLocked{Path: path, PID: pid}
		}
	}
	// A full disk must not keep us from starting: the pid is a courtesy.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

// checkFile reads the two meta pages as bbolt's format 2 lays them out (page
// header of 16 bytes, then magic, version, page size, flags, root, sequence,
// freelist, pages in use, transaction, FNV-1a of it all) and refuses a file
// that is shorter than the newest valid one says: bbolt maps it all the same,
// and touching a page beyond the end kills the process instead of failing.
func checkFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return told(path, "open database", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return told(path, "look at database", err)
	}
	var found bool
	var newest, need uint64
	for page := int64(1024); page <= 64<<10; page *= 2 {
		for _, at := range []int64{0, page} {
			txid, pages, ok := readMeta(f, at, page)
			if ok && (!found || txid > newest) {
				found, newest, need = true, txid, pages*uint64(page)
			}
		}
	}
	switch {
	case !found:
		return &ErrDamaged{What: path, Why: "neither meta page is valid"}
	case uint64(st.Size()) < need:
		return &ErrDamaged{What: path, Why: fmt.Sprintf("%d of %d bytes are missing at its end", need-uint64(st.Size()), need)}
	}
	return nil
}

func readMeta(f *os.File, at, page int64) (txid, pages uint64, ok bool) {
	b := make([]byte, 80)
	if _, err := f.ReadAt(b, at); err != nil {
		return 0, 0, false
	}
	m, le := b[16:], binary.NativeEndian
	sum := fnv.New64a()
	sum.Write(m[:56])
	if le.Uint32(m) != 0xED0CDAED || int64(le.Uint32(m[8:])) != page || le.Uint64(m[56:]) != sum.Sum64() {
		return 0, 0, false
	}
	return le.Uint64(m[48:]), le.Uint64(m[40:]), true
}
