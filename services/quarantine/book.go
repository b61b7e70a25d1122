package quarantine

import (
	"container/heap"
	"net/netip"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/ruleset"
)

// cause is the limit that shut a source out; all its victims share one.
type cause struct {
	rule  firewall.ID
	what  string
	limit firewall.Limit
}

// record is an Entry as it is kept: small, and never changed once it is in the book.
type record struct {
	src            netip.Prefix
	kind           Kind
	would          bool
	due            bool // it is to be quarantine as soon as the kernel can be told
	why            *cause
	reason, by     string
	open, times    int
	since          time.Time
	until          time.Time // zero: until it is released
	last           time.Time
	packets, bytes uint64
	version        uint64
}

// key is what a record is found by: what a rule only would have done stands
// beside what is so.
type key struct {
	src  netip.Prefix
	rule firewall.ID // of a would-be one, else ""
}

func (r *record) key() key {
	if r.would {
		return key{r.src, r.why.rule}
	}
	return key{src: r.src}
}

func (r *record) over(now time.Time) bool { return !r.until.IsZero() && !r.due && !now.Before(r.until) }

// entry is the record as others see it.
func (r *record) entry() Entry {
	return Entry{Source: r.src, Kind: r.kind, Would: r.would, Rule: r.why.rule, What: r.why.what, Limit: r.why.limit, Open: r.open,
		Reason: r.reason, By: r.by, Times: r.times, Since: r.since, Until: r.until, Packets: r.packets, Bytes: r.bytes, Last: r.last}
}

// member is the record as a member of its set.
func (r *record) member(prefix6 int, now time.Time) ruleset.Member {
	m := memberOf(r.src, prefix6)
	m.Packets, m.Bytes = r.packets, r.bytes
	if !r.until.IsZero() && !r.due {
		m.Left = max(r.until.Sub(now), time.Millisecond)
		m.Timeout = max(r.until.Sub(r.since), m.Left)
	}
	return m
}

// memberOf is a source as a member of the set that it stands in.
func memberOf(src netip.Prefix, prefix6 int) ruleset.Member {
	set := home(src, prefix6)
	if set == blocked4 || set == blocked6 {
		return ruleset.Member{Set: set, Element: ruleset.Element{Key: []ruleset.Range{ruleset.One(ruleset.Addr(src.Addr()))}}}
	}
	return ruleset.Member{Set: set, Element: ruleset.Element{Key: []ruleset.Range{ruleset.Net(src)}}}
}

// home is the set that a source stands in.
func home(src netip.Prefix, prefix6 int) string {
	switch v4 := src.Addr().Is4(); {
	case v4 && src.Bits() == 32:
		return blocked4
	case v4:
		return blockedNets4
	case src.Bits() == prefix6:
		return blocked6
	}
	return blockedNets6
}

// sourceOf is the source that an element of a blocked set stands for; false when
// none that could be shut out by it.
func sourceOf(set string, e ruleset.Element, prefix6 int) (netip.Prefix, bool) {
	if len(e.Key) != 1 {
		return netip.Prefix{}, false
	}
	switch set {
	case blocked4, blocked6:
		a, ok := netip.AddrFromSlice([]byte(e.Key[0].Lo))
		bits := 32
		if a.Is6() {
			bits = prefix6
		}
		p := netip.PrefixFrom(a, bits)
		return p, ok && p == p.Masked()
	}
	return ruleset.PrefixOf(e.Key[0])
}

// book is the list itself. Whoever uses it holds Service.mu.
type book struct {
	prefix6 int
	all     map[key]*record
	nets    map[netip.Prefix]bool // what stands in the sets of networks
	counts  Counts
	sizes   map[string]int // of the sets
	ends    ends
	news    []change // since the view caught up
	version uint64   // of the last change
}

// change is what became of a key: nil when it is gone.
type change struct {
	key
	r *record
}

func newBook() book {
	return book{prefix6: firewall.Sources{}.Prefix(), all: map[key]*record{}, nets: map[netip.Prefix]bool{}, sizes: map[string]int{}}
}

// put writes a record in place of what its key had.
func (b *book) put(r *record) {
	k := r.key()
	old := b.all[k]
	b.version++
	r.version = b.version
	b.all[k] = r
	b.count(old, -1)
	b.count(r, 1)
	b.news = append(b.news, change{k, r})
	if !r.until.IsZero() && (old == nil || old.until != r.until) {
		heap.Push(&b.ends, end{r.until, k})
	}
}

// drop takes a key out.
func (b *book) drop(k key) {
	old, ok := b.all[k]
	if !ok {
		return
	}
	b.version++
	delete(b.all, k)
	b.count(old, -1)
	b.news = append(b.news, change{k, nil})
}

// count keeps what is counted as records come and go.
func (b *book) count(r *record, n int) {
	if r == nil {
		return
	}
	if r.would {
		b.counts.Would += n
		return
	}
	if r.kind == Quarantine {
		b.counts.Quarantine += n
	} else {
		b.counts.LockOuts += n
	}
	set := home(r.src, b.prefix6)
	b.sizes[set] += n
	if set == blocked4 || set == blocked6 {
		return
	}
	if n > 0 {
		b.nets[r.src] = true
	} else {
		delete(b.nets, r.src)
	}
}

// length makes prefixes of other lengths than bits networks, and those of this length sources.
func (b *book) length(bits int) {
	if bits == b.prefix6 {
		return
	}
	b.prefix6, b.counts, b.nets, b.sizes = bits, Counts{}, map[netip.Prefix]bool{}, map[string]int{}
	for _, r := range b.all {
		b.count(r, 1)
	}
}

// nextEnd is when the first record ends; zero when none does.
func (b *book) nextEnd() time.Time {
	for len(b.ends) > 0 {
		r := b.all[b.ends[0].key]
		if r != nil && r.until.Equal(b.ends[0].at) && !r.due {
			return r.until
		}
		heap.Pop(&b.ends) // it ends otherwise by now
	}
	return time.Time{}
}

// end is when a record ends, if it is still so by then.
type end struct {
	at time.Time
	key
}

// ends is a heap of them (container/heap).
type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}
