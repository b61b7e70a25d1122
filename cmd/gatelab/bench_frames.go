package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"gatehouse/firewall/netlab"

	"golang.org/x/sys/unix"
)

// flow is one connection from outside to a service of insideHost.
type flow struct {
	from netip.Addr
	port uint16
}

// packet is an Ethernet frame that one of the two ends sends.
type packet struct {
	inside bool // it comes from insideHost, else it goes there
	frame  []byte
}

// The flags of TCP.
const syn, ack = 0x02, 0x10

// syn is the first packet of a handshake.
func (f flow) syn() []packet { return []packet{f.tcp(false, syn)} }

// handshake is how a TCP connection begins.
func (f flow) handshake() []packet {
	return []packet{f.tcp(false, syn), f.tcp(true, syn|ack), f.tcp(false, ack)}
}

// tcp is a segment without data, of ends that have sent none before.
func (f flow) tcp(inside bool, flags byte) packet {
	const first = 1000 // both ends begin their sequence here
	b := make([]byte, 20)
	binary.BigEndian.PutUint32(b[4:], first)
	if flags&syn == 0 {
		binary.BigEndian.PutUint32(b[4:], first+1)
	}
	if flags&ack != 0 {
		binary.BigEndian.PutUint32(b[8:], first+1)
	}
	b[12], b[13] = 5<<4, flags
	binary.BigEndian.PutUint16(b[14:], 0xffff) // the window
	return f.ip(inside, unix.IPPROTO_TCP, b, 16)
}

// datagram is one of UDP, as long as a segment.
func (f flow) datagram() []packet {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	return []packet{f.ip(false, unix.IPPROTO_UDP, b, 6)}
}

// ip puts the ports and a checksum into a payload, and Ethernet and IPv4 in front of it.
func (f flow) ip(inside bool, proto byte, payload []byte, sumAt int) packet {
	src, dst := f.from.As4(), netip.MustParseAddr(insideHost).As4()
	sport, dport := f.port, uint16(servicePort)
	if inside {
		src, dst, sport, dport = dst, src, dport, sport
	}
	binary.BigEndian.PutUint16(payload, sport)
	binary.BigEndian.PutUint16(payload[2:], dport)
	h := append([]byte{0x45, 0, 0, byte(20 + len(payload)), 0, 0, 0x40, 0, 64, proto, 0, 0}, append(src[:], dst[:]...)...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	pseudo := append(append([]byte{}, h[12:20]...), 0, proto, 0, byte(len(payload)))
	binary.BigEndian.PutUint16(payload[sumAt:], checksum(append(pseudo, payload...)))
	return packet{inside, append(append(ethernet(), h...), payload...)}
}

// ethernet is the header of a frame to a box.
func ethernet() []byte {
	to, _ := net.ParseMAC(boxMAC)
	from, _ := net.ParseMAC(nobodyMAC)
	return append(append(to, from...), 0x08, 0x00)
}

// checksum is that of RFC 1071, of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// sender opens a raw socket on a port of a host.
func sender(h *netlab.Host, port string) (fd int, err error) {
	err = h.Do(func() error {
		i, err := net.InterfaceByName(port)
		if err != nil {
			return err
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open a packet socket: %w", err)
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: i.Index}) // protocol 0: it receives nothing
	})
	return fd, err
}

// pinned runs fn on one processor, on a thread of its own.
func pinned(cpu int, fn func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends here
		var one unix.CPUSet
		one.Set(cpu)
		if err = unix.SchedSetaffinity(0, &one); err == nil {
			err = fn()
		}
	}()
	<-done
	return err
}

// burn sends packets from the two ends of a box and gives the CPU time that all
// of it cost, in nanoseconds: that of the sending thread, to which the kernel
// charges the way through the box, and that of the processor's ksoftirqd, which
// takes it over when there is much. One system call for each packet, as the bars
// were measured.
func burn(outside, inside int, packets []packet) (cost int64, err error) {
	cpu, err := processor()
	if err != nil {
		return 0, err
	}
	err = pinned(cpu, func() error {
		helper, err := ksoftirqd(cpu)
		if err != nil {
			return err
		}
		before, err := spent(helper)
		if err != nil {
			return err
		}
		for _, p := range packets {
			fd := outside
			if p.inside {
				fd = inside
			}
			if err := send(fd, p.frame); err != nil {
				return err
			}
		}
		cost, err = spent(helper)
		cost -= before
		return err
	})
	return cost, err
}

// send sends one frame. One that is lost on the way is no error: the far end is asked how many came.
func send(fd int, frame []byte) error {
	if _, err := unix.Write(fd, frame); err != nil && err != unix.ENOBUFS {
		return fmt.Errorf("send a packet: %w", err)
	}
	return nil
}

// processor is the first that this process may use.
func processor() (cpu int, err error) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return 0, err
	}
	for !may.IsSet(cpu) {
		cpu++
	}
	return cpu, nil
}

// spent is the CPU time of this thread and of a kernel thread, in nanoseconds.
func spent(helper string) (int64, error) {
	var own unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &own); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(helper)
	if err != nil {
		return 0, err
	}
	var its int64
	_, err = fmt.Sscan(string(text), &its)
	return own.Nano() + its, err
}

// ksoftirqd is the file that says how long the one of a processor has run.
func ksoftirqd(cpu int) (path string, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return "", err
	}
	for _, comm := range all {
		name, err := os.ReadFile(comm)
		if err == nil && strings.TrimSpace(string(name)) == "ksoftirqd/"+strconv.Itoa(cpu) {
			return filepath.Join(filepath.Dir(comm), "schedstat"), nil
		}
	}
	return "", fmt.Errorf("there is no ksoftirqd/%d", cpu)
}
