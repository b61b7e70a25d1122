package kernel_test

import (
	"maps"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"gatehouse/firewall"
	"gatehouse/firewall/kernel"
)

// crowd is n TCP connections of every source, all to one server.
func crowd(n int, sources ...string) (flows []firewall.Flow) {
	for _, s := range sources {
		src, dst := netip.MustParseAddr(s), netip.MustParseAddr("203.0.113.1")
		if src.Is6() {
			dst = netip.MustParseAddr("2001:db8::1")
		}
		for i := range n {
			flows = append(flows, firewall.Flow{Open: i%2 == 0, Mark: uint32(i + 1),
				Packet: firewall.Packet{Src: src, Dst: dst, Proto: 6, SrcPort: uint16(1000 + i), DstPort: 80}})
		}
	}
	return flows
}

// sources is how many entries each source has in the table, by what a plain listing says.
func sources(t *testing.T, k *kernel.Kernel) map[string]int {
	t.Helper()
	got := map[string]int{}
	err := k.Flows(t.Context(), func(f firewall.Flow) error { got[f.Src.String()]++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestFlowsTellMarkAndOpen(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		want := crowd(4, "192.0.2.1", "2001:db8:1::7")
		if err := k.Insert(want); err != nil {
			t.Fatal(err)
		}
		type state struct {
			mark uint32
			open bool
		}
		got, wanted := map[firewall.Packet]state{}, map[firewall.Packet]state{}
		for _, f := range want {
			wanted[f.Packet] = state{f.Mark, f.Open}
		}
		if err := k.Flows(t.Context(), func(f firewall.Flow) error { got[f.Packet] = state{f.Mark, f.Open}; return nil }); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, wanted) {
			t.Errorf("got %v\nwant %v", got, wanted)
		}
	})
}

func TestFlowsOfASourceAreItsOwnOnly(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		if err := k.Insert(crowd(3, "192.0.2.1", "192.0.2.2", "192.0.3.1", "2001:db8:1::1", "2001:db8:1::2", "2001:db8:1:1::1")); err != nil {
			t.Fatal(err)
		}
		for src, want := range map[string]map[string]int{
			"192.0.2.1/32":      {"192.0.2.1": 3},
			"192.0.2.9/24":      {"192.0.2.1": 3, "192.0.2.2": 3},
			"0.0.0.0/0":         {"192.0.2.1": 3, "192.0.2.2": 3, "192.0.3.1": 3},
			"203.0.113.1/32":    {}, // where they go to
			"2001:db8:1::1/128": {"2001:db8:1::1": 3},
			"2001:db8:1::/64":   {"2001:db8:1::1": 3, "2001:db8:1::2": 3},
		} {
			got := map[string]int{}
			err := k.FlowsOf(t.Context(), netip.MustParsePrefix(src), func(f firewall.Flow) error { got[f.Src.String()]++; return nil })
			if err != nil || !maps.Equal(got, want) {
				t.Errorf("%s: %v, %v, want %v", src, got, err, want)
			}
		}
		if err := k.FlowsOf(t.Context(), netip.Prefix{}, func(firewall.Flow) error { return nil }); err == nil {
			t.Error("flows of no source")
		}
	})
}

