package netlab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// cable joins a host's port to a segment. One end is in the host under the port's name, the other in the switch.
type cable struct {
	host    *Host
	port    string
	segment int
	up      bool // bring the host's end up; the switch's end always is
}

// far is the name of the switch's end: at most 15 bytes (IFNAMSIZ).
func (c cable) far() string { return c.host.Name + "-" + c.port }

func bridge(segment int) string { return fmt.Sprintf("segment%d", segment) }

// layBridges makes one segment for each port of the box.
func (l *Lab) layBridges(n int) error {
	// The switch must not speak: no address of its own on any segment.
	for _, which := range []string{"all", "default"} {
		if err := l.sw.Sysctl("net.ipv6.conf."+which+".disable_ipv6", "1"); err != nil {
			return err
		}
	}
	return l.sw.links(func(h *netlink.Handle) error {
		for i := range n {
			off := false
			b := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridge(i)}, MulticastSnooping: &off}
			if err := h.LinkAdd(b); err != nil {
				return fmt.Errorf("add %s: %w", b.Name, err)
			}
			if err := h.LinkSetUp(b); err != nil {
				return err
			}
		}
		return nil
	})
}

// lay puts a cable in and remembers it for the host's next boot.
func (l *Lab) lay(c cable) error {
	if err := l.plug(c); err != nil {
		return fmt.Errorf("netlab: cable %s: %w", c.far(), err)
	}
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.host.cables = append(c.host.cables, c)
	return nil
}

func (l *Lab) plug(c cable) error {
	m := c.host.now()
	if err := l.sw.links(func(h *netlink.Handle) error {
		br, err := h.LinkByName(bridge(c.segment))
		if err != nil {
			return err
		}
		// A machine that was switched off takes its end with it, but the kernel does that a moment later.
		if old, err := h.LinkByName(c.far()); err == nil {
			if err := h.LinkDel(old); err != nil {
				return err
			}
		}
		v := &netlink.Veth{
			LinkAttrs:        netlink.LinkAttrs{Name: c.far(), MasterIndex: br.Attrs().Index},
			PeerName:         c.port,
			PeerNamespace:    netlink.NsFd(int(m.net.Fd())),
			PeerHardwareAddr: mac(c.host.Name, c.port, c.segment),
		}
		if err := h.LinkAdd(v); err != nil {
			return err
		}
		return h.LinkSetUp(v)
	}); err != nil {
		return err
	}
	if !c.up {
		return nil
	}
	return c.host.SetUp(c.port, true)
}

// links runs fn with a netlink handle inside the host.
func (h *Host) links(fn func(*netlink.Handle) error) error {
	nl, err := netlink.NewHandleAt(netns.NsHandle(h.now().net.Fd()))
	if err != nil {
		return fmt.Errorf("netlab: %s: %w", h.Name, err)
	}
	defer nl.Close()
	return fn(nl)
}

func (h *Host) link(port string, fn func(*netlink.Handle, netlink.Link) error) error {
	return h.links(func(nl *netlink.Handle) error {
		l, err := nl.LinkByName(port)
		if err != nil {
			return fmt.Errorf("netlab: %s %s: %w", h.Name, port, err)
		}
		if err := fn(nl, l); err != nil {
			return fmt.Errorf("netlab: %s %s: %w", h.Name, port, err)
		}
		return nil
	})
}

func (h *Host) loopback() error { return h.SetUp("lo", true) }

// SetUp brings a port of the host administratively up or down, as `ip link set` does.
func (h *Host) SetUp(port string, up bool) error {
	return h.link(port, func(nl *netlink.Handle, l netlink.Link) error {
		if up {
			return nl.LinkSetUp(l)
		}
		return nl.LinkSetDown(l)
	})
}

// Unplug pulls the cable of a port: the port loses its carrier and nothing passes. The port stays as it is configured.
func (h *Host) Unplug(port string) error {
	return h.lab.sw.SetUp(cable{host: h, port: port}.far(), false)
}

// Plug puts the cable back.
func (h *Host) Plug(port string) error {
	return h.lab.sw.SetUp(cable{host: h, port: port}.far(), true)
}

