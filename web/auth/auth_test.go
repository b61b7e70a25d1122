package auth

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const good = "correct horse battery"

var (
	here  = netip.MustParseAddr("192.168.1.20")
	there = netip.MustParseAddr("192.168.1.21")
)

func newAuth(t *testing.T) *Auth {
	t.Helper()
	a := New(slog.New(slog.NewTextHandler(io.Discard, nil)), NewMemory[Account](nil), NewMemory[Session](nil),
		NewHasher(), NewThrottle(10, 10*time.Minute))
	if _, err := a.Create(t.Context(), "admin", good); err != nil {
		t.Fatal(err)
	}
	return a
}

// enter signs a browser in and returns a request with its cookie.
func enter(t *testing.T, a *Auth) *http.Request {
	t.Helper()
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/login", nil)
	if _, err := a.Begin(w, r, Account{Name: "admin"}, here); err != nil {
		t.Fatal(err)
	}
	r = httptest.NewRequest("GET", "/", nil)
	r.AddCookie(w.Result().Cookies()[0])
	return r
}

func alive(t *testing.T, a *Auth, r *http.Request, person bool) bool {
	t.Helper()
	_, ok, err := a.Of(r, person)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestAccountOpensWithItsPasswordOnly(t *testing.T) {
	a := newAuth(t)
	if _, err := a.Check(t.Context(), here, "admin", good); err != nil {
		t.Errorf("right password: %v", err)
	}
	for _, x := range [][2]string{{"admin", good + " "}, {"admin", ""}, {"nobody", good}, {"", ""}, {"Admin", good}} {
		if _, err := a.Check(t.Context(), here, x[0], x[1]); !errors.Is(err, ErrWrong) {
			t.Errorf("%q: %v", x, err)
		}
	}
	if _, err := a.Create(t.Context(), "admin", good); !errors.Is(err, ErrTaken) {
		t.Errorf("second account of that name: %v", err)
	}
}

func TestThrottledSourceCostsNoHash(t *testing.T) {
	a := newAuth(t)
	for range 10 {
		a.throttle.Try(here)
	}
	<-a.hasher.turn // nobody can hash now
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := a.Check(ctx, here, "admin", good); !errors.As(err, new(Throttled)) {
		t.Errorf("got %v", err)
	}
	a.hasher.done()
	if _, err := a.Check(ctx, there, "admin", good); err != nil {
		t.Errorf("from elsewhere: %v", err)
	}
}

func TestManyTriesAtOnceAreCounted(t *testing.T) {
	a := newAuth(t)
	results := make(chan error, 40)
	for range cap(results) {
		go func() {
			_, err := a.Check(t.Context(), here, "admin", "wrong horse battery")
			results <- err
		}()
	}
	wrong := 0
	for range cap(results) {
		if err := <-results; errors.Is(err, ErrWrong) {
			wrong++
		}
	}
	if wrong != 10 {
		t.Errorf("%d tries were looked at, want 10", wrong)
	}
}

func TestThrottleForgetsAfterThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := NewThrottle(5, time.Minute)
		for i := range 5 {
			if w := th.Try(here); w != 0 {
				t.Fatalf("try %d waits %v", i, w)
			}
		}
		th.Try(netip.MustParseAddr("198.51.100.7")) // once: it need not wait
		time.Sleep(59 * time.Second)
		if w := th.Try(here); w != time.Second {
			t.Errorf("waits %v, want 1s", w)
		}
		if all := th.Waiting(); len(all) != 1 || all[source(here)] != time.Second {
			t.Errorf("waiting are %v", all)
		}
		time.Sleep(time.Second)
		if all := th.Waiting(); len(all) != 0 {
			t.Errorf("after the pause %v are waiting", all)
		}
		if w := th.Try(here); w != 0 {
			t.Errorf("after the pause: waits %v", w)
		}
	})
}

func TestThrottleCountsASixtyFourAsOne(t *testing.T) {
	th := NewThrottle(2, time.Minute)
	for _, x := range []struct {
		addr string
		free bool
	}{
		{"2001:db8::1", true}, {"2001:db8::2", true}, {"2001:db8:0:0:ffff::3", false}, {"2001:db8:0:1::1", true},
		{"192.0.2.1", true}, {"::ffff:192.0.2.1", true}, {"192.0.2.1", false}, {"192.0.2.2", true},
		{"fe80::1%eth0", true}, {"fe80::2%eth1", true}, {"fe80::3", false},
	} {
		if free := th.Try(netip.MustParseAddr(x.addr)) == 0; free != x.free {
			t.Errorf("%s: free %v, want %v", x.addr, free, x.free)
		}
	}
}

func TestThrottleMemoryIsBounded(t *testing.T) {
	th := NewThrottle(2, time.Hour)
	a := netip.MustParseAddr("10.0.0.0")
	for range maxSources + 100 {
		th.Try(a)
		a = a.Next()
	}
	if n := len(th.sources); n > maxSources {
		t.Errorf("%d sources are remembered", n)
	}
}

