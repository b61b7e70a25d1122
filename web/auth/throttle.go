package auth

import (
	"crypto/rand"
	"crypto/subtle"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// maxSources bounds the memory of a throttle; the source that was silent
// longest makes room.
const maxSources = 10_000

// Throttle counts tries per source: an IPv4 address or an IPv6 /64. One serves
// all doors that check the same secret.
type Throttle struct {
	limit int
	pause time.Duration

	mu      sync.Mutex // guards sources
	sources map[netip.Prefix]tries
}

type tries struct {
	n    int
	last time.Time
}

// NewThrottle returns a throttle that lets a source try limit times and then
// makes it wait for pause; a source that is silent for pause starts anew.
// Login: 10, 10 minutes. Setup code: 5, 60 seconds.
func NewThrottle(limit int, pause time.Duration) *Throttle {
	return &Throttle{limit: limit, pause: pause, sources: map[netip.Prefix]tries{}}
}

// Try counts a try before the secret is looked at, so that many at once are no
// way round, and returns 0; or how long the source has to wait. Call Forgive
// when the try was right.
func (t *Throttle) Try(from netip.Addr) time.Duration {
	key, now := source(from), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sources[key]
	if now.Sub(s.last) >= t.pause {
		s = tries{}
	}
	if s.n >= t.limit {
		return t.pause - now.Sub(s.last)
	}
	if len(t.sources) >= maxSources && s.n == 0 {
		t.drop(now)
	}
	t.sources[key] = tries{n: s.n + 1, last: now}
	return 0
}

// Forgive forgets the tries of a source that knew the secret.
func (t *Throttle) Forgive(from netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sources, source(from))
}

// Waiting returns the sources that may not try now, and for how long.
func (t *Throttle) Waiting() map[netip.Prefix]time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[netip.Prefix]time.Duration{}
	for src, s := range t.sources {
		if left := time.Until(s.last.Add(t.pause)); s.n >= t.limit && left > 0 {
			out[src] = left
		}
	}
	return out
}

// drop makes room: everything that is over, and at least the oldest.
func (t *Throttle) drop(now time.Time) {
	var oldest netip.Prefix
	at := now
	for key, s := range t.sources {
		if now.Sub(s.last) >= t.pause {
			delete(t.sources, key)
		} else if s.last.Before(at) || !oldest.IsValid() {
			oldest, at = key, s.last
		}
	}
	if len(t.sources) >= maxSources {
		delete(t.sources, oldest)
	}
}

// source is what counts as one: nobody gets a new try from the next address of
// his own /64.
func source(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the lengths fit; the zero address is one source
	return p
}

// codeLetters has no letter that looks like another.
const codeLetters = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"

// NewCode returns a setup code for the console: XXXX-XXXX, 40 random bits.
func NewCode() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails (crypto/rand since Go 1.24)
	for i := range b {
		b[i] = codeLetters[b[i]&31]
	}
	return string(b[:4]) + "-" + string(b[4:])
}

// SameCode compares a typed setup code with the right one in constant time;
// case, spaces and dashes do not count. An empty code matches nothing.
func SameCode(code, typed string) bool {
	plain := strings.NewReplacer("-", "", " ", "")
	a, b := plain.Replace(strings.ToUpper(code)), plain.Replace(strings.ToUpper(typed))
	return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}
