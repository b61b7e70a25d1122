package link

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gatehouse/firewall"
)

// Sysctl is a kernel setting that is not as we want it. In a container most are
// read-only: that is shown, and stops nothing.
type Sysctl struct {
	Path  string // below /proc/sys, with slashes: a device name may hold dots
	Want  string
	Is    string // empty: there is no such setting
	Error string // why it could not be set
}

// everywhere are the settings of the whole machine. The kernel takes "all"
// together with the port's own: redirects and source routes must be off in both.
var everywhere = [][2]string{
	{"net/ipv4/tcp_syncookies", "1"},
	{"net/ipv4/conf/all/accept_redirects", "0"},
	{"net/ipv4/conf/all/secure_redirects", "0"},
	{"net/ipv4/conf/all/send_redirects", "0"},
	{"net/ipv4/conf/all/accept_source_route", "0"},
	{"net/ipv4/conf/all/rp_filter", "0"}, // the larger of "all" and the port's counts
	{"net/ipv6/conf/all/accept_redirects", "0"},
	{"net/ipv6/conf/all/accept_source_route", "0"},
	{"net/netfilter/nf_conntrack_tcp_loose", "0"}, // no flow begins in its middle
}

// onPort are the settings of a port with a role. Address lookups answer only for
// the port's own addresses; whose source is whose is checked strictly by nftables.
var onPort = [][2]string{
	{"net/ipv4/conf/%s/accept_redirects", "0"},
	{"net/ipv4/conf/%s/send_redirects", "0"},
	{"net/ipv4/conf/%s/accept_source_route", "0"},
	{"net/ipv4/conf/%s/arp_ignore", "1"},
	{"net/ipv4/conf/%s/arp_announce", "2"},
	{"net/ipv4/conf/%s/promote_secondaries", "1"}, // a removed address must not take its neighbours along
	{"net/ipv6/conf/%s/accept_ra", "0"},
	{"net/ipv6/conf/%s/accept_redirects", "0"},
	{"net/ipv6/conf/%s/accept_source_route", "0"},
}

// settings puts the kernel settings right and returns those that are not.
func (s *Service) settings(list []want, have snapshot) (faults []Sysctl) {
	if len(list) == 0 {
		return nil
	}
	set := func(path, value string) {
		if f, ok := s.set(path, value); !ok {
			faults = append(faults, f)
		}
	}
	for _, e := range everywhere {
		set(e[0], e[1])
	}
	for _, w := range list {
		if _, there := have.device(w.Device); !there || !safeName(w.Device) {
			continue
		}
		for _, e := range onPort {
			set(fmt.Sprintf(e[0], w.Device), e[1])
		}
		loose := "0"
		if w.Role == firewall.WAN {
			loose = "2"
		}
		set("net/ipv4/conf/"+w.Device+"/rp_filter", loose)
		if w.V6.Mode == firewall.Static {
			set("net/ipv6/conf/"+w.Device+"/disable_ipv6", "0") // container engines set it
		}
	}
	return faults
}

// set writes one setting when it is another. A kernel without IPv6 lacks nothing.
func (s *Service) set(path, value string) (Sysctl, bool) {
	file := filepath.Join(s.proc, path)
	is, err := s.get(path)
	if err == nil && is != value {
		if err = os.WriteFile(file, []byte(value), 0); err == nil {
			is, err = s.get(path)
		}
	}
	if err == nil && is == value || errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(path, "net/ipv6/") && !s.ipv6() {
		return Sysctl{}, true
	}
	f := Sysctl{Path: path, Want: value, Is: is}
	if err != nil {
		f.Error = err.Error()
	}
	return f, false
}

func (s *Service) get(path string) (string, error) {
	b, err := os.ReadFile(filepath.Join(s.proc, path))
	return strings.TrimSpace(string(b)), err
}

func (s *Service) ipv6() bool {
	_, err := os.Stat(filepath.Join(s.proc, "net/ipv6"))
	return err == nil
}

// SetForwarding lets the kernel pass packets between ports, or not, for both
// families, and returns an error when that is not so afterwards: then packets
// may flow although they must not, or do not although they should.
func (s *Service) SetForwarding(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	var errs []error
	for _, path := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if f, ok := s.set(path, value); !ok {
			errs = append(errs, fmt.Errorf("set %s to %s, it is %q: %s", f.Path, f.Want, f.Is, f.Error))
		}
	}
	// The switch puts redirects and others back to their defaults
	// (Documentation/networking/ip-sysctl): set ours again.
	signal(s.poke)
	return errors.Join(errs...)
}

// Forwarding reports whether the kernel passes packets of either family between ports.
func (s *Service) Forwarding() bool {
	v4, _ := s.get("net/ipv4/ip_forward")
	v6, _ := s.get("net/ipv6/conf/all/forwarding")
	return v4 == "1" || v6 == "1"
}

// Sysctls are the kernel settings that are not as wanted, as of the last look.
func (s *Service) Sysctls() []Sysctl {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Sysctl(nil), s.faults...)
}
