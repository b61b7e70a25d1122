package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/kernel"
	"gatehouse/firewall/ruleset"
	"gatehouse/services/commit"
	"gatehouse/services/events"
	"gatehouse/services/link"
)

// meaningful is the kernel as commit sees it: the factory configuration stands for
// the setup ports, whatever they are at the moment.
type meaningful struct {
	*kernel.Kernel
	setup *setupPorts
	shut  func(ruleset.Ruleset) ruleset.Ruleset // with who is shut out

	mu   sync.Mutex      // guards last
	last ruleset.Ruleset // of the setup ports, as applied: a cable may change them before it is read back
}

func (k *meaningful) meant(rs ruleset.Ruleset) ruleset.Ruleset {
	if rs.Stamp == factoryStamp {
		return k.setup.rules()
	}
	return rs
}

// DryRun asks the kernel.
func (k *meaningful) DryRun(ctx context.Context, rs ruleset.Ruleset) error {
	return k.Kernel.DryRun(ctx, k.meant(rs))
}

// Apply tells the kernel.
func (k *meaningful) Apply(ctx context.Context, rs ruleset.Ruleset) error {
	rs = k.meant(rs)
	if rs.Stamp == factoryStamp {
		k.mu.Lock()
		k.last = rs
		k.mu.Unlock()
	}
	return k.Kernel.Apply(ctx, k.shut(rs))
}

// Verify reads back.
func (k *meaningful) Verify(ctx context.Context, rs ruleset.Ruleset) error {
	k.mu.Lock()
	last := k.last
	k.mu.Unlock()
	if rs.Stamp != factoryStamp || last.Stamp != factoryStamp {
		last = k.meant(rs) // after a restart nothing was applied yet
	}
	return k.Kernel.Verify(ctx, last)
}

// cutting is the Cutter with the same meaning.
type cutting struct{ b *box }

func (b *box) cut() commit.Cutter { return cutting{b} }

// Cut cuts what the configuration denies.
func (c cutting) Cut(ctx context.Context, cfg firewall.Config) error {
	return c.b.cutter.Cut(ctx, c.b.setup.meaning(cfg))
}

// oldAddressStays is how long the old address of the pages goes on answering
// after a change: the longest test and 10 minutes (ui.md 1.4).
const oldAddressStays = 16 * time.Minute

// linkReloader keeps the old address beside the new one for a while, so that
// the browser that made the change is not left alone.
type linkReloader struct {
	box *box

	mu        sync.Mutex // guards the rest
	now, past firewall.Config
	drop      *time.Timer
}

// Name is for the problems in the bar.
func (l *linkReloader) Name() string { return "interfaces" }

// Reload makes the ports follow. It is called after the rules were verified, so
// packets may pass between the ports; as delivered and in lockdown they never do.
func (l *linkReloader) Reload(ctx context.Context, cfg firewall.Config) error {
	// An Apply that is under way must not undo what a foreign flush has just switched off.
	on := cfg.Stamp() != factoryStamp && !l.box.writer.Status().Lockdown && !l.box.flushed.Load()
	forward := l.box.link.SetForwarding(on)
	var beside []firewall.Interface
	if cfg.Stamp() == factoryStamp {
		beside = l.box.setup.beside()
	}
	cfg = l.box.setup.meaning(cfg)
	l.mu.Lock()
	old, again := l.now, cfg.Stamp() == l.now.Stamp()
	back := !again && cfg.Stamp() == l.past.Stamp() // taken back: nothing of the new one stays
	if again {
		old = l.past // what stays beside it goes on staying
	} else {
		if l.now, l.past = cfg, old; back {
			l.past = firewall.Config{}
		}
		if l.drop != nil {
			l.drop.Stop()
		}
		l.drop = time.AfterFunc(oldAddressStays, func() { l.settle(cfg, beside) })
	}
	l.mu.Unlock()
	var err error
	if back {
		old = firewall.Config{}
	}
	old.Interfaces = append(beside, old.Interfaces...)
	if len(old.Interfaces) == 0 {
		err = l.box.link.Reload(ctx, cfg)
	} else {
		err = l.box.link.Try(ctx, cfg, old)
	}
	l.box.covers()
	return errors.Join(forward, err)
}

// settle drops the old address, if nothing newer runs; beside stays. It holds mu so that what
// comes after it is the last that the ports hear.
func (l *linkReloader) settle(cfg firewall.Config, beside []firewall.Interface) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now.Stamp() != cfg.Stamp() || l.box.writer.Status().Lockdown {
		return
	}
	l.past = firewall.Config{}
	if err := l.box.link.Try(context.Background(), cfg, firewall.Config{Interfaces: beside}); err != nil {
		l.box.log.Warn("drop the old address", "err", err)
	}
}

