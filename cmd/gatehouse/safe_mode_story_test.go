package main

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gatehouse/firewall/netlab"
)

// leaks floods the inside from the internet, by both families, until the story
// ends. Any packet that arrives is counted on lan1 as leak.
func (s *story) leaks() {
	s.Helper()
	s.routed()
	s.watch(s.lab.LAN1, "leak", "udp dport 9999")
	var wait sync.WaitGroup
	for _, to := range []string{lan1Addr + ":9999", "[" + lan1Addr6 + "]:9999", wanAddr + ":9999"} {
		c, err := s.lab.Inet.Dial(s.ctx, "udp", netip.MustParseAddrPort(to))
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { c.Close() })
		wait.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if _, err := c.Write([]byte("flood")); errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
					return
				}
			}
		})
	}
	s.Cleanup(func() {
		wait.Wait()
	})
}

// tight wants that nothing from the internet got in or gets in, except by the forward.
func (s *story) tight(when string) {
	s.Helper()
	if n := s.count(s.lab.LAN1, "leak"); n > 0 {
		s.Errorf("%s %d packets from the internet reached lan1", when, n)
	}
	if got := s.answers(s.lab.Inet, []int{22, 80, 443}, wanAddr, netlab.BoxWAN6); len(got) > 0 {
		s.Errorf("%s the internet reaches %v", when, got)
	}
}

// safe wants everything that SAFE MODE promises, with revision n running.
func (s *story) safe(n uint64, rules string) {
	s.Helper()
	s.hear(`SAFE MODE: `)
	s.hear(`way out: gatehouse restore N`)
	st := s.status()
	if st.SafeMode == "" || st.Lockdown || st.Revision.Number != n {
		s.Fatalf("revision %d does not run in SAFE MODE: %+v", n, st)
	}
	s.until("the rules in the kernel are those of the last confirmed revision", func() bool { return same(s.rules(), rules) })
	s.tight("in SAFE MODE")
	s.open("in SAFE MODE")
	if line, err := s.reaches(s.lab.LAN2, "tcp", "", netlab.Gateway4+":7000"); err != nil {
		s.Errorf("a LAN client does not reach the internet in SAFE MODE: %q %v", line, err)
	}
	p := s.from(s.lab.LAN1, lanAddr+":443")
	if said := text(p.get("/login").body); !strings.Contains(said, "SAFE MODE") || !strings.Contains(said, "Sign in") {
		s.Errorf("the login page does not say it:\n%s", said)
	}
	if r, err := p.do("GET", "/setup/1", nil); err != nil || r.status != 410 {
		s.Errorf("the wizard is open: %d %v\n%s", r.status, err, text(r.body))
	}
	p.login(ownerName, ownerPassword)
	refusal := "SAFE MODE, nothing can be changed until a revision is restored"
	p.wants(503, refusal, "/rules/new", rule("descr", "in safe mode"))
	p.wants(503, refusal, "/setup/2", fields("wan", "eth0", "lan", "eth2"))
	if r := p.try("/apply", fields("draft", "")); r.status != 503 {
		s.Errorf("Apply in SAFE MODE: %d\n%s", r.status, text(r.body))
	}
}

// same compares two listings chain by chain: nft lists them in the order in
// which they were made, and a start makes them in another than a change does.
func same(a, b string) bool {
	parts := func(s string) []string { return slices.Sorted(slices.Values(strings.Split(s, "\n\t}\n"))) }
	return slices.Equal(parts(a), parts(b))
}

// restored takes the way out by hand and wants an ordinary box after it.
func (s *story) restored(n uint64, rules string) {
	s.Helper()
	if out, err := s.lab.Box.Run(s.ctx, product, "restore", "4711"); err == nil || !strings.Contains(out, "there is no such revision") {
		s.Errorf("restore of a revision that is not there: %v\n%s", err, out)
	}
	if said := s.verb("restore", num(n)); !strings.Contains(said, "Revision "+num(n)+" runs and is confirmed.") {
		s.Errorf("restore said %q", said)
	}
	if st := s.status(); st.SafeMode != "" || st.Lockdown {
		s.Fatalf("still in SAFE MODE: %+v", st)
	}
	s.until("the rules in the kernel are those of the revision that was restored", func() bool { return same(s.rules(), rules) })
	s.tight("after the restore")
	s.open("after the restore")
	p := s.from(s.lab.LAN1, lanAddr+":443")
	p.login(ownerName, ownerPassword)
	if said := text(p.get("/").body); strings.Contains(said, "SAFE MODE") {
		s.Error("the pages still say SAFE MODE")
	}
	p.post("/rules/new", rule("descr", "changed again"))
	p.post("/discard", fields("draft", hidden(s, p.get("/review").body, "draft")))
}

