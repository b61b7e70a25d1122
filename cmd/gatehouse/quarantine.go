package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/commit"
	"gatehouse/services/quarantine"
	"gatehouse/web/api"
)

// newQuarantine is the service that knows who is shut out. Whoever signs in is
// exempt from then on.
func (b *box) newQuarantine() *quarantine.Service {
	s := quarantine.New(b.log, quarantine.Deps{Sets: b.kernel, Conntrack: b.kernel,
		Entries: b.disk.shutOut, Strikes: b.disk.strikes, Acts: b.disk.acts, Exemptions: b.disk.exemptions,
		Facts: b.link.Facts, Resolvers: b.link.Resolvers, Admins: b.signedIn, Publish: b.bus.Publish})
	b.disk.sessions.changed = s.Look
	return s
}

// signedIn is where administrators are signed in, and when they last did something.
func (b *box) signedIn() map[netip.Addr]time.Time {
	all, err := b.auth.Sessions()
	if err != nil {
		b.log.Warn("read the sessions", "err", err)
	}
	out := make(map[netip.Addr]time.Time, len(all))
	for _, s := range all {
		if s.Seen.After(out[s.From]) {
			out[s.From] = s.Seen
		}
	}
	return out
}

// facts is what changes without an edit and decides packets: what the ports have, and who is shut out.
func (b *box) facts() firewall.Facts {
	f := b.link.Facts()
	f.Blocked = b.quarantine.Blocked()
	return f
}

// exceeded passes on that a packet was beyond a limit.
func (b *box) exceeded(l kernel.LogLine) {
	if what, rule, ok := firewall.ParseLimitPrefix(l.Prefix); ok {
		b.quarantine.Offence(quarantine.Line{Time: l.Time, What: what, Rule: rule, Src: l.Packet.Src})
	}
}

// shut gives the sets of a ruleset that are not in the kernel yet the sources that
// are shut out: from its first packet on, a table that is made anew drops the same.
func (b *box) shut(rs ruleset.Ruleset) ruleset.Ruleset {
	members := b.quarantine.Members()
	rs.Sets = slices.Clone(rs.Sets)
	for i, s := range rs.Sets {
		if m, ok := members[s.Name]; ok && s.Runtime {
			rs.Sets[i].Elements = m
		}
	}
	return rs
}

type quarantineReloader struct{ b *box }

// Name is for the problems in the bar.
func (q quarantineReloader) Name() string { return q.b.quarantine.Name() }

// Reload makes limits and exempt sources follow.
func (q quarantineReloader) Reload(ctx context.Context, cfg firewall.Config) error {
	return q.b.quarantine.Reload(ctx, q.b.setup.meaning(cfg))
}

// release lets sources go for the console.
func (b *box) release(ctx context.Context, typed []string) (string, error) {
	var srcs []netip.Prefix
	for _, s := range typed {
		src, err := parseSource(s)
		if err != nil {
			return "", err
		}
		srcs = append(srcs, b.quarantine.Meant(src))
	}
	r, err := b.quarantine.Release(ctx, quarantine.Who{Account: "console", Door: "console"}, srcs, quarantine.Options{})
	if err != nil {
		return "", err
	}
	var said []string
	for _, src := range srcs {
		said = append(said, b.released(r, src))
	}
	return strings.Join(said, "\n"), nil
}

// released says what became of one source.
func (b *box) released(r quarantine.Receipt, src netip.Prefix) string {
	name := quarantine.Entry{Source: src}.Name()
	if slices.ContainsFunc(r.Released, func(e quarantine.Entry) bool { return e.Source == src }) {
		return name + " is released."
	}
	for _, e := range b.quarantine.Holding(src.Addr()) {
		if e.Source != src {
			return fmt.Sprintf("%s itself is not shut out, but it belongs to %s, which is.", name, e.Name())
		}
	}
	return name + " is not shut out."
}

// parseSource reads an address or a network.
func parseSource(s string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("`%s` is not an address or a network; nothing was changed", s)
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// listShutOut is a part of who is shut out, for the console: quarantine first.
func (b *box) listShutOut(from int) api.ShutOut {
	first := b.quarantine.List(quarantine.Query{Set: quarantine.InQuarantine, Sort: "address", From: from, Max: api.ShutOutPart})
	out := api.ShutOut(first.Entries)
	if left := api.ShutOutPart - len(out); left > 0 {
		rest := b.quarantine.List(quarantine.Query{Set: quarantine.InLockOuts, Sort: "address", From: max(from-first.Matched, 0), Max: left})
		out = append(out, rest.Entries...)
	}
	return out
}

// reopen makes a new store, and writes to it who is shut out.
func (b *box) reopen(ctx context.Context, extra []byte) (commit.Revisions, commit.Drafts, error) {
	revisions, drafts, err := b.disk.reopen(ctx, extra)
	if err == nil {
		b.quarantine.Renewed()
	}
	return revisions, drafts, err
}
