package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// kept is how many snapshots stay.
const kept = 20

// Snapshots is a folder of whole copies that needs no database to be read:
// what runs when the database is damaged. Each file holds its own SHA-256.
type Snapshots struct {
	dir string
	mu  sync.Mutex // guards the numbering of files in dir
}

// NewSnapshots is the snapshots in dir, which is made when the first is written.
func NewSnapshots(dir string) *Snapshots { return &Snapshots{dir: dir} }

// Snapshot writes b as the newest snapshot, whole or not at all, and lets the
// oldest beyond 20 go. Errors: ErrFull, after which the older ones are untouched.
func (s *Snapshots) Snapshot(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return told(s.dir, "make snapshot folder", err)
	}
	names, err := s.names()
	if err != nil {
		return err
	}
	next := 1
	if len(names) > 0 {
		fmt.Sscanf(names[0], "%d.snap", &next)
		next++
	}
	sum := sha256.Sum256(b)
	whole := append([]byte(hex.EncodeToString(sum[:])+"\n"), b...)
	if err := writeWhole(filepath.Join(s.dir, fmt.Sprintf("%010d.snap", next)), whole); err != nil {
		return told(s.dir, "write snapshot", err)
	}
	for i, name := range names {
		if i >= kept-1 {
			os.Remove(filepath.Join(s.dir, name))
		}
	}
	return nil
}

// Snapshots returns what every undamaged snapshot holds, newest first. The
// error tells which are damaged or that the folder cannot be read; the good
// ones are returned with it. No folder is no snapshots and no error.
func (s *Snapshots) Snapshots() ([][]byte, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var all [][]byte
	var bad []error
	for _, name := range names {
		b, err := readSnapshot(filepath.Join(s.dir, name))
		if err != nil {
			bad = append(bad, err)
			continue
		}
		all = append(all, b)
	}
	return all, errors.Join(bad...)
}

func readSnapshot(path string) ([]byte, error) {
	whole, err := os.ReadFile(path)
	if err != nil {
		return nil, told(path, "read snapshot", err)
	}
	head, body, ok := bytes.Cut(whole, []byte("\n"))
	sum := sha256.Sum256(body)
	if !ok || string(head) != hex.EncodeToString(sum[:]) {
		return nil, &ErrDamaged{What: path, Why: "its checksum is wrong"}
	}
	return body, nil
}

// names lists the snapshot files, newest first.
func (s *Snapshots) names() ([]string, error) {
	ents, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, told(s.dir, "list snapshots", err)
	}
	var names []string
	for _, e := range ents {
		if strings.HasSuffix(e.Name(), ".snap") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}
