package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/kernel"
	"gatehouse/firewall/netlab"
)

// What stories about packets need: servers, eyes on the wire, flows that go on.

const (
	lan1Addr6  = "2001:db8:100:1::20"
	lan2Addr6  = "2001:db8:100:1::21"
	guestHost6 = "2001:db8:100:2::20"
)

// echo starts an echo server on a host.
func (s *story) echo(h *netlab.Host, port uint16) *netlab.Echo {
	s.Helper()
	e, err := h.Echo(port)
	if err != nil {
		s.Fatal(err)
	}
	return e
}

// runs runs a program in a host that must not fail.
func (s *story) runs(h *netlab.Host, name string, args ...string) string {
	s.Helper()
	out, err := h.Run(s.ctx, name, args...)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

// routed lets the internet side send packets for the inside nets to the box, as
// a hostile neighbour on the WAN segment would.
func (s *story) routed() {
	s.Helper()
	if err := errors.Join(s.lab.Inet.AddRoute("192.168.1.0/24", wanAddr), s.lab.Inet.AddRoute("192.168.2.0/24", wanAddr)); err != nil {
		s.Fatal(err)
	}
}

// watch counts packets that enter a host, before anything else sees them: pairs
// of a name and an nft match. count reads one.
func (s *story) watch(h *netlab.Host, pairs ...string) {
	s.Helper()
	b := strings.Builder{}
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, "counter %s { }\n", pairs[i])
	}
	b.WriteString("chain in { type filter hook prerouting priority -400;\n")
	for i := 0; i+1 < len(pairs); i += 2 {
		fmt.Fprintf(&b, "%s counter name %s\n", pairs[i+1], pairs[i])
	}
	s.runs(h, "nft", "table inet watch {\n"+b.String()+"}\n}")
}

func (s *story) count(h *netlab.Host, name string) int {
	s.Helper()
	return s.counter(h, "watch", name)
}

// counter reads a named counter of a table in a host.
func (s *story) counter(h *netlab.Host, table, name string) (n int) {
	s.Helper()
	out := s.runs(h, "nft", "list", "counter", "inet", table, name)
	_, rest, _ := strings.Cut(out, "packets ")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		s.Fatalf("no counter in %q: %v", out, err)
	}
	return n
}

// hits is how many packets a rule, a forward or an automatic rule has matched.
func (s *story) hits(id string) int {
	s.Helper()
	return s.counter(s.lab.Box, "gatehouse", "c_"+id)
}

// greeting takes the answer of an echo server apart; it fails the story when there is none.
func (s *story) greeting(h *netlab.Host, network, from, to string) (peer netip.AddrPort, port int) {
	s.Helper()
	line, err := s.reaches(h, network, from, to)
	if err != nil {
		s.Errorf("%s %s from %s %s: %v", network, to, h.Name, from, err)
		return
	}
	var at string
	if _, err := fmt.Sscanf(line, "peer=%s port=%d at=%s", &at, &port, new(string)); err != nil {
		s.Errorf("%s answered %q: %v", to, line, err)
		return
	}
	peer = netip.MustParseAddrPort(at)
	return netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port()), port
}

// runNow sends an editor's form with "Save and apply" and keeps what comes of it.
func (p *person) runNow(path string, form url.Values) {
	p.s.Helper()
	form.Set("then", "apply")
	p.keep(p.post(path, form))
}

// click presses a button of a rule's row on a tab and applies.
func (p *person) click(verb, tab, id string) {
	p.s.Helper()
	page := p.get("/rules?tab=" + tab + "&menu=" + id)
	p.post("/rules", fields("op", p.op(page, verb, id), "tab", tab, "q", ""))
	p.apply()
}

// forward is the form of a new forward on the WAN address; pairs replace its fields.
func forward(pairs ...string) url.Values {
	v := fields("hash", "", "on", "1", "reflect", "1", "descr", "", "in", "WAN", "proto", "tcp", "dst", "WAN address", "rule", "linked")
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			v.Del(pairs[i])
		} else {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v
}

// editorOf is the link to the editor of a rule or forward by its description.
func editorOf(s *story, body, path, descr string) string {
	s.Helper()
	m := regexp.MustCompile(`href="(` + path + `[0-9A-Z]{26})"[^>]*>\s*` + regexp.QuoteMeta(descr)).FindStringSubmatch(body)
	if m == nil {
		s.Fatalf("no link to %q:\n%s", descr, text(body))
	}
	return m[1]
}

