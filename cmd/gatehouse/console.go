package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/api"
	"gatehouse/web/auth"
	"gatehouse/web/changes"
	"gatehouse/web/page"
)

// The keys of what the console keeps.
const (
	codeKey = "setup-code"
	overKey = "started-over" // there was a configuration before
)

// setupCodeNow is the code on the console: "" once there is an administrator,
// and in SAFE MODE, which must not lead to the wizard by itself.
func (b *box) setupCodeNow() string {
	if b.writer.Status().SafeMode != "" {
		return ""
	}
	if any, err := b.auth.Any(); err != nil || any {
		return ""
	}
	code, ok, err := b.disk.secrets.Get(codeKey)
	if err == nil && ok {
		return code
	}
	code = auth.NewCode()
	if err := b.disk.secrets.Put(codeKey, code); err != nil {
		b.log.Error("remember the setup code", "err", err)
	}
	return code
}

// newCode is the way to start over: in SAFE MODE a new code makes a new store;
// otherwise only a box without an owner gets another one.
func (b *box) newCode(ctx context.Context, anew bool) (string, error) {
	any, err := b.auth.Any()
	if err != nil {
		return "", err
	}
	switch safe := b.writer.Status().SafeMode != ""; {
	case !anew && any:
		return "", errors.New("this box has an administrator; there is no setup code. Forgot the password? gatehouse passwd NAME")
	case anew && any && !safe:
		return "", errors.New("this box has an administrator and is not in SAFE MODE; there is nothing to start over")
	case !anew && safe:
		return "", errors.New("SAFE MODE: what this box knew is lost or damaged, its accounts too. `gatehouse setup-code --new` starts over without them")
	case anew && safe:
		if err := b.startOver(ctx); err != nil {
			return "", err
		}
		fallthrough
	case anew:
		if err := b.disk.secrets.Put(codeKey, auth.NewCode()); err != nil {
			return "", err
		}
	}
	return b.setupCodeNow(), nil
}

// startOver makes a new store without accounts and restores revision 0.
func (b *box) startOver(ctx context.Context) error {
	if err := b.writer.Restore(ctx, commit.Who{Account: "console", Door: "console"}, 0); err != nil {
		return err
	}
	if err := b.disk.secrets.Put(overKey, "yes"); err != nil {
		return err
	}
	b.setup.lose()
	all, err := b.disk.accounts.All()
	if err != nil {
		return err
	}
	for name := range all {
		if err := b.auth.EndAll(name, ""); err != nil {
			return err
		}
		if err := b.disk.accounts.Delete(name); err != nil {
			return err
		}
	}
	return nil
}

// restore makes revision n run: out of SAFE MODE, or as a change of the console's own.
func (b *box) restore(ctx context.Context, n uint64) error {
	who := commit.Who{Account: "console", Door: "console"}
	if b.writer.Status().SafeMode != "" {
		return b.writer.Restore(ctx, who, n)
	}
	if err := b.writer.RestoreAsDraft(ctx, who, n); err != nil {
		return err
	}
	if _, err := b.writer.Apply(ctx, who, commit.Options{}); err != nil {
		return err
	}
	// The console is no connection that could outlive the change.
	return b.writer.Confirm(ctx, who, "", time.Now().Add(time.Hour))
}

// status is what `gatehouse status` shows.
func (b *box) status() api.Status {
	_, rev := b.writer.Running()
	st := b.writer.Status()
	return api.Status{Revision: rev, Trial: b.writer.View("").Trial, SafeMode: st.SafeMode, Lockdown: st.Lockdown, Problems: st.Problems,
		Healed: st.Healed, Ports: b.link.Status(), Pages: b.pages(), Print: b.cert.Fingerprint()}
}

// pages is where the web pages answer: the addresses of the local interfaces.
func (b *box) pages() (out []string) {
	c, _ := b.writer.Running()
	if c = b.setup.meaning(c); b.writer.Status().Lockdown {
		c = b.setup.config()
	}
	port := c.Admin.HTTPS
	facts := b.link.Facts()
	for _, in := range c.Interfaces {
		if in.Role != firewall.LAN || !in.On {
			continue
		}
		for _, p := range facts.Addrs[in.Device] {
			if p.Addr().IsLinkLocalUnicast() {
				continue
			}
			out = append(out, pageURL(p.Addr(), port))
		}
	}
	return out
}

func pageURL(a netip.Addr, port uint16) string {
	host := a.String()
	if a.Is6() {
		host = "[" + host + "]"
	}
	if port != 443 {
		host += ":" + strconv.Itoa(int(port))
	}
	return "https://" + host + "/"
}

// say writes a line to the console.
func (b *box) say(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }

// announce tells the person at the screen where to go.
func (b *box) announce() {
	st := b.writer.Status()
	c, rev := b.writer.Running()
	if st.SafeMode != "" {
		b.say("SAFE MODE: %s", st.SafeMode)
		b.say("way out: gatehouse restore N, or gatehouse setup-code --new to start over")
	}
	if !st.Lockdown {
		b.say("verified: revision %d", rev.Number)
	}
	for _, s := range b.settings() {
		b.say("%s", s)
	}
	for _, w := range c.Warnings() {
		b.say("warning: %s", w.Text)
	}
	if code := b.setupCodeNow(); code != "" && st.SafeMode == "" {
		b.say("setup code: %s", code)
	}
	b.say("certificate fingerprint: %s", b.cert.Fingerprint())
	b.announcePages()
}

