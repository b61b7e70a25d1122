package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// debianPackages is everything the tests, benches and the trial start, and what a race build needs.
func debianPackages() []string {
	return []string{
		"gcc", "libc6-dev", // go test -race
		"nftables", "iproute2", "conntrack", "procps", "util-linux", "strace", // look at the box
		"isc-dhcp-client", "udhcpc", "dnsmasq-base", // both sides of DHCP and DNS
		"curl", "iputils-ping", "iputils-arping", "tcpdump", "nmap", "hping3", "iperf3", "apache2-utils", // traffic
		"chromium", "fonts-dejavu-core", // the browser, and letters for it
	}
}

// install brings in what is missing. A machine that has everything needs no network.
func install(ctx context.Context, out io.Writer) error {
	var missing []string
	for _, p := range debianPackages() {
		status, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status}", p).Output()
		if err != nil || strings.TrimSpace(string(status)) != "installed" {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		fmt.Fprintf(out, "Debian packages: all %d are here\n", len(debianPackages()))
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
