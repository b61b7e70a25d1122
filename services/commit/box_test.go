package commit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/events"
	"gatehouse/store"
)

// box is a machine without a network: the real store, a kernel that only
// remembers, and a place to break each of them.
type box struct {
	t    *testing.T
	dir  string
	snap *store.Snapshots
	w    *Writer
	db   *store.DB

	mu         sync.Mutex // guards the rest
	kernel     ruleset.Ruleset
	torn       bool // the kernel holds something else than its stamp says
	forwarding bool
	service    firewall.Config
	events     []events.Event
	steps      []string
	fault      func(step string) error // asked at every step; it may panic to kill the process there
	bootFault  func(step string) error // the fault of the next boot
}

var (
	alice = Who{"alice", "web", netip.MustParseAddr("192.168.1.20")}
	bob   = Who{"bob", "cli", netip.MustParseAddr("192.168.1.21")}
)

func newBox(t *testing.T) *box {
	dir, err := os.MkdirTemp("/dev/shm", "gatehouse-commit-") // thousands of fsyncs, none of which is tested here
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &box{t: t, dir: dir, fault: func(string) error { return nil }}
	b.snap = store.NewSnapshots(filepath.Join(b.dir, "snapshots"))
	t.Cleanup(b.off)
	return b
}

func (b *box) path() string { return filepath.Join(b.dir, "gatehouse.db") }

// off ends the process, however it ended.
func (b *box) off() {
	if b.w != nil {
		b.w.Close()
	}
	if b.db != nil {
		b.db.Close()
	}
	b.w, b.db = nil, nil
}

// start opens the store and boots; fresh is a reboot, else the process alone was restarted.
func (b *box) start(fresh bool) *Writer {
	b.t.Helper()
	b.off()
	if fresh {
		b.kernel, b.torn, b.forwarding = ruleset.Ruleset{}, false, false
	}
	db, err := store.Open(b.path(), slog.New(slog.DiscardHandler))
	if err == nil {
		b.db = db
	}
	return b.boot(err)
}

// boot makes a new Writer on the store that is open, or is not because of broken.
func (b *box) boot(broken error) *Writer {
	b.t.Helper()
	b.fault = func(string) error { return nil }
	if b.bootFault != nil {
		b.fault, b.bootFault = b.bootFault, nil
	}
	d := Deps{Snapshots: b.snap, Kernel: fakeKernel{b}, Forwarding: b.switchForwarding, Services: []Reloader{fakeService{b}}, Cutter: fakeCutter{b},
		Reaches: func(c firewall.Config, who Who) (bool, string) { return true, "" },
		Extra:   func() ([]byte, error) { return []byte("accounts"), nil }, NewID: NewID,
		Publish: func(e events.Event) { b.mu.Lock(); b.events = append(b.events, e); b.mu.Unlock() }}
	if b.db != nil {
		d.Revisions, d.Drafts = b.shelf(b.db)
	}
	d.Broken = broken
	d.Reopen = func(ctx context.Context, extra []byte) (Revisions, Drafts, error) {
		if string(extra) != "accounts" {
			return nil, nil, fmt.Errorf("extra is %q", extra)
		}
		if _, err := store.SetAside(b.path()); err != nil {
			return nil, nil, err
		}
		db, err := store.Open(b.path(), slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, nil, err
		}
		b.db = db
		r, dr := b.shelf(db)
		return r, dr, nil
	}
	b.w = New(slog.New(slog.DiscardHandler), d)
	if err := b.w.Boot(context.Background()); err != nil {
		b.t.Fatal(err)
	}
	return b.w
}

func (b *box) shelf(db *store.DB) (Revisions, Drafts) {
	return faultyLog{b, store.NewLog[Record](db, "revisions")}, faultyTable{b, store.NewTable[Draft](db, "drafts")}
}

func (b *box) step(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps = append(b.steps, name)
	return b.fault(name)
}

type faultyLog struct {
	b *box
	*store.Log[Record]
}

func (l faultyLog) Append(r Record) (uint64, error) {
	if err := l.b.step("append"); err != nil {
		return 0, err
	}
	n, err := l.Log.Append(r)
	return n, errors.Join(err, l.b.step("appended"))
}

func (l faultyLog) Update(n uint64, r Record) error {
	if err := l.b.step("update"); err != nil {
		return err
	}
	return errors.Join(l.Log.Update(n, r), l.b.step("updated"))
}

type faultyTable struct {
	b *box
	*store.Table[Draft]
}

func (t faultyTable) Put(k string, d Draft) error {
	if err := t.b.step("put"); err != nil {
		return err
	}
	return errors.Join(t.Table.Put(k, d), t.b.step("putted"))
}

type fakeKernel struct{ b *box }

func (k fakeKernel) DryRun(context.Context, ruleset.Ruleset) error { return k.b.step("dry run") }

func (k fakeKernel) Apply(_ context.Context, r ruleset.Ruleset) error {
	if err := k.b.step("kernel"); err != nil {
		return err
	}
	k.b.mu.Lock()
	k.b.kernel, k.b.torn = r, false
	k.b.mu.Unlock()
	return k.b.step("kernel done")
}

