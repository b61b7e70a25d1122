package quarantine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gatehouse/firewall"
)

// Offences, ends, releases, undos, promotions, polls, foreign flushes and
// restarts come between one another in 1,000 ways. Whatever they were: the list
// is what the kernel has and the disk what the list is, what was done last to a
// source is so, and the audit tells of no hand that was not there.
func TestListIsTheKernelWhateverComesBetween(t *testing.T) {
	for seed := range uint64(1000) {
		bubble(t, func(t *testing.T, b *box) {
			chaos(t, b, rand.New(rand.NewPCG(seed, 1)))
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

// dice can be thrown by many.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func (d *dice) pause(most time.Duration) { time.Sleep(time.Duration(d.n(int(most)))) }

// player does things to one source, one after another.
type player struct {
	*box
	*dice
	src    string
	tokens []string
	last   Kind // how it must be now; "" is not shut out
	done   []string
	unsure bool // it may have ended meanwhile, or be anything
}

func chaos(t *testing.T, b *box, r *rand.Rand) {
	d := &dice{r: r}
	flushes, hands := d.n(3) == 0, d.n(3) == 0
	b.kernel.dawdle(func() { d.pause(3 * time.Millisecond) })
	var players []*player
	var playing, others sync.WaitGroup
	for _, src := range []string{"203.0.113.7", "203.0.113.8", "2001:db8:bad::/64", "10.0.0.0/8"} {
		p := &player{box: b, dice: d, src: src}
		players = append(players, p)
		playing.Go(func() {
			for range 8 {
				p.play(flushes, hands)
				p.pause([]time.Duration{time.Millisecond, 10 * time.Millisecond, 3 * time.Second, 3 * time.Minute}[d.n(4)])
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	others.Go(func() { // polls, and once in a while a foreign flush
		for ctx.Err() == nil {
			d.pause([]time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 10 * time.Second}[d.n(3)])
			if flushes && d.n(20) == 0 {
				b.kernel.fresh(b.Members())
			}
			_, _ = b.poll(ctx)
		}
	})
	playing.Wait()
	time.Sleep(seldom + 3*time.Second) // lines that were lost are found by then
	stop()
	others.Wait()
	b.kernel.dawdle(nil)
	synctest.Wait()
	for _, p := range players {
		if e, _ := b.Get(prefix(p.src)); !p.unsure && e.Kind != p.last {
			t.Errorf("%s is %q (%q in the kernel), and should be %q", p.src, e.Kind, b.kernel.has(p.src), p.last)
		}
	}
	for _, a := range b.Acts(1000) {
		if !hands && !flushes && a.Who == (Who{}) && (a.What == Vanished || strings.Contains(a.Reason, "by hand")) {
			t.Errorf("nobody's hand was in the kernel, and the audit says: %+v", a)
		}
	}
	same(t, b)
	b.restart()
	same(t, b)
	for _, p := range players {
		if t.Failed() {
			t.Log(strings.Join(p.done, "\n"))
		}
	}
	for _, a := range b.Acts(1000) {
		if t.Failed() {
			t.Log(a.Time.Format("04:05.000000"), a.What, a.Source, a.Who.Account, a.Reason)
		}
	}
}

// play is one thing that can happen to a source.
func (p *player) play(flushes, hands bool) {
	src, lasts := prefix(p.src), time.Duration(p.n(3))*2*time.Minute
	host := src.Bits() != 8
	now := map[bool]Kind{true: LockOut, false: Quarantine}[lasts > 0]
	var err error
	what := p.n(12)
	defer func(began time.Time) {
		p.done = append(p.done, fmt.Sprintf("%s-%s %s: %d, lasts %s; %v", began.Format("04:05.000000"), time.Now().Format("04:05.000000"), p.src, what, lasts, err))
	}(time.Now())
	switch {
	case what < 4 && host: // an offence; its line may be lost, or late
		rule := []firewall.ID{fast, harsh}[p.n(2)]
		if p.kernel.has(p.src) != "" {
			return // nothing of it reaches the rule
		}
		r, _ := p.cfg.Rule(rule)
		p.kernel.lock(p.src, seconds(r.Limit.LockFor))
		at := time.Now()
		if p.pause(5 * time.Millisecond); p.n(4) > 0 {
			p.Offence(Line{Time: at, What: firewall.OverNew, Rule: rule, Src: src.Addr()})
		}
		// How often it struck is not known here; what nobody heard of before a flush is
		// lost; and after a hand an element may look like the one before.
		p.last, p.unsure = Quarantine, rule == fast || flushes || hands
	case what < 7:
		o := Options{KeepStrikes: p.n(2) == 0}
		var r Receipt
		if r, err = p.Release(p.t.Context(), anna, []netip.Prefix{src}, o); err == nil {
			p.tokens, p.last, p.unsure = append(p.tokens, r.Token), "", false
		}
	case what == 7 && len(p.tokens) > 0:
		if err = p.Undo(p.t.Context(), anna, p.tokens[len(p.tokens)-1]); errors.Is(err, ErrTooLate) {
			return
		}
		p.unsure = true
	case what == 8:
		if err = p.Add(p.t.Context(), anna, src, "", lasts); err == nil {
			p.last, p.unsure = now, lasts > 0
		} else if !host && strings.Contains(err.Error(), "already") {
			err = nil
		}
	case what == 9:
		if err = p.Keep(p.t.Context(), anna, src, lasts); err == nil {
			p.last, p.unsure = now, lasts > 0
		} else if errors.Is(err, ErrGone) {
			err = nil
		}
	case what == 10 && hands:
		err = p.kernel.Remove(context.Background(), memberOf(src, 64))
		p.unsure = true
	}
	if err != nil && !errors.Is(err, errNone) { // the moment of a flush
		p.t.Errorf("%s: %v", p.src, err)
	}
}

// same checks that kernel, list, pages and disk say the same.
func same(t *testing.T, b *box) {
	t.Helper()
	listed := map[string]Entry{}
	for _, set := range []string{InQuarantine, InLockOuts} {
		for _, e := range b.List(Query{Set: set}).Entries {
			listed[e.Source.String()] = e
		}
	}
	in := 0
	for _, set := range blockedSets {
		members, err := b.kernel.Members(t.Context(), set)
		if err != nil {
			t.Fatal(err)
		}
		in += len(members)
		for _, m := range members {
			src, _ := sourceOf(set, m.Element, 64)
			e, ok := listed[src.String()]
			switch {
			case !ok:
				t.Errorf("%s is in the kernel (%s left) and not in the list", src, m.Left)
			case m.Timeout == 0 && e.Kind != Quarantine, m.Timeout > 0 && e.Kind != LockOut:
				t.Errorf("%s has %s left in the kernel and is listed as %s", src, m.Left, e.Kind)
			case m.Timeout > 0 && (time.Until(e.Until)-m.Left).Abs() > drift:
				t.Errorf("%s leaves in %s by the list, in %s by the kernel", src, time.Until(e.Until), m.Left)
			}
		}
	}
	c := b.Counts()
	if in != len(listed) || c.LockOuts+c.Quarantine != in {
		t.Errorf("%d in the kernel, %d in the list, counted %+v", in, len(listed), c)
	}
	nets := slices.DeleteFunc(b.Blocked(), func(p netip.Prefix) bool { return listed[p.String()].Source != p })
	if len(nets) != in {
		t.Errorf("%d are facts of %d", len(nets), in)
	}
	if err := b.flush(false); err != nil {
		t.Fatal(err)
	}
	disk, err := b.disk.entries.All()
	if err != nil || len(disk) != in {
		t.Errorf("%d are on disk of %d (%v): %s", len(disk), in, err, fmt.Sprint(disk))
	}
}
