package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"gatehouse/services/commit"
	"gatehouse/services/dhcp"
	"gatehouse/services/link/wan"
	"gatehouse/services/quarantine"
	"gatehouse/store"
	"gatehouse/web/auth"
)

// disk is what the box remembers: gatehouse.db for configuration, accounts and
// sessions, leases.db for leases, so that the two never wait for each other.
type disk struct {
	path string
	log  *slog.Logger

	db, leaseDB *store.DB // db is nil while broken
	broken      error     // why gatehouse.db could not be opened

	revisions commit.Revisions
	drafts    commit.Drafts
	snapshots *store.Snapshots
	accounts  *switched[auth.Account]
	sessions  *switched[auth.Session]
	secrets   *switched[string] // "setup-code"
	chosen    *switched[netip.Prefix]
	leases    leaseTable

	shutOut    *switched[quarantine.Entry]
	strikes    *switched[[]time.Time]
	acts       *switched[quarantine.Act]
	exemptions *switched[quarantine.Exemption]

	wan *store.Table[wan.Lease]
}

// openDisk opens both databases. A damaged gatehouse.db is not an error: broken
// says so, and accounts come from the newest snapshot. A second instance is one.
func openDisk(dir string, log *slog.Logger) (*disk, error) {
	d := &disk{path: filepath.Join(dir, "gatehouse.db"), log: log, snapshots: store.NewSnapshots(filepath.Join(dir, "snapshots"))}
	d.accounts, d.sessions = &switched[auth.Account]{}, &switched[auth.Session]{}
	d.secrets, d.chosen = &switched[string]{}, &switched[netip.Prefix]{}
	d.shutOut, d.strikes = &switched[quarantine.Entry]{}, &switched[[]time.Time]{}
	d.acts, d.exemptions = &switched[quarantine.Act]{}, &switched[quarantine.Exemption]{}
	db, err := store.Open(d.path, log)
	if locked, ok := errors.AsType[*store.ErrLocked](err); ok {
		return nil, fmt.Errorf("gatehouse is already running on %s (process %d)", dir, locked.PID)
	}
	if err != nil {
		d.broken = err
		log.Error("the store cannot be opened", "err", err)
		d.memory()
	} else {
		d.use(db)
	}
	if err := d.openLeases(filepath.Join(dir, "leases.db")); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// use takes tables and log from an open database.
func (d *disk) use(db *store.DB) {
	d.db, d.broken = db, nil
	d.revisions, d.drafts = store.NewLog[commit.Record](db, "revisions"), store.NewTable[commit.Draft](db, "drafts")
	d.accounts.set(store.NewTable[auth.Account](db, "accounts"))
	d.sessions.set(auth.NewSpill[auth.Session](d.log, store.NewTable[auth.Session](db, "sessions")))
	d.secrets.set(store.NewTable[string](db, "secrets"))
	d.chosen.set(store.NewTable[netip.Prefix](db, "setup-ports"))
	d.shutOut.set(store.NewTable[quarantine.Entry](db, "quarantine"))
	d.strikes.set(store.NewTable[[]time.Time](db, "strikes"))
	d.acts.set(store.NewTable[quarantine.Act](db, "acts"))
	d.exemptions.set(store.NewTable[quarantine.Exemption](db, "exemptions"))
}

// memory keeps accounts of the newest snapshot, and sessions, in memory: in SAFE
// MODE people sign in as before.
func (d *disk) memory() {
	accounts := map[string]auth.Account{}
	all, err := d.snapshots.Snapshots()
	if err != nil {
		d.log.Error("read the snapshots", "err", err)
	}
	for _, b := range all { // newest first: the first that can be read says who may in
		s, _, err := commit.ReadSnapshot(b)
		if err == nil {
			err = json.Unmarshal(s.Extra, &accounts)
		}
		if err == nil {
			break
		}
		d.log.Error("read the accounts of a snapshot", "err", err)
	}
	d.accounts.set(auth.NewMemory(accounts))
	d.sessions.set(auth.NewMemory(map[string]auth.Session{}))
	d.secrets.set(auth.NewMemory(map[string]string{}))
	d.chosen.set(auth.NewMemory(map[string]netip.Prefix{}))
	d.shutOut.set(auth.NewMemory(map[string]quarantine.Entry{}))
	d.strikes.set(auth.NewMemory(map[string][]time.Time{}))
	d.acts.set(auth.NewMemory(map[string]quarantine.Act{}))
	d.exemptions.set(auth.NewMemory(map[string]quarantine.Exemption{}))
}

// reopen sets a broken store aside and makes a new one with the accounts of a snapshot.
func (d *disk) reopen(_ context.Context, extra []byte) (commit.Revisions, commit.Drafts, error) {
	if d.db != nil {
		if err := d.db.Close(); err != nil {
			d.log.Warn("close the broken store", "err", err)
		}
	}
	old, err := store.SetAside(d.path)
	if err != nil {
		return nil, nil, err
	}
	d.log.Warn("the broken store was set aside", "as", old)
	db, err := store.Open(d.path, d.log)
	if err != nil {
		return nil, nil, err
	}
	accounts := map[string]auth.Account{}
	if len(extra) > 0 {
		if err := json.Unmarshal(extra, &accounts); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("read the accounts of the snapshot: %w", err), db.Close())
		}
	}
	if err := store.NewTable[auth.Account](db, "accounts").PutAll(accounts); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	d.use(db)
	return d.revisions, d.drafts, nil
}

