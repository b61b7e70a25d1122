package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// In the guest this program is the init (guestKey=init, by the kernel's command
// line) and the one that runs the tests (guestKey=run), so that the init has
// nothing to do but bury the orphans.
const (
	guestKey = "gatelab_guest"
	jobsFile = "/jobs.json"
)

// There is no compiler in the guest: the stories take the product from here.
const (
	productKey  = "GATEHOUSE"
	productFile = "/usr/bin/gatehouse"
)

// guestMain does the guest's part, in the guest.
func guestMain() {
	role := os.Getenv(guestKey)
	switch {
	case role == "init" && os.Getpid() == 1:
		code := "1"
		if err := boot(); err != nil {
			fmt.Println("gatelab:", err)
		} else if status, err := runAsChild(); err != nil {
			fmt.Println("gatelab:", err)
		} else {
			code = strconv.Itoa(status)
		}
		if err := os.WriteFile(statusPort, []byte(code+"\n"), 0); err != nil {
			fmt.Println("gatelab:", err)
		}
		unix.Sync()
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // which ends the emulator
	case role == "run":
		code, err := runJobs()
		if err != nil {
			fmt.Println("gatelab:", err)
			code = 1
		}
		os.Exit(code)
	}
}

// boot makes the guest a place where tests can run.
func boot() error {
	for _, m := range []struct{ kind, at, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""}, {"tmpfs", "/run", ""}, {"tmpfs", "/tmp", ""},
	} {
		if err := unix.Mount(m.kind, m.at, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := errors.Join(os.Mkdir("/dev/pts", 0o755), os.Mkdir("/dev/shm", 0o1777)); err != nil {
		return err
	}
	if err := errors.Join(unix.Mount("devpts", "/dev/pts", "devpts", 0, ""), unix.Mount("tmpfs", "/dev/shm", "tmpfs", 0, "")); err != nil {
		return fmt.Errorf("mount in /dev: %w", err)
	}
	for name, value := range map[string]string{"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "TMPDIR": "/tmp"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	helper, err := os.ReadFile("/proc/sys/kernel/modprobe")
	if err != nil {
		return err
	}
	// The kernel calls it whenever a packet filter asks for more.
	if text, err := exec.Command(strings.TrimSpace(string(helper)), "nf_conntrack", "hashsize=262144").CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not work: %w\n%s", strings.TrimSpace(string(helper)), err, text)
	}
	if err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_max", []byte("262144"), 0); err != nil {
		return err
	}
	if text, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("ip link set lo up: %w\n%s", err, text)
	}
	return unix.Sethostname([]byte("guest"))
}

// runAsChild starts the runner and reaps whatever ends until that does.
func runAsChild() (status int, err error) {
	port, err := os.OpenFile(outputPort, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return 0, err
	}
	defer port.Close()
	if err := raw(port); err != nil {
		return 0, err
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		return 0, err
	}
	if err := os.Setenv(guestKey, "run"); err != nil {
		return 0, err
	}
	runner, err := os.StartProcess("/init", []string{"/init"}, &os.ProcAttr{Files: []*os.File{null, port, port}})
	if err != nil {
		return 0, err
	}
	for {
		var st unix.WaitStatus
		pid, err := unix.Wait4(-1, &st, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait: %w", err)
		}
		if pid == runner.Pid {
			// What was written waits in the port until it has been sent.
			return max(st.ExitStatus(), 0), unix.IoctlSetInt(int(port.Fd()), unix.TCSBRK, 1)
		}
	}
}

// raw makes the port carry bytes as they are.
func raw(port *os.File) error {
	t, err := unix.IoctlGetTermios(int(port.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200
	return unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, t)
}

// runJobs runs the test binaries one after the other; the status is the last bad one.
func runJobs() (status int, err error) {
	text, err := os.ReadFile(jobsFile)
	if err != nil {
		return 0, err
	}
	var jobs []job
	if err := json.Unmarshal(text, &jobs); err != nil {
		return 0, err
	}
	if err := os.Unsetenv(guestKey); err != nil { // tests may start this program
		return 0, err
	}
	for _, j := range jobs {
		cmd := exec.Command(j.Binary, j.Args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = j.Dir, os.Stdout, os.Stderr, append(os.Environ(), productKey+"="+productFile)
		err := cmd.Run()
		verdict := "ok"
		if err != nil {
			verdict = "FAIL: " + err.Error()
			status = max(cmd.ProcessState.ExitCode(), 1)
		}
		fmt.Printf("%s\t%s\n", j.Package, verdict)
	}
	return status, nil
}
