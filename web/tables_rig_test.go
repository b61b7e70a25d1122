package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/services/dhcp"
	"gatehouse/services/link"
	"gatehouse/services/logs"
	"gatehouse/services/quarantine"
	"gatehouse/web/dashboard"
	"gatehouse/web/draft"
	"gatehouse/web/page"
	"gatehouse/web/tables"
)

// jail is a quarantine service without a kernel: it keeps its promises at once.
type jail struct {
	mu      sync.Mutex // guards the rest
	all     []quarantine.Entry
	acts    []quarantine.Act
	did     []string // what was asked of it
	given   map[string][]quarantine.Entry
	refuse  error // what it answers to every act
	spared  []quarantine.Exemption
	full    []quarantine.Alarm
	meters  []quarantine.Alarm
	flows   []firewall.Flow
	waiting map[netip.Prefix]time.Duration
}

// routes is the pages on the jail; d is the desk whose configuration runs.
func (j *jail) routes(at draft.Desk, d *desk) []page.Route {
	return tables.New(tables.Deps{Desk: at, Lists: j, Keeper: j, Watch: j,
		Running: func() firewall.Config { c, _ := d.w.Running(); return c },
		Facts: func() firewall.Facts {
			return firewall.Facts{Addrs: map[string][]netip.Prefix{"eth0": {netip.MustParsePrefix("203.0.113.24/24")}, "eth1": {netip.MustParsePrefix("192.168.1.1/24"), netip.MustParsePrefix("fe80::1/64")}}}
		},
		Leases: func() []dhcp.Lease { return d.network.List() },
		Flows: func(_ context.Context, f func(firewall.Flow) error) error {
			for _, one := range j.flows {
				if err := f(one); err != nil {
					return err
				}
			}
			return nil
		},
		Waiting: func() map[netip.Prefix]time.Duration { return j.waiting },
	})
}

func listed(e quarantine.Entry) string {
	switch {
	case e.Would:
		return quarantine.InWould
	case e.Kind == quarantine.LockOut:
		return quarantine.InLockOuts
	}
	return quarantine.InQuarantine
}

func (j *jail) List(q quarantine.Query) (l quarantine.List) {
	j.mu.Lock()
	defer j.mu.Unlock()
	l.Updated = time.Now()
	search := strings.ToLower(q.Search)
	addr, err := netip.ParseAddr(search)
	var found []quarantine.Entry
	for _, e := range j.all {
		if listed(e) != q.Set {
			continue
		}
		l.Total++
		if search == "" || strings.Contains(e.Source.String(), search) || err == nil && e.Source.Contains(addr) ||
			strings.EqualFold(string(e.Rule), search) || strings.Contains(strings.ToLower(e.Reason), search) {
			found = append(found, e)
		}
	}
	l.Matched = len(found)
	slices.SortFunc(found, func(a, b quarantine.Entry) int {
		by := 0
		switch q.Sort {
		case "address":
		case "rule":
			by = cmp.Compare(a.Rule, b.Rule)
		case "times":
			by = cmp.Compare(a.Times, b.Times)
		case "leaves":
			by = a.Until.Compare(b.Until)
		case "packets":
			by = cmp.Compare(a.Packets, b.Packets)
		case "last":
			by = a.Last.Compare(b.Last)
		default:
			by = a.Since.Compare(b.Since)
		}
		return cmp.Or(by, a.Source.Addr().Compare(b.Source.Addr()))
	})
	if q.Desc {
		slices.Reverse(found)
	}
	from := min(q.From, len(found))
	l.Entries = found[from:min(from+cmp.Or(q.Max, 200), len(found))]
	return l
}

func (j *jail) Counts() (n quarantine.Counts) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.all {
		switch listed(e) {
		case quarantine.InWould:
			n.Would++
		case quarantine.InLockOuts:
			n.LockOuts++
		default:
			n.Quarantine++
		}
	}
	return n
}

