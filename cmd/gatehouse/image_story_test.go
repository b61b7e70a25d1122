package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// needed is what README says the container needs.
var needed = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE}

// The image holds the binary and nothing else. Here it is an empty folder with
// /proc mounted, and exactly the capabilities that README names.
func TestEmptyImageRunsWithTheCapabilitiesThatReadmeNames(t *testing.T) {
	t.Parallel()
	s := begin(t)
	root := filepath.Join(s.lab.Box.Dir, "image")
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(product)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "gatehouse"), binary, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(s.ctx, "/gatehouse", "serve")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// A container sees its own processes only, not the DHCP clients of other labs.
	s.runs(s.lab.Box, "mount", "-t", "proc", "proc", filepath.Join(root, "proc"))
	processes, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", s.lab.Box.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	defer processes.Close()
	err = s.lab.Box.Do(func() error {
		if err := unix.Setns(int(processes.Fd()), unix.CLONE_NEWPID); err != nil {
			return err
		}
		// The bounding set is this thread's; the child's capabilities follow from it at exec.
		for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
			if !slices.Contains(needed, c) {
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
					return err
				}
			}
		}
		return cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = cmd.Process.Kill(), cmd.Wait()
		if t.Failed() {
			t.Logf("the box said:\n%s", log.String())
		}
	})
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.HasPrefix(lines.Text(), "web page: https://192.168.1.1/") {
			break
		}
	}
	all := strings.Join(said, "\n")
	if !strings.Contains(all, "setup code: ") || !strings.Contains(all, "web page: https://192.168.1.1/") || strings.Contains(all, "kernel setting") {
		t.Fatalf("the console said:\n%s", all)
	}
	s.lease(s.lab.LAN1)
	if r := s.from(s.lab.LAN1, "192.168.1.1:443").get("/setup/1"); !strings.Contains(r.body, "Setup code") {
		t.Fatalf("no wizard:\n%s", text(r.body))
	}
}
