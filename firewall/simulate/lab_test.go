package simulate_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gatehouse/firewall"
	"gatehouse/firewall/compile"
)

// devices is the ports of the box under test. Each is a tap: the kernel has done
// all it will do with a frame when the write of it returns, however busy the
// machine is. They resolve no neighbours (NOARP), so that what is forwarded leaves at once.
var devices = []string{"eth0", "eth1", "eth2", "eth3"}

// lab is an anonymous namespace, which ends with the thread that made it.
type lab struct {
	t    *testing.T
	taps map[string]int // by device: throws probes in and sees what comes out
	macs map[string][6]byte
	ct   int // netlink socket to the connection table of the box
	next uint32
}

var peerMAC = [6]byte{2, 0, 0, 0, 0, 0xff}

// newLab makes the namespace. The goroutine stays on its thread, which is in
// the box; what it runs is too.
func newLab(t *testing.T) *lab {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("unshare: ", err)
	}
	l := &lab{t: t, taps: map[string]int{}, macs: map[string][6]byte{}}
	for _, s := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv6/conf/default/forwarding"} {
		l.sysctl("net/"+s, "1")
	}
	for _, s := range []string{"ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter", "ipv6/conf/default/accept_ra"} {
		l.sysctl("net/"+s, "0")
	}
	l.run("", "ip", "link", "set", "lo", "up")
	for i, name := range devices {
		l.taps[name], l.macs[name] = l.tap(name), [6]byte{2, 0, 0, 0, 1, byte(i)}
		l.run("", "ip", "link", "set", name, "address", fmt.Sprintf("02:00:00:00:01:%02x", i), "addrgenmode", "none", "arp", "off", "up")
	}
	ct, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ct) })
	l.ct = ct
	return l
}

func (l *lab) sysctl(name, value string) {
	if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
		l.t.Fatal(err)
	}
}

// tap makes a device whose other end is the file it gives.
func (l *lab) tap(name string) int {
	l.t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		l.t.Fatal("/dev/net/tun: ", err)
	}
	l.t.Cleanup(func() { unix.Close(fd) })
	req, _ := unix.NewIfreq(name)
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		l.t.Fatal("tap: ", err)
	}
	return fd
}

// run runs a command in the box.
func (l *lab) run(stdin string, name string, args ...string) []byte {
	l.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		l.t.Fatalf("%s %s: %v\n%s\n%s", name, strings.Join(args, " "), err, stderr.String(), stdin)
	}
	return out
}

// become gives the box the addresses and routes of facts.
func (l *lab) become(facts firewall.Facts) {
	l.t.Helper()
	var b strings.Builder
	for _, d := range devices {
		l.run("", "ip", "addr", "flush", "dev", d)
	}
	l.run("", "ip", "-4", "route", "flush", "table", "main")
	l.run("", "ip", "-6", "route", "flush", "table", "main")
	for _, d := range devices {
		for _, p := range facts.Addrs[d] {
			fmt.Fprintf(&b, "addr add %s dev %s nodad\n", p, d)
		}
	}
	for _, r := range facts.Routes {
		fmt.Fprintf(&b, "route add %s dev %s", r.Dst, r.Device)
		if r.Via.IsValid() {
			fmt.Fprintf(&b, " via %s", r.Via)
		}
		b.WriteByte('\n')
	}
	l.run(b.String(), "ip", "-batch", "-")
	for !l.answersTo(facts) {
	}
}

// answersTo reports whether every IPv6 address of facts is in use, with the
// anycast address of its network (RFC 4291, 2.6.1): the kernel's worker puts
// both to use, some time after the address was added.
func (l *lab) answersTo(facts firewall.Facts) bool {
	l.t.Helper()
	local := string(l.run("", "ip", "-6", "route", "show", "table", "local"))
	for d, ps := range facts.Addrs {
		for _, p := range ps {
			if p.Addr().Is6() && (!strings.Contains(local, fmt.Sprintf("local %s dev %s ", p.Addr(), d)) ||
				p.Bits() < 127 && !strings.Contains(local, fmt.Sprintf("anycast %s dev %s ", p.Masked().Addr(), d))) {
				return false
			}
		}
	}
	return true
}

// witness counts what came past ingress and what the box took for itself. It
// silences the box: the kernel answers an ICMP error even to a broadcast source,
// hears that error itself, and the policy would count it beside the probes. How
// often it does so depends on its limit for errors, which outlives a batch.
const witness = `table inet witness {
	counter seen { }
	counter input { }
	chain pre { type filter hook prerouting priority -301;
		ether saddr 02:00:00:00:00:ff counter name "seen"
	}
	chain in { type filter hook input priority 100;
		ether saddr 02:00:00:00:00:ff counter name "input"
	}
	chain out { type filter hook output priority -400;
		drop
	}
}
`

