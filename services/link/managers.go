package link

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Managers names the programs beside us that set addresses on any of devices:
// NetworkManager, systemd-networkd, ConnMan, and DHCP clients. Two masters on
// one port undo each other's work, so that it is better not to start. Only
// programs in our network namespace count, and only those that this process can
// see in /proc.
func Managers(devices []string) []string {
	return managers("/proc", "/run", devices)
}

// dhcpClients are the DHCP clients by their process name.
var dhcpClients = []string{"dhclient", "dhcpcd", "udhcpc", "udhcpc6", "dhcp6c", "pump"}

func managers(proc, run string, devices []string) (found []string) {
	ours, err := os.Readlink(filepath.Join(proc, "self/ns/net"))
	if err != nil {
		return nil
	}
	dirs, err := os.ReadDir(proc)
	if err != nil {
		return nil
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		home := filepath.Join(proc, dir.Name())
		// A process may end while it is looked at: then it manages nothing.
		// Without CAP_SYS_PTRACE, as under the unit, the namespace of others cannot be
		// read: they count as ours, and what they wrote down about the device decides.
		ns, err := os.Readlink(filepath.Join(home, "ns/net"))
		hidden := errors.Is(err, fs.ErrPermission)
		if err != nil && !hidden || err == nil && ns != ours {
			continue
		}
		line, err := os.ReadFile(filepath.Join(home, "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		args := strings.FieldsFunc(string(line), func(r rune) bool { return r == 0 || r == ' ' })
		if len(args) == 0 {
			continue
		}
		if filepath.Base(args[0]) == "busybox" && len(args) > 1 {
			args = args[1:]
		}
		name := strings.TrimSuffix(filepath.Base(args[0]), ":") // dhcpcd calls itself "dhcpcd: eth0"
		for _, device := range devices {
			if manages(run, name, args[1:], device) && !(hidden && slices.Contains(dhcpClients, name) && !slices.Contains(args, device)) {
				found = append(found, fmt.Sprintf("%s (process %d) on %s", name, pid, device))
			}
		}
	}
	slices.Sort(found)
	return found
}

func manages(run, name string, args []string, device string) bool {
	switch {
	case name == "systemd-networkd":
		s := state(run, "systemd/netif/links", device)
		return strings.Contains(s, "ADMIN_STATE=") && !strings.Contains(s, "ADMIN_STATE=unmanaged")
	case name == "NetworkManager":
		// Without a record of the device we cannot know that it keeps off.
		return !strings.Contains(state(run, "NetworkManager/devices", device), "managed=false")
	case name == "connmand":
		return true
	case slices.Contains(dhcpClients, name):
		named := slices.ContainsFunc(args, func(a string) bool {
			a = strings.Trim(a, "[],")
			_, err := net.InterfaceByName(a)
			return a == device || err == nil
		})
		return slices.Contains(args, device) || !named
	}
	return false
}

// state is what the manager wrote down about the device, by its index.
func state(run, dir, device string) string {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return ""
	}
	b, err := os.ReadFile(filepath.Join(run, dir, strconv.Itoa(ifi.Index)))
	if err != nil {
		return ""
	}
	return string(b)
}
