package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// capable wants the capabilities that the box cannot do without, before anything
// is touched: the kernel's own refusals come late and do not name them.
func capable() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil {
		return fmt.Errorf("ask for our capabilities: %w", err)
	}
	var missing, why []string
	for _, c := range []struct {
		number    int
		name, use string
		needed    bool
	}{
		{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "the packet filter, addresses and routes", true},
		{unix.CAP_NET_RAW, "CAP_NET_RAW", "DHCP with clients that have no address yet", true},
		{unix.CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE", "the ports 80, 443 and 67", guarded()},
	} {
		if c.needed && have[c.number/32].Effective&(1<<(c.number%32)) == 0 {
			missing, why = append(missing, c.name), append(why, c.name+" (for "+c.use+")")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("this process lacks %s: run it as root, or give its service AmbientCapabilities=%s, or the file `setcap %s+ep`; nothing was changed",
		strings.Join(why, ", "), strings.Join(missing, " "), strings.ToLower(strings.Join(missing, ",")))
}

// guarded reports whether low ports need a capability here; containers often
// have that switched off.
func guarded() bool {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
	first, e := strconv.Atoi(strings.TrimSpace(string(b)))
	return err != nil || e != nil || first > 67
}
