package quarantine

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/events"
)

// Sets is the sets of the kernel. What is in the blocked ones is so, whatever we remember.
type Sets interface {
	Members(ctx context.Context, set string) ([]ruleset.Member, error)
	// Add puts members in, all or none; one that is there gets its timeout anew.
	Add(ctx context.Context, members ...ruleset.Member) error
	// Remove takes members out, all or none; one that is not there is no error.
	Remove(ctx context.Context, members ...ruleset.Member) error
	// Fill makes members the only ones.
	Fill(ctx context.Context, set string, members []ruleset.Element) error
	// Made tells one making of a set from the next.
	Made(ctx context.Context, set string) (string, error)
}

// Conntrack is the kernel's connection table.
type Conntrack interface {
	Flows(ctx context.Context, f func(firewall.Flow) error) error
	// FlowsOf is Flows for one source.
	FlowsOf(ctx context.Context, src netip.Prefix, f func(firewall.Flow) error) error
	Cut(ctx context.Context, flows []firewall.Flow) (int, error)
	// CutFrom cuts what one source began.
	CutFrom(ctx context.Context, src netip.Prefix) (int, error)
}

// Table keeps values on disk: they are there when a method returns nil.
type Table[T any] interface {
	PutAll(rows map[string]T) error
	Delete(keys ...string) error
	All() (map[string]T, error)
}

// Deps is everything that a Service works with; all of it is required.
type Deps struct {
	Sets       Sets
	Conntrack  Conntrack
	Entries    Table[Entry]       // by source
	Strikes    Table[[]time.Time] // by source: when it was locked out
	Acts       Table[Act]
	Exemptions Table[Exemption] // by source: those that a person gave
	Facts      func() firewall.Facts
	Resolvers  func() []netip.Addr
	Admins     func() map[netip.Addr]time.Time // where people are signed in, and when they last did something
	Publish    func(events.Event)
}

// The sets that this service fills. Sources stand in the first two, each by
// itself; networks added by hand, and what once was a source, in the next two.
var (
	blocked4, blocked6         = compile.BlockedSet(false), compile.BlockedSet(true)
	blockedNets4, blockedNets6 = compile.BlockedNets(false), compile.BlockedNets(true)
	exempt4, exempt6           = compile.ExemptSet(false), compile.ExemptSet(true)
)

// Bounds of what is remembered.
const (
	maxBlocked    = 65536 // members of a set of sources
	maxNets       = 10000 // networks added by hand
	maxWould      = 10000
	maxStruck     = 131072 // sources with strikes
	maxExemptions = 10000
	maxReceipts   = 64
)

// Service knows who is shut out. All methods may be called at any time and together.
type Service struct {
	log  *slog.Logger
	deps Deps

	turn   lock              // held while the list and the kernel are brought together
	saving lock              // held while something is on its way to the disk
	made   map[string]string // what Made said of each set at the last poll; turn's holder only
	filled [2]string         // what the exempt sets got last; turn's holder only

	look    chan struct{} // ask the kernel soon
	ends    chan struct{} // an end is nearer than it was
	doubt   chan struct{} // there are suspects
	jobs    chan struct{} // there is something to promote or to spare
	cuts    chan struct{} // there are connections to cut
	sets    chan struct{} // who is exempt may have changed
	gauges  chan struct{} // a meter did not hold a source
	changed chan struct{} // the lists are others than they were
	unsaved chan struct{} // there is something to save

	view view // for pages; its mutex is taken before mu

	mu        sync.Mutex // guards the rest; never held over I/O
	sources   firewall.Sources
	limits    map[firewall.ID]watched
	meters    []meter
	late      []Line // of rules that are not known yet
	book      book
	causes    map[cause]*cause
	strikes   map[netip.Prefix][]time.Time
	released  map[netip.Prefix]time.Time // lately; what happened before counts no more
	receipts  map[string]*receipt
	audit     audit
	exempt    map[netip.Prefix]Exemption // all of them
	given     map[netip.Prefix]Exemption // by a person, for a time
	admins    map[netip.Addr]time.Time   // when they last did something
	suspects  map[suspicion]*suspect
	cleared   map[suspicion]time.Time // looked at lately, and within the limit
	promote   map[netip.Prefix]bool
	spare     map[netip.Prefix]bool
	cut       map[netip.Prefix]bool
	levels    map[string]level          // of the meters, by set
	overflows map[firewall.ID]time.Time // when a source last did not fit
	swept     time.Time                 // old strikes were forgotten
	looked    time.Time                 // a page did
	updated   time.Time                 // the kernel was asked
	wrong     string                    // what it said then, when it was an error
	save      unsaved
}