// load puts the compiled form of cfg into the kernel, its runtime sets filled from facts.
func (l *lab) load(cfg firewall.Config, facts firewall.Facts) {
	l.t.Helper()
	var b strings.Builder
	b.WriteString("flush ruleset\n" + compile.Compile(cfg).String() + witness)
	for _, in := range cfg.Interfaces {
		for _, v6 := range []bool{false, true} {
			var addrs, nets []string
			var ranges []firewall.AddrRange
			for _, p := range facts.Addrs[in.Device] {
				if p.Addr().Is6() == v6 {
					addrs = append(addrs, p.Addr().String())
					if !v6 || !p.Addr().IsLinkLocalUnicast() {
						ranges = append(ranges, firewall.PrefixRange(p))
					}
				}
			}
			for _, r := range firewall.Merge(ranges) {
				nets = append(nets, r.From.String()+"-"+r.To.String())
			}
			if len(addrs) > 0 {
				fmt.Fprintf(&b, "add element inet gatehouse %s { %s }\n", compile.AddrSet(in.Name, v6), strings.Join(addrs, ", "))
			}
			if len(nets) > 0 {
				fmt.Fprintf(&b, "add element inet gatehouse %s { %s }\n", compile.NetSet(in.Name, v6), strings.Join(nets, ", "))
			}
		}
	}
	b.WriteString(shutOut(cfg, facts))
	l.run(b.String(), "nft", "-f", "-")
	l.forget()
}

// shutOut puts blocked sources into the sets that the kernel looks them up in:
// what the policy calls one source into the hash, wider and narrower networks
// into the intervals, merged, for those may not overlap.
func shutOut(cfg firewall.Config, facts firewall.Facts) string {
	var b strings.Builder
	for _, v6 := range []bool{false, true} {
		var wide []firewall.AddrRange
		for i, p := range facts.Blocked {
			switch left := []string{"", " timeout 1h"}[i%2]; { // quarantine or lock-out
			case p.Addr().Is6() != v6:
			case p == cfg.Sources.Of(p.Addr()):
				fmt.Fprintf(&b, "add element inet gatehouse %s { %s%s }\n", compile.BlockedSet(v6), p.Addr(), left)
			default:
				wide = append(wide, firewall.PrefixRange(p))
			}
		}
		for _, r := range firewall.Merge(wide) {
			fmt.Fprintf(&b, "add element inet gatehouse %s { %s-%s }\n", compile.BlockedNets(v6), r.From, r.To)
		}
	}
	return b.String()
}

// forget empties the connection table (ctnetlink, IPCTNL_MSG_CT_DELETE).
func (l *lab) forget() {
	l.t.Helper()
	msg := binary.NativeEndian.AppendUint32(nil, 20)
	msg = binary.NativeEndian.AppendUint16(msg, 1<<8|2)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	msg = append(msg, make([]byte, 12)...)
	if err := unix.Sendto(l.ct, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		l.t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(l.ct, answer, 0)
	if err != nil || n < 20 {
		l.t.Fatal("forget connections: ", err)
	}
	if e := int32(binary.NativeEndian.Uint32(answer[16:])); e != 0 {
		l.t.Fatal("forget connections: ", unix.Errno(-e))
	}
}

// counters is every named counter of the box.
func (l *lab) counters() map[string]int {
	l.t.Helper()
	var list struct {
		Nftables []struct {
			Counter *struct {
				Name    string
				Packets int
			}
		}
	}
	if err := json.Unmarshal(l.run("", "nft", "-j", "list", "counters"), &list); err != nil {
		l.t.Fatal(err)
	}
	out := map[string]int{}
	for _, o := range list.Nftables {
		if o.Counter != nil && o.Counter.Packets > 0 {
			out[o.Counter.Name] = o.Counter.Packets
		}
	}
	return out
}

// send throws a probe in and gives its number; what came of it is then seen.
func (l *lab) send(p firewall.Packet) uint32 {
	l.t.Helper()
	l.next++
	if _, err := unix.Write(l.taps[p.In], frame(p, l.macs[p.In], peerMAC, l.next)); err != nil {
		l.t.Fatal("send: ", err)
	}
	return l.next
}

// drain gathers the probes that came out so far.
func (l *lab) drain(into map[uint32][]arrival) {
	l.t.Helper()
	buf := make([]byte, 2048)
	for _, device := range devices {
		for {
			n, err := unix.Read(l.taps[device], buf)
			if err == unix.EAGAIN {
				break
			}
			if err != nil {
				l.t.Fatal("receive: ", err)
			}
			if id, a, ok := parse(buf[:n]); ok {
				a.Device = device
				into[id] = append(into[id], a)
			}
		}
	}
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
