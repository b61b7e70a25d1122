package store

import (
	"bufio"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

type thing struct {
	Name string
	N    int
}

func open(t *testing.T, path string) *DB {
	t.Helper()
	db, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// filled makes a database of a few hundred pages and closes it.
func filled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state", "gatehouse.db")
	db := open(t, path)
	things := NewTable[thing](db, "things")
	all := map[string]thing{}
	for i := range 2000 {
		all[strings.Repeat("k", 20)+string(rune('a'+i%26))+strings.Repeat("x", i/26)] = thing{"v", i}
	}
	if err := things.PutAll(all); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDBDamageIsToldAndNeverAFirstStart(t *testing.T) {
	size := func(path string) int64 {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	overwrite := func(path string, at int64, b []byte) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt(b, at)
		return err
	}
	for name, damage := range map[string]func(path string) error{
		"0 bytes":        func(p string) error { return os.Truncate(p, 0) },
		"missing":        os.Remove,
		"truncated":      func(p string) error { return os.Truncate(p, size(p)/2) },
		"cut to 3 pages": func(p string) error { return os.Truncate(p, 3*4096) },
		"cut to 100 B":   func(p string) error { return os.Truncate(p, 100) },
		"zeroed tail":    func(p string) error { return overwrite(p, 2*4096, make([]byte, size(p)-2*4096)) },
		"zeroed half":    func(p string) error { return overwrite(p, size(p)/8, make([]byte, size(p)-size(p)/8)) },
		"both metas bad": func(p string) error { return overwrite(p, 0, make([]byte, 2*4096)) },
		"text":           func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("hello\n", 9999)), 0o600) },
		"0 bytes, marker gone": func(p string) error {
			return errors.Join(os.Truncate(p, 0), os.Remove(p+".mark"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filled(t)
			if err := damage(path); err != nil {
				t.Fatal(err)
			}
			for range 2 { // and the failed try leaves no lock behind
				_, err := Open(path, slog.New(slog.DiscardHandler))
				var bad *ErrDamaged
				if !errors.As(err, &bad) || !strings.Contains(err.Error(), "gatehouse.db") {
					t.Fatalf("Open = %v, want it to be told as damaged", err)
				}
			}
			// The way out: set aside, start over, and the old bytes are still there.
			aside, err := SetAside(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(aside); aside != "" && err != nil {
				t.Fatal(err)
			}
			db := open(t, path)
			if all, err := NewTable[thing](db, "things").All(); len(all) != 0 || err != nil {
				t.Fatalf("after starting over: %d things, %v", len(all), err)
			}
		})
	}
}

func TestDBForeignFileIsRefused(t *testing.T) {
	a, b := filled(t), filled(t)
	if err := os.Rename(a, b); err != nil {
		t.Fatal(err)
	}
	_, err := Open(b, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "another installation") {
		t.Fatalf("Open = %v", err)
	}
}

func TestDBOneTornMetaIsHealed(t *testing.T) {
	path := filled(t)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Page 0 or 1 is the older one; tearing the older loses nothing.
	a, _, _ := readMeta(must(os.Open(path)), 0, 4096)
	b, _, _ := readMeta(must(os.Open(path)), 4096, 4096)
	at := int64(0)
	if a > b {
		at = 4096
	}
	if _, err := f.WriteAt(make([]byte, 64), at+16); err != nil {
		t.Fatal(err)
	}
	f.Close()
	all, err := NewTable[thing](open(t, path), "things").All()
	if len(all) != 2000 || err != nil {
		t.Fatalf("%d things, %v", len(all), err)
	}
}

func must(f *os.File, err error) *os.File {
	if err != nil {
		panic(err)
	}
	return f
}

func TestDBLostMarkerIsWrittenAgain(t *testing.T) {
	path := filled(t)
	if err := os.Remove(path + ".mark"); err != nil {
		t.Fatal(err)
	}
	open(t, path).Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	var bad *ErrDamaged
	if _, err := Open(path, slog.New(slog.DiscardHandler)); !errors.As(err, &bad) {
		t.Fatalf("Open = %v", err)
	}
}

func TestDBFirstStartCutShortStartsOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gatehouse.db")
	if _, err := beginMark(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 5000), 0o600); err != nil { // bbolt got that far
		t.Fatal(err)
	}
	if err := NewTable[thing](open(t, path), "things").Put("a", thing{"a", 1}); err != nil {
		t.Fatal(err)
	}
}

func TestDBSecondInstanceNamesTheHolder(t *testing.T) {
	if path := os.Getenv("STORE_TEST_HOLD"); path != "" {
		open(t, path)
		os.Stdout.WriteString("held\n")
		os.Stdin.Read(make([]byte, 1)) // until the parent closes it
		return
	}
	path := filled(t)
	holder := exec.Command(os.Args[0], "-test.run=^TestDBSecondInstanceNamesTheHolder$")
	holder.Env = append(os.Environ(), "STORE_TEST_HOLD="+path)
	in, _ := holder.StdinPipe()
	out, _ := holder.StdoutPipe()
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatal(line, err)
	}
	_, err := Open(path, slog.New(slog.DiscardHandler))
	var locked *ErrLocked
	if !errors.As(err, &locked) || locked.PID != holder.Process.Pid {
		t.Errorf("Open = %v, want the pid %d", err, holder.Process.Pid)
	}
	if _, err := SetAside(path); !errors.As(err, &locked) {
		t.Errorf("SetAside = %v, want it refused", err)
	}
	holder.Process.Kill() // kill -9 frees the lock
	in.Close()
	holder.Wait()
	if all, err := NewTable[thing](open(t, path), "things").All(); len(all) != 2000 || err != nil {
		t.Fatalf("%d things, %v", len(all), err)
	}
}
