package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// linux is a kernel as Debian ships it, unpacked.
type linux struct {
	release string // 6.1.0-57-cloud-amd64
	image   string // vmlinuz
	modules string // lib/modules/RELEASE
}

// debianKernel is the newest kernel of this Debian for virtual machines. It is
// downloaded once and kept beside other programs' caches; without a network the
// newest one kept will do.
func debianKernel(ctx context.Context, out io.Writer) (*linux, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "gatelab")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	release, err := download(ctx, cache, out)
	if err != nil {
		kept, _ := filepath.Glob(filepath.Join(cache, "*", "lib", "modules", "*", "modules.dep"))
		if len(kept) == 0 {
			return nil, err
		}
		release = filepath.Base(filepath.Dir(slices.Max(kept)))
		fmt.Fprintf(out, "guest: no newer kernel than the one kept: %v\n", err)
	}
	dir := filepath.Join(cache, release)
	return &linux{release, filepath.Join(dir, "boot", "vmlinuz-"+release), filepath.Join(dir, "lib", "modules", release)}, nil
}

// download fetches and unpacks the kernel if it is not there, and names it.
func download(ctx context.Context, cache string, out io.Writer) (release string, err error) {
	text, err := output(ctx, cache, "apt-cache", "depends", "linux-image-cloud-amd64")
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`Depends: linux-image-(\S+)`).FindStringSubmatch(text)
	if found == nil {
		return "", errors.New("apt knows no linux-image-cloud-amd64: run apt-get update")
	}
	release = found[1]
	dir := filepath.Join(cache, release)
	modules := filepath.Join(dir, "lib", "modules", release)
	if _, err := os.Stat(filepath.Join(modules, "modules.dep")); err == nil {
		return release, nil
	}
	fmt.Fprintf(out, "guest: downloading Linux %s\n", release)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if _, err := output(ctx, dir, "apt-get", "download", "linux-image-"+release); err != nil {
		if _, err := output(ctx, dir, "apt-get", "update"); err != nil {
			return "", err
		}
		if _, err := output(ctx, dir, "apt-get", "download", "linux-image-"+release); err != nil {
			return "", err
		}
	}
	debs, _ := filepath.Glob(filepath.Join(dir, "*.deb"))
	if len(debs) != 1 {
		return "", fmt.Errorf("apt-get download left %d packages in %s", len(debs), dir)
	}
	if _, err := output(ctx, dir, "dpkg-deb", "-x", debs[0], dir); err != nil {
		return "", err
	}
	// Last: what tells that all is there.
	_, err = output(ctx, dir, "depmod", "-b", dir, release)
	return release, errors.Join(err, os.Remove(debs[0]))
}

// output runs a program in a folder and gives what it wrote.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, text)
	}
	return string(text), nil
}

// moduleFolders hold the modules that a firewall may ask for.
var moduleFolders = regexp.MustCompile(`^kernel/(net/(netfilter|ipv4|ipv6|bridge|8021q|802|llc|sched|core|packet|xfrm|unix|netlink|sctp)/|lib/|crypto/|arch/x86/crypto/|` +
	`drivers/net/(veth|dummy|ifb|macvlan|ipvlan|tun|vrf|bonding|wireguard))`)

// neededPrograms and usualPrograms are what tests start; the usual ones are
// taken along if this machine has them.
var (
	neededPrograms = []string{"ip", "nft", "kmod", "busybox"}
	usualPrograms  = []string{"conntrack", "tc", "bridge", "nsenter", "unshare", "sysctl", "ping", "arping", "tcpdump", "hping3", "dnsmasq",
		"dhclient", "curl", "nmap", "iperf3", "ab", "strace"}
)

// pack puts the modules with all that they need, and the programs with their
// libraries, into the archive.
func (l *linux) pack(a *archive) error {
	deps, err := os.ReadFile(filepath.Join(l.modules, "modules.dep"))
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for line := range strings.Lines(string(deps)) {
		module, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		if moduleFolders.MatchString(module) {
			wanted[module] = true
			for _, n := range strings.Fields(needs) {
				wanted[n] = true
			}
		}
	}
	in := "/usr/lib/modules/" + l.release + "/"
	for m := range wanted {
		if err := a.file(in+m, filepath.Join(l.modules, m)); err != nil {
			return err
		}
	}
	indexes, _ := filepath.Glob(filepath.Join(l.modules, "modules.*"))
	for _, name := range indexes {
		if err := a.file(in+filepath.Base(name), name); err != nil {
			return err
		}
	}
	for _, name := range neededPrograms {
		if err := a.program(name); err != nil {
			return err
		}
	}
	for _, name := range usualPrograms {
		if _, err := exec.LookPath(name); err == nil {
			if err := a.program(name); err != nil {
				return err
			}
		}
	}
	return a.system()
}

