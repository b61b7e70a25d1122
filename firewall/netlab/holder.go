package netlab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// holderEnv marks the child that holds a machine. New refuses to run in such a child, so that a program that forgot
// Main does not start itself for ever.
const holderEnv = "GATEHOUSE_NETLAB_HOLDER"

// Main must be the first thing in main and in TestMain of every program that uses the package: in a child that New
// started it holds the namespaces of one machine and never returns, elsewhere it does nothing.
func Main() {
	if os.Getenv(holderEnv) == "" {
		return
	}
	os.Exit(hold(os.Args[1], os.Args[2]))
}

// hold runs as process 1 of the machine: it mounts what is the machine's own, says so on descriptor 3, and then only
// collects orphans until its standard input ends, which happens when the parent closes it or is gone.
func hold(hostname, resolv string) int {
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, unix.SIGCHLD)
	go func() {
		for range orphans {
			for {
				if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}()
	ready := os.NewFile(3, "ready")
	if err := furnish(hostname, resolv); err != nil {
		fmt.Fprintln(ready, err)
		return 1
	}
	fmt.Fprintln(ready, "ready")
	ready.Close()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// furnish gives the new namespaces what belongs to one machine: name, /proc, /sys, /run, resolv.conf.
func furnish(hostname, resolv string) error {
	// A link such as /run/systemd/resolve/stub-resolv.conf must be followed before /run is covered.
	conf, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		conf = "/etc/resolv.conf"
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"set the host name", func() error { return unix.Sethostname([]byte(hostname)) }},
		{"keep mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount /proc", func() error { return unix.Mount("proc", "/proc", "proc", 0, "") }},
		{"mount /sys", func() error { return unix.Mount("sysfs", "/sys", "sysfs", 0, "") }},
		{"mount /run", func() error { return unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755") }},
		{"make /run/lock", func() error { return os.Mkdir("/run/lock", 0o755) }},
		{"make resolv.conf", func() error { return touch(conf) }},
		{"mount resolv.conf", func() error { return unix.Mount(resolv, conf, "", unix.MS_BIND, "") }},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

// touch makes an empty file where none is, so that another can be mounted over it.
func touch(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// machine is one boot of a host: the holder and handles to its namespaces.
type machine struct {
	pid    int      // of the holder, as the lab's process sees it
	life   *os.File // closing it ends the holder
	net    *os.File
	others []namespace
	gone   chan struct{} // closed when the holder and every process of the machine have ended
	once   sync.Once
}

type namespace struct {
	file *os.File
	kind int
}

// power starts the holder of a machine and waits until it is ready.
func power(ctx context.Context, lab, host, dir string) (*machine, error) {
	resolv := filepath.Join(dir, "resolv.conf")
	if err := touch(resolv); err != nil {
		return nil, err
	}
	stdin, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	readyR, readyW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, life.Close())
	}
	defer readyR.Close()
	cmd := &exec.Cmd{
		Path:       "/proc/self/exe", // also right when `go run` has removed the file
		Args:       []string{lab + "/" + host, host, resolv},
		Env:        append(os.Environ(), holderEnv+"=1", "GOMAXPROCS=1"),
		Stdin:      stdin,
		ExtraFiles: []*os.File{readyW},
		SysProcAttr: &unix.SysProcAttr{
			Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
			Setsid:     true, // Ctrl-C is for the parent: it takes the lab away in order
		},
	}
	err = cmd.Start()
	readyW.Close()
	if err != nil {
		return nil, errors.Join(err, life.Close())
	}
	m := &machine{pid: cmd.Process.Pid, life: life, gone: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended does not matter
		close(m.gone)
	}()
	if err := m.settle(ctx, readyR); err != nil {
		m.off()
		return nil, err
	}
	return m, nil
}

// settle waits for the holder's word and opens the namespaces.
func (m *machine) settle(ctx context.Context, ready *os.File) error {
	stop := context.AfterFunc(ctx, func() { m.life.Close() }) // the holder leaves and its end of ready closes
	defer stop()
	line, err := bufio.NewReader(ready).ReadString('\n')
	if line = strings.TrimSpace(line); line != "ready" {
		if line == "" {
			return fmt.Errorf("no holder (is netlab.Main called first?): %w", errors.Join(ctx.Err(), err))
		}
		return errors.New(line)
	}
	for _, n := range []struct {
		name string
		kind int
	}{{"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}, {"pid", unix.CLONE_NEWPID}, {"mnt", unix.CLONE_NEWNS}} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", m.pid, n.name))
		if err != nil {
			return err
		}
		if n.kind == unix.CLONE_NEWNET {
			m.net = f
		}
		m.others = append(m.others, namespace{f, n.kind})
	}
	return nil
}

// off ends the machine as a pulled plug would and waits until the last process is gone.
func (m *machine) off() {
	m.once.Do(func() {
		if p, err := os.FindProcess(m.pid); err == nil {
			_ = p.Kill()
		}
		m.life.Close()
		<-m.gone
		for _, n := range m.others {
			n.file.Close()
		}
	})
}

// on runs fn on a thread of its own inside the machine's namespaces of the given kinds (CLONE_NEW… bits). The thread is
// never used again, so no other goroutine can find itself in there.
func (m *machine) on(kinds int, fn func() error) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The process's first thread stands for all of it in /proc/self: keep it busy here and take another.
			defer runtime.UnlockOSThread()
			errc <- m.on(kinds, fn)
			return
		}
		err := errors.New("netlab: the function did not return") // kept when fn leaves by t.FailNow
		defer func() { errc <- err }()
		if err = m.enter(kinds); err == nil {
			err = errors.New("netlab: the function did not return")
			err = fn()
		}
	}()
	return <-errc
}

func (m *machine) enter(kinds int) error {
	if kinds&unix.CLONE_NEWNS != 0 {
		// Threads share root and working folder; the kernel refuses a change of mounts while they do.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("leave the shared root: %w", err)
		}
	}
	for _, n := range m.others {
		if kinds&n.kind == 0 {
			continue
		}
		if err := unix.Setns(int(n.file.Fd()), n.kind); err != nil {
			return fmt.Errorf("enter %s: %w", n.file.Name(), err)
		}
	}
	return nil
}