func TestManyFlowsAreCutAtOnce(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		if err := k.Insert(crowd(700, "192.0.2.1", "2001:db8:1::1")); err != nil {
			t.Fatal(err)
		}
		var half []firewall.Flow
		if err := k.Flows(t.Context(), func(f firewall.Flow) error {
			if f.Open {
				half = append(half, f)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if n, err := k.Cut(t.Context(), half); n != 700 || err != nil {
			t.Errorf("cut %d, %v; want 700", n, err)
		}
		if got, want := sources(t, k), map[string]int{"192.0.2.1": 350, "2001:db8:1::1": 350}; !maps.Equal(got, want) {
			t.Errorf("left %v, want %v", got, want)
		}
	})
}

// C10 for sources that are shut out: their connections end, others' do not.
func TestC10CutFromASourceLeavesTheOthers(t *testing.T) {
	inside(t, func(t *testing.T) {
		k := open(t)
		all := []string{"192.0.2.1", "192.0.2.2", "192.0.3.1", "2001:db8:1::1", "2001:db8:1::2", "2001:db8:1:1::1"}
		if err := k.Insert(crowd(1200, all...)); err != nil { // more than fits into one datagram of deletions
			t.Fatal(err)
		}
		left := sources(t, k)
		for _, c := range []struct {
			src  string
			gone []string
		}{
			{"198.51.100.1/32", nil},
			{"203.0.113.1/32", nil}, // the server is no source
			{"192.0.2.1/32", []string{"192.0.2.1"}},
			{"2001:db8:1::/64", []string{"2001:db8:1::1", "2001:db8:1::2"}},
			{"192.0.2.0/24", []string{"192.0.2.2"}},
		} {
			want := 0
			for _, s := range c.gone {
				want += left[s]
				delete(left, s)
			}
			for _, want := range []int{want, 0} { // the second time they are gone
				if n, err := k.CutFrom(t.Context(), netip.MustParsePrefix(c.src)); n != want || err != nil {
					t.Errorf("cut %d from %s, %v; want %d", n, c.src, err, want)
				}
			}
			if got := sources(t, k); !maps.Equal(got, left) {
				t.Errorf("after cutting %s: %v, want %v", c.src, got, left)
			}
		}
		if n, err := k.CutFrom(t.Context(), netip.Prefix{}); n != 0 || err == nil {
			t.Errorf("cut %d from no source, %v", n, err)
		}
		if got := sources(t, k); !maps.Equal(got, left) {
			t.Errorf("after cutting no source: %v, want %v", got, left)
		}
	})
}

// BenchmarkCutFrom cuts a source with 1,000 connections, by its address and by
// its network, among 200,000 of others.
func BenchmarkCutFrom(b *testing.B) {
	alone(b, func(k *kernel.Kernel) {
		var others []string
		for i := range 200 {
			others = append(others, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}).String())
		}
		if err := k.Insert(crowd(1000, others...)); err != nil {
			b.Error(err)
			return
		}
		for _, src := range []string{"192.0.2.1/32", "192.0.2.0/24"} {
			b.Run(src, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					if err := k.Insert(crowd(1000, "192.0.2.1")); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					if n, err := k.CutFrom(b.Context(), netip.MustParsePrefix(src)); n != 1000 || err != nil {
						b.Fatalf("cut %d: %v", n, err)
					}
				}
			})
		}
	})
}

func TestFlowIsOpenUntilItsSourceClosesIt(t *testing.T) {
	limited(t, firewall.Limit{Open: 10, Over: firewall.DropExcess}, func(s *street) {
		isOpen := func(from string) (open bool) {
			s.t.Helper()
			if err := s.k.FlowsOf(s.t.Context(), netip.PrefixFrom(ip(from), ip(from).BitLen()), func(f firewall.Flow) error {
				open = open || f.Open
				return nil
			}); err != nil {
				s.t.Fatal(err)
			}
			return open
		}
		for _, from := range []string{"198.51.100.1", "2001:db8:bad::1"} {
			c := s.call(from, 1)[0]
			c.works(s.t)
			if !isOpen(from) {
				s.t.Errorf("%s: a connection is not open", from)
			}
			s.hangUp()
			await(s.t, "the end", nil, func() bool { n, err := unix.Read(c.fd, make([]byte, 1)); return n == 0 && err == nil })
			if !isOpen(from) {
				s.t.Errorf("%s: a connection is not open, although only the server has closed it", from)
			}
			c.hangUp()
			await(s.t, "the source's end", nil, func() bool { return !isOpen(from) })
		}
	})
}

func TestFlowIsNotOpenWhenItsSourceClosedItFirst(t *testing.T) {
	const closed = 0x23 | 4 // the flags of a side that closed first
	for state, open := range map[byte][2]bool{1: {}, 2: {}, 3: {true, true}, 4: {false, true}, 5: {false, true}, 6: {}, 7: {}, 8: {}, 9: {}} {
		if by := [2]bool{kernel.OpenTCP(state, 0x23), kernel.OpenTCP(state, closed)}; by != open {
			t.Errorf("state %d: open %v, want %v: when the source closed first, and when the server did", state, by, open)
		}
	}
}

// hangUp closes all connections of the server.
func (s *street) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
}
