package auth

import (
	"errors"
	"log/slog"
	"testing"
)

// fragile is a table whose disk can be full.
type fragile struct {
	*Memory[string]
	full error
}

func (f *fragile) Put(key, v string) error {
	if f.full != nil {
		return f.full
	}
	return f.Memory.Put(key, v)
}

func (f *fragile) Delete(keys ...string) error {
	if f.full != nil {
		return f.full
	}
	return f.Memory.Delete(keys...)
}

func TestSpillGoesOnOverAFullDisk(t *testing.T) {
	below := &fragile{Memory: NewMemory(map[string]string{"old": "1", "gone": "2"})}
	s := NewSpill[string](slog.New(slog.DiscardHandler), below)
	want := func(all map[string]string) {
		t.Helper()
		got, err := s.All()
		if err != nil || len(got) != len(all) {
			t.Fatalf("all: %v %v, want %v", got, err, all)
		}
		for k, v := range all {
			if one, ok, err := s.Get(k); got[k] != v || one != v || !ok || err != nil {
				t.Errorf("%s: %q %q %v %v, want %q", k, got[k], one, ok, err, v)
			}
		}
	}
	below.full = errors.New("full")
	if err := errors.Join(s.Put("new", "3"), s.Delete("gone")); err != nil {
		t.Fatal(err)
	}
	want(map[string]string{"old": "1", "new": "3"})
	if _, ok, _ := s.Get("gone"); ok {
		t.Error("what was deleted is there")
	}
	below.full = nil
	if err := errors.Join(s.Put("new", "4"), s.Put("gone", "5"), s.Delete("old")); err != nil {
		t.Fatal(err)
	}
	want(map[string]string{"new": "4", "gone": "5"})
	if _, ok, _ := below.Get("new"); !ok {
		t.Error("what the disk can take again is not on it")
	}
}
