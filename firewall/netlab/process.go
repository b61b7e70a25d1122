package netlab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// everything is what makes a process a member of the machine.
const everything = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC

// Spec is a program to start.
type Spec struct {
	Name string   // path, or a name that is looked up in PATH and the sbin folders
	Args []string // without the name
	Env  []string // added to the environment of this process
	Dir  string   // working folder; "" means that of this process
	// Stdin is what it reads; nil means nothing.
	Stdin io.Reader
}

// Run runs a program in the host to its end and returns what it printed on both outputs. The error of a program that
// failed names it and quotes the output. The program is killed when ctx ends.
func (h *Host) Run(ctx context.Context, name string, args ...string) (string, error) {
	p, err := h.Start(ctx, name, args...)
	if err != nil {
		return "", err
	}
	err = p.Wait()
	out := p.Output()
	if err != nil {
		err = fmt.Errorf("netlab: %s: %s %s: %w\n%s", h.Name, name, strings.Join(args, " "), err, out)
	}
	return out, err
}

// Start starts a program in the host. It and its children are killed when ctx or the lab ends.
func (h *Host) Start(ctx context.Context, name string, args ...string) (*Process, error) {
	return h.StartSpec(ctx, Spec{Name: name, Args: args})
}

// StartSpec is Start with more to say.
func (h *Host) StartSpec(ctx context.Context, s Spec) (*Process, error) {
	path, err := lookPath(s.Name)
	if err != nil {
		return nil, err
	}
	if s.Dir == "" {
		if s.Dir, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	p := &Process{Name: s.Name, done: make(chan struct{}), more: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: path, Args: append([]string{s.Name}, s.Args...), Env: append(os.Environ(), s.Env...), Dir: s.Dir,
		Stdin: s.Stdin, Stdout: p, Stderr: p,
		SysProcAttr: &unix.SysProcAttr{Setpgid: true},
		WaitDelay:   15 * time.Second, // a child that kept the outputs open does not keep us; on a busy machine less loses output
	}
	if err := h.now().on(everything, p.cmd.Start); err != nil {
		return nil, fmt.Errorf("netlab: %s: start %s: %w", h.Name, s.Name, err)
	}
	stop := context.AfterFunc(ctx, p.Kill)
	go func() {
		err := p.cmd.Wait()
		stop()
		p.end(err)
	}()
	return p, nil
}

// lookPath also looks into the sbin folders: not every root has them in PATH.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || strings.Contains(name, "/") {
		return path, err
	}
	for _, d := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if p, err := exec.LookPath(filepath.Join(d, name)); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("netlab: %w", err)
}

// Process is a program that runs in a host. Its methods may be called from several goroutines.
type Process struct {
	Name string

	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex // guards the fields below
	err  error
	out  bytes.Buffer
	more chan struct{} // closed and made anew when output or the end arrives
	seen int           // bytes that Next has passed
}

// Write takes output; it is for os/exec only.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake()
	return p.out.Write(b)
}

func (p *Process) wake() { // with mu held
	close(p.more)
	p.more = make(chan struct{})
}

func (p *Process) end(err error) {
	p.mu.Lock()
	p.err = err
	p.wake()
	close(p.done)
	p.mu.Unlock()
}

// Pid as this process sees it; inside the host it has another.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Output is what it has printed so far, both outputs in one.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for its end and returns nil for exit code 0, else what os/exec says.
func (p *Process) Wait() error {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Signal sends a signal to the process, not to its children.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends it and its children at once.
func (p *Process) Kill() {
	select {
	case <-p.done: // its number may be somebody else's by now
	default:
		_ = unix.Kill(-p.Pid(), unix.SIGKILL)
	}
}

// Stop asks it to end, kills it when ctx ends first, and waits.
func (p *Process) Stop(ctx context.Context) {
	if err := p.Signal(syscall.SIGTERM); err == nil {
		select {
		case <-p.done:
			return
		case <-ctx.Done():
		}
	}
	p.Kill()
	<-p.done
}

// Find waits for the first whole line of all the output that matches the regular expression and returns it and its
// submatches. The error when ctx or the program ends first quotes the output.
func (p *Process) Find(ctx context.Context, pattern string) ([]string, error) {
	m, _, err := p.await(ctx, pattern, 0)
	return m, err
}

// Next is Find in what was printed after the line that the last Next returned.
func (p *Process) Next(ctx context.Context, pattern string) ([]string, error) {
	p.mu.Lock()
	from := p.seen
	p.mu.Unlock()
	m, end, err := p.await(ctx, pattern, from)
	if err == nil {
		p.mu.Lock()
		p.seen = end
		p.mu.Unlock()
	}
	return m, err
}

func (p *Process) await(ctx context.Context, pattern string, from int) ([]string, int, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, 0, err
	}
	for {
		p.mu.Lock()
		text, more := string(p.out.Bytes()[from:]), p.more
		ended := false
		select {
		case <-p.done:
			ended = true
		default:
		}
		p.mu.Unlock()
		for { // only whole lines: half a line may be half an address
			line, rest, whole := strings.Cut(text, "\n")
			if !whole && (!ended || line == "") {
				break
			}
			from += min(len(line)+1, len(text))
			if m := re.FindStringSubmatch(strings.TrimRight(line, "\r")); m != nil {
				return m, from, nil
			}
			text = rest
		}
		if ended {
			return nil, 0, fmt.Errorf("netlab: %s ended without %q:\n%s", p.Name, pattern, p.Output())
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("netlab: %s did not print %q: %w:\n%s", p.Name, pattern, ctx.Err(), p.Output())
		}
	}
}
