package dhcp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"gatehouse/firewall"
)

// slowDisk takes a second for each commit, and can fail.
type slowDisk struct {
	mu      sync.Mutex // guards rows
	rows    map[netip.Addr]Lease
	commits int
	err     error
}

func (d *slowDisk) All(context.Context) ([]Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Lease
	for _, l := range d.rows {
		out = append(out, l)
	}
	return out, d.err
}

func (d *slowDisk) Put(_ context.Context, rows []Lease) error {
	time.Sleep(time.Second)
	d.commits++
	if d.err != nil {
		return d.err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range rows {
		d.rows[l.Addr] = l
	}
	return nil
}

func (d *slowDisk) row(a netip.Addr) (Lease, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.rows[a]
	return l, ok
}

func (d *slowDisk) Delete(_ context.Context, addrs []netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range addrs {
		delete(d.rows, a)
	}
	return d.err
}

// onDisk makes a server without ports on a disk, with the LAN of the tests.
func onDisk(t *testing.T, d *slowDisk, lease int) *Server {
	t.Helper()
	s := New(slog.New(slog.DiscardHandler), d, UsualLimits(), nil)
	if err := s.Reload(context.Background(), (&lab{}).config(lease)); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCommitIsSharedAndComesBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{rows: map[netip.Addr]Lease{}}
		s := onDisk(t, d, 3600)
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() { s.commit(stop); close(ended) }()
		answered := 0
		for i := range 100 {
			mac := macOf([6]byte{2, 0, 0, 9, 0, byte(i)})
			var rows []Lease
			s.withPool("lan0", func(p *Pool) { rows = p.Decide(reboot(mac, ip(byte(100+i))), time.Now()).Write })
			s.enqueue(job{addrs: addrsOf(rows), done: func(err error) {
				if l, _ := d.row(rows[0].Addr); err != nil || l.MAC != mac {
					t.Errorf("answered %s before it was stored (%v)", rows[0].Addr, err)
				}
				answered++
			}})
			if i == 0 {
				synctest.Wait() // the first commit is on its way
			}
		}
		close(stop)
		<-ended
		if answered != 100 || d.commits != 2 {
			t.Errorf("%d answers out of %d commits, want 100 out of 2", answered, d.commits)
		}
	})
}

func TestCommitFailureReachesEveryAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{rows: map[netip.Addr]Lease{}, err: nil}
		s := onDisk(t, d, 3600)
		d.err = errors.New("disk full")
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() { s.commit(stop); close(ended) }()
		s.withPool("lan0", func(p *Pool) { p.Decide(reboot(macA, ip(100)), time.Now()) })
		var got error
		s.enqueue(job{addrs: []netip.Addr{ip(100)}, done: func(err error) { got = err }})
		close(stop)
		<-ended
		if !errors.Is(got, d.err) {
			t.Errorf("the answer heard %v", got)
		}
		// Its address stays with the client that was promised it, so nobody else gets it.
		s.withPool("lan0", func(p *Pool) {
			if v := p.Decide(reboot(macB, ip(100)), time.Now()); v.Answer != Nak {
				t.Errorf("another client got %s for the address", v.Answer)
			}
			if v := p.Decide(reboot(macA, ip(100)), time.Now()); v.Answer != Ack || len(v.Write) != 1 {
				t.Errorf("the client's next try: %s with %d rows to store, want an ACK after a store", v.Answer, len(v.Write))
			}
		})
	})
}

func TestListShowsALeaseExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		d := &slowDisk{rows: map[netip.Addr]Lease{
			ip(100):                           {Addr: ip(100), In: "LAN", Client: "hw:" + string(macA), MAC: macA, State: Active, First: now, Last: now, Until: now.Add(2 * time.Minute)},
			ip(101):                           {Addr: ip(101), In: "LAN", MAC: macC, State: Declined, Last: now, Until: now.Add(time.Hour)},
			netip.MustParseAddr("172.16.0.9"): {Addr: netip.MustParseAddr("172.16.0.9"), In: "OLD", MAC: macB, State: Active, Last: now, Until: now.Add(time.Minute)},
		}}
		s := onDisk(t, d, 120)
		s.withPool("lan0", func(p *Pool) { p.Decide(discover(macB), now) })
		states := func() string {
			var out []string
			for _, l := range s.List() {
				out = append(out, l.Addr.String()+" "+string(l.State))
			}
			return strings.Join(out, ", ")
		}
		for _, c := range []struct {
			wait time.Duration
			want string
		}{
			{0, "172.16.0.9 active, 192.168.25.100 active, 192.168.25.101 declined, 192.168.25.102 offered"},
			{offerHold, "172.16.0.9 active, 192.168.25.100 active, 192.168.25.101 declined"},
			{time.Minute, "172.16.0.9 expired, 192.168.25.100 active, 192.168.25.101 declined"},
			{time.Minute, "172.16.0.9 expired, 192.168.25.100 expired, 192.168.25.101 declined"},
			{time.Hour, "172.16.0.9 expired, 192.168.25.100 expired, 192.168.25.101 released"},
		} {
			time.Sleep(c.wait)
			if got := states(); got != c.want {
				t.Errorf("after another %s:\n got %s\nwant %s", c.wait, got, c.want)
			}
		}
	})
}

func TestReleaseAndDeleteReachTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		old := netip.MustParseAddr("172.16.0.9")
		d := &slowDisk{rows: map[netip.Addr]Lease{
			ip(100): {Addr: ip(100), Client: "hw:" + string(macA), MAC: macA, State: Active, Last: now, Until: now.Add(time.Hour)},
			old:     {Addr: old, MAC: macB, State: Active, Last: now, Until: now.Add(time.Hour)},
		}}
		s := onDisk(t, d, 3600)
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() { s.commit(stop); close(ended) }()
		ctx := context.Background()
		for _, a := range []netip.Addr{ip(100), old} {
			err := s.Release(ctx, a)
			if l, _ := d.row(a); err != nil || l.State != Released {
				t.Errorf("release of %s: %v, on disk %s", a, err, l.State)
			}
			if err := s.Release(ctx, a); !errors.Is(err, ErrNoLease) {
				t.Errorf("second release of %s: %v", a, err)
			}
			if err := s.Delete(ctx, a); err != nil {
				t.Errorf("delete of %s: %v", a, err)
			}
			if _, there := d.row(a); there {
				t.Errorf("%s is still on disk", a)
			}
			if err := s.Delete(ctx, a); !errors.Is(err, ErrNoLease) {
				t.Errorf("second delete of %s: %v", a, err)
			}
		}
		if n := len(s.List()); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		close(stop)
		<-ended
	})
}

func TestReloadKeepsLeasesAndOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slowDisk{rows: map[netip.Addr]Lease{}}
		s := onDisk(t, d, 3600)
		s.withPool("lan0", func(p *Pool) { bound(t, p, macA, time.Now()) })
		s.withPool("lan0", func(p *Pool) { p.Decide(discover(macB), time.Now()) })
		ctx := context.Background()
		reload := func(c firewall.Config) {
			if err := s.Reload(ctx, c); err != nil {
				t.Fatal(err)
			}
		}
		reload((&lab{}).config(3600))
		if l := s.List(); len(l) != 2 || l[1].State != Offered {
			t.Errorf("the same configuration again: %v", l)
		}
		reload(firewall.Config{}) // everything off: nothing is forgotten
		if l := s.List(); len(l) != 1 || l[0].Addr != ip(100) || l[0].State != Active {
			t.Errorf("without scopes: %v", l)
		}
		reload((&lab{}).config(120))
		s.withPool("lan0", func(p *Pool) {
			if v := p.Decide(renewing(macA, ip(100)), time.Now()); v.Answer != Ack || v.Lease != 2*time.Minute || len(v.Write) != 1 {
				t.Errorf("a lease cut to 120 s is renewed by %s for %s, %d rows to store", v.Answer, v.Lease, len(v.Write))
			}
		})
	})
}

func FuzzPacket(f *testing.F) {
	opts := func(kv ...any) map[byte][]byte {
		out := map[byte][]byte{}
		for i := 0; i < len(kv); i += 2 {
			out[byte(kv[i].(int))] = []byte(kv[i+1].(string))
		}
		return out
	}
	hw := []byte{2, 0, 0, 0, 0, 10}
	for _, o := range []map[byte][]byte{
		opts(53, "\x01"), opts(53, "\x03", 50, "\xc0\xa8\x19\x64", 54, "\xc0\xa8\x19\x01"), opts(53, "\x03", 50, "\xc0\xa8\x19"),
		opts(53, "\x04", 50, "\xc0\xa8\x19\x64", 54, "\xc0\xa8\x19\x01"), opts(53, "\x07", 54, "\xc0\xa8\x19\x01"), opts(53, "\x08"),
		opts(53, "\x01", 61, "", 57, "\x02\x40", 55, "\x01\x03\x06", 81, "\x04\x00\x00\x3fa", 12, strings.Repeat("a", 300)),
		opts(53, "\x01", 82, "\x01\x02ab", 121, "\x21\x0a"), opts(52, "\x03", 53, "\x01"),
	} {
		p, err := dhcpv4.New(dhcpv4.WithHwAddr(hw))
		if err != nil {
			f.Fatal(err)
		}
		p.Options = o
		b := p.ToBytes()
		f.Add(b, false)
		f.Add(b[:headerLen+3], true)
	}
	f.Fuzz(func(t *testing.T, pkt []byte, unicast bool) {
		m, err := parse(pkt)
		if err != nil {
			return
		}
		if m.MAC == "" || m.Client == "" || len(m.Host) > 255 || strings.Trim(CleanHost(m.Host), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Fatalf("parsed into %+v", m)
		}
		m.Src, m.Unicast = netip.IPv4Unspecified(), unicast
		if unicast {
			m.Src = m.CIAddr
		}
		p := NewPool(testScope(3, time.Hour), nil)
		for range 2 {
			v := p.Decide(m, start)
			for _, l := range v.Write {
				if !p.scope.host(l.Addr) {
					t.Fatalf("stores %+v", l)
				}
			}
			if v.Answer == Silent {
				continue
			}
			b, _ := reply(p.scope, nil, m, v, 1500)
			if most := max(m.MaxSize, minSize) - ipUDPLen; len(b) > most || len(b) > 1472 {
				t.Fatalf("answers %d bytes to a client that takes %d", len(b), most)
			}
			if to := pathOf(m, v); !to.to.IsValid() {
				t.Fatalf("no way back for %+v", m)
			}
			if r, err := dhcpv4.FromBytes(b); err != nil || r.TransactionID != m.packet.TransactionID {
				t.Fatalf("own answer unreadable: %v", err)
			}
		}
	})
}