// AddAddr gives a port addresses. IPv6 ones are usable at once: no duplicate address detection is done.
func (h *Host) AddAddr(port string, prefixes ...string) error {
	return h.link(port, func(nl *netlink.Handle, l netlink.Link) error {
		for _, s := range prefixes {
			p, err := netip.ParsePrefix(s)
			if err != nil {
				return err
			}
			a := &netlink.Addr{IPNet: ipNet(p)}
			if p.Addr().Is6() {
				a.Flags = nodad
			}
			if err := nl.AddrReplace(l, a); err != nil {
				return fmt.Errorf("add %s: %w", s, err)
			}
		}
		return nil
	})
}

const nodad = 0x02 // IFA_F_NODAD, linux/if_addr.h

// AddRoute sends dst (a prefix, or "default" and "default6") to via, which must be on a net of the host.
func (h *Host) AddRoute(dst, via string) error {
	gw, err := netip.ParseAddr(via)
	if err != nil {
		return err
	}
	to, ok := map[string]string{"default": "0.0.0.0/0", "default6": "::/0"}[dst]
	if !ok {
		to = dst
	}
	p, err := netip.ParsePrefix(to)
	if err != nil {
		return err
	}
	return h.links(func(nl *netlink.Handle) error {
		if err := nl.RouteReplace(&netlink.Route{Dst: ipNet(p), Gw: gw.AsSlice()}); err != nil {
			return fmt.Errorf("netlab: %s: route %s via %s: %w", h.Name, dst, via, err)
		}
		return nil
	})
}

// AddDirectRoute says that the addresses of dst, a prefix, are on the segment of a port.
func (h *Host) AddDirectRoute(dst, port string) error {
	p, err := netip.ParsePrefix(dst)
	if err != nil {
		return err
	}
	return h.link(port, func(nl *netlink.Handle, l netlink.Link) error {
		return nl.RouteReplace(&netlink.Route{Dst: ipNet(p), LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK})
	})
}

// Addrs lists the addresses of a port, link-local ones left out.
func (h *Host) Addrs(port string) (out []netip.Prefix, err error) {
	err = h.link(port, func(nl *netlink.Handle, l netlink.Link) error {
		as, err := nl.AddrList(l, netlink.FAMILY_ALL)
		for _, a := range as {
			ip, _ := netip.AddrFromSlice(a.IP)
			ones, _ := a.Mask.Size()
			if ip = ip.Unmap(); !ip.IsLinkLocalUnicast() {
				out = append(out, netip.PrefixFrom(ip, ones))
			}
		}
		return err
	})
	return out, err
}

// Gateway returns the host's IPv4 default gateway.
func (h *Host) Gateway() (gw netip.Addr, err error) {
	err = h.links(func(nl *netlink.Handle) error {
		rs, err := nl.RouteList(nil, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(rs, func(r netlink.Route) bool {
			return r.Gw != nil && (r.Dst == nil || r.Dst.IP.IsUnspecified())
		})
		if i < 0 {
			return fmt.Errorf("netlab: %s has no default gateway", h.Name)
		}
		gw, _ = netip.AddrFromSlice(rs[i].Gw)
		gw = gw.Unmap()
		return nil
	})
	return gw, err
}

// Counters are what passed a port since it was made.
type Counters struct {
	RxPackets, RxBytes, RxDropped, TxPackets, TxBytes, TxDropped uint64
}

// Counters reads the counters of a port.
func (h *Host) Counters(port string) (c Counters, err error) {
	err = h.link(port, func(_ *netlink.Handle, l netlink.Link) error {
		s := l.Attrs().Statistics
		c = Counters{s.RxPackets, s.RxBytes, s.RxDropped, s.TxPackets, s.TxBytes, s.TxDropped}
		return nil
	})
	return c, err
}

// Sysctl sets a value of the host's, such as net.ipv4.ip_forward. Dots separate, as in sysctl(8).
func (h *Host) Sysctl(key, value string) error {
	path := filepath.Join("/proc/sys", strings.ReplaceAll(key, ".", "/"))
	return h.Do(func() error { return os.WriteFile(path, []byte(value), 0o644) })
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
