package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"gatehouse/firewall/netlab"
)

// try runs the real product in a lab until the context ends and opens its web page on loopback.
func try(ctx context.Context, root string, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("try", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8443", "address of this machine for the web page")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := install(ctx, forTrial(), out); err != nil {
		return err
	}
	fmt.Fprintln(out, "building and starting, a moment ...")
	lab, err := netlab.New(ctx, netlab.Options{})
	if err != nil {
		return err
	}
	err = trial(ctx, lab, root, *listen, out)
	if ctx.Err() != nil {
		err = nil // what failed then, failed by Ctrl-C
	}
	fmt.Fprintln(out, "\ntaking everything away")
	return errors.Join(err, lab.Close())
}

func trial(ctx context.Context, lab *netlab.Lab, root, listen string, out io.Writer) error {
	binary, err := build(ctx, root, lab.Dir)
	if err != nil {
		return err
	}
	if _, err := lab.ServeDHCP(ctx, netlab.DHCP{}); err != nil {
		return err
	}
	for _, h := range []*netlab.Host{lab.Inet, lab.LAN1, lab.LAN2, lab.Guest} {
		if _, err := h.Echo(7000); err != nil {
			return err
		}
	}
	box, err := lab.Box.Start(ctx, binary, "serve", "--state", filepath.Join(lab.Box.Dir, "state"))
	if err != nil {
		return err
	}
	code, err := say(ctx, box, `setup code:\s+(\S+)`)
	if err != nil {
		return err
	}
	first := newTenant(lab.LAN1)
	for _, t := range []*tenant{first, newTenant(lab.LAN2)} {
		if err := t.ask(ctx); err != nil {
			return err
		}
	}
	page, err := lab.Publish(listen, first.openPage)
	if err != nil {
		return fmt.Errorf("publish the page (another address: --listen 127.0.0.1:0): %w", err)
	}
	explain(out, lab, page.Addr(), code, binary)
	select {
	case <-ctx.Done():
		return nil
	case <-box.Done():
		return fmt.Errorf("gatehouse ended by itself: %w\n%s", box.Wait(), box.Output())
	}
}

// say waits for a line of the product's console and returns its value.
func say(ctx context.Context, p *netlab.Process, pattern string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	m, err := p.Find(ctx, pattern)
	if err != nil {
		return "", err
	}
	return m[1], nil
}

func explain(out io.Writer, lab *netlab.Lab, at net.Addr, code, binary string) {
	shell := func(h *netlab.Host) string { return fmt.Sprintf("nsenter -t %d -n -m -p -u -i", h.Pid()) }
	fmt.Fprintf(out, `
Gatehouse runs. Nothing of it touches this machine's own network.

  web page    https://%s/   (its certificate is self-made; the browser will ask)
  setup code  %s

You look at it as LAN client lan1 does; in the wizard, the internet is eth0, the LAN is eth1, eth2 is free for guests.
The internet side has web servers at %s and %s, and an echo server at port 7000 everywhere.

Things to try, each in another terminal:
  lan1 loads a page            %s curl -s http://www.example.test/
  lan2 has its lease from you  %s ip addr show eth0
  who is on the guest port     %s sh
  scan yourself from outside   %s nmap -Pn 203.0.113.100-150
  use a port forward           %s curl -s telnet://WAN-ADDRESS:PORT   (7000 is the echo server of lan1)
  shut yourself out            block the LAN in the rules, apply, and wait for the timer
  the console of the box       %s %s status

Ctrl-C takes all of it away.
`, at, code, netlab.Web4, netlab.Gateway4, shell(lab.LAN1), shell(lab.LAN2), shell(lab.Guest), shell(lab.Inet), shell(lab.Inet), shell(lab.Box), binary)
}

// tenant is a machine on the LAN that gets its address by DHCP and, as a laptop's network manager would, asks again when
// its gateway no longer answers.
type tenant struct {
	host *netlab.Host
	turn chan *netlab.Client // holds the client while nobody is asking
}

func newTenant(h *netlab.Host) *tenant {
	t := &tenant{h, make(chan *netlab.Client, 1)}
	t.turn <- nil
	return t
}

// ask gets a lease from scratch.
func (t *tenant) ask(ctx context.Context) error {
	client := <-t.turn
	defer func() { t.turn <- client }()
	if client != nil {
		client.Kill()
		<-client.Done()
	}
	if err := t.host.Forget("eth0"); err != nil {
		return err
	}
	var err error
	// The client outlives this request; it ends with the lab.
	if client, err = t.host.DHClient(context.WithoutCancel(ctx), "eth0"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := client.Await(ctx, "BOUND", "REBOOT"); err != nil {
		return fmt.Errorf("%s got no lease: %w", t.host.Name, err)
	}
	return nil
}

// openPage connects to the web page at the default gateway of this moment.
func (t *tenant) openPage(ctx context.Context) (net.Conn, error) {
	c, err := t.dial(ctx)
	if err == nil || ctx.Err() != nil {
		return c, err
	}
	if err := t.ask(ctx); err != nil {
		return nil, err
	}
	return t.dial(ctx)
}

func (t *tenant) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	gw, err := t.host.Gateway()
	if err != nil {
		return nil, err
	}
	return t.host.Dial(ctx, "tcp", netip.AddrPortFrom(gw, 443))
}
