package main

import (
	"path/filepath"
	"strings"
	"testing"

	"gatehouse/firewall"
)

func TestSafeModeIsNotForAFullDisk(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.seed(append(home(), web8080(), firewall.AddRule{Rule: pass("OLD", "LAN", "any", "203.0.113.1")})...)
	small := filepath.Join(s.lab.Box.Dir, "small")
	s.runs(s.lab.Box, "mkdir", small)
	s.runs(s.lab.Box, "mount", "-t", "tmpfs", "-o", "size=3M,mode=700", "tmpfs", small)
	s.runs(s.lab.Box, "cp", "-a", s.state+"/.", small)
	s.state = small
	s.serve()
	s.settle()
	s.echo(s.lab.LAN1, 80)
	if err := s.lab.Guest.SetUp("eth0", true); err != nil {
		t.Fatal(err)
	}
	guest, err := s.lab.Guest.Udhcpc(s.ctx, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Await(s.ctx, "bound"); err != nil {
		t.Fatal(err)
	}
	owner := s.signedIn()
	running := s.talk(s.lab.Inet, outside)
	rules, n := s.rules(), s.status().Revision.Number

	if _, err := s.lab.Box.Run(s.ctx, "dd", "if=/dev/zero", "of="+filepath.Join(small, "fill"), "bs=4096"); err == nil {
		t.Fatal("the disk did not fill")
	}
	var refusal reply
	saved := 0
	for refusal.status < 400 { // there is room inside the file for a while
		if saved++; saved > 500 {
			t.Fatal("500 rules were saved on a full disk")
		}
		refusal = owner.try("/rules/new", rule("descr", strings.Repeat("full ", 30)+num(uint64(saved)), "dst", "203.0.113.1"))
	}
	t.Logf("refused after %d: %d %s", saved-1, refusal.status, text(refusal.body))
	if refusal.status != 507 || !strings.Contains(text(refusal.body), "disk is full") || !strings.Contains(text(refusal.body), "Nothing was changed") {
		t.Errorf("a Save on a full disk: %d\n%s", refusal.status, text(refusal.body))
	}
	review := owner.get("/review").body
	if r := owner.try("/apply", fields("draft", hidden(s, review, "draft"))); r.status != 507 || !strings.Contains(text(r.body), "disk is full") {
		t.Errorf("an Apply on a full disk: %d\n%s", r.status, text(r.body))
	}
	if st := s.status(); st.SafeMode != "" || st.Revision.Number != n || st.Trial != nil || s.rules() != rules {
		t.Errorf("something changed: %+v", st)
	}
	running.ping("on a full disk")
	s.open("on a full disk")
	for range 10 {
		s.signedIn().get("/")
	}
	for range 5 {
		if err := guest.Renew(); err != nil {
			t.Fatal(err)
		}
		if _, err := guest.Await(s.ctx, "renew"); err != nil {
			t.Fatalf("no renewal on a full disk: %v", err)
		}
	}

	s.kill()
	s.serve() // also a start needs no room
	if st := s.status(); st.SafeMode != "" || st.Revision.Number != n || !same(s.rules(), rules) {
		t.Errorf("a start on a full disk: %+v", st)
	}
	running.ping("after a start on a full disk")
	owner = s.signedIn()

	s.runs(s.lab.Box, "rm", filepath.Join(small, "fill"))
	owner.post("/rules/new", rule("descr", "after the space", "dst", "203.0.113.1"))
	owner.apply()
	if st := s.status(); st.Revision.Number <= n || st.Trial != nil {
		t.Errorf("it does not work again: %+v", st)
	}
	s.kill()
	s.serve()
	if st := s.status(); st.SafeMode != "" || st.Revision.State != "confirmed" {
		t.Errorf("after a restart: %+v", st)
	}
	running.ping("after all of it")
}
