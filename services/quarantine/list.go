package quarantine

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"gatehouse/firewall"
)

// usualPage is how many entries a Query without Max gets.
const usualPage = 200

// view is the book as pages read it. It takes over what has changed since it was
// last read, so that neither a page waits for a flood nor a flood for a page:
// nothing here holds the book's mutex for longer than it takes to swap a slice.
type view struct {
	mu   sync.Mutex // guards the rest; taken before Service.mu
	rows []row
	at   map[key]int // of rows
}

type row struct {
	*record
	text string // the source, as people search it
}

// catchUp takes over what is new. It leaves mu locked.
func (v *view) catchUp(s *Service) {
	v.mu.Lock()
	s.mu.Lock()
	news := s.book.news
	s.book.news = nil
	s.mu.Unlock()
	for _, c := range news {
		i, there := v.at[c.key]
		switch {
		case c.r == nil && there:
			last := len(v.rows) - 1
			v.rows[i] = v.rows[last]
			v.at[v.rows[i].key()] = i
			v.rows = v.rows[:last]
			delete(v.at, c.key)
		case c.r != nil && there:
			v.rows[i].record = c.r
		case c.r != nil:
			v.at[c.key] = len(v.rows)
			v.rows = append(v.rows, row{c.r, text(c.r.src)})
		}
	}
}

// records is every record of the moment.
func (v *view) records(s *Service) []*record {
	v.catchUp(s)
	defer v.mu.Unlock()
	list := make([]*record, len(v.rows))
	for i, r := range v.rows {
		list[i] = r.record
	}
	return list
}

// text is a source as people write it: a host without its length.
func text(src netip.Prefix) string {
	if src.IsSingleIP() {
		return src.Addr().String()
	}
	return src.String()
}

// List is the answer to a query; what has ended is not in it.
func (s *Service) List(q Query) List {
	now := time.Now()
	s.mu.Lock()
	asleep := now.Sub(s.looked) >= pageLooks
	s.looked = now
	out := List{Updated: s.updated}
	s.mu.Unlock()
	if asleep {
		signal(s.look)
	}
	want := wanted(q.Search)
	s.view.catchUp(s)
	defer s.view.mu.Unlock()
	keys := make([]sortKey, 0, len(s.view.rows))
	order := s.view.sorter(q.Sort, q.Desc)
	for i, r := range s.view.rows {
		if !r.in(q.Set) || r.over(now) {
			continue
		}
		if out.Total++; want(r) {
			keys = append(keys, order(int32(i), r))
		}
	}
	out.Matched = len(keys)
	from := min(max(q.From, 0), len(keys))
	for _, k := range sorted(keys, from, min(from+cmp.Or(max(q.Max, 0), usualPage), len(keys))) {
		out.Entries = append(out.Entries, s.view.rows[k.row].entry())
	}
	return out
}

// sorted is keys[from:to] as if all were sorted, which they are not: of a long
// list a page wants a few.
func sorted(keys []sortKey, from, to int) []sortKey {
	part(keys, from)
	part(keys[from:], to-from)
	slices.SortFunc(keys[from:to], compare)
	return keys[from:to]
}

// part moves the n first keys to the front, in any order (Hoare's selection).
func part(keys []sortKey, n int) {
	for n > 0 && n < len(keys) {
		pivot := keys[rand.IntN(len(keys))] // nobody can prepare a list that is slow
		i, j := 0, len(keys)-1
		for i <= j {
			for compare(keys[i], pivot) < 0 {
				i++
			}
			for compare(pivot, keys[j]) < 0 {
				j--
			}
			if i <= j {
				keys[i], keys[j] = keys[j], keys[i]
				i++
				j--
			}
		}
		switch { // keys[:j+1] come first, keys[i:] last; one between is in its place
		case n <= j:
			keys = keys[:j+1]
		case n > i:
			keys, n = keys[i:], n-i
		default:
			return
		}
	}
}

// in reports whether the record is of the list.
func (r *record) in(set string) bool {
	switch set {
	case InWould:
		return r.would
	case InLockOuts:
		return !r.would && r.kind == LockOut
	}
	return !r.would && r.kind == Quarantine
}

