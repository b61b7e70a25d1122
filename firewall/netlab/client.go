package netlab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Both scripts do with the lease what the distributions' own do and print one line that Client reads. A client that
// learned a new address drops the old one first.
const (
	dhclientScript = `#!/bin/sh
[ "$new_ip_address" ] && lease="$new_ip_address/$new_subnet_mask" || lease=-
case $reason in
PREINIT) ip link set dev "$interface" up ;;
BOUND|RENEW|REBIND|REBOOT)
	[ "$reason" = BOUND ] || [ "$old_ip_address" != "$new_ip_address" ] && ip -4 addr flush dev "$interface"
	ip addr replace "$lease" dev "$interface"
	for r in $new_routers; do ip route replace default via "$r" dev "$interface"; break; done
	for d in $new_domain_name_servers; do echo "nameserver $d"; done >/etc/resolv.conf ;;
EXPIRE|FAIL|RELEASE|STOP) ip -4 addr flush dev "$interface"; : >/etc/resolv.conf ;;
esac
echo "netlab: $reason $lease router=${new_routers%% *} server=$new_dhcp_server_identifier dns=$(echo $new_domain_name_servers | tr ' ' ,) seconds=$new_dhcp_lease_time"
`
	udhcpcScript = `#!/bin/sh
[ "$ip" ] && lease="$ip/$subnet" || lease=-
case $1 in
deconfig) ip link set dev "$interface" up; ip -4 addr flush dev "$interface"; lease=- ;;
bound|renew)
	ip -4 addr show dev "$interface" | grep -q "inet $ip/" || ip -4 addr flush dev "$interface"
	ip addr replace "$lease" dev "$interface"
	for r in $router; do ip route replace default via "$r" dev "$interface"; break; done
	for d in $dns; do echo "nameserver $d"; done >/etc/resolv.conf ;;
esac
echo "netlab: $1 $lease router=${router%% *} server=$serverid dns=$(echo $dns | tr ' ' ,) seconds=$lease_time"
`
)

// Client is a DHCP client that runs in a host.
type Client struct {
	*Process
	host *Host
	port string
	stop []string // the command that gives the lease back, dhclient only
}

// Event is what a client did: Reason is the client's own word, for dhclient PREINIT, BOUND, RENEW, REBIND, REBOOT,
// EXPIRE, FAIL, RELEASE, for udhcpc deconfig, bound, renew, nak, leasefail.
type Event struct {
	Reason  string
	Addr    netip.Prefix // the zero Prefix when there is no lease
	Router  netip.Addr
	Server  netip.Addr
	DNS     []netip.Addr
	Seconds string // the lease time as the client printed it
}

// DHClient starts ISC dhclient on a port of the host. What it remembers of older leases is kept in the host's folder,
// so that a second one asks for the same address again (INIT-REBOOT); Forget makes it new. args go to dhclient.
func (h *Host) DHClient(ctx context.Context, port string, args ...string) (*Client, error) {
	script, err := h.script("dhclient-script", dhclientScript)
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(h.Dir, "dhclient.conf")
	// Without a send line dhclient does not name the host; initial-interval 1 spares the tests its random start delay.
	text := "timeout 30;\nretry 5;\ninitial-interval 1;\nbackoff-cutoff 4;\nsend host-name = gethostname();\n" +
		"request subnet-mask, broadcast-address, routers, domain-name-servers, domain-name, host-name, interface-mtu;\n"
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return nil, err
	}
	base := append([]string{"-4", "-v", "-sf", script, "-cf", conf, "-lf", h.memory(port), "-pf", filepath.Join(h.Dir, port+".dhclient.pid")}, args...)
	p, err := h.Start(ctx, "dhclient", append(append([]string{"-d"}, base...), port)...)
	if err != nil {
		return nil, err
	}
	return &Client{p, h, port, append(append([]string{"-r"}, base...), port)}, nil
}

func (h *Host) memory(port string) string { return filepath.Join(h.Dir, port+".dhclient.leases") }

// Forget removes what dhclient remembers of a port.
func (h *Host) Forget(port string) error {
	if err := os.Remove(h.memory(port)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// Udhcpc starts busybox udhcpc on a port of the host; args go to udhcpc. It remembers nothing: "-r", address asks for one.
func (h *Host) Udhcpc(ctx context.Context, port string, args ...string) (*Client, error) {
	script, err := h.script("udhcpc-script", udhcpcScript)
	if err != nil {
		return nil, err
	}
	p, err := h.Start(ctx, "udhcpc", append([]string{"-f", "-i", port, "-s", script, "-t", "5", "-T", "1", "-A", "2", "-x", "hostname:" + h.Name}, args...)...)
	if err != nil {
		return nil, err
	}
	return &Client{p, h, port, nil}, nil
}

func (h *Host) script(name, text string) (string, error) {
	path := filepath.Join(h.Dir, name)
	return path, os.WriteFile(path, []byte(text), 0o755)
}

// Await waits for the next event whose reason is one of those given, after the one the last Await returned.
func (c *Client) Await(ctx context.Context, reasons ...string) (Event, error) {
	m, err := c.Next(ctx, `^netlab: (`+strings.Join(reasons, "|")+`) (\S+) router=(\S*) server=(\S*) dns=(\S*) seconds=(\S*)`)
	if err != nil {
		return Event{}, err
	}
	e := Event{Reason: m[1], Seconds: m[6]}
	if m[2] != "-" {
		if e.Addr, err = prefix(m[2]); err != nil {
			return e, err
		}
	}
	// A server may send none of these: then the field stays the zero Addr.
	e.Router, _ = netip.ParseAddr(m[3])
	e.Server, _ = netip.ParseAddr(m[4])
	for _, d := range strings.Split(m[5], ",") {
		if a, err := netip.ParseAddr(d); err == nil {
			e.DNS = append(e.DNS, a)
		}
	}
	return e, nil
}

// prefix reads address/mask, where the mask is dotted.
func prefix(s string) (netip.Prefix, error) {
	addr, mask, _ := strings.Cut(s, "/")
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.Prefix{}, err
	}
	m, err := netip.ParseAddr(mask)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("netmask of %s: %w", s, err)
	}
	bits := 0
	for _, b := range m.AsSlice() {
		for ; b&0x80 != 0; b <<= 1 {
			bits++
		}
	}
	return netip.PrefixFrom(a, bits), nil
}

// Release gives the lease back (DHCPRELEASE) and ends the client.
func (c *Client) Release(ctx context.Context) error {
	if c.stop != nil { // dhclient does it in a second process, which ends the first
		if _, err := c.host.Run(ctx, "dhclient", c.stop...); err != nil {
			return err
		}
		c.Process.Stop(ctx)
		return nil
	}
	if err := c.Signal(syscall.SIGUSR2); err != nil {
		return err
	}
	if _, err := c.Await(ctx, "deconfig"); err != nil {
		return err
	}
	c.Process.Stop(ctx)
	return nil
}

// Renew makes udhcpc renew now. dhclient has no such signal: it renews by its timer.
func (c *Client) Renew() error { return c.Signal(syscall.SIGUSR1) }