// watched is a rule with a limit.
type watched struct {
	id     firewall.ID
	limit  firewall.Limit
	number uint32               // in the ct mark
	never  []firewall.AddrRange // never punished by it
}

// New is a Service that knows what is on disk and has not touched the kernel.
// What cannot be read is told and left out.
func New(log *slog.Logger, d Deps) *Service {
	s := &Service{log: log, deps: d, turn: make(lock, 1), saving: make(lock, 1), made: map[string]string{},
		limits: map[firewall.ID]watched{}, book: newBook(), causes: map[cause]*cause{}, strikes: map[netip.Prefix][]time.Time{},
		released: map[netip.Prefix]time.Time{}, receipts: map[string]*receipt{},
		exempt: map[netip.Prefix]Exemption{}, given: map[netip.Prefix]Exemption{}, admins: map[netip.Addr]time.Time{},
		suspects: map[suspicion]*suspect{}, cleared: map[suspicion]time.Time{},
		promote: map[netip.Prefix]bool{}, spare: map[netip.Prefix]bool{}, cut: map[netip.Prefix]bool{},
		levels: map[string]level{}, overflows: map[firewall.ID]time.Time{}, save: newUnsaved()}
	for _, c := range []*chan struct{}{&s.look, &s.ends, &s.doubt, &s.jobs, &s.cuts, &s.sets, &s.gauges, &s.changed, &s.unsaved} {
		*c = make(chan struct{}, 1)
	}
	s.view.at = map[key]int{}
	s.load(time.Now())
	return s
}

// Run follows the kernel until ctx ends; what is in the kernel stays then.
func (s *Service) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	for _, loop := range []func(context.Context){s.watch, s.ask, s.work, s.cutting, s.excuse, s.gauge, s.tell, s.write} {
		wait.Go(func() { loop(ctx) })
	}
	wait.Wait()
	return s.flush(true)
}

// Know makes the limits of cfg those that lines are judged by. The kernel is not touched.
func (s *Service) Know(cfg firewall.Config) {
	limits, numbers := map[firewall.ID]watched{}, cfg.LimitNumbers()
	never := map[firewall.Name][]firewall.AddrRange{}
	for _, r := range cfg.Rules {
		if !r.Limit.On() {
			continue
		}
		name := r.Limit.Never
		if _, ok := never[name]; !ok && name != "" {
			never[name] = cfg.AliasAddrs(name)
		}
		limits[r.ID] = watched{id: r.ID, limit: r.Limit, number: numbers[r.ID], never: never[name]}
	}
	meters := metersOf(cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits, s.meters = limits, meters
	s.sources = cfg.Sources
	s.book.length(cfg.Sources.Prefix())
	for k, r := range s.book.all {
		if w, ok := limits[k.rule]; r.would && (!ok || !w.limit.DryRun) {
			s.book.drop(k)
		}
	}
	late := s.late
	s.late = nil
	for _, l := range late {
		if _, ok := limits[l.Rule]; ok {
			s.judge(l)
		}
	}
	s.stir()
}

// Reload makes the service, and the sets that depend on it, follow cfg.
func (s *Service) Reload(ctx context.Context, cfg firewall.Config) error {
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.release()
	s.mu.Lock()
	before := s.book.prefix6
	s.mu.Unlock()
	s.Know(cfg)
	if err := s.rehouse(ctx, before, cfg.Sources.Prefix()); err != nil {
		return err
	}
	return s.fillExempt(ctx, true)
}

// Name is for the problems in the bar.
func (s *Service) Name() string { return "quarantine" }

// each does something for every one of a list under mu, and lets others in
// between: a list can be long, and the way of packets must not wait for it.
func each[T any](s *Service, list []T, do func(T)) {
	for part := range slices.Chunk(list, chunk) {
		s.mu.Lock()
		for _, one := range part {
			do(one)
		}
		s.mu.Unlock()
	}
}

// stir tells whoever shows the lists. The caller holds mu.
func (s *Service) stir() {
	signal(s.changed)
	signal(s.unsaved)
}

// eventGap is how long after an event the next one comes at the earliest.
const eventGap = 250 * time.Millisecond

// tell publishes that the lists have changed, four times a second at most.
func (s *Service) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		s.view.catchUp(s)
		s.view.mu.Unlock()
		s.deps.Publish(events.Event{Name: "quarantine", Time: time.Now()})
		if !sleep(ctx, eventGap) {
			return
		}
	}
}

// lock is a mutex that can be waited for with a context, and held over I/O.
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

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep reports whether ctx let it sleep for d.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