// flow is one connection over which a question goes out at an interval, whether
// the one before was answered or not.
type flow struct {
	mu       sync.Mutex // guards what follows
	sent     int
	answered int
	last     time.Time     // of an answer
	gap      time.Duration // the longest between two answers
	changed  chan struct{} // closed and made anew with every question and answer
}

// keepAsking starts a flow; it ends with the story.
func (s *story) keepAsking(h *netlab.Host, network, from, to string, every time.Duration) *flow {
	s.Helper()
	src := netip.AddrPort{}
	if from != "" {
		src = netip.MustParseAddrPort(from)
	}
	c, err := h.DialFrom(s.ctx, network, src, netip.MustParseAddrPort(to))
	if err != nil {
		s.Fatal(err)
	}
	f := &flow{changed: make(chan struct{})}
	ctx, stop := context.WithCancel(s.ctx)
	var done sync.WaitGroup
	done.Go(func() { f.ask(ctx, c, every) })
	done.Go(func() { f.hear(c) })
	s.Cleanup(func() {
		stop()
		c.Close()
		done.Wait()
	})
	return f
}

func (f *flow) ask(ctx context.Context, c net.Conn, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		// Errors of one datagram (ICMP) are no reason to stop asking.
		_, _ = fmt.Fprintf(c, "%d\n", n)
		f.note(func() { f.sent++ })
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (f *flow) hear(c net.Conn) {
	r := bufio.NewReader(c)
	for {
		_, err := r.ReadString('\n')
		if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			continue
		}
		f.note(func() {
			if !f.last.IsZero() {
				f.gap = max(f.gap, time.Since(f.last))
			}
			f.answered++
			f.last = time.Now()
		})
	}
}

func (f *flow) note(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *flow) now() (sent, answered int, last time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent, f.answered, f.last
}

// longest is the longest time between two answers.
func (f *flow) longest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gap.Round(time.Millisecond)
}

// await waits until the flow is as wanted, looking at every question and answer.
func (s *story) await(f *flow, what string, fact func() bool) {
	s.Helper()
	ctx, stop := context.WithTimeout(s.ctx, patience)
	defer stop()
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if fact() {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("never came true: %s", what)
		case <-changed:
		}
	}
}

// flows waits for three more answers.
func (s *story) flows(f *flow, what string) {
	s.Helper()
	_, before, _ := f.now()
	s.await(f, what+" is answered", func() bool { _, n, _ := f.now(); return n >= before+3 })
}

// dies waits until fifty questions in a row stay without an answer, and gives the
// time of the last answer.
func (s *story) dies(f *flow, what string) time.Time {
	s.Helper()
	asked, heard, _ := f.now()
	s.await(f, what+" is cut", func() bool {
		sent, n, _ := f.now()
		if n > heard {
			asked, heard = sent, n
		}
		return sent >= asked+50
	})
	_, _, last := f.now()
	return last
}

// asKernel runs fn with the packet filter of a host, as the product would have it.
func (s *story) asKernel(h *netlab.Host, fn func(k *kernel.Kernel) error) {
	s.Helper()
	space, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", h.Pid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		s.Fatal(err)
	}
	defer unix.Close(space)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			if err := unix.Setns(space, unix.CLONE_NEWNET); err != nil {
				return err
			}
			k, err := kernel.Open(slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer k.Close()
			return fn(k)
		}()
	}()
	if err := <-done; err != nil {
		s.Fatal(err)
	}
}

// config is what the box runs after the changes.
func config(t interface{ Fatal(...any) }, changes ...firewall.Change) firewall.Config {
	c := firewall.Factory()
	for _, ch := range changes {
		next, err := ch.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		c = next
	}
	return c
}

// loaded is how many rules of ours nft lists in the box, and how many a
// configuration compiles to.
func (s *story) loaded(c firewall.Config) (listed, compiled int) {
	s.Helper()
	var doc struct {
		Objects []map[string]json.RawMessage `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(s.runs(s.lab.Box, "nft", "-j", "list", "table", "inet", "gatehouse")), &doc); err != nil {
		s.Fatal(err)
	}
	for _, o := range doc.Objects {
		if o["rule"] != nil {
			listed++
		}
	}
	compiled = 1 // the stamp
	for _, chain := range compile.Compile(c).Chains {
		compiled += len(chain.Rules)
	}
	return listed, compiled
}