func (k fakeKernel) Verify(_ context.Context, r ruleset.Ruleset) error {
	if err := k.b.step("verify"); err != nil {
		return err
	}
	k.b.mu.Lock()
	defer k.b.mu.Unlock()
	if k.b.kernel.Stamp != r.Stamp || k.b.torn {
		return errors.New("the kernel holds something else")
	}
	return nil
}

func (k fakeKernel) Stamp(context.Context) (string, error) {
	k.b.mu.Lock()
	defer k.b.mu.Unlock()
	return k.b.kernel.Stamp, nil
}

type fakeService struct{ b *box }

func (fakeService) Name() string { return "dhcp" }

func (s fakeService) Reload(_ context.Context, c firewall.Config) error {
	if err := s.b.step("reload"); err != nil {
		return err
	}
	s.b.mu.Lock()
	s.b.service = c
	s.b.mu.Unlock()
	return nil
}

type fakeCutter struct{ b *box }

func (c fakeCutter) Cut(context.Context, firewall.Config) error { return c.b.step("cut") }

func (b *box) switchForwarding(_ context.Context, on bool) error {
	b.mu.Lock()
	b.forwarding = on
	b.mu.Unlock()
	return b.step(fmt.Sprint("forwarding ", on))
}

// runs says what passes packets now: a stamp, and whether anything is forwarded.
func (b *box) runs() (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kernel.Stamp, b.forwarding
}

// rule is a valid rule; what tells it apart is its description.
func rule(id, descr string) firewall.Rule {
	return firewall.Rule{ID: firewall.ID(id), On: true, Action: firewall.Pass, In: "LAN", Family: firewall.IPv4, Proto: firewall.TCP,
		Src: firewall.Anyone(), Dst: firewall.Anyone(), Descr: descr}
}

func refRule(id string) firewall.Ref { return firewall.Ref{Kind: "rule", Key: id} }

// settledBox is a box with LAN, WAN and five rules r0 to r4, confirmed.
func settledBox(t *testing.T) *box {
	t.Helper()
	b := newBox(t)
	b.start(true)
	changes := []firewall.Change{
		firewall.AddInterface{Interface: firewall.Interface{Name: "LAN", Device: "eth1", Role: firewall.LAN, On: true,
			V4: firewall.V4{Mode: firewall.Static, Addr: netip.MustParsePrefix("192.168.1.1/24")}, V6: firewall.V6{Mode: firewall.None}}},
		firewall.AddInterface{Interface: firewall.Interface{Name: "WAN", Device: "eth0", Role: firewall.WAN, On: true,
			V4: firewall.V4{Mode: firewall.DHCP}, V6: firewall.V6{Mode: firewall.None}}},
	}
	for i := range 5 {
		id := fmt.Sprint("r", i)
		changes = append(changes, firewall.AddRule{Rule: rule(id, id+"=0")})
	}
	b.save(alice, AnyHash, changes...)
	b.keep(alice)
	return b
}

func (b *box) save(who Who, hash string, changes ...firewall.Change) {
	b.t.Helper()
	if err := b.w.Save(b.t.Context(), who, hash, changes...); err != nil {
		b.t.Fatal(err)
	}
}

// edit changes the description of a rule as the account sees it.
func (b *box) edit(who Who, id, descr string) {
	b.t.Helper()
	r, ok := b.w.View(who.Account).Config.Rule(firewall.ID(id))
	if !ok {
		b.t.Fatalf("%s does not see %s", who.Account, id)
	}
	r.Descr = descr
	b.save(who, b.w.View(who.Account).Config.Hash(refRule(id)), firewall.UpdateRule{Rule: r})
}

func (b *box) apply(who Who) Applied {
	b.t.Helper()
	a, err := b.w.Apply(b.t.Context(), who, Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// keep applies and confirms at once, from a connection of the future.
func (b *box) keep(who Who) {
	b.t.Helper()
	a := b.apply(who)
	if err := b.w.Confirm(b.t.Context(), who, "", a.Deadline); err != nil {
		b.t.Fatal(err)
	}
}

// descr is the description of a rule in a configuration, "" when it is not there.
func descr(c firewall.Config, id string) string {
	r, _ := c.Rule(firewall.ID(id))
	return r.Descr
}

func (b *box) running() firewall.Config {
	c, _ := b.w.Running()
	return c
}

// inKernel insists that the kernel runs exactly the Writer's configuration, open.
func (b *box) inKernel() {
	b.t.Helper()
	if stamp, on := b.runs(); stamp != b.running().Stamp() || !on {
		b.t.Fatalf("kernel runs %s (forwarding %v), the writer says %s", stamp, on, b.running().Stamp())
	}
}

func states(rs []Revision) (list []string) {
	for _, r := range slices.Backward(rs) {
		list = append(list, fmt.Sprint(r.Number, " ", r.State))
	}
	return list
}
