package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
	"gatehouse/firewall/kernel"
	"gatehouse/firewall/simulate"
	"gatehouse/services/commit"
	"gatehouse/services/dhcp"
	"gatehouse/services/events"
	"gatehouse/services/link"
	"gatehouse/services/logs"
	"gatehouse/services/quarantine"
	"gatehouse/services/states"
	"gatehouse/web"
	"gatehouse/web/auth"
)

// options of `gatehouse serve`.
type options struct {
	state  string   // folder of databases, snapshots and keys
	socket string   // where the other verbs find the daemon
	ports  []string // the Ethernet ports that are ours; empty = all
}

func serveVerb(ctx context.Context, args []string, out io.Writer) error {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	o := options{}
	fs.StringVar(&o.state, "state", "/var/lib/gatehouse", "folder of databases, snapshots and keys")
	fs.StringVar(&o.socket, "socket", defaultSocket, "unix socket for the other verbs")
	ports := fs.String("ports", "", "Ethernet ports that are ours, divided by commas; empty for all")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *ports != "" {
		o.ports = strings.Split(*ports, ",")
	}
	return serve(ctx, o, out)
}

// box is everything that runs, wired together: the only place that knows all rooms.
type box struct {
	options
	log *slog.Logger
	out io.Writer // the console

	disk       *disk
	kernel     *kernel.Kernel
	bus        *events.Bus
	link       *link.Service
	dhcp       *dhcp.Server
	ring       *logs.Ring
	cutter     *states.Cutter
	quarantine *quarantine.Service
	setup      *setupPorts
	writer     *commit.Writer
	auth       *auth.Auth
	cert       *web.Cert
	server     *web.Server

	wait sync.WaitGroup

	opened  atomic.Bool // the pages answer
	flushed atomic.Bool // somebody changed our rules and they are not back yet
	sayOnce sync.Mutex  // guards said
	said    []string    // pages that the console was told of
}

// serve runs the firewall until ctx ends. The rules stay in the kernel then: a
// restart of the program must not open the box.
func serve(ctx context.Context, o options, out io.Writer) error {
	b := &box{options: o, out: out, bus: events.NewBus()}
	b.log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := b.build(ctx); err != nil {
		return err
	}
	defer b.disk.close()
	defer b.kernel.Close()
	ctx, stop := context.WithCancel(ctx)
	defer b.wait.Wait()
	defer stop()
	defer b.writer.Close()
	defer b.server.Close()
	if err := b.bind(); err != nil {
		return err
	}
	if err := b.boot(ctx); err != nil {
		return err
	}
	if err := b.open(ctx); err != nil {
		return err
	}
	b.announce()
	<-ctx.Done()
	b.log.Info("stopping; the rules stay in the kernel")
	return nil
}

// build makes every part whole; nothing in the kernel is touched yet.
func (b *box) build(ctx context.Context) (err error) {
	if err := capable(); err != nil {
		return err
	}
	if err := os.MkdirAll(b.state, 0o700); err != nil {
		return fmt.Errorf("make state folder: %w", err)
	}
	if b.disk, err = openDisk(b.state, b.log); err != nil {
		return err
	}
	if b.kernel, err = kernel.Open(b.log); err != nil {
		return errors.Join(err, b.disk.close())
	}
	b.ring = logs.New(2000, func() { b.bus.Publish(events.Event{Name: "log", Time: time.Now()}) })
	b.link = link.New(b.log, b.kernel, b.disk.wan, b.linkEvent)
	b.dhcp = dhcp.New(b.log, b.disk.leases, dhcp.UsualLimits(), func(e dhcp.Event) {
		b.bus.Publish(events.Event{Name: "lease", Time: time.Now()})
	})
	b.quarantine = b.newQuarantine()
	b.cutter = states.New(b.log, b.kernel, b.facts)
	b.setup = newSetupPorts(b.log, b.link)
	b.setup.probe, b.setup.owned, b.setup.changed = link.Probe, b.disk.chosen, b.portsChanged
	if err := b.ours(); err != nil {
		return errors.Join(err, b.kernel.Close(), b.disk.close())
	}
	b.auth = auth.New(b.log, b.disk.accounts, b.disk.sessions, auth.NewHasher(), auth.NewThrottle(10, 10*time.Minute))
	b.writer = commit.New(b.log, commit.Deps{
		Revisions: b.disk.revisions, Drafts: b.disk.drafts, Broken: b.disk.broken, Snapshots: b.disk.snapshots,
		Reopen: b.reopen, Extra: b.accounts,
		Kernel: &meaningful{Kernel: b.kernel, setup: b.setup, shut: b.shut}, Forwarding: b.forwarding, Cutter: b.cut(),
		Services: []commit.Reloader{&linkReloader{box: b}, quarantineReloader{b}, dhcpReloader{b}, webReloader{b}},
		Reaches:  b.reaches, Publish: b.publish, NewID: commit.NewID,
	})
	b.disk.accounts.changed = b.writer.Snapshot
	b.cert, err = web.OpenCert(filepath.Join(b.state, "keys"))
	if err != nil {
		return errors.Join(err, b.kernel.Close(), b.disk.close())
	}
	return b.routes(ctx)
}

