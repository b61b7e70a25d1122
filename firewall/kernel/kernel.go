// Package kernel carries a Ruleset into Linux, whole or not at all, and brings
// back what only the kernel knows: set members, counters, logged packets,
// connections. It is the only door to netfilter.
package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"syscall"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// Kernel is the packet filter of one network namespace.
type Kernel struct {
	log   *slog.Logger
	space *os.File // the network namespace, for sockets that are opened later
	inode uint64   // of space
	inet  int      // any socket of the namespace, to ask for devices

	mu   sync.Mutex // one writer at a time
	sock *sock      // writes and reads; its port marks our own events
}

// Open is the kernel of the calling thread's network namespace. It fails with a
// sentence for the operator when the capability or nf_tables is missing.
func Open(log *slog.Logger) (*Kernel, error) {
	space, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("find the network namespace: %w", err)
	}
	k := &Kernel{log: log, space: space, inet: -1}
	if err := k.open(); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

func (k *Kernel) open() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(k.space.Fd()), &st); err != nil {
		return fmt.Errorf("look at the network namespace: %w", err)
	}
	k.inode = st.Ino
	var err error
	if k.inet, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open a socket to ask for devices: %w", err)
	}
	if k.sock, err = k.dial(); errors.Is(err, unix.EPROTONOSUPPORT) {
		return fmt.Errorf("this kernel has no nftables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET): %w", err)
	} else if err != nil {
		return err
	}
	_, err = k.sock.generation()
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("the packet filter needs CAP_NET_ADMIN: run as root, or give the service AmbientCapabilities=CAP_NET_ADMIN, "+
			"or the file `setcap cap_net_admin+ep`: %w", err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("this kernel has no nftables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_INET; or `modprobe nf_tables`): %w", err)
	case err != nil:
		return fmt.Errorf("ask nftables for its generation: %w", err)
	}
	return nil
}

// Close gives back the sockets. What is in the kernel stays.
func (k *Kernel) Close() error {
	if k.sock != nil {
		k.sock.close()
	}
	if k.inet >= 0 {
		_ = unix.Close(k.inet)
	}
	return k.space.Close()
}

// inside runs open on a thread in the kernel's network namespace, so that a
// socket which it opens belongs there. In the product every thread is.
func (k *Kernel) inside(open func() error) error {
	if here("/proc/thread-self/ns/net") == k.inode {
		return open()
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		if err := unix.Setns(int(k.space.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		result <- open()
	}()
	return <-result
}

// here is the inode of a namespace file, 0 when it cannot be read.
func here(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Ino
}

// present reports whether the device exists.
func (k *Kernel) present(device string) bool {
	req, err := unix.NewIfreq(device)
	return err == nil && unix.IoctlIfreq(k.inet, unix.SIOCGIFINDEX, req) == nil
}

// device is the name of the device with the index, "" when it is gone.
func (k *Kernel) device(index uint32) string {
	req, err := unix.NewIfreq("x")
	if err != nil || index == 0 {
		return ""
	}
	req.SetUint32(index)
	if unix.IoctlIfreq(k.inet, unix.SIOCGIFNAME, req) != nil {
		return ""
	}
	return req.Name()
}

// Refusal is what the kernel, or the encoder before it, says against one part of
// a ruleset. Several come joined; errors.As finds the first, which is mostly the cause of the others.
type Refusal struct {
	Part   ruleset.Origin // "" when the whole was refused
	Detail string         // which part, and the kernel's words if it had any
	Errno  syscall.Errno

	message uint32 // number of the message in its batch, 0 = none
}

// Error is the refusal on one line.
func (r *Refusal) Error() string {
	return fmt.Sprintf("the kernel refuses %s (%s): %v", r.Part, r.Detail, r.Errno)
}

// Origin is the object that the part comes from.
func (r *Refusal) Origin() ruleset.Origin { return r.Part }

// Unwrap is the errno.
func (r *Refusal) Unwrap() error { return r.Errno }

// attempts is how often a change is built anew because somebody else changed
// the ruleset meanwhile.
const attempts = 16

// DryRun gives the kernel all of rs to check, against the live table, and
// changes nothing. The error holds a *Refusal for every part that it refuses.
// Without our table in the kernel it does not look along jumps (6.18, as nft -c):
// a loop of chains is then only found by Apply.
func (k *Kernel) DryRun(ctx context.Context, rs ruleset.Ruleset) error {
	return k.whileDevicesStay(rs, func() error { return k.transact(ctx, false, k.planner(rs)) })
}

// Apply puts rs into the kernel, all or nothing, and reads it back. The table
// and its base chains are never taken away, so that no packet passes unseen
// (kernel fact 1); counters keep their values, Runtime sets their members. A
// Runtime set whose definition changed is replaced; its members come along if
// the key is the same. Ingress chains of absent devices are left out: Attach. The error
// holds a *Refusal for every refused part, or is a *Mismatch of the reading back.
func (k *Kernel) Apply(ctx context.Context, rs ruleset.Ruleset) error {
	err := k.whileDevicesStay(rs, func() error { return k.transact(ctx, true, k.planner(rs)) })
	if err != nil && !errors.Is(err, errUnheard) {
		return err
	}
	return k.Verify(ctx, rs)
}

// planner builds the batch for rs on what is in the kernel.
func (k *Kernel) planner(rs ruleset.Ruleset) func(uint32) (*batch, error) {
	return func(generation uint32) (*batch, error) {
		now, err := k.look(k.readFor(rs))
		if err != nil {
			return nil, err
		}
		if now.generation != generation {
			return nil, unix.ERESTART
		}
		return k.plan(rs, now)
	}
}

// transact lets build make a batch on what is in the kernel and sends it, again
// and again while somebody else changes the ruleset in between. commit false
// makes it a dry run.
func (k *Kernel) transact(ctx context.Context, commit bool, build func(generation uint32) (*batch, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for range attempts {
		if err := ctx.Err(); err != nil {
			return err
		}
		generation, err := k.sock.generation()
		if err != nil {
			return fmt.Errorf("ask nftables for its generation: %w", err)
		}
		b, err := build(generation)
		if err == nil {
			err = k.sock.transact(b, generation, commit)
		}
		if !errors.Is(err, unix.ERESTART) {
			return err
		}
	}
	return fmt.Errorf("somebody else keeps changing the ruleset: %w", unix.ERESTART)
}