func TestSessionEndsWhenIdle(t *testing.T) {
	a := newAuth(t)
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, a)
		for range 4 { // live events alone keep nothing alive
			time.Sleep(3 * time.Minute)
			if !alive(t, a, r, false) {
				t.Fatal("ended too early")
			}
		}
		time.Sleep(3 * time.Minute)
		if alive(t, a, r, false) {
			t.Error("lives on with an open tab alone")
		}
	})
}

func TestSessionEndsAfterEightHours(t *testing.T) {
	a := newAuth(t)
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, a)
		start := time.Now()
		for alive(t, a, r, true) {
			time.Sleep(10 * time.Minute)
		}
		if d := time.Since(start); d != Lifetime {
			t.Errorf("ended after %v of work", d)
		}
	})
}

// counter counts writes.
type counter struct {
	*Memory[Session]
	puts int
}

func (c *counter) Put(k string, s Session) error { c.puts++; return c.Memory.Put(k, s) }

func TestSessionIsWrittenOnceAMinute(t *testing.T) {
	table := &counter{Memory: NewMemory[Session](nil)}
	a := newAuth(t)
	a.sessions = table
	synctest.Test(t, func(t *testing.T) {
		r := enter(t, a)
		for range 120 {
			time.Sleep(time.Second)
			alive(t, a, r, true)
		}
		if table.puts != 3 {
			t.Errorf("%d writes in two minutes, want 3", table.puts)
		}
	})
}

func TestEndedSessionIsNotBroughtBack(t *testing.T) {
	a := newAuth(t)
	r := enter(t, a)
	s, _, _ := a.Of(r, false)
	if err := a.Revoke(s.ID); err != nil {
		t.Fatal(err)
	}
	// A request that looked before the end and notes "seen" after it.
	if _, ok, err := a.touch(s.ID, time.Now()); ok || err != nil {
		t.Errorf("touch: %v %v", ok, err)
	}
	if alive(t, a, r, true) {
		t.Error("it lives again")
	}
}

func TestPasswordRules(t *testing.T) {
	for password, problem := range map[string]string{
		good: "", "Übergrößenträger": "", "eleven char": "at least 12", strings.Repeat("ä", 12): "common",
		strings.Repeat("ab", 65): "at most 128", "administrator": "common", "Password123!": "common", "passwordpassword": "common",
		"123456789012": "common", "qwertyuiop12": "common", "franziska-von-x": "user name", "gatehouse2026!": "common",
		"x9#kL2$mQ7pz": "", "tr0ub4dor&3-x": "", "\xff\xfeabcdefghijkl": "UTF-8",
	} {
		got := PasswordProblem("franziska-von-x", password)
		if (problem == "") != (got == "") || !strings.Contains(got, problem) {
			t.Errorf("%q: %q, want %q", password, got, problem)
		}
	}
	for name, ok := range map[string]bool{"admin": true, "a.b_c-9": true, "": false, "9a": false, "Admin": false, "a b": false, strings.Repeat("a", 33): false, "-a": false} {
		if got := NameProblem(name) == ""; got != ok {
			t.Errorf("name %q: %v", name, got)
		}
	}
}

func TestHashSaysHowItWasMade(t *testing.T) {
	h := NewHasher()
	hash, err := h.Hash(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=") || !strings.Contains(hash, ",p=1$") {
		t.Errorf("hash: %s", hash)
	}
	// RFC 9106 has no vector for these parameters; a hash of another machine
	// (other t) must still open.
	other := &Hasher{turn: make(chan struct{}, 1)}
	other.turn <- struct{}{}
	other.fit.Do(func() { other.pass = 1 })
	slower, _ := other.Hash(t.Context(), good)
	if ok, err := h.Match(t.Context(), slower, good); !ok || err != nil {
		t.Errorf("hash with other passes: %v %v", ok, err)
	}
	for _, damaged := range []string{"x", "$argon2id$v=19$m=19456,t=0,p=1$AAAA$AAAA", strings.Replace(hash, "m=19456", "m=4000000000", 1), hash[:len(hash)-30]} {
		if ok, err := h.Match(t.Context(), damaged, good); ok || err == nil {
			t.Errorf("damaged %q: %v %v", damaged, ok, err)
		}
	}
}

func TestSetupCodeIsTypedByPeople(t *testing.T) {
	code := NewCode()
	if len(code) != 9 || code[4] != '-' || code == NewCode() {
		t.Fatalf("code %q", code)
	}
	for typed, ok := range map[string]bool{
		code: true, strings.ToLower(code): true, strings.ReplaceAll(code, "-", ""): true, " " + code[:4] + " " + code[5:] + " ": true,
		code[:8]: false, "": false, code + "A": false,
	} {
		if SameCode(code, typed) != ok {
			t.Errorf("%q for %q: %v", typed, code, !ok)
		}
	}
	if SameCode("", "") || SameCode("-", "") {
		t.Error("no code matches an empty one")
	}
}