func (j *jail) Get(src netip.Prefix) (quarantine.Entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := j.index(src)
	if i < 0 {
		return quarantine.Entry{}, false
	}
	return j.all[i], true
}

func (j *jail) index(src netip.Prefix) int {
	return slices.IndexFunc(j.all, func(e quarantine.Entry) bool { return e.Source == src && !e.Would })
}

func (j *jail) Holding(a netip.Addr) (list []quarantine.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.all {
		if e.Source.Contains(a) {
			list = append(list, e)
		}
	}
	return list
}

func (j *jail) Acts(n int) []quarantine.Act {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.acts[:min(n, len(j.acts))])
}

// note enters what was asked for, newest first. The caller holds mu.
func (j *jail) note(by quarantine.Who, what string, src netip.Prefix, reason string) {
	j.did = append(j.did, strings.TrimSpace(fmt.Sprint(what, " ", src, " ", reason)))
	j.acts = slices.Insert(j.acts, 0, quarantine.Act{Time: time.Now(), Who: by, What: what, Source: src, Reason: reason})
}

func (j *jail) Meant(src netip.Prefix) netip.Prefix {
	if src.Addr().Is6() && src.IsSingleIP() {
		return firewall.Sources{}.Of(src.Addr())
	}
	return src.Masked()
}

func (j *jail) Add(_ context.Context, by quarantine.Who, src netip.Prefix, reason string, d time.Duration) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refuse != nil {
		return j.refuse
	}
	for _, no := range []struct{ addr, text string }{{by.Addr.String(), "That is the address you are using."}, {"192.168.1.1", "That is this box."}, {"203.0.113.1", "That is a gateway of this box."}} {
		if src.Contains(netip.MustParseAddr(no.addr)) {
			return firewall.Problems{{Field: "address", Text: no.text}}
		}
	}
	if d > 365*24*time.Hour {
		return firewall.Problems{{Field: "duration", Text: "The time must be 10 seconds to 1 year, or empty: until it is released."}}
	}
	e := quarantine.Entry{Source: src, Kind: quarantine.Quarantine, Reason: reason, By: by.Account, Since: time.Now()}
	if d > 0 {
		e.Kind, e.Until = quarantine.LockOut, time.Now().Add(d)
	}
	j.all = append(j.all, e)
	j.note(by, quarantine.Added, src, reason)
	return nil
}

func (j *jail) Keep(_ context.Context, by quarantine.Who, src netip.Prefix, d time.Duration) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := j.index(src)
	if i < 0 {
		return quarantine.ErrGone
	}
	e := &j.all[i]
	e.Kind, e.Until = quarantine.Quarantine, time.Time{}
	if d > 0 {
		e.Kind, e.Until = quarantine.LockOut, time.Now().Add(d)
	}
	j.note(by, quarantine.Kept, src, d.String())
	return nil
}

func (j *jail) Release(_ context.Context, by quarantine.Who, srcs []netip.Prefix, o quarantine.Options) (r quarantine.Receipt, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refuse != nil {
		return r, j.refuse
	}
	gone := map[netip.Prefix]bool{}
	for _, src := range srcs {
		gone[src] = true
	}
	j.all = slices.DeleteFunc(j.all, func(e quarantine.Entry) bool {
		if e.Would || !gone[e.Source] {
			return false
		}
		r.Released = append(r.Released, e)
		how := ""
		if o.Exempt > 0 {
			how = "exempt " + o.Exempt.String()
		}
		if o.KeepStrikes {
			how += "strikes kept"
		}
		j.note(by, quarantine.Released, e.Source, how)
		return true
	})
	r.Token = rand.Text()
	if j.given == nil {
		j.given = map[string][]quarantine.Entry{}
	}
	j.given[r.Token] = r.Released
	return r, nil
}

