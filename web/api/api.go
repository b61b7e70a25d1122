// Package api is JSON for the command line: the unix socket's handler. It uses
// the same Writer and the same accounts as the pages, so there is no second way in.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"gatehouse/services/commit"
	"gatehouse/services/link"
	"gatehouse/web/auth"
)

// Status is what `gatehouse status` shows.
type Status struct {
	Revision commit.Revision `json:"revision"` // what runs
	Trial    *commit.Trial   `json:"trial,omitempty"`
	SafeMode string          `json:"safe_mode,omitempty"`
	Lockdown bool            `json:"lockdown,omitempty"`
	Problems []string        `json:"problems,omitempty"`
	Healed   int             `json:"healed,omitempty"`
	Ports    []link.Port     `json:"ports"`
	Pages    []string        `json:"pages"`       // where the web pages answer
	Print    string          `json:"fingerprint"` // of the certificate, SHA-256
}

// Credentials is the body of passwd and admin.
type Credentials struct {
	Name     string `json:"name"`
	Password string `json:"password"`
}

// Restore is the body of restore.
type Restore struct {
	Revision uint64 `json:"revision"`
}

// SetupCode is the body of setup-code.
type SetupCode struct {
	New bool `json:"new"`
}

// Writer is what the console may do with the configuration.
type Writer interface {
	// Undecided is the revision that waits for its confirm (trial), or was
	// confirmed without a click and can still be taken back, and whose it is.
	Undecided() (account string, revision uint64, trial bool)
	Confirm(ctx context.Context, who commit.Who, token string, accepted time.Time) error
	Undo(ctx context.Context, who commit.Who, token string) error
}

// Accounts is who may in.
type Accounts interface {
	Create(ctx context.Context, name, password string) (auth.Account, error)
	SetPassword(ctx context.Context, name, password, keep string) error
}

// Deps is everything that New needs.
type Deps struct {
	Writer   Writer
	Accounts Accounts
	Status   func() Status
	// Code gives the setup code; with anew it makes another, which outside of
	// the first start is allowed in SAFE MODE only.
	Code func(ctx context.Context, anew bool) (string, error)
	// Restore makes a revision run and confirms it, also out of SAFE MODE.
	Restore func(ctx context.Context, n uint64) error
	// Release lets addresses and networks go, as typed, and says what became of each.
	Release func(ctx context.Context, typed []string) (string, error)
	// ShutOut is who is shut out: from an entry on, ShutOutPart of them.
	ShutOut func(from int) ShutOut
}

type api struct{ Deps }

// New is the handler of the socket. Whoever reaches it is the owner of the
// machine: the daemon checks the peer's user id before it hands a connection on.
func New(d Deps) http.Handler {
	a := &api{d}
	m := http.NewServeMux()
	m.HandleFunc("GET /status", answer(func(*http.Request) (any, error) { return a.Status(), nil }))
	m.HandleFunc("POST /confirm", answer(a.confirm))
	m.HandleFunc("POST /undo", answer(a.undo))
	m.HandleFunc("POST /passwd", answer(a.passwd))
	m.HandleFunc("POST /admin", answer(a.admin))
	m.HandleFunc("POST /restore", answer(a.restore))
	m.HandleFunc("POST /setup-code", answer(a.code))
	m.HandleFunc("POST /release", answer(a.release))
	m.HandleFunc("GET /quarantine", answer(a.shutOut))
	return http.MaxBytesHandler(m, 1<<20)
}

// answer writes what f returns as JSON, or its error as one line.
func answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // a client that went away
	}
}

// read decodes a body strictly.
func read(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read request: %w", err)
	}
	return nil
}

// tester is the account whose revision waits, or can still be taken back: the
// console decides in its place.
func (a *api) tester(late bool) (commit.Who, uint64, error) {
	account, n, trial := a.Writer.Undecided()
	if account == "" || !trial && !late {
		return commit.Who{}, 0, commit.ErrNoTrial
	}
	return commit.Who{Account: account, Door: "console"}, n, nil
}