// damage gives the database another content.
func (s *story) damage(how func(b []byte) []byte) {
	s.Helper()
	path := filepath.Join(s.state, "gatehouse.db")
	b, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	if b = how(b); b == nil {
		err = os.Remove(path)
	} else {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// running is a box at home with servers inside and outside, and a flood.
func running(t *testing.T) (s *story, owner *person) {
	t.Helper()
	s, owner = athome(t, web8080())
	s.echo(s.lab.LAN1, 80)
	s.echo(s.lab.Inet, 7000)
	s.leaks()
	s.open("at first")
	s.tight("at first")
	return s, owner
}

func TestSafeModeRunsTheLastGood(t *testing.T) {
	t.Parallel()
	s, _ := running(t)
	rules := s.rules()
	for _, c := range []struct {
		name   string
		reboot bool
		how    func([]byte) []byte
	}{
		{"zero bytes", false, func([]byte) []byte { return []byte{} }},
		{"truncated", true, func(b []byte) []byte { return b[:len(b)/2] }},
		{"zeroed tail", false, func(b []byte) []byte { return append(b[:len(b)/3:len(b)/3], make([]byte, len(b)-len(b)/3)...) }},
		{"both meta pages", false, func(b []byte) []byte { return append(make([]byte, 8192), b[8192:]...) }},
		{"removed", true, func([]byte) []byte { return nil }},
	} {
		n := s.status().Revision.Number
		s.kill()
		s.damage(c.how)
		if c.reboot {
			s.pullThePlug()
		}
		s.serve()
		s.safe(n, rules)
		s.restored(n, rules)
		if t.Failed() {
			t.Fatalf("after %s", c.name)
		}
	}
}

func TestSafeModeAfterADamagedRevision(t *testing.T) { // C13
	t.Parallel()
	s, owner := running(t)
	owner.post("/rules/new", rule("descr", "MARKED13", "dst", "203.0.113.13"))
	owner.apply()
	n, rules := s.status().Revision.Number, s.rules()
	s.kill()
	s.damage(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("MARKED13"), []byte("MARKEDx3")) })
	s.serve()
	s.safe(n, rules)
	s.kill()
	s.pullThePlug()
	s.serve()
	s.safe(n, rules)
	if said := text(s.signedIn().get("/revisions").body); !strings.Contains(said, "Cannot be read") {
		t.Errorf("the revisions do not show which one is damaged:\n%s", said)
	}
	s.restored(n, rules)
	s.kill()
	s.serve()
	if st := s.status(); st.SafeMode != "" {
		t.Errorf("SAFE MODE is back after the restore: %s", st.SafeMode)
	}
}

// pullThePlug reboots the box. While the lab takes the old namespaces apart, the
// kernel drops their rules before their ports, which no machine does that loses
// its power: what passes in that moment is not counted.
func (s *story) pullThePlug() {
	s.Helper()
	was := s.count(s.lab.LAN1, "leak")
	if err := s.lab.Box.Reboot(s.ctx); err != nil {
		s.Fatal(err)
	}
	if n := s.count(s.lab.LAN1, "leak"); n > was {
		s.Logf("%d packets passed while the lab took the old box apart", n-was)
		s.runs(s.lab.LAN1, "nft", "reset", "counters", "table", "inet", "watch")
	}
}

func (s *story) signedIn() *person {
	s.Helper()
	p := s.from(s.lab.LAN1, lanAddr+":443")
	p.login(ownerName, ownerPassword)
	return p
}