func (j *jail) Undo(_ context.Context, by quarantine.Who, token string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	list, ok := j.given[token]
	if !ok {
		return quarantine.ErrTooLate
	}
	delete(j.given, token)
	for _, e := range list {
		j.all = append(j.all, e)
		j.note(by, quarantine.Undone, e.Source, "")
	}
	return nil
}

func (j *jail) Full() []quarantine.Alarm           { return j.full }
func (j *jail) Meters() []quarantine.Alarm         { return j.meters }
func (j *jail) Exemptions() []quarantine.Exemption { return j.spared }
func (j *jail) Exempt(a netip.Addr) (quarantine.Exemption, bool) {
	i := slices.IndexFunc(j.spared, func(e quarantine.Exemption) bool { return e.Source.Contains(a) })
	if i < 0 {
		return quarantine.Exemption{}, false
	}
	return j.spared[i], true
}

// deeds is what was asked of the jail.
func (j *jail) deeds() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.did)
}

// put shuts sources out as the kernel does: without asking.
func (j *jail) put(es ...quarantine.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, es...)
}

// limit is the one that catches people in the tests.
var limit = firewall.Limit{Open: 100, New: 100, Window: 10, Over: firewall.LockOut, LockFor: 300, Strikes: 3, StrikeWindow: 3600}

// crowded fills the jail with one of each kind, some of them hostile.
func (j *jail) crowded(now time.Time) {
	pre := netip.MustParsePrefix
	web := firewall.ID("01JFORWARDRULE000000000001")
	dry := limit
	dry.DryRun = true
	j.all = []quarantine.Entry{
		{Source: pre("203.0.113.77/32"), Kind: quarantine.Quarantine, Rule: web, What: firewall.OverNew, Limit: limit, Times: 3, Since: now.Add(-2 * time.Minute), Packets: 18204, Bytes: 1_204_000, Last: now.Add(-3 * time.Second)},
		{Source: pre("198.51.100.0/24"), Kind: quarantine.Quarantine, Reason: `"><img src=x onerror=alert(1)> ` + "\u202e scans our mail", By: "berta", Since: now.Add(-26 * time.Hour), Packets: 81_230_114, Bytes: 5_600_000_000, Last: now.Add(-time.Second)},
		{Source: pre("2001:db8:77:1::/64"), Kind: quarantine.Quarantine, Rule: web, What: firewall.OverOpen, Open: 104, Limit: firewall.Limit{Open: 100, Over: firewall.Quarantine, LockFor: 300}, Times: 1, Since: now.Add(-14 * time.Minute), Packets: 2911, Bytes: 174_660, Last: now.Add(-4 * time.Minute)},
		{Source: pre("192.168.1.102/32"), Kind: quarantine.LockOut, Rule: ruleID(1), What: firewall.OverOpen, Open: 104, Limit: limit, Times: 1, Since: now.Add(-90 * time.Second), Until: now.Add(260 * time.Second), Packets: 87, Bytes: 5220, Last: now.Add(-2 * time.Second)},
		{Source: pre("203.0.113.9/32"), Kind: quarantine.LockOut, Rule: "01JGONE0000000000000000001", What: firewall.OverNew, Limit: limit, Times: 2, Since: now.Add(-3 * time.Minute), Until: now.Add(2 * time.Minute)},
	}
	for i := range 14 {
		j.all = append(j.all, quarantine.Entry{Source: pre(fmt.Sprintf("203.0.113.%d/32", 100+i)), Would: true, Kind: quarantine.LockOut, Rule: ruleID(7), What: firewall.OverNew, Limit: dry, Times: 1, Since: now.Add(-time.Duration(i) * time.Minute)})
	}
	j.spared = []quarantine.Exemption{{Source: pre("192.168.1.1/32"), Why: "box"}, {Source: pre("192.168.1.20/32"), Why: "admin", Until: now.Add(14*time.Minute + 30*time.Second)},
		{Source: pre("203.0.113.1/32"), Why: "gateway"}, {Source: pre("203.0.113.53/32"), Why: "resolver"}, {Source: pre("203.0.113.60/32"), Why: "released", Until: now.Add(20*time.Hour + 30*time.Minute + 30*time.Second)}}
	j.full = []quarantine.Alarm{{Rule: web, What: firewall.OverNew, Used: 55_050, Size: 65_536}}
	j.meters = []quarantine.Alarm{{Rule: web, What: firewall.OverNew, Used: 55_050, Size: 65_536}, {Rule: web, What: firewall.OverOpen, V6: true, Used: 412, Size: 65_536}, {Rule: ruleID(1), What: firewall.OverOpen, Used: 3, Size: 65_536}}
	j.waiting = map[netip.Prefix]time.Duration{pre("203.0.113.200/32"): 7*time.Minute + 30*time.Second}
	addr := netip.MustParseAddr
	j.flows = []firewall.Flow{
		{Packet: firewall.Packet{Src: addr("203.0.113.77"), Dst: addr("203.0.113.24"), Proto: 6, SrcPort: 40001, DstPort: 443}, To: addr("192.168.1.10"), ToPort: 8443, As: addr("203.0.113.77"), AsPort: 40001},
		{Packet: firewall.Packet{Src: addr("192.168.1.102"), Dst: addr("9.9.9.9"), Proto: 17, SrcPort: 5353, DstPort: 53}, To: addr("9.9.9.9"), ToPort: 53, As: addr("203.0.113.24"), AsPort: 5353},
	}
	j.acts = []quarantine.Act{
		{Time: now.Add(-time.Minute), What: quarantine.LockedOut, Source: pre("203.0.113.9/32")},
		{Time: now.Add(-5 * time.Minute), Who: quarantine.Who{Account: "berta", Door: "web"}, What: quarantine.Released, Source: pre("203.0.113.60/32"), Reason: "exempt for 1d"},
		{Time: now.Add(-3 * time.Hour), Who: quarantine.Who{Account: "admin", Door: "console"}, What: quarantine.Released, Count: 1204},
		{Time: now.Add(-26 * time.Hour), Who: quarantine.Who{Account: "berta", Door: "web"}, What: quarantine.Added, Source: pre("198.51.100.0/24"), Reason: "<b>scans</b> our mail"},
	}
}