type dhcpReloader struct{ b *box }

// Name is for the problems in the bar.
func (d dhcpReloader) Name() string { return "dhcp" }

// Reload makes the scopes follow.
func (d dhcpReloader) Reload(ctx context.Context, cfg firewall.Config) error {
	d.b.resolvers()
	return d.b.dhcp.Reload(ctx, d.b.setup.meaning(cfg))
}

// resolvers tells the DHCP server which name servers there are outside.
func (b *box) resolvers() {
	waiting := slices.ContainsFunc(b.link.Status(), func(p link.Port) bool {
		return p.Role == firewall.WAN && p.DHCP && !p.Lease.Addr.IsValid()
	})
	b.dhcp.SetResolvers(b.link.Resolvers(), waiting)
}

type webReloader struct{ b *box }

// Name is for the problems in the bar.
func (w webReloader) Name() string { return "web" }

// Reload opens the pages' ports.
func (w webReloader) Reload(_ context.Context, cfg firewall.Config) error {
	if !w.b.opened.Load() {
		return nil // at boot: open does it
	}
	return w.b.server.Listen(cfg.Admin.HTTPS, cfg.Admin.HTTP)
}

// linkEvent passes on what happened at a port.
func (b *box) linkEvent(e link.Event) {
	b.log.Info("port", "event", e.Kind, "device", e.Device, "addr", e.Addr)
	b.bus.Publish(events.Event{Name: "ports", Time: time.Now()})
	b.quarantine.Look()
	go b.portEvent(e) // not from within the service
}

func (b *box) portEvent(e link.Event) {
	ctx := context.Background()
	switch e.Kind {
	case link.LeaseHeld, link.LeaseLost:
		b.resolvers()
	case link.AddrNew, link.AddrGone:
		b.covers()
	case link.Appeared:
		b.attach(ctx)
	}
	if e.Kind != link.AddrGone || b.delivered() {
		return
	}
	// What was translated to an address that is gone starts anew (F16).
	c, _ := b.writer.Running()
	if err := b.cutter.Cut(ctx, c); err != nil {
		b.log.Warn("cut connections of an address that is gone", "addr", e.Addr, "err", err)
	}
}

// attach gives ports that have appeared the chains by which what comes from
// shut-out sources is dropped early; until then it is dropped a little later. As
// delivered the rules follow the ports anyway.
func (b *box) attach(ctx context.Context) {
	err := b.writer.WithRules(ctx, func(ctx context.Context, rules ruleset.Ruleset) error {
		if rules.Stamp == factoryStamp {
			return nil
		}
		return b.kernel.Attach(ctx, rules)
	})
	if err != nil && ctx.Err() == nil {
		b.log.Warn("drop early at a port that has appeared", "err", err)
	}
}

// portsChanged lets the box as delivered follow its ports.
func (b *box) portsChanged() {
	b.bus.Publish(events.Event{Name: "ports", Time: time.Now()})
	go func() {
		ctx := context.Background()
		if b.writer.Status().Lockdown {
			b.lockdownPorts(ctx)
		} else if b.delivered() {
			if err := b.writer.Again(ctx); err != nil {
				b.log.Error("follow the ports", "err", err)
			}
		}
		b.announcePages()
	}()
}

// lockdownPorts opens the pages, and nothing else, on the ports that look like
// local ones: in SAFE MODE without a configuration the owner must get in.
func (b *box) lockdownPorts(ctx context.Context) {
	if err := b.writer.InLockdown(ctx, b.openPages); err != nil {
		b.log.Error("open the pages in lockdown", "err", err)
	}
}

// openPages is lockdownPorts with the turn.
func (b *box) openPages(ctx context.Context) {
	b.setup.lose()
	c, _ := b.writer.Running()
	b.setup.ran(c)
	if err := b.kernel.Apply(ctx, b.shut(b.setup.rules())); err != nil {
		b.log.Error("open the pages in lockdown", "err", err)
		return
	}
	cfg := b.setup.config()
	// Where forwarding cannot be switched off, known connections would go on for ever.
	if err := b.cutter.Cut(ctx, cfg); err != nil {
		b.log.Error("cut connections in lockdown", "err", err)
	}
	if err := b.link.Reload(ctx, cfg); err != nil {
		b.log.Error("bring the ports up in lockdown", "err", err)
	}
	if err := b.dhcp.Reload(ctx, cfg); err != nil {
		b.log.Error("serve DHCP in lockdown", "err", err)
	}
	if b.opened.Load() { // the rules open the factory's ports, whichever the configuration had
		if err := b.server.Listen(cfg.Admin.HTTPS, cfg.Admin.HTTP); err != nil {
			b.log.Error("listen in lockdown", "err", err)
		}
	}
	b.covers()
}