// locked wants what lockdown promises: pages inside, nothing else, no wizard
// without a new code; and that the code starts over.
func (s *story) locked(page string) {
	s.Helper()
	s.hear(`SAFE MODE: `)
	if st := s.status(); !st.Lockdown || st.SafeMode == "" {
		s.Fatalf("no lockdown: %+v", st)
	}
	s.tight("in lockdown")
	p := s.from(s.lab.LAN1, page+":443")
	if r, err := p.do("GET", "/", nil); err != nil || !strings.Contains(text(r.body), "SAFE MODE") {
		s.Errorf("the page inside does not say SAFE MODE: %d %v\n%s", r.status, err, text(r.body))
	}
	if out, err := s.lab.Box.Run(s.ctx, product, "setup-code"); err == nil || !strings.Contains(out, "--new") {
		s.Errorf("setup-code in lockdown: %v\n%s", err, out)
	}
	claim := fields("code", "AAAA-AAAA", "admin", "thief", "password", "a very long password", "host", "fw1", "domain", "home.arpa", "zone", "UTC")
	if r := p.try("/setup/1", claim); r.status < 400 {
		s.Errorf("the wizard is open: %d\n%s", r.status, text(r.body))
	}
	code := strings.TrimSpace(s.verb("setup-code", "--new"))
	if st := s.status(); st.SafeMode != "" || st.Lockdown {
		s.Fatalf("starting over left SAFE MODE on: %+v", st)
	}
	claim.Set("code", code)
	claim.Set("admin", ownerName)
	if r := p.try("/setup/1", claim); r.status >= 400 || r.path != "/setup/2" {
		s.Errorf("the new code does not start over: %d %s\n%s", r.status, r.path, text(r.body))
	}
	s.tight("after starting over")
}

func TestSafeModeWithoutSnapshotsLetsNothingPass(t *testing.T) {
	t.Parallel()
	s, _ := running(t)
	for _, port := range []string{":22"} { // an sshd of the machine
		l, err := s.lab.Box.Listen(port)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	lose := func() {
		s.kill()
		s.damage(func(b []byte) []byte { return b[:12<<10] })
		if err := os.RemoveAll(filepath.Join(s.state, "snapshots")); err != nil {
			t.Fatal(err)
		}
	}
	lose()
	s.serve()
	if !s.refused(s.lab.Inet, "tcp", "", outside) {
		t.Error("the forward of a lost configuration still works")
	}
	s.locked(lanAddr)
}

func TestSafeModeWithoutSnapshotsAfterAReboot(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.seed(append(home(), web8080())...)
	s.damage(func(b []byte) []byte { return b[:12<<10] })
	if err := os.RemoveAll(filepath.Join(s.state, "snapshots")); err != nil {
		t.Fatal(err)
	}
	s.watch(s.lab.LAN1, "leak", "udp dport 9999")
	s.serve()
	s.lease(s.lab.LAN1)
	gw, err := s.lab.LAN1.Gateway()
	if err != nil {
		t.Fatal(err)
	}
	s.locked(gw.String())
}

func TestSafeModeIsNotForASecondInstance(t *testing.T) {
	t.Parallel()
	s, _ := running(t)
	rules, st := s.rules(), s.status()
	second := s.serveAlso("--socket", "/run/second.sock")
	s.refuses(second, "gatehouse is already running on "+s.state)
	pid := strings.TrimSpace(s.runs(s.lab.Box, "cat", filepath.Join(s.state, "gatehouse.db.lock")))
	if !strings.Contains(second.Output(), "(process "+pid+")") {
		t.Errorf("it does not name process %s:\n%s", pid, second.Output())
	}
	if cmd := s.runs(s.lab.Box, "cat", "/proc/"+pid+"/cmdline"); !strings.Contains(cmd, "serve\x00--state") {
		t.Errorf("process %s is no gatehouse: %q", pid, cmd)
	}
	if now := s.status(); s.rules() != rules || now.Revision.Number != st.Revision.Number || now.SafeMode != "" || now.Healed != st.Healed {
		t.Errorf("the second instance changed something: %+v", now)
	}
	s.open("beside a second instance")
	s.signedIn()
}
