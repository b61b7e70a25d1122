package main

import (
	"strings"
	"testing"
)

func TestWizardLeadsToTheInternet(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.setup()
	s.lease(s.lab.LAN2)
	out, err := s.lab.LAN2.Run(s.ctx, "curl", "-sS", "--max-time", "60", "http://www.example.test/")
	if err != nil || !strings.Contains(out, "This is the internet") {
		t.Fatalf("a LAN client could not load a page from the internet: %v\n%s", err, out)
	}
}
