package dhcp

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/firewall"
)

// The test binary runs again inside a namespace: as the server, so that it can
// be killed, or as a client that sends packets of its own making.
const childEnv = "GATEHOUSE_DHCP_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "server":
		if err := childServer(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case "client":
		if err := childClient(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// command is one line to the child server; its answer is one line, a report.
type command struct {
	Config    *firewall.Config `json:",omitempty"`
	Resolvers []netip.Addr     `json:",omitempty"`
	Fail      *bool            `json:",omitempty"` // the disk fails from now on, or no more
	Release   netip.Addr       `json:",omitzero"`
	Delete    netip.Addr       `json:",omitzero"`
}

type report struct {
	Err     string
	Leases  []Lease
	Recent  []Exchange
	Stats   Stats
	Devices []string
	Failed  map[string]string
	Events  []Event
}

// childServer serves until its standard input ends. The scopes of an order may
// have leases shorter than a form allows.
func childServer(file string) error {
	disk := &fileLeases{name: file}
	probe := UsualLimits()
	if d, err := time.ParseDuration(os.Getenv(childEnv + "_PROBE")); err == nil {
		probe.Probe = d
	}
	events := make(chan Event, 1000)
	s := New(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})), disk, probe, func(e Event) { events <- e })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var seen []Event
	for {
		var o command
		if err := in.Decode(&o); err == io.EOF {
			cancel()
			return <-ended
		} else if err != nil {
			return err
		}
		err := obey(ctx, s, disk, o)
		for len(events) > 0 {
			seen = append(seen, <-events)
		}
		r := report{Leases: s.List(), Recent: s.Recent(), Stats: s.Stats(), Events: seen}
		r.Devices, r.Failed = s.Serving()
		if err != nil {
			r.Err = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

func obey(ctx context.Context, s *Server, disk *fileLeases, o command) error {
	switch {
	case o.Config != nil:
		return s.Reload(ctx, *o.Config)
	case o.Resolvers != nil:
		s.SetResolvers(o.Resolvers, false)
	case o.Fail != nil:
		disk.fail.Store(*o.Fail)
	case o.Release.IsValid():
		return s.Release(ctx, o.Release)
	case o.Delete.IsValid():
		return s.Delete(ctx, o.Delete)
	}
	return nil
}

// fileLeases is a journal of JSON lines, on disk when a method returns.
type fileLeases struct {
	name string
	fail atomic.Bool
}

type line struct {
	Put    []Lease      `json:",omitempty"`
	Delete []netip.Addr `json:",omitempty"`
}

func (f *fileLeases) All(context.Context) ([]Lease, error) {
	file, err := os.Open(f.name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows := map[netip.Addr]Lease{}
	sc := bufio.NewScanner(file)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var l line
		if json.Unmarshal(sc.Bytes(), &l) != nil {
			break // torn by the kill: it was never acknowledged
		}
		for _, r := range l.Put {
			rows[r.Addr] = r
		}
		for _, a := range l.Delete {
			delete(rows, a)
		}
	}
	var out []Lease
	for _, r := range rows {
		out = append(out, r)
	}
	return out, sc.Err()
}

func (f *fileLeases) Put(_ context.Context, rows []Lease) error { return f.append(line{Put: rows}) }

func (f *fileLeases) Delete(_ context.Context, addrs []netip.Addr) error {
	return f.append(line{Delete: addrs})
}

func (f *fileLeases) append(l line) error {
	if f.fail.Load() {
		return unix.ENOSPC
	}
	file, err := os.OpenFile(f.name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	b, err := json.Marshal(l)
	if err == nil {
		_, err = file.Write(append(b, '\n'))
	}
	return errors.Join(err, file.Sync(), file.Close())
}

// childClient broadcasts each line of its input, which is a packet in hex, from
// port 68 of the device, and prints what comes to that port.
func childClient(device string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	err = errors.Join(unix.BindToDevice(fd, device), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: clientPort}))
	if err != nil {
		return err
	}
	go func() {
		buf := make([]byte, 2000)
		for {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				return
			}
			fmt.Println(hex.EncodeToString(buf[:n]))
		}
	}()
	sc := bufio.NewScanner(os.Stdin)
	for sc.Scan() {
		pkt, err := hex.DecodeString(sc.Text())
		if err != nil {
			return err
		}
		if err := unix.Sendto(fd, pkt, 0, &unix.SockaddrInet4{Port: serverPort, Addr: [4]byte(net.IPv4bcast.To4())}); err != nil {
			return err
		}
	}
	return sc.Err()
}
