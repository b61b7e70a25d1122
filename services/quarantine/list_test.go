package quarantine

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/events"
)

// many is a service with n lock-outs, one network and one entry added by hand.
func many(n int) *Service {
	s := New(slog.New(slog.DiscardHandler), Deps{Sets: newKernel(), Conntrack: newKernel(), Entries: &shelf[Entry]{}, Strikes: &shelf[[]time.Time]{},
		Acts: &shelf[Act]{}, Exemptions: &shelf[Exemption]{}, Publish: func(events.Event) {}})
	s.Know(config())
	now := time.Now()
	put := func(src netip.Prefix, i int) *record {
		r := record{src: src, kind: LockOut, why: s.because(s.limits[[]firewall.ID{fast, wide, harsh}[i%3]], firewall.OverNew), times: i % 7,
			since: now.Add(-time.Duration(i*7919%n) * time.Second), until: now.Add(time.Hour + time.Duration(i*104729%n)*time.Second), packets: uint64(i * 31 % 1000)}
		if i%2 == 0 {
			r.last = now.Add(-time.Duration(i) * time.Second)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.put(&r)
		return &r
	}
	a := netip.MustParseAddr("10.0.0.0")
	for i := range n {
		a = a.Next()
		put(netip.PrefixFrom(a, 32), i)
	}
	put(prefix("2001:db8:bad::/64"), 1)
	put(prefix("172.16.0.0/12"), 2)
	r := put(prefix("203.0.113.7"), 3)
	byHand := *r
	byHand.reason, byHand.by, byHand.why = "Scans our printers", "anna", s.because(watched{}, "")
	s.mu.Lock()
	s.put(&byHand)
	s.mu.Unlock()
	return s
}

func TestListSearches(t *testing.T) {
	s := many(1000)
	for search, want := range map[string]int{
		"": 1003, "10.0.0.7": 1 + 10, "10.0.3.": 233, " 203.0.113.7 ": 1, "printers": 1, "SCANS": 1, "anna": 1, "2001:db8:bad::77": 1, "2001:DB8:": 1,
		"172.20.1.1": 1, "172.16.0.0/12": 1, string(fast): 334, "rule/" + strings.ToLower(string(harsh)): 334, "nobody": 0, "10.0.0.1/32": 0,
	} {
		l := s.List(Query{Set: InLockOuts, Search: search, Max: 5000})
		if l.Matched != want || len(l.Entries) != want || l.Total != 1003 {
			t.Errorf("%q finds %d (%d given) of %d, want %d", search, l.Matched, len(l.Entries), l.Total, want)
		}
	}
	if l := s.List(Query{Set: InQuarantine}); l.Total != 0 || l.Entries != nil {
		t.Errorf("quarantine holds %d", l.Total)
	}
}

func TestListSortsAndPages(t *testing.T) {
	s := many(1000)
	less := map[string]func(a, b Entry) int{
		"address": func(a, b Entry) int { return a.Source.Addr().Compare(b.Source.Addr()) },
		"rule":    func(a, b Entry) int { return strings.Compare(string(a.Rule), string(b.Rule)) },
		"times":   func(a, b Entry) int { return a.Times - b.Times },
		"since":   func(a, b Entry) int { return a.Since.Compare(b.Since) },
		"":        func(a, b Entry) int { return a.Since.Compare(b.Since) },
		"leaves":  func(a, b Entry) int { return a.Until.Compare(b.Until) },
		"packets": func(a, b Entry) int { return int(a.Packets) - int(b.Packets) },
		"last":    func(a, b Entry) int { return a.Last.Compare(b.Last) },
	}
	for by, order := range less {
		for _, desc := range []bool{false, true} {
			var all []Entry
			for from := 0; from < 1003; from += 100 {
				l := s.List(Query{Set: InLockOuts, Sort: by, Desc: desc, From: from, Max: 100})
				if want := min(100, 1003-from); len(l.Entries) != want {
					t.Fatalf("sorted by %q, page at %d has %d entries, want %d", by, from, len(l.Entries), want)
				}
				all = append(all, l.Entries...)
			}
			seen := map[netip.Prefix]bool{}
			for _, e := range all {
				seen[e.Source] = true
			}
			if len(seen) != 1003 {
				t.Errorf("sorted by %q, the pages hold %d sources", by, len(seen))
			}
			if desc {
				slices.Reverse(all)
			}
			if !slices.IsSortedFunc(all, order) {
				t.Errorf("not sorted by %q (descending: %v)", by, desc)
			}
		}
	}
	if l := s.List(Query{Set: InLockOuts}); len(l.Entries) != usualPage {
		t.Errorf("a page has %d entries", len(l.Entries))
	}
	if l := s.List(Query{Set: InLockOuts, From: 5000}); len(l.Entries) != 0 || l.Matched != 1003 {
		t.Errorf("beyond the end: %d entries of %d", len(l.Entries), l.Matched)
	}
	if l := s.List(Query{Set: InLockOuts, From: -5, Max: -1}); len(l.Entries) != usualPage {
		t.Errorf("with negative numbers: %d entries", len(l.Entries))
	}
}

func TestEntriesWithoutAnEndSortLast(t *testing.T) {
	bubble(t, func(t *testing.T, b *box) {
		b.over("203.0.113.7", shy)
		b.over("203.0.113.8", harsh)
		b.over("203.0.113.9", harsh)
		time.Sleep(3 * time.Second)
		l := b.List(Query{Set: InQuarantine, Sort: "leaves"})
		if len(l.Entries) != 2 || !l.Entries[1].Until.IsZero() {
			t.Errorf("%+v", l.Entries)
		}
	})
}

// What pages read must follow what happens, in whichever order it came.
func TestViewFollowsTheBook(t *testing.T) {
	s := many(50)
	check := func() {
		t.Helper()
		list := s.view.records(s)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(list) != len(s.book.all) || len(s.view.at) != len(list) {
			t.Fatalf("%d in the view, %d in the book, %d in the index", len(list), len(s.book.all), len(s.view.at))
		}
		for _, r := range list {
			if s.book.all[r.key()] != r {
				t.Fatalf("%s is an old one in the view", r.src)
			}
		}
	}
	check()
	for i := range 300 {
		s.mu.Lock()
		for _, r := range s.book.all {
			switch next := *r; i % 3 {
			case 0:
				s.drop(r)
			case 1:
				next.packets++
				s.put(&next)
			default:
				next.src = netip.PrefixFrom(netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)}), 32)
				s.put(&next)
				s.drop(&next)
				s.put(&next)
			}
			break
		}
		s.mu.Unlock()
		if i%7 == 0 {
			check()
		}
	}
	check()
}

func BenchmarkList(b *testing.B) {
	s := many(maxBlocked)
	for _, q := range []Query{{Sort: "since", Desc: true}, {Sort: "address", From: maxBlocked - 500}, {Sort: "rule", From: 30000}, {Search: "10.0.77"}, {Search: "10.0.77.5"}, {Search: "nobody", Sort: "last"}} {
		q.Set, q.Max = InLockOuts, 200
		b.Run(fmt.Sprintf("%s_%s", q.Sort, q.Search), func(b *testing.B) {
			for b.Loop() {
				s.List(q)
			}
		})
	}
	b.Run("counts", func(b *testing.B) {
		for b.Loop() {
			s.Counts()
		}
	})
	b.Run("blocked", func(b *testing.B) {
		for b.Loop() {
			s.Blocked()
		}
	})
	b.Run("members", func(b *testing.B) {
		for b.Loop() {
			s.Members()
		}
	})
}
