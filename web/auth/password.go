package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
)

// The fixed parameters of argon2id (RFC 9106): 19 MiB, one lane. Only the
// number of passes is fitted to the machine.
const (
	memory  = 19 * 1024 // KiB
	lanes   = 1
	keyLen  = 32
	saltLen = 16
	target  = 150 * time.Millisecond // of one hash, between 100 and 300 ms
	maxTime = 64                     // passes, also the most that a stored hash may ask for
)

// Hasher computes argon2id hashes, one at a time: many logins at once must not
// take the memory or the processors of the router.
type Hasher struct {
	turn  chan struct{} // holds one token while nobody hashes
	fit   sync.Once     // guards passes and dummy
	pass  uint32
	dummy string // hash that no password has, as costly as a real one
}

// NewHasher returns a Hasher that measures the machine at its first use.
func NewHasher() *Hasher {
	h := &Hasher{turn: make(chan struct{}, 1)}
	h.turn <- struct{}{}
	return h
}

// Hash returns the hash of a password with its parameters, as PHC string.
// It waits for its turn until ctx ends.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	if err := h.wait(ctx); err != nil {
		return "", err
	}
	defer h.done()
	return h.hash(password), nil
}

// Match reports whether the password has this hash. With an empty hash it
// works as long and reports false.
func (h *Hasher) Match(ctx context.Context, hash, password string) (bool, error) {
	if err := h.wait(ctx); err != nil {
		return false, err
	}
	defer h.done()
	real := hash != ""
	if !real {
		hash = h.dummy
	}
	var version, mem, passes, threads uint32
	parts := strings.Split(hash, "$") // "", argon2id, v=, m=,t=,p=, salt, key
	if len(parts) != 6 || parts[1] != "argon2id" {
		return false, fmt.Errorf("a stored password hash is not argon2id")
	}
	_, err1 := fmt.Sscanf(parts[2], "v=%d", &version)
	_, err2 := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &mem, &passes, &threads)
	salt, err3 := base64.RawStdEncoding.DecodeString(parts[4])
	key, err4 := base64.RawStdEncoding.DecodeString(parts[5])
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || version != argon2.Version ||
		mem > 1<<18 || passes == 0 || passes > maxTime || threads == 0 || threads > 8 || len(key) < 16 {
		return false, fmt.Errorf("a stored password hash is damaged")
	}
	got := argon2.IDKey([]byte(password), salt, passes, mem, uint8(threads), uint32(len(key)))
	return subtle.ConstantTimeCompare(got, key) == 1 && real, nil
}

func (h *Hasher) wait(ctx context.Context) error {
	select {
	case <-h.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	h.fit.Do(h.measure)
	return nil
}

func (h *Hasher) done() { h.turn <- struct{}{} }

// measure fits the number of passes to the machine: by the best of a few runs,
// since what else it does at start must not make hashes cheap for ever.
func (h *Hasher) measure() {
	salt := make([]byte, saltLen)
	each := target
	for range 4 {
		start := time.Now()
		argon2.IDKey([]byte("measure"), salt, 1, memory, lanes, keyLen)
		each = max(min(each, time.Since(start)), time.Millisecond)
	}
	h.pass = uint32(min((target+each-1)/each, maxTime))
	h.dummy = h.hash(rand.Text())
}

func (h *Hasher) hash(password string) string {
	salt := make([]byte, saltLen)
	_, _ = rand.Read(salt) // never fails (crypto/rand since Go 1.24)
	key := argon2.IDKey([]byte(password), salt, h.pass, memory, lanes, keyLen)
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, memory, h.pass, lanes,
		b64.EncodeToString(salt), b64.EncodeToString(key))
}

// PasswordProblem says what is wrong with a new password for this user name;
// empty when nothing is. Length is all that counts, and that it is not one of
// the first that anybody tries.
func PasswordProblem(name, password string) string {
	n := utf8.RuneCountInString(password)
	low := strings.ToLower(password)
	switch {
	case !utf8.ValidString(password):
		return "Password: this is not valid UTF-8 text."
	case n < 12:
		return "Password: use at least 12 characters."
	case n > 128:
		return "Password: use at most 128 characters."
	case name != "" && low == strings.ToLower(name):
		return "Password: it must not be the user name."
	case common(low) || name != "" && strings.Trim(strings.ReplaceAll(low, strings.ToLower(name), ""), "0123456789!.-_") == "":
		return "Password: this one is on the list of common passwords."
	default:
		return ""
	}
}

// common reports whether a lower-case password is among those tried first:
// a common word or two, or a walk over the keys, filled up with digits.
func common(low string) bool {
	rest := strings.Trim(low, "0123456789!?.-_@#$ ")
	first, _ := utf8.DecodeRuneInString(low)
	if rest == "" || strings.Trim(low, string(first)) == "" {
		return true
	}
	for _, word := range commonWords() {
		rest = strings.ReplaceAll(rest, word, "")
	}
	return strings.Trim(rest, "0123456789!?.-_@#$ ") == ""
}

func commonWords() []string {
	return []string{
		"passw0rd", "password", "passwort", "p@ssword", "p@ssw0rd", "kennwort", "geheim", "secret", "changeme", "change", "letmein",
		"welcome", "willkommen", "administrator", "admin", "gatehouse", "firewall", "router", "default", "login", "master",
		"qwertyuiop", "qwertzuiop", "qwerty", "qwertz", "asdfghjkl", "asdfgh", "zxcvbnm", "yxcvbnm", "1q2w3e4r5t6z", "1q2w3e4r5t6y", "1q2w3e4r5t", "1q2w3e4r",
		"1qaz2wsx3edc", "1qaz2wsx", "iloveyou", "monkey", "dragon", "sunshine", "princess", "football", "baseball", "superman", "batman",
		"trustno", "abcdefghijkl", "abcdef", "abc", "hello", "hallo", "shadow", "internet", "computer", "security", "access", "pfsense", "opnsense", "root", "user", "test", "the", "is", "my",
	}
}
