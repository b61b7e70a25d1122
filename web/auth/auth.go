// Package auth knows who may in: accounts and their passwords, the sessions of
// browsers, and how often a source may guess. It stores only hashes.
package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Account is one administrator.
type Account struct {
	Name    string    `json:"name"` // 1-32 of a-z 0-9 . _ -, a letter first
	Hash    string    `json:"hash"` // argon2id, with its parameters
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"` // of the password
}

// Table is where accounts (by name) and sessions (by the hash of their secret)
// are kept. Get reports false when there is no such key; Delete of a missing
// key is no error. It must be safe for concurrent use.
type Table[T any] interface {
	Get(key string) (T, bool, error)
	Put(key string, value T) error
	Delete(keys ...string) error
	All() (map[string]T, error)
}

// Auth checks passwords and keeps sessions.
type Auth struct {
	log      *slog.Logger
	accounts Table[Account]
	sessions Table[Session]
	hasher   *Hasher
	throttle *Throttle

	// mu makes each read-change-write of a session whole: a request that only
	// notes "seen" must not bring back a session that just ended.
	mu sync.Mutex
}

// New returns an Auth. The throttle is shared with every other door that takes
// a password.
func New(log *slog.Logger, accounts Table[Account], sessions Table[Session], hasher *Hasher, throttle *Throttle) *Auth {
	return &Auth{log: log, accounts: accounts, sessions: sessions, hasher: hasher, throttle: throttle}
}

// Waiting returns the sources that guessed too often, and how long each has to wait.
func (a *Auth) Waiting() map[netip.Prefix]time.Duration { return a.throttle.Waiting() }

// ErrWrong is the answer to a wrong name or password; which of the two is not
// told. WrongText says it to a person.
var ErrWrong = errors.New("wrong user name or password")

// WrongText is the sentence for ErrWrong.
const WrongText = "The user name or the password is not right."

// Throttled is the answer to a source that guessed too often. The connection
// it came on is to be closed.
type Throttled struct{ Wait time.Duration }

func (e Throttled) Error() string {
	return fmt.Sprintf("Too many wrong tries from your address. Wait %s.", wait(e.Wait))
}

func wait(d time.Duration) string {
	if d <= time.Minute {
		return fmt.Sprintf("%d seconds", int(d.Seconds())+1)
	}
	return fmt.Sprintf("%d minutes", int((d+time.Minute-1)/time.Minute))
}

// Check returns the account with this name and password. It takes as long for
// a name that does not exist. Errors: ErrWrong, Throttled (before any hash is
// computed), the context's, the store's.
func (a *Auth) Check(ctx context.Context, from netip.Addr, name, password string) (Account, error) {
	if wait := a.throttle.Try(from); wait > 0 {
		return Account{}, Throttled{Wait: wait}
	}
	acc, known, err := a.accounts.Get(name)
	if err != nil {
		a.throttle.Forgive(from) // our fault, not a guess
		return Account{}, fmt.Errorf("read account: %w", err)
	}
	hash := acc.Hash
	if !known {
		hash = ""
	}
	ok, err := a.hasher.Match(ctx, hash, password)
	if err != nil {
		return Account{}, fmt.Errorf("check password: %w", err)
	}
	if !known || !ok {
		a.log.Warn("login refused", "from", from, "known", known)
		return Account{}, ErrWrong
	}
	a.throttle.Forgive(from)
	return acc, nil
}

// Any reports whether there is an administrator at all: the first step of the
// wizard lives only while there is none.
func (a *Auth) Any() (bool, error) {
	all, err := a.accounts.All()
	if err != nil {
		return false, fmt.Errorf("list accounts: %w", err)
	}
	return len(all) > 0, nil
}

// ErrTaken is the answer to a second account with a name.
var ErrTaken = errors.New("there is already an account with this name")

// Create makes an account. Name and password must have passed NameProblem and
// PasswordProblem. Errors: ErrTaken, the context's, the store's.
func (a *Auth) Create(ctx context.Context, name, password string) (Account, error) {
	if p := errors.Join(refusal(NameProblem(name)), refusal(PasswordProblem(name, password))); p != nil {
		return Account{}, p
	}
	hash, err := a.hasher.Hash(ctx, password)
	if err != nil {
		return Account{}, fmt.Errorf("hash password: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, there, err := a.accounts.Get(name); err != nil {
		return Account{}, fmt.Errorf("read account: %w", err)
	} else if there {
		return Account{}, ErrTaken
	}
	now := time.Now().UTC()
	acc := Account{Name: name, Hash: hash, Created: now, Changed: now}
	if err := a.accounts.Put(name, acc); err != nil {
		return Account{}, fmt.Errorf("store account: %w", err)
	}
	return acc, nil
}

// SetPassword changes the password of an account and ends all its sessions
// except keep (Session.ID; empty: all).
func (a *Auth) SetPassword(ctx context.Context, name, password, keep string) error {
	if err := refusal(PasswordProblem(name, password)); err != nil {
		return err
	}
	hash, err := a.hasher.Hash(ctx, password)
	if err != nil {
		return fmt.Errorf("hash password: %w", err)
	}
	if err := a.store(name, hash); err != nil {
		return err
	}
	return a.EndAll(name, keep)
}

func (a *Auth) store(name, hash string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	acc, there, err := a.accounts.Get(name)
	if err != nil {
		return fmt.Errorf("read account: %w", err)
	}
	if !there {
		return fmt.Errorf("there is no account %q", name)
	}
	acc.Hash, acc.Changed = hash, time.Now().UTC()
	if err := a.accounts.Put(name, acc); err != nil {
		return fmt.Errorf("store account: %w", err)
	}
	return nil
}

func refusal(problem string) error {
	if problem == "" {
		return nil
	}
	return errors.New(problem)
}

// NameProblem says what is wrong with a user name; empty when nothing is.
func NameProblem(name string) string {
	ok := len(name) >= 1 && len(name) <= 32 && name[0] >= 'a' && name[0] <= 'z'
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("._-", c) >= 0)
	}
	if !ok {
		return "User name: use 1–32 lower-case letters, digits, dot, dash or underscore; a letter first."
	}
	return ""
}
