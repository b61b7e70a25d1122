// Package commit is the only writer of configuration: drafts of every account,
// numbered revisions, the guard against stale edits, and the timer that takes
// back what nobody confirmed. Design section 4 is its law.
package commit

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/events"
)

// Kernel is where a ruleset runs. No return value of Apply is believed: Verify decides.
type Kernel interface {
	DryRun(context.Context, ruleset.Ruleset) error
	Apply(context.Context, ruleset.Ruleset) error
	Verify(context.Context, ruleset.Ruleset) error
	Stamp(context.Context) (string, error) // "" when our table is not there
}

// Reloader is a service that follows the configuration: link, dhcp ...
type Reloader interface {
	Name() string
	Reload(context.Context, firewall.Config) error
}

// Cutter ends the connections that a configuration denies and leaves the others alone.
type Cutter interface {
	Cut(context.Context, firewall.Config) error
}

// Revisions is where revisions are kept: numbered from 1, on disk when a method returns nil.
type Revisions interface {
	Append(Record) (uint64, error)
	Get(uint64) (Record, bool, error)
	Update(uint64, Record) error
	Range(yield func(uint64, Record, error) bool) error // newest first
	Trim(keep func(uint64, Record) bool) error
}

// Drafts is where drafts are kept, by account.
type Drafts interface {
	Get(account string) (Draft, bool, error)
	Put(account string, d Draft) error
	All() (map[string]Draft, error)
}

// Snapshots is where whole copies are kept that need no database.
type Snapshots interface {
	Snapshot([]byte) error
	Snapshots() ([][]byte, error) // newest first, the undamaged ones
}

// Deps is everything that a Writer works with; all of it is required unless said otherwise.
type Deps struct {
	// Revisions and Drafts may both be nil when the store could not be opened;
	// Broken then says why, and the Writer is in SAFE MODE from the start.
	Revisions Revisions
	Drafts    Drafts
	Broken    error
	Snapshots Snapshots
	// Reopen sets a broken store aside and opens a new one; extra is what Extra
	// once returned. It is called only by Restore, in SAFE MODE.
	Reopen func(ctx context.Context, extra []byte) (Revisions, Drafts, error)
	// Extra is what goes into every snapshot beside the configuration: the accounts.
	Extra func() ([]byte, error)

	Kernel     Kernel
	Forwarding func(ctx context.Context, on bool) error // the box's forwarding switch
	Services   []Reloader
	Cutter     Cutter
	// Reaches says whether the pages would still answer this person, or why not.
	Reaches func(firewall.Config, Who) (bool, string)
	Publish func(events.Event)
	NewID   func() firewall.ID
}

// Who does something: the account, by which door (web, cli, api, console), from where.
type Who struct {
	Account string     `json:"account"`
	Door    string     `json:"door"`
	Addr    netip.Addr `json:"addr,omitzero"` // invalid on the local socket
}

// Writer is the one that changes the configuration. Reading (View, Status,
// Revisions) never waits for the disk or the kernel.
type Writer struct {
	log  *slog.Logger
	deps Deps // mu guards Revisions, Drafts and Broken, which Restore may replace

	turn  lock       // held while the kernel or a revision changes
	edits sync.Mutex // held while a draft is changed on disk; taken after turn
	mu    sync.Mutex // guards everything below; taken last and never over I/O

	revs   []Revision // newest first; revision 0 is not in it
	head   Revision   // what runs
	config firewall.Config
	drafts map[string]Draft
	views  map[string]cached
	trial  *trial // the revision that waits for its confirm
	undo   *undo  // what can still be taken back after an auto-confirm
	status Status

	loose []Record // pending at the start; Boot gives them back to the drafts
	late  []Record // whose mark the last process did not get to write; Boot does
}

// Status is how the Writer is doing, for every page and the console.
type Status struct {
	SafeMode string    // why nothing can be changed; "" = all is well
	Lockdown bool      // nothing passes, since nothing that could run verified
	Problems []string  // of the last apply: "dhcp: port 67 is in use"
	Healed   int       // foreign changes of the kernel's rules that were put right
	HealedAt time.Time // the last one
}

// New is a Writer that knows what the store holds and has not touched the
// kernel: call Boot. It does not fail on a damaged store; it is then in SAFE MODE.
func New(log *slog.Logger, d Deps) *Writer {
	w := &Writer{log: log, deps: d, turn: make(lock, 1), views: map[string]cached{}}
	w.load()
	return w
}

// Close stops the timer. What waits for its confirm is a draft again after the next Boot.
func (w *Writer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.trial != nil {
		w.trial.timer.Stop()
	}
}

// Status tells how the Writer is doing.
func (w *Writer) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Running is the configuration that runs, and its revision.
func (w *Writer) Running() (firewall.Config, Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.config, w.head
}

// refuseSafe is the error that every change gets in SAFE MODE.
func (w *Writer) refuseSafe() error {
	if why := w.Status().SafeMode; why != "" {
		return &SafeModeError{why}
	}
	return nil
}

func (w *Writer) publish(name, ref, account, text string) {
	w.deps.Publish(events.Event{Name: name, Time: time.Now(), Ref: ref, Account: account, Text: text})
}

// lock is a mutex that can be waited for with a context.
type lock chan struct{}

func (l lock) take(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) release() { <-l }
