package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// forTrial is what `gatelab try` starts and what it proposes to type.
func forTrial() []string {
	return []string{"iproute2", "isc-dhcp-client", "dnsmasq-base", "util-linux", "curl", "nmap", "nftables", "netbase"}
}

// forAll is everything the tests and benches start, and what a race build needs.
func forAll() []string {
	return append(forTrial(),
		"gcc", "libc6-dev", // go test -race
		"conntrack", "procps", "strace", // look at the box
		"udhcpc", "iputils-ping", "iputils-arping", "tcpdump", "hping3", "iperf3", "apache2-utils", // traffic
		"chromium", "fonts-dejavu-core") // the browser, and letters for it
}

// forGuest is what `gatelab guest` needs beside forTrial to make and run an
// emulated machine; its kernel is downloaded and not installed.
func forGuest() []string {
	return []string{"qemu-system-x86", "busybox-static", "kmod", "conntrack"}
}

// install brings in those that are missing. A machine that has everything needs no network.
func install(ctx context.Context, packages []string, out io.Writer) error {
	var missing []string
	for _, p := range packages {
		status, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}", p).Output()
		if err != nil || strings.TrimSpace(string(status)) != "installed" {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		fmt.Fprintf(out, "Debian packages: all %d are installed\n", len(packages))
		return nil
	}
	fmt.Fprintln(out, "Debian packages: installing", strings.Join(missing, " "))
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, missing...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, text)
		}
	}
	return nil
}
