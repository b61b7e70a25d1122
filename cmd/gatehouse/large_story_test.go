package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gatehouse/firewall"
)

// C18: a thousand rules, applied in the browser: all of them, once.
func TestThousandRules(t *testing.T) {
	t.Parallel()
	var many []firewall.Change
	for i := range 1000 {
		r := pass(fmt.Sprintf("R%04d", i), "WAN", fmt.Sprintf("198.18.%d.%d", i/250, i%250+1), lan1Addr)
		r.Proto, r.DstPorts = firewall.TCP, firewall.Ports{{Range: firewall.PortRange{From: uint16(1000 + i), To: uint16(1000 + i)}}}
		if i%3 == 0 {
			r.Action = firewall.Block
		}
		many = append(many, firewall.AddRule{Rule: r})
	}
	s := begin(t)
	s.seed(home()...)
	s.draft(many...)
	s.serve()
	s.settle()
	s.routed()
	owner := s.from(s.lab.LAN1, lanAddr+":443")
	owner.login(ownerName, ownerPassword)
	c := config(t, append(home(), many...)...)
	count := func(when string, c firewall.Config) {
		t.Helper()
		if listed, compiled := s.loaded(c); listed != compiled {
			t.Errorf("%s: nft lists %d rules, %d were compiled", when, listed, compiled)
		}
	}

	start := time.Now()
	form := owner.get("/review").body
	t.Logf("the review of 1,000 new rules: %v, %d KB", time.Since(start).Round(time.Millisecond), len(form)/1024)
	draft := hidden(s, form, "draft")
	start = time.Now()
	applied := owner.post("/apply", fields("draft", draft))
	t.Logf("apply of 1,000 rules, click to answer: %v", time.Since(start).Round(time.Millisecond))
	owner.keep(applied)
	count("first apply", c)

	e := s.echo(s.lab.LAN1, 1998)
	if err := s.lab.Inet.AddAddr("lo", "198.18.3.249/32", "198.18.3.248/32"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.reaches(s.lab.Inet, "tcp", "198.18.3.249:0", fmt.Sprintf("%s:%d", lan1Addr, e.Port)); err != nil {
		t.Errorf("the last but one rule does not pass: %v", err)
	}
	if !s.refused(s.lab.Inet, "tcp", "198.18.3.248:0", fmt.Sprintf("%s:%d", lan1Addr, e.Port)) {
		t.Error("a source of another rule passes")
	}

	start = time.Now()
	owner.get("/rules?tab=WAN")
	t.Logf("the page of 1,000 rules: %v", time.Since(start).Round(time.Millisecond))
	start = time.Now()
	owner.click("toggle", "WAN", "R0500")
	t.Logf("switching one of them off, applied and kept: %v", time.Since(start).Round(time.Millisecond))
	off := many[500].(firewall.AddRule).Rule
	off.On = false
	count("second apply", config(t, append(append(home(), many...), firewall.UpdateRule{Rule: off})...))
	owner.click("toggle", "WAN", "R0500")
	count("third apply", c)
	out, err := s.lab.Box.Run(s.ctx, product, "restore", fmt.Sprint(s.status().Revision.Number))
	if err == nil || !strings.Contains(err.Error(), "nothing to apply") {
		t.Errorf("restoring what runs already: %q %v", out, err)
	}
	count("the same again", c)
}