// limited is the home with limits on three rules, one of which only counts.
func limited() firewall.Config {
	c := home()
	dry := limit
	dry.DryRun = true
	for i := range c.Rules {
		switch c.Rules[i].ID {
		case "01JFORWARDRULE000000000001", ruleID(1):
			c.Rules[i].Limit = limit
		case ruleID(7):
			c.Rules[i].Limit = dry
		}
	}
	return c
}

// jailed is the desk of an office that somebody attacks.
func jailed(t *testing.T) *desk {
	t.Helper()
	d := newDesk(t, limited())
	d.use(busy(time.Now()))
	d.jail.crowded(time.Now())
	return d
}

// withDashboard is the desk with the first page of the product in place of the list of rules.
func (d *desk) withDashboard(t *testing.T) *desk {
	t.Helper()
	var err error
	home := dashboard.New(dashboard.Deps{Config: func() firewall.Config { c, _ := d.w.Running(); return c }, Revision: func() commit.Revision { _, r := d.w.Running(); return r },
		Ports: func() []link.Port { return d.network.ports }, Leases: d.network.List, Settings: func() []string { return nil }, Shut: &d.jail,
		Drops: func(int, func(logs.Line) bool) []logs.Line { return nil }})
	others := slices.DeleteFunc(slices.Clone(d.routes), func(r page.Route) bool { return r.Path == "/" })
	d.handler, err = New(Deps{Log: slog.New(slog.DiscardHandler), Sessions: headerSessions{}, Events: d.bus, Box: d, Routes: append(others, home...)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
