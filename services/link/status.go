package link

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gatehouse/firewall"
	"gatehouse/services/link/wan"
)

// Port is one Ethernet port, or a configured one that is not there.
type Port struct {
	Device   string
	Present  bool
	Up       bool         // switched on
	Link     bool         // the cable is in
	MAC      firewall.MAC `json:",omitzero"` // empty when the port is not there
	Driver   string       // empty: unknown
	Speed    int          // Mbit/s; 0: unknown, or no link
	MTU      int
	Addrs    []netip.Prefix // with link-local IPv6
	Name     firewall.Name  // of the interface it is configured as, or empty
	Role     firewall.Role
	DHCP     bool      // runs the DHCP client
	State    wan.State // of the DHCP client
	Lease    wan.Lease // of the DHCP client; zero Addr: none
	Problems []string  // whole sentences
}

// Status is every port and every configured interface, sorted by device, as of
// now: carrier and addresses are asked, problems are those of the last pass.
func (s *Service) Status() []Port {
	have := s.fresh()
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Port
	for _, d := range have.devices {
		if s.configured(d.name) != nil || d.port() {
			list = append(list, portOf(d))
		}
	}
	for _, i := range s.cfg.Interfaces {
		n := slices.IndexFunc(list, func(p Port) bool { return p.Device == i.Device })
		if n < 0 {
			list, n = append(list, Port{Device: i.Device}), len(list)
		}
		p := &list[n]
		p.Name, p.Role, p.Problems = i.Name, i.Role, slices.Clone(s.wrong[i.Device])
		if p.DHCP = dynamic(i); !p.DHCP {
			continue
		}
		p.State, p.Lease = wan.Down, s.held[i.Device]
		if r := s.running[i.Device]; r != nil {
			v := r.View()
			p.State = v.State
			if v.Problem != "" && p.Link {
				p.Problems = append(p.Problems, "The DHCP client cannot ask: "+v.Problem+".")
			}
		}
	}
	slices.SortFunc(list, func(a, b Port) int { return strings.Compare(a.Device, b.Device) })
	return list
}

// Ports are the names of the Ethernet ports that can be given a role, sorted:
// hardware and what stands for it in a container or virtual machine (veth,
// macvlan, ipvlan), bonds and VLANs; no loopback, bridge, tunnel or member of a bridge.
func (s *Service) Ports() (names []string) {
	for _, d := range s.fresh().devices {
		if d.port() {
			names = append(names, d.name)
		}
	}
	slices.Sort(names)
	return names
}

// Facts is what decides packets and changes without an edit: addresses of all
// devices and the main routes, as of now.
func (s *Service) Facts() firewall.Facts {
	have := s.fresh()
	f := firewall.Facts{Addrs: map[string][]netip.Prefix{}}
	for _, d := range have.devices {
		for _, a := range d.addrs {
			f.Addrs[d.name] = append(f.Addrs[d.name], a.Prefix)
		}
	}
	for _, r := range have.routes {
		f.Routes = append(f.Routes, firewall.Route{Dst: r.dst, Via: r.via, Device: r.device, Metric: r.metric})
	}
	return f
}

// Resolvers are the name servers outside, best first: those of each WAN's
// configuration, else those of its lease.
func (s *Service) Resolvers() (list []netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.cfg.Interfaces {
		if !i.On || i.Role != firewall.WAN && !dynamic(i) {
			continue
		}
		from := i.V4.DNS
		if l, ok := s.held[i.Device]; ok && len(from) == 0 && dynamic(i) {
			from = l.DNS
		}
		for _, a := range from {
			if !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	return list
}

// fresh is what the kernel has now; when it cannot be asked, what it had at the last pass.
func (s *Service) fresh() snapshot {
	have, err := look()
	if err != nil {
		s.log.Error("kernel not readable", "error", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.have
	}
	return have
}

// configured is the interface on the device, or nil. s.mu is held.
func (s *Service) configured(device string) *firewall.Interface {
	for n := range s.cfg.Interfaces {
		if s.cfg.Interfaces[n].Device == device {
			return &s.cfg.Interfaces[n]
		}
	}
	return nil
}

func portOf(d device) Port {
	p := Port{Device: d.name, Present: true, Up: d.up, Link: d.carrier, MTU: d.mtu, Driver: driver(d.name)}
	if len(d.mac) == 6 {
		p.MAC = firewall.MAC(d.mac.String())
	}
	for _, a := range d.addrs {
		p.Addrs = append(p.Addrs, a.Prefix)
	}
	if d.carrier && safeName(d.name) {
		b, err := os.ReadFile(filepath.Join("/sys/class/net", d.name, "speed"))
		if n, bad := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && bad == nil && n > 0 {
			p.Speed = n
		}
	}
	return p
}

// driver asks the kernel by ioctl: /sys may show another namespace.
func driver(device string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, device)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}