// archive is an initramfs in the making: a cpio of the kind that Linux calls newc.
type archive struct {
	buf  bytes.Buffer
	seen map[string]bool
}

// File types and modes as cpio has them.
const (
	modeDir  = 0o40755
	modeFile = 0o100755
	modeLink = 0o120777
)

// add appends an entry and the folders it lies in; the first of a name stays.
func (a *archive) add(name string, mode int, data []byte) {
	if name = strings.TrimPrefix(path.Clean(name), "/"); name == "" || a.seen[name] {
		return
	}
	if a.seen == nil {
		a.seen = map[string]bool{}
	}
	if up := path.Dir(name); up != "." {
		a.dir(up)
	}
	a.seen[name] = true
	a.entry(name, mode, data)
}

func (a *archive) entry(name string, mode int, data []byte) {
	const magic = "070701"
	fmt.Fprintf(&a.buf, "%s%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", magic,
		len(a.seen)+1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	pad := func() {
		for a.buf.Len()%4 != 0 {
			a.buf.WriteByte(0)
		}
	}
	a.buf.WriteString(name + "\x00")
	pad()
	a.buf.Write(data)
	pad()
}

func (a *archive) dir(name string) { a.add(name, modeDir, nil) }

func (a *archive) file(name, source string) error {
	data, err := os.ReadFile(source)
	if err == nil {
		a.add(name, modeFile, data)
	}
	return err
}

// bytes ends the archive and is the whole of it.
func (a *archive) bytes() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.buf.Bytes()
}

// program adds a program of this machine with the libraries that ldd names.
func (a *archive) program(name string) error {
	at, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("the guest needs %s: %w", name, err)
	}
	libs, err := exec.Command("ldd", at).Output() // fails for a static one, which has none
	if err != nil {
		libs = nil
	}
	for _, file := range append(regexp.MustCompile(`/\S+`).FindAllString(string(libs), -1), at) {
		if err := a.file(merged(file), file); err != nil {
			return err
		}
	}
	return nil
}

// merged is where a file lies once /bin, /sbin and /lib are links into /usr.
func merged(file string) string {
	if strings.HasPrefix(file, "/usr/") {
		return file
	}
	return "/usr" + file
}

// system adds what makes it a system: links, folders, the small programs of busybox.
func (a *archive) system() error {
	for _, top := range []string{"bin", "sbin", "lib", "lib64"} {
		a.dir("/usr/" + top)
		a.add("/"+top, modeLink, []byte("usr/"+top))
	}
	a.add("/usr/sbin/modprobe", modeLink, []byte("../bin/kmod"))
	for _, dir := range []string{"/proc", "/sys", "/dev", "/tmp", "/run", "/root", "/etc", "/var/lib", "/var/tmp"} {
		a.dir(dir)
	}
	a.add("/etc/passwd", modeFile, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"))
	a.add("/etc/group", modeFile, []byte("root:x:0:\nnogroup:x:65534:\n"))
	a.add("/etc/hosts", modeFile, []byte("127.0.0.1 localhost\n::1 localhost\n"))
	for _, name := range []string{"/etc/protocols", "/etc/services", "/etc/nsswitch.conf"} {
		if err := a.file(name, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	small, err := exec.Command("busybox", "--list").Output()
	for name := range strings.FieldsSeq(string(small)) {
		if !a.seen["usr/sbin/"+name] {
			a.add("/usr/bin/"+name, modeLink, []byte("busybox"))
		}
	}
	return err
}

// testdata adds every folder of that name: tests read their neighbours', too.
func (a *archive) testdata(root string) error {
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.Contains(file, "/testdata/"):
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		return a.file("/gatehouse/"+rel, file)
	})
}
