package main

import (
	"context"
	"fmt"
	"io"
	"os"
)

// unit prints a systemd unit. The capabilities are the ones that README names.
func unit(_ context.Context, _ []string, out io.Writer) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	_, err = fmt.Fprintf(out, `[Unit]
Description=Gatehouse firewall
Documentation=file://%[1]s
DefaultDependencies=no
After=local-fs.target systemd-udevd.service
Before=network-pre.target network.target
Wants=network-pre.target
Conflicts=shutdown.target

[Service]
Type=exec
ExecStart=%[1]s serve --state /var/lib/gatehouse
StateDirectory=gatehouse
StateDirectoryMode=0700
RuntimeDirectory=gatehouse
Restart=always
RestartSec=1
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_NET_BIND_SERVICE
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
ReadWritePaths=/proc/sys/net
StandardOutput=journal+console

[Install]
WantedBy=multi-user.target
`, exe)
	return err
}