// wanted is what a search finds: a part of the address or of what was written, a
// rule, or an address that an entry covers.
func wanted(search string) func(row) bool {
	search = strings.ToLower(strings.TrimSpace(search))
	if search == "" {
		return func(row) bool { return true }
	}
	rule := strings.ToUpper(strings.TrimPrefix(search, "rule/"))
	addr, err := netip.ParseAddr(search)
	addr = addr.Unmap()
	return func(r row) bool {
		return strings.Contains(r.text, search) || err == nil && r.src.Contains(addr) ||
			string(r.why.rule) == rule || r.reason != "" && strings.Contains(strings.ToLower(r.reason), search) || r.by != "" && r.by == search
	}
}

// sortKey is a row by what it is sorted by, and where that is the same by its address.
type sortKey struct {
	by     uint64
	hi, lo uint64 // the address
	row    int32
}

func compare(a, b sortKey) int {
	switch {
	case a.by != b.by:
		return cmp.Compare(a.by, b.by)
	case a.hi != b.hi:
		return cmp.Compare(a.hi, b.hi)
	case a.lo != b.lo:
		return cmp.Compare(a.lo, b.lo)
	}
	return cmp.Compare(a.row, b.row)
}

// sorter makes the keys for an order. The caller holds mu.
func (v *view) sorter(by string, desc bool) func(int32, row) sortKey {
	value := map[string]func(row) uint64{
		"address": func(row) uint64 { return 0 },
		"times":   func(r row) uint64 { return uint64(r.times) },
		"leaves":  func(r row) uint64 { return moment(r.until, math.MaxUint64) },
		"packets": func(r row) uint64 { return r.packets },
		"last":    func(r row) uint64 { return moment(r.last, 0) },
	}[by]
	if by == "rule" {
		rank := v.rules()
		value = func(r row) uint64 { return rank[r.why.rule] }
	}
	if value == nil {
		value = func(r row) uint64 { return moment(r.since, 0) }
	}
	var turn uint64
	if desc {
		turn = math.MaxUint64
	}
	return func(i int32, r row) sortKey {
		a := r.src.Addr().As16() // IPv4 comes first, as ::ffff:a.b.c.d
		return sortKey{value(r) ^ turn, binary.BigEndian.Uint64(a[:8]) ^ turn, binary.BigEndian.Uint64(a[8:]) ^ turn, i}
	}
}

// rules ranks the rules that are in the list. The caller holds mu.
func (v *view) rules() map[firewall.ID]uint64 {
	rank := map[firewall.ID]uint64{}
	for _, r := range v.rows {
		rank[r.why.rule] = 0
	}
	for i, id := range slices.Sorted(maps.Keys(rank)) {
		rank[id] = uint64(i)
	}
	return rank
}

// moment is a time as a number that sorts; none is where there is no time.
func moment(t time.Time, none uint64) uint64 {
	if t.IsZero() {
		return none
	}
	return uint64(t.UnixNano())
}

// Counts is how many sources each list holds.
func (s *Service) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.book.counts
}

// Get is the entry of a source, as List shows it.
func (s *Service) Get(src netip.Prefix) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.book.all[key{src: s.canonical(src)}]
	if r == nil || r.over(time.Now()) {
		return Entry{}, false
	}
	return r.entry(), true
}

// Holding is every entry that an address falls under, would-be ones too.
func (s *Service) Holding(a netip.Addr) (list []Entry) {
	now := time.Now()
	a = a.Unmap().WithZone("")
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.sources.Of(a)
	if r := s.book.all[key{src: src}]; r != nil && !r.over(now) {
		list = append(list, r.entry())
	}
	for net := range s.book.nets {
		if r := s.book.all[key{src: net}]; net.Contains(a) && !r.over(now) {
			list = append(list, r.entry())
		}
	}
	for id, w := range s.limits {
		if r := s.book.all[key{src, id}]; w.limit.DryRun && r != nil {
			list = append(list, r.entry())
		}
	}
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Or(b.Source.Bits()-a.Source.Bits(), cmp.Compare(a.Rule, b.Rule)) })
	return list
}

// Blocked is every source that is shut out, for firewall.Facts.
func (s *Service) Blocked() (list []netip.Prefix) {
	now := time.Now()
	for _, r := range s.view.records(s) {
		if !r.would && !r.over(now) {
			list = append(list, r.src)
		}
	}
	return list
}

// canonical is a source as it is listed: an IPv6 host is its prefix. The caller holds mu.
func (s *Service) canonical(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	p = p.Masked()
	if p.IsValid() && p.Addr().Is6() && p.Bits() == 128 && s.book.all[key{src: p}] == nil {
		return s.sources.Of(p.Addr())
	}
	return p
}