// ours refuses to fight over the ports with another network manager.
func (b *box) ours() error {
	if err := b.setup.remember(b.ports); err != nil {
		return err
	}
	for _, device := range b.ports {
		if there := b.setup.devices(); !slices.Contains(there, device) {
			return fmt.Errorf("there is no Ethernet port %q; there are: %s; nothing was changed", device, strings.Join(b.link.Ports(), ", "))
		}
	}
	if found := link.Managers(b.setup.devices()); len(found) > 0 {
		return fmt.Errorf("another program manages our ports: %s. Stop it, or name the ports that are ours with --ports; nothing was changed",
			strings.Join(found, "; "))
	}
	return nil
}

// accounts is what every snapshot carries beside the configuration.
func (b *box) accounts() ([]byte, error) {
	all, err := b.disk.accounts.All()
	if err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// forwarding is the box's switch; as delivered it stays off whatever runs.
func (b *box) forwarding(_ context.Context, on bool) error {
	if b.writer != nil && on {
		c, _ := b.writer.Running()
		on = c.Stamp() != factoryStamp
	}
	return b.link.SetForwarding(on)
}

// reaches asks whether the pages would still answer this person.
func (b *box) reaches(c firewall.Config, who commit.Who) (bool, string) {
	facts := b.facts()
	device := deviceOf(facts, who.Addr)
	if device == "" {
		return true, "" // the console: nothing to lose
	}
	return simulate.Reaches(c, facts, who.Addr, device)
}

// publish tells the browsers. A lockdown also opens the pages where they can be
// reached then, once the writer's turn is over.
func (b *box) publish(e events.Event) {
	b.bus.Publish(e)
	if e.Name == "safemode" && b.writer.Status().Lockdown {
		b.portsChanged()
	}
}

// boot loads the last confirmed revision and starts what keeps it true.
func (b *box) boot(ctx context.Context) error {
	c, _ := b.writer.Running()
	b.setup.ran(c)
	b.quarantine.Know(c)
	for _, c := range b.writer.Unconfirmed() {
		b.link.Ours(c)
		if err := b.setup.tried(c); err != nil {
			b.log.Error("read the addresses that setup chose", "err", err)
		}
	}
	if _, over, err := b.disk.secrets.Get(overKey); err != nil || over {
		b.setup.lose()
	}
	if err := b.writer.Boot(ctx); err != nil {
		return fmt.Errorf("not even the lockdown rules could be loaded; forwarding is off: %w", err)
	}
	if b.writer.Status().Lockdown {
		b.lockdownPorts(ctx)
	}
	b.run(ctx, "link", b.link.Run)
	b.run(ctx, "dhcp", b.dhcp.Run)
	b.run(ctx, "watch", func(ctx context.Context) error {
		// What changed before it listens is told to nobody: look once it does.
		look := time.AfterFunc(2*time.Second, func() { b.check(ctx); b.attach(ctx) })
		defer look.Stop()
		return b.kernel.Watch(ctx, func() { b.foreign(ctx) })
	})
	b.run(ctx, "logs", func(ctx context.Context) error {
		return b.kernel.Logs(ctx, compile.LogGroup, b.logged)
	})
	b.run(ctx, "limits", func(ctx context.Context) error {
		return b.kernel.Logs(ctx, compile.LimitGroup, b.exceeded)
	})
	b.run(ctx, "quarantine", b.quarantine.Run)
	b.run(ctx, "certificate", b.renew)
	b.run(ctx, "setup", func(ctx context.Context) error {
		b.setup.watch(ctx, b.delivered)
		return nil
	})
	return nil
}

// renew looks once a day whether the certificate ends soon.
func (b *box) renew(ctx context.Context) error {
	day := time.NewTicker(24 * time.Hour)
	defer day.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-day.C:
			b.covers()
		}
	}
}

// run keeps a loop going until ctx ends; one that fails is started again.
func (b *box) run(ctx context.Context, name string, loop func(context.Context) error) {
	b.wait.Go(func() {
		for {
			err := loop(ctx)
			if ctx.Err() != nil {
				return
			}
			b.log.Error("a service ended and is started again", "service", name, "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
	})
}

// delivered reports whether the box runs as delivered: the wizard's time.
func (b *box) delivered() bool {
	c, _ := b.writer.Running()
	return c.Stamp() == factoryStamp || b.writer.Status().Lockdown
}

// foreign puts our rules back after somebody else changed them.
func (b *box) foreign(ctx context.Context) {
	b.flushed.Store(true)
	err := b.writer.Foreign(ctx)
	b.flushed.Store(false)
	b.healed(ctx, err)
}

// check puts our rules back if they are not there.
func (b *box) check(ctx context.Context) {
	before := b.writer.Status().Healed
	if err := b.writer.Check(ctx); err != nil || b.writer.Status().Healed != before {
		b.healed(ctx, err)
	}
}

// healed brings what belongs to the rules after they were put back.
func (b *box) healed(ctx context.Context, err error) {
	if err != nil {
		if ctx.Err() == nil {
			b.log.Error("put the rules back", "err", err)
		}
		return
	}
	if b.writer.Status().Lockdown {
		b.lockdownPorts(ctx)
		return
	}
	if err := b.link.Refill(ctx); err != nil {
		b.log.Error("fill the runtime sets again", "err", err)
	}
	if err := b.quarantine.Refill(ctx); err != nil {
		b.log.Error("exempt sources from limits again", "err", err)
	}
}

// logged keeps a packet that a rule logged.
func (b *box) logged(l kernel.LogLine) {
	rule, action, ok := firewall.ParseLogPrefix(l.Prefix)
	if !ok {
		return
	}
	b.ring.Add(logs.Line{Time: l.Time, Action: action, Rule: rule, Out: l.Out, Length: l.Length, Packet: l.Packet})
}
