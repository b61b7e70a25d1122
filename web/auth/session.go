package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"time"
)

// How long a session lives, and how seldom "seen" is written.
const (
	Idle     = 15 * time.Minute // without a request of a person
	Lifetime = 8 * time.Hour    // whatever happens
	SeenStep = time.Minute
)

// CookieName is the cookie that carries a session's secret. The prefix makes
// browsers refuse it without Secure, with a Domain or with another path.
const CookieName = "__Host-session"

// Session is one browser that is signed in.
type Session struct {
	ID      string     `json:"id"` // SHA-256 of the secret; the key in the table
	Account string     `json:"account"`
	From    netip.Addr `json:"from"`
	Agent   string     `json:"agent"` // what the browser says it is
	Created time.Time  `json:"created"`
	Seen    time.Time  `json:"seen"` // last request of a person, to the minute
}

func (s Session) over(now time.Time) bool {
	return now.Sub(s.Seen) >= Idle || now.Sub(s.Created) >= Lifetime || s.Created.After(now.Add(time.Minute))
}

// Begin signs a browser in: always with a new secret, and the session it had
// before ends. The cookie is set on w.
func (a *Auth) Begin(w http.ResponseWriter, r *http.Request, acc Account, from netip.Addr) (Session, error) {
	if old := secret(r); old != "" {
		if err := a.drop(id(old)); err != nil {
			return Session{}, err
		}
	}
	if err := a.sweep(); err != nil {
		return Session{}, err
	}
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails (crypto/rand since Go 1.24)
	key := base64.RawURLEncoding.EncodeToString(b)
	now := time.Now().UTC()
	s := Session{ID: id(key), Account: acc.Name, From: from, Agent: short(r.UserAgent()), Created: now, Seen: now}
	if err := a.sessions.Put(s.ID, s); err != nil {
		return Session{}, fmt.Errorf("store session: %w", err)
	}
	http.SetCookie(w, cookie(key, int(Lifetime/time.Second)))
	return s, nil
}

// Of returns the session of a request, false when there is none that lives.
// With person the request counts as a sign of life; live events and polls do
// not, or an open tab would never sign out.
func (a *Auth) Of(r *http.Request, person bool) (Session, bool, error) {
	key := secret(r)
	if key == "" {
		return Session{}, false, nil
	}
	s, there, err := a.sessions.Get(id(key))
	if err != nil {
		return Session{}, false, fmt.Errorf("read session: %w", err)
	}
	now := time.Now().UTC()
	if !there || s.over(now) {
		return Session{}, false, nil
	}
	if person && now.Sub(s.Seen) >= SeenStep {
		return a.touch(s.ID, now)
	}
	return s, true, nil
}

func (a *Auth) touch(id string, now time.Time) (Session, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, there, err := a.sessions.Get(id)
	if err != nil {
		return Session{}, false, fmt.Errorf("read session: %w", err)
	}
	if !there {
		return Session{}, false, nil // ended a moment ago
	}
	s.Seen = now
	if err := a.sessions.Put(id, s); err != nil {
		// A full disk must not sign people out who came to make room.
		a.log.Warn("session not refreshed", "err", err)
	}
	return s, true, nil
}

// End signs a browser out.
func (a *Auth) End(w http.ResponseWriter, r *http.Request) error {
	http.SetCookie(w, cookie("", -1))
	if key := secret(r); key != "" {
		return a.drop(id(key))
	}
	return nil
}

// Revoke ends the session with an ID.
func (a *Auth) Revoke(id string) error { return a.drop(id) }

// EndAll ends all sessions of an account except keep (an ID; empty: none).
func (a *Auth) EndAll(account, keep string) error {
	return a.endWhere(func(s Session) bool { return s.Account == account && s.ID != keep })
}

// Sessions returns the sessions that live, of every account.
func (a *Auth) Sessions() ([]Session, error) {
	all, err := a.sessions.All()
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	var live []Session
	now := time.Now()
	for _, s := range all {
		if !s.over(now) {
			live = append(live, s)
		}
	}
	return live, nil
}

func (a *Auth) sweep() error {
	now := time.Now()
	return a.endWhere(func(s Session) bool { return s.over(now) })
}

func (a *Auth) endWhere(gone func(Session) bool) error {
	all, err := a.sessions.All()
	if err != nil {
		return fmt.Errorf("list sessions: %w", err)
	}
	for key, s := range all {
		if gone(s) {
			if err := a.drop(key); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *Auth) drop(id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.sessions.Delete(id); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return nil
}

func cookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: CookieName, Value: value, Path: "/", MaxAge: age,
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

func secret(r *http.Request) string {
	c, err := r.Cookie(CookieName)
	if err != nil || len(c.Value) != 43 {
		return ""
	}
	return c.Value
}

func id(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func short(s string) string {
	if len(s) > 200 {
		s = s[:200]
	}
	return s
}