// announcePages tells the addresses, whenever there are others.
func (b *box) announcePages() {
	pages := b.pages()
	b.sayOnce.Lock()
	defer b.sayOnce.Unlock()
	if slices.Equal(pages, b.said) {
		return
	}
	b.said = pages
	for _, u := range pages {
		b.say("web page: %s", u)
	}
}

// covers makes the certificate good for the names and addresses of the moment.
func (b *box) covers() {
	if b.cert == nil {
		return
	}
	if err := b.cert.Cover(b.Names(), b.addrs()); err != nil {
		b.log.Error("issue the certificate", "err", err)
	}
}

// addrs is every address of the box that a browser could type.
func (b *box) addrs() (out []netip.Addr) {
	for _, ps := range b.link.Facts().Addrs {
		for _, p := range ps {
			if !p.Addr().IsLinkLocalUnicast() && !p.Addr().IsLoopback() {
				out = append(out, p.Addr())
			}
		}
	}
	return out
}

// listen opens the socket for the other verbs. Only root and the daemon's own
// user get past the door (SO_PEERCRED).
func (b *box) listen(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(b.socket), 0o755); err != nil {
		return fmt.Errorf("make the socket's folder: %w", err)
	}
	// The store's lock says that no other daemon runs on this state: a socket that is there is a dead one's.
	if err := os.Remove(b.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the old socket: %w", err)
	}
	l, err := net.Listen("unix", b.socket)
	if err != nil {
		return fmt.Errorf("open the socket: %w", err)
	}
	if err := os.Chmod(b.socket, 0o660); err != nil {
		return errors.Join(fmt.Errorf("protect the socket: %w", err), l.Close())
	}
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: api.New(api.Deps{
		Writer: b.writer, Accounts: b.auth, Status: b.status, Code: b.newCode, Restore: b.restore,
		Release: b.release, ShutOut: b.listShutOut})}
	b.wait.Go(func() {
		if err := srv.Serve(ownersOnly{l}); !errors.Is(err, http.ErrServerClosed) {
			b.log.Error("socket ended", "err", err)
		}
	})
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	return nil
}

// ownersOnly hands on connections of root and of the daemon's own user.
type ownersOnly struct{ net.Listener }

// Accept waits for the next connection that may in.
func (l ownersOnly) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, err := peer(c); err == nil && (uid == 0 || int(uid) == os.Getuid()) {
			return c, nil
		}
		_ = c.Close()
	}
}

func peer(c net.Conn) (uid uint32, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var inner error
	if err := raw.Control(func(fd uintptr) { cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if inner != nil {
		return 0, inner
	}
	return cred.Uid, nil
}

// Names are the host names that the pages answer to.
func (b *box) Names() []string {
	c, _ := b.writer.Running()
	return append([]string{c.System.Host, c.System.Host + "." + c.System.Domain}, c.Admin.Hosts...)
}

// Ours reports whether an address belongs to the box.
func (b *box) Ours(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(b.addrs(), a) }

// Frame is what stands around every page.
func (b *box) Frame(ctx context.Context, account string) page.Frame {
	v := b.writer.View(account)
	f := page.Frame{Host: v.Head.System.Host + "." + v.Head.System.Domain, WAN: b.wanPill(v.Head)}
	f.Bar.Safe = v.SafeMode
	if account == "" {
		return f
	}
	f.User, f.ShutOut = account, b.countShutOut()
	f.Bar.Pending, f.Bar.Draft = v.Objects, changes.Version(v)
	for _, i := range v.Items {
		if i.Misfit != "" {
			f.Bar.Misfits = append(f.Bar.Misfits, i.Sentence+": "+i.Misfit)
		}
	}
	if t := v.Trial; t != nil {
		f.Bar.Testing = page.Testing{Revision: int(t.Revision), Account: t.Account, Mine: t.Mine, Left: time.Until(t.Deadline), Auto: !t.Human}
		if t.Mine {
			f.Bar.Testing.URLs = b.newPages(page.ConnOf(ctx).Local)
		}
		f.Bar.Problems = t.Problems
	}
	if v.Undo != nil {
		f.Bar.Undo = page.Undo{Revision: int(v.Undo.Revision), Left: time.Until(v.Undo.Until)}
	}
	if len(f.Bar.Problems) == 0 {
		f.Bar.Problems = b.writer.Status().Problems
	}
	return f
}

// newPages is where the pages answer now, when this connection's address is not one of them.
func (b *box) newPages(local netip.Addr) []string {
	c, _ := b.writer.Running()
	var out []string
	for _, in := range c.Interfaces {
		if in.Role != firewall.LAN || !in.On || in.V4.Mode != firewall.Static {
			continue
		}
		if in.V4.Addr.Addr() == local {
			return nil
		}
		out = append(out, pageURL(in.V4.Addr.Addr(), c.Admin.HTTPS))
	}
	return out
}

// wanPill is the word in the header.
func (b *box) wanPill(c firewall.Config) page.Status {
	for _, p := range b.link.Status() {
		in, ok := c.Interface(p.Name)
		if !ok || in.Role != firewall.WAN || !in.On {
			continue
		}
		switch name := string(in.Name); {
		case !p.Present:
			return page.Status{Kind: page.Block, Text: name + " missing"}
		case !p.Link:
			return page.Status{Kind: page.Block, Text: name + " no cable"}
		case p.DHCP && !p.Lease.Addr.IsValid():
			return page.Status{Kind: page.Reject, Text: name + " no address"}
		default:
			return page.Status{Kind: page.Pass, Text: name + " up"}
		}
	}
	return page.Status{}
}
