package store

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of 2 MiB that only this test's thread sees.
func smallDisk(t *testing.T) string {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread and its mounts end with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill takes all room that is left.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, n := range []int{64 << 10, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(bytes.Repeat([]byte{1}, n))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	return func() { os.Remove(path) }
}

func TestDBFullDiskRefusesAndRecovers(t *testing.T) {
	dir := smallDisk(t)
	db := open(t, filepath.Join(dir, "gatehouse.db"))
	things, log := NewTable[thing](db, "things"), NewLog[[]byte](db, "log")
	if err := things.Put("a", thing{"a", 1}); err != nil {
		t.Fatal(err)
	}
	if seq, err := log.Append([]byte("one")); seq != 1 || err != nil {
		t.Fatal(seq, err)
	}
	free := fill(t, dir)
	big := bytes.Repeat([]byte{7}, 200<<10)
	if _, err := log.Append(big); !errors.Is(err, ErrFull) {
		t.Fatalf("Append on a full disk = %v, want ErrFull", err)
	}
	if err := NewSnapshots(filepath.Join(dir, "snapshots")).Snapshot(big); !errors.Is(err, ErrFull) {
		t.Fatalf("Snapshot on a full disk = %v, want ErrFull", err)
	}
	if v, ok, err := things.Get("a"); v.N != 1 || !ok || err != nil {
		t.Fatalf("reading on a full disk: %v %v %v", v, ok, err)
	}
	free()
	if seq, err := log.Append(big); seq != 2 || err != nil {
		t.Fatalf("Append after room was made = %d, %v", seq, err)
	}
	if err := things.Put("a", thing{"a", 2}); err != nil {
		t.Fatal(err)
	}
	db.Close()
	db = open(t, filepath.Join(dir, "gatehouse.db"))
	if v, ok, err := NewLog[[]byte](db, "log").Get(2); !bytes.Equal(v, big) || !ok || err != nil {
		t.Fatal(len(v), ok, err)
	}
}

func TestDBFullDiskAtFirstStartIsToldAndStartsLater(t *testing.T) {
	dir := smallDisk(t)
	free := fill(t, dir)
	if _, err := Open(filepath.Join(dir, "gatehouse.db"), slog.New(slog.DiscardHandler)); !errors.Is(err, ErrFull) {
		t.Fatalf("Open = %v, want ErrFull", err)
	}
	free()
	open(t, filepath.Join(dir, "gatehouse.db"))
}

func TestDBReadOnlyDiskIsAnErrorNotDamage(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "gatehouse.db")
	db := open(t, path)
	if err := NewTable[thing](db, "things").Put("a", thing{"a", 1}); err != nil {
		t.Fatal(err)
	}
	db.Close()
	readOnly := func(flag uintptr) {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flag, ""); err != nil {
			t.Fatal(err)
		}
	}
	readOnly(unix.MS_RDONLY)
	_, err := Open(path, slog.New(slog.DiscardHandler))
	var bad *ErrDamaged
	if !errors.Is(err, syscall.EROFS) || errors.As(err, &bad) {
		t.Fatalf("Open = %v, want read-only file system", err)
	}
	readOnly(0)
	if v, ok, err := NewTable[thing](open(t, path), "things").Get("a"); v.N != 1 || !ok || err != nil {
		t.Fatal(v, ok, err)
	}
}