func (a *api) confirm(r *http.Request) (any, error) {
	who, n, err := a.tester(false)
	if err != nil {
		return nil, err
	}
	// The console is no connection that could outlive the change.
	if err := a.Writer.Confirm(r.Context(), who, "", time.Now().Add(time.Hour)); err != nil {
		return nil, err
	}
	return fmt.Sprintf("Revision %d is kept.", n), nil
}

func (a *api) undo(r *http.Request) (any, error) {
	who, n, err := a.tester(true)
	if err != nil {
		return nil, err
	}
	if err := a.Writer.Undo(r.Context(), who, ""); err != nil {
		return nil, err
	}
	return fmt.Sprintf("Revision %d was taken back; its changes are the draft of %s again.", n, who.Account), nil
}

func (a *api) passwd(r *http.Request) (any, error) {
	c, err := credentials(r)
	if err != nil {
		return nil, err
	}
	if err := a.Accounts.SetPassword(r.Context(), c.Name, c.Password, ""); err != nil {
		return nil, err
	}
	return "The password of " + c.Name + " is set; every session of it has ended.", nil
}

func (a *api) admin(r *http.Request) (any, error) {
	c, err := credentials(r)
	if err != nil {
		return nil, err
	}
	if _, err := a.Accounts.Create(r.Context(), c.Name, c.Password); err != nil {
		return nil, err
	}
	return "Administrator " + c.Name + " was added.", nil
}

func credentials(r *http.Request) (Credentials, error) {
	var c Credentials
	if err := read(r, &c); err != nil {
		return c, err
	}
	if p := auth.NameProblem(c.Name); p != "" {
		return c, errors.New(p)
	}
	if p := auth.PasswordProblem(c.Name, c.Password); p != "" {
		return c, errors.New(p)
	}
	return c, nil
}

func (a *api) restore(r *http.Request) (any, error) {
	var in Restore
	if err := read(r, &in); err != nil {
		return nil, err
	}
	if err := a.Restore(r.Context(), in.Revision); err != nil {
		return nil, err
	}
	return fmt.Sprintf("Revision %d runs and is confirmed.", in.Revision), nil
}

func (a *api) code(r *http.Request) (any, error) {
	var in SetupCode
	if err := read(r, &in); err != nil {
		return nil, err
	}
	return a.Code(r.Context(), in.New)
}

// Text is the status for a terminal.
func (s Status) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "revision %d, %s: %s\n", s.Revision.Number, s.Revision.State, s.Revision.Sentence)
	if s.SafeMode != "" {
		fmt.Fprintf(&b, "SAFE MODE: %s\n  way out: gatehouse restore N, or gatehouse setup-code --new to start over\n", s.SafeMode)
	}
	if s.Lockdown {
		b.WriteString("lockdown: nothing passes\n")
	}
	if s.Trial != nil {
		fmt.Fprintf(&b, "waiting for a confirm by %s until %s: gatehouse confirm | undo\n", s.Trial.Account, s.Trial.Deadline.Format(time.TimeOnly))
	}
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "problem: %s\n", p)
	}
	if s.Healed > 0 {
		fmt.Fprintf(&b, "foreign changes put right: %d\n", s.Healed)
	}
	for _, p := range s.Ports {
		b.WriteString(portLine(p))
	}
	for _, u := range s.Pages {
		fmt.Fprintf(&b, "web page: %s\n", u)
	}
	fmt.Fprintf(&b, "certificate fingerprint: %s\n", s.Print)
	return b.String()
}

// portLine is one port for a terminal: "LAN (lan) eth1 up 192.168.1.1/24".
func portLine(p link.Port) string {
	name, state := string(p.Name), "up"
	if name == "" {
		name = "no role"
	} else {
		name += " (" + string(p.Role) + ")"
	}
	switch {
	case !p.Present:
		state = "missing"
	case !p.Up:
		state = "off"
	case !p.Link:
		state = "no cable"
	}
	line := fmt.Sprintf("%-16s %-8s %-9s", name, p.Device, state)
	for _, a := range p.Addrs {
		line += " " + a.String()
	}
	if p.Lease.Addr.IsValid() {
		line += ", lease from " + p.Lease.Server.String() + " until " + p.Lease.Until.Format(time.DateTime)
	}
	for _, s := range p.Problems {
		line += "\n  problem: " + s
	}
	return line + "\n"
}