// openLeases opens leases.db. A damaged one is set aside: clients ask for the
// addresses they have and get them again (INIT-REBOOT), a dead box helps nobody.
func (d *disk) openLeases(path string) error {
	db, err := store.Open(path, d.log)
	if err != nil {
		old, aside := store.SetAside(path)
		if aside != nil {
			return errors.Join(fmt.Errorf("open the lease store: %w", err), aside)
		}
		d.log.Error("the lease store cannot be read and was set aside", "err", err, "as", old)
		if db, err = store.Open(path, d.log); err != nil {
			return fmt.Errorf("open the lease store: %w", err)
		}
	}
	d.leaseDB = db
	d.leases = leaseTable{store.NewTable[dhcp.Lease](db, "leases")}
	d.wan = store.NewTable[wan.Lease](db, "wan")
	return nil
}

func (d *disk) close() error {
	var errs []error
	for _, db := range []*store.DB{d.db, d.leaseDB} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// leaseTable is the lease store as the DHCP server asks for it.
type leaseTable struct{ t *store.Table[dhcp.Lease] }

func (l leaseTable) All(context.Context) ([]dhcp.Lease, error) {
	all, err := l.t.All()
	out := make([]dhcp.Lease, 0, len(all))
	for _, v := range all {
		out = append(out, v)
	}
	return out, err
}

func (l leaseTable) Put(_ context.Context, rows []dhcp.Lease) error {
	all := make(map[string]dhcp.Lease, len(rows))
	for _, r := range rows {
		all[r.Key()] = r
	}
	return l.t.PutAll(all)
}

func (l leaseTable) Delete(_ context.Context, addrs []netip.Addr) error {
	keys := make([]string, len(addrs))
	for i, a := range addrs {
		keys[i] = a.String()
	}
	return l.t.Delete(keys...)
}

// table is what web/auth and services/quarantine keep their values in.
type table[T any] interface {
	Get(key string) (T, bool, error)
	Put(key string, v T) error
	PutAll(rows map[string]T) error
	Delete(keys ...string) error
	All() (map[string]T, error)
}

// switched is a table that a new store can take the place of, while it is in use.
type switched[T any] struct {
	changed func() // after every Put and Delete that lasts; may be nil

	mu sync.RWMutex // guards t
	t  table[T]
}

func (s *switched[T]) told(err error) error {
	if err == nil && s.changed != nil {
		s.changed()
	}
	return err
}

func (s *switched[T]) set(t table[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t = t
}

func (s *switched[T]) now() table[T] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.t
}

// Get reads from the table of the moment.
func (s *switched[T]) Get(key string) (T, bool, error) { return s.now().Get(key) }

// Put writes to the table of the moment.
func (s *switched[T]) Put(key string, v T) error { return s.told(s.now().Put(key, v)) }

// PutAll writes to the table of the moment.
func (s *switched[T]) PutAll(rows map[string]T) error { return s.told(s.now().PutAll(rows)) }

// Delete deletes from the table of the moment.
func (s *switched[T]) Delete(keys ...string) error { return s.told(s.now().Delete(keys...)) }

// All lists the table of the moment.
func (s *switched[T]) All() (map[string]T, error) { return s.now().All() }
