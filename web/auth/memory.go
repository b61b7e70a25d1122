package auth

import (
	"maps"
	"sync"
)

// Memory is a Table that forgets everything when the program ends: sessions in
// SAFE MODE, when the store must not be written.
type Memory[T any] struct {
	mu   sync.Mutex // guards rows
	rows map[string]T
}

// NewMemory returns a Memory that starts with a copy of rows (nil: empty).
func NewMemory[T any](rows map[string]T) *Memory[T] {
	m := &Memory[T]{rows: map[string]T{}}
	maps.Copy(m.rows, rows)
	return m
}

// Get returns the value of key, false when there is none.
func (m *Memory[T]) Get(key string) (T, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.rows[key]
	return v, ok, nil
}

// Put stores value under key.
func (m *Memory[T]) Put(key string, value T) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[key] = value
	return nil
}

// PutAll stores every row.
func (m *Memory[T]) PutAll(rows map[string]T) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.Copy(m.rows, rows)
	return nil
}

// Delete removes keys.
func (m *Memory[T]) Delete(keys ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		delete(m.rows, key)
	}
	return nil
}

// All returns a copy of everything.
func (m *Memory[T]) All() (map[string]T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.rows), nil
}
