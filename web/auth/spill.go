package auth

import (
	"log/slog"
	"maps"
	"sync"
)

// Spill is a Table that keeps in memory what the table below it cannot take: on
// a full disk people must be able to sign in, to make room. What was kept here
// only is gone when the program ends, and what was deleted here only is back.
type Spill[T any] struct {
	log   *slog.Logger
	below Table[T]

	mu   sync.Mutex    // guards over, and the order of writes
	over map[string]*T // nil: deleted
}

// NewSpill returns a Spill over a table.
func NewSpill[T any](log *slog.Logger, below Table[T]) *Spill[T] {
	return &Spill[T]{log: log, below: below, over: map[string]*T{}}
}

// Get returns the value of key, false when there is none.
func (s *Spill[T]) Get(key string) (T, bool, error) {
	s.mu.Lock()
	v, here := s.over[key]
	s.mu.Unlock()
	if !here {
		return s.below.Get(key)
	}
	if v == nil {
		var none T
		return none, false, nil
	}
	return *v, true, nil
}

// Put stores value under key; it never fails.
func (s *Spill[T]) Put(key string, value T) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.below.Put(key, value); err != nil {
		s.log.Warn("kept in memory only", "err", err)
		s.over[key] = &value
		return nil
	}
	delete(s.over, key)
	return nil
}

// PutAll stores every row, one by one; it never fails.
func (s *Spill[T]) PutAll(rows map[string]T) error {
	for key, value := range rows {
		_ = s.Put(key, value) // never fails
	}
	return nil
}

// Delete removes keys; it never fails.
func (s *Spill[T]) Delete(keys ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.below.Delete(keys...)
	if err != nil {
		s.log.Warn("deleted in memory only", "err", err)
	}
	for _, key := range keys {
		if delete(s.over, key); err != nil {
			s.over[key] = nil
		}
	}
	return nil
}

// All returns a copy of everything.
func (s *Spill[T]) All() (map[string]T, error) {
	all, err := s.below.All()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.over) > 0 {
		all = maps.Clone(all)
	}
	for key, v := range s.over {
		if v == nil {
			delete(all, key)
		} else {
			all[key] = *v
		}
	}
	return all, err
}
