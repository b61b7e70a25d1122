package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// unpack reads a cpio of the kind newc: "name mode: text", in their order.
func unpack(t *testing.T, b []byte) (list []string) {
	t.Helper()
	field := func(n int) int {
		v, err := strconv.ParseUint(string(b[6+8*n:14+8*n]), 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return int(v)
	}
	for {
		if len(b) < 110 || string(b[:6]) != "070701" {
			t.Fatalf("no entry after %q", list)
		}
		mode, size, name := field(1), field(6), field(11)
		data := (110 + name + 3) &^ 3
		entry := string(b[110 : 110+name-1])
		if entry == "TRAILER!!!" {
			return list
		}
		list = append(list, entry+" "+strconv.FormatInt(int64(mode), 8)+": "+string(b[data:data+size]))
		b = b[(data+size+3)&^3:]
	}
}

func TestArchiveHoldsEveryFileOnceBelowItsFolders(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"a/testdata/x/one.txt": "1", "a/not.txt": "2", ".git/testdata/no.txt": "3"} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a := &archive{}
	a.add("/bin", modeLink, []byte("usr/bin"))
	a.add("/init", modeFile, []byte("abcde"))
	a.add("init", modeFile, []byte("again"))
	if err := a.testdata(root); err != nil {
		t.Fatal(err)
	}
	want := []string{"bin 120777: usr/bin", "init 100755: abcde", "gatehouse 40755: ", "gatehouse/a 40755: ", "gatehouse/a/testdata 40755: ",
		"gatehouse/a/testdata/x 40755: ", "gatehouse/a/testdata/x/one.txt 100755: 1"}
	if got := unpack(t, a.bytes()); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if !bytes.Equal(a.bytes(), a.bytes()) {
		t.Error("it ends twice")
	}
}

func TestGuestAsksForAPackage(t *testing.T) {
	if err := guest(t.Context(), "", []string{"-test.run", "X"}, io.Discard); err == nil {
		t.Error("no package, no error")
	}
}
