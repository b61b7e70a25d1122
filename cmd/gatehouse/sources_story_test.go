package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
	"gatehouse/services/quarantine"
)

// What stories about limits need: sources, a server that counts them, and those beside.

// Sources on the internet that are nobody's gateway or resolver.
const (
	far1 = "198.51.100.11"
	far2 = "198.51.100.12"
	far6 = "2001:db8:99::11" // in one prefix with netlab.Web6
)

// as is an address to connect from, by any port.
func as(source string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(source), 0) }

// site is a web server that counts, per source, what came to it: what a stranger's
// tool prints is no proof.
type site struct {
	think time.Duration
	mu    sync.Mutex // guards by
	by    map[netip.Addr]visits
}

type visits struct {
	open, most int // connections now, and the most at a time
	total      int // connections
	answered   int // requests
}

// site starts one that thinks before it answers.
func (s *story) site(h *netlab.Host, port int, think time.Duration) *site {
	s.Helper()
	l, err := h.Listen(fmt.Sprintf(":%d", port))
	if err != nil {
		s.Fatal(err)
	}
	w := &site{think: think, by: map[netip.Addr]visits{}}
	go func() { // ends with the lab
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(c)
		}
	}()
	return w
}

func (w *site) serve(c net.Conn) {
	defer c.Close()
	w.note(c, func(v *visits) {
		v.open++
		v.total++
		v.most = max(v.most, v.open)
	})
	// Before it is closed: the next one may come the moment the source knows of it.
	defer w.note(c, func(v *visits) { v.open-- })
	for in := bufio.NewScanner(c); in.Scan(); {
		if in.Text() != "" {
			continue // of the request
		}
		w.note(c, func(v *visits) { v.answered++ })
		time.Sleep(w.think)
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\nContent-Length: 6\r\n\r\nhello\n")
		return
	}
}

func (w *site) note(c net.Conn, change func(v *visits)) {
	a := netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().Unmap()
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.by[a]
	change(&v)
	w.by[a] = v
}

// met is what came from one address.
func (w *site) met(source string) visits {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by[netip.MustParseAddr(source)]
}

// fetch asks a site for its page as a browser would that gives up after 3 s.
func (s *story) fetch(h *netlab.Host, from, to string) error {
	ctx, stop := context.WithTimeout(s.ctx, 3*time.Second)
	defer stop()
	c, err := h.DialFrom(ctx, "tcp", as(from), netip.MustParseAddrPort(to))
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	b, err := io.ReadAll(c)
	if err == nil && !strings.HasSuffix(string(b), "hello\n") {
		err = fmt.Errorf("answered %q", b)
	}
	return err
}

// beside is an honest client that asks at an interval until stop is called,
// which gives what became of it.
func (s *story) beside(h *netlab.Host, from, to string) (stop func() (asked, answered int)) {
	ctx, cancel := context.WithCancel(s.ctx)
	var wait sync.WaitGroup
	var mu sync.Mutex // guards what follows
	asked, answered := 0, 0
	wait.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			wait.Go(func() {
				err := s.fetch(h, from, to)
				mu.Lock()
				defer mu.Unlock()
				if asked++; err == nil {
					answered++
				}
			})
		}
	})
	return func() (int, int) {
		cancel()
		wait.Wait()
		return asked, answered
	}
}

// ab is the field test's tool: n requests, many at a time, each with patience for 3 s.
func (s *story) ab(h *netlab.Host, from string, n, many int, to string) (string, error) {
	return h.Run(s.ctx, "ab", "-q", "-s", "3", "-n", fmt.Sprint(n), "-c", fmt.Sprint(many), "-B", from, "http://"+to+"/")
}

// limited is a forward from a port of the WAN to a port of lan1, and the limit of
// its rule.
func limited(id string, port, to int, l firewall.Limit) []firewall.Change {
	f := firewall.Forward{ID: firewall.ID("FWD" + id), On: true, In: "WAN", Proto: firewall.TCP, From: firewall.Anyone(),
		Dst: firewall.End{Kind: firewall.EndIfAddr, Name: "WAN"}, Ports: firewall.PortRange{From: uint16(port), To: uint16(port)},
		To: netip.MustParseAddr(lan1Addr), ToPort: uint16(to), Rule: firewall.ID(id), Descr: id}
	return []firewall.Change{firewall.AddForward{Forward: f}, firewall.SetLimit{Rule: firewall.ID(id), Limit: l}}
}

// offend opens n connections from an address at the same time and holds them
// until it is told to stop, or the story ends.
func (s *story) offend(h *netlab.Host, from, to string, n int) (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			c, err := h.DialFrom(ctx, "tcp", as(from), netip.MustParseAddrPort(to))
			if err != nil {
				return
			}
			<-ctx.Done()
			c.Close()
		})
	}
	stop = func() {
		cancel()
		wait.Wait()
	}
	s.Cleanup(stop)
	return stop
}

// shutOut is what `gatehouse show quarantine` lists: quarantine and lock-outs.
func (s *story) shutOut() (all []quarantine.Entry) {
	s.Helper()
	if err := json.Unmarshal([]byte(s.verb("show", "quarantine", "--json")), &all); err != nil {
		s.Fatal(err)
	}
	return all
}

// listed is the entry of a source, if it is shut out.
func (s *story) listed(source string) (quarantine.Entry, bool) {
	s.Helper()
	for _, e := range s.shutOut() {
		if e.Source.String() == source || e.Source.Addr().String() == source && e.Source.IsSingleIP() {
			return e, true
		}
	}
	return quarantine.Entry{}, false
}

// isShutOut waits until a source is listed, as a kind and with so many lock-outs.
func (s *story) isShutOut(source string, kind quarantine.Kind, times int) (e quarantine.Entry) {
	s.Helper()
	s.until(fmt.Sprintf("%s is listed as %s, the %d. time", source, kind, times), func() bool {
		var ok bool
		e, ok = s.listed(source)
		return ok && e.Kind == kind && e.Times == times
	})
	return e
}

// free waits until a source is not listed any more.
func (s *story) free(source string) {
	s.Helper()
	s.until(source+" is not shut out any more", func() bool { _, ok := s.listed(source); return !ok })
}

// cutOffFrom wants that nothing of a source passes, whatever it asks for.
func (s *story) cutOffFrom(h *netlab.Host, source string, to ...string) {
	s.Helper()
	var wait sync.WaitGroup
	for _, to := range to {
		wait.Go(func() {
			if !s.refused(h, "tcp", as(source).String(), to) {
				s.Errorf("%s is shut out and reaches %s", source, to)
			}
		})
	}
	wait.Wait()
}

// connects waits until a source is answered, and gives how long the SYN took
// that passed first.
func (s *story) connects(h *netlab.Host, source, to string) time.Duration {
	s.Helper()
	start := time.Now()
	s.until(source+" connects to "+to, func() bool {
		ctx, stop := context.WithTimeout(s.ctx, 500*time.Millisecond) // then another SYN: the kernel repeats one too seldom to measure by
		defer stop()
		c, err := h.DialFrom(ctx, "tcp", as(source), netip.MustParseAddrPort(to))
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
	return time.Since(start).Round(time.Millisecond)
}
