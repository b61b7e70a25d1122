package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"gatehouse/firewall"
	"gatehouse/firewall/netlab"
)

func num(n uint64) string { return strconv.FormatUint(n, 10) }

const (
	secondName     = "berta"
	secondPassword = "nine brown otters swim"
)

// second adds another administrator at the console and signs her in from lan2.
func (s *story) second() *person {
	s.Helper()
	p, err := s.lab.Box.StartSpec(s.ctx, netlab.Spec{Name: product, Args: []string{"admin", "add", secondName}, Stdin: strings.NewReader(secondPassword + "\n")})
	if err != nil {
		s.Fatal(err)
	}
	if err := p.Wait(); err != nil || !strings.Contains(p.Output(), "Administrator "+secondName+" was added.") {
		s.Fatalf("admin add: %v\n%s", err, p.Output())
	}
	b := s.from(s.lab.LAN2, lanAddr+":443")
	b.login(secondName, secondPassword)
	return b
}

// rulesOf is the ids of a list in the confirmed configuration, those that are off with a minus.
func (s *story) rulesOf(in firewall.Name) (ids []string) {
	s.Helper()
	for _, r := range s.confirmed().Rules {
		if r.In == in {
			ids = append(ids, map[bool]string{false: "-"}[r.On]+string(r.ID))
		}
	}
	return ids
}

// edited is the form of a rule as its editor shows it, with another description.
func (p *person) edited(id, descr, dst string) (path string, form map[string][]string) {
	p.s.Helper()
	path = "/rules/" + id
	return path, rule("descr", descr, "dst", dst, "proto", "any", "hash", hidden(p.s, p.get(path).body, "hash"))
}

func TestTwoAdminsLoseNothing(t *testing.T) {
	t.Parallel()
	s, a := athome(t, firewall.AddRule{Rule: pass("ONE", "LAN", "any", "203.0.113.1")}, firewall.AddRule{Rule: pass("TWO", "LAN", "any", "203.0.113.2")})
	b := s.second()

	// Different rules: both are kept.
	path, form := a.edited("ONE", "one by admin", "203.0.113.11")
	a.post(path, form)
	path, form = b.edited("TWO", "two by berta", "203.0.113.12")
	b.post(path, form)
	a.apply()
	b.apply()
	descr := map[firewall.ID]string{}
	for _, r := range s.confirmed().Rules {
		descr[r.ID] = r.Descr + " " + r.Dst.String()
	}
	if descr["ONE"] != "one by admin 203.0.113.11" || descr["TWO"] != "two by berta 203.0.113.12" {
		t.Errorf("one of two changes was lost: %v", descr)
	}

	// The same rule, from a page that is old: both versions are shown, nothing is saved.
	_, old := b.edited("ONE", "what berta wants", "203.0.113.22")
	path, form = a.edited("ONE", "what admin wants", "203.0.113.21")
	a.post(path, form)
	a.apply()
	r := b.try(path, old)
	for _, words := range []string{"what berta wants", "what admin wants", "203.0.113.22", "203.0.113.21", "was changed by someone else"} {
		if r.status != 409 || !strings.Contains(text(r.body)+r.body, words) {
			t.Errorf("%d, want 409 and %q:\n%s", r.status, words, text(r.body))
		}
	}
	if said := text(b.get("/review").body); strings.Contains(said, "pending change") {
		t.Errorf("the refused edit is in the draft:\n%s", said)
	}

	// The same rule in two drafts: the second Apply is refused with both versions.
	path, form = b.edited("TWO", "again berta", "203.0.113.32")
	b.post(path, form)
	review := b.get("/review").body
	path, form = a.edited("TWO", "again admin", "203.0.113.31")
	a.post(path, form)
	a.apply()
	r = b.try("/apply", fields("draft", hidden(s, review, "draft")))
	if r.status != 409 {
		t.Errorf("an Apply over somebody else's change: %d\n%s", r.status, text(r.body))
	}
	r, err := b.do("GET", "/review", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"again berta", "again admin", "somebody else has changed it meanwhile"} {
		if !strings.Contains(text(r.body), words) {
			t.Errorf("the review does not say %q:\n%s", words, text(r.body))
		}
	}
	for _, r := range s.confirmed().Rules {
		if r.ID == "TWO" && r.Descr != "again admin" {
			t.Errorf("what runs is %q", r.Descr)
		}
	}
}

func TestTwoAdminsRowsAreNotPositions(t *testing.T) { // C09
	t.Parallel()
	var five []firewall.Change
	for _, id := range []string{"R1", "R2", "R3", "R4", "R5"} {
		five = append(five, firewall.AddRule{Rule: pass(id, "GUEST", "any", "203.0.113."+id[1:])})
	}
	s, a := athome(t, five...)
	b := s.second()
	list := func(p *person, menu string) reply { return p.get("/rules?tab=GUEST&menu=" + menu) }
	four, fifth := list(b, "R4"), list(b, "R5") // pages that stay open
	toggle, up := b.op(four, "toggle", "R4"), b.op(fifth, "up", "R5")

	a.post("/rules", fields("op", a.op(list(a, "R2"), "delete", "R2"), "tab", "GUEST"))
	a.apply()
	if got := s.rulesOf("GUEST"); !slices.Equal(got, []string{"R1", "R3", "R4", "R5"}) {
		t.Fatalf("after the delete: %v", got)
	}
	b.post("/rules", fields("op", toggle, "tab", "GUEST"))
	b.post("/rules", fields("op", up, "tab", "GUEST"))
	b.apply()
	if got := s.rulesOf("GUEST"); !slices.Equal(got, []string{"R1", "R3", "R5", "-R4"}) {
		t.Errorf("the old page acted on other rows than it showed: %v", got)
	}

	// A neighbour that is gone: refused, nothing moves.
	up3 := b.op(list(b, "R3"), "up", "R3") // past R1
	a.post("/rules", fields("op", a.op(list(a, "R1"), "delete", "R1"), "tab", "GUEST"))
	a.apply()
	b.wants(409, "the list is not as this page showed it any more", "/rules", fields("op", up3, "tab", "GUEST"))
	// A rule that is gone: told, and no other is touched.
	gone := a.op(list(a, "R5"), "toggle", "R5")
	b.post("/rules", fields("op", b.op(list(b, "R5"), "delete", "R5"), "tab", "GUEST"))
	b.apply()
	a.wants(404, "This rule is not there (any more)", "/rules", fields("op", gone, "tab", "GUEST"))
	if got := s.rulesOf("GUEST"); !slices.Equal(got, []string{"R3", "-R4"}) {
		t.Errorf("at the end: %v", got)
	}
}

func TestTwoAdminsOneTestsAtATime(t *testing.T) {
	t.Parallel()
	s, a := athome(t)
	b := s.second()
	a.post("/rules/new", rule("descr", "by admin", "dst", "203.0.113.1"))
	b.post("/rules/new", rule("descr", "by berta", "dst", "203.0.113.2"))
	bReview := b.get("/review").body
	testing := a.post("/apply", fields("draft", hidden(s, a.get("/review").body, "draft")))
	n := hidden(s, testing.body, "revision")
	words := ownerName + " is testing revision " + n
	if r := b.try("/apply", fields("draft", hidden(s, bReview, "draft"))); r.status != 409 {
		t.Errorf("an Apply during somebody's test: %d\n%s", r.status, text(r.body))
	}
	fresh, err := b.do("GET", "/review", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text(fresh.body), words) {
		t.Errorf("the review does not say %q:\n%s", words, text(fresh.body))
	}
	b.wants(409, words, "/rules/new", rule("descr", "berta at once", "dst", "203.0.113.3", "then", "apply"))
	b.post("/rules/new", rule("descr", "berta goes on", "dst", "203.0.113.4")) // editing goes on
	b.wants(409, words, "/confirm", fields("revision", n, "token", "AAAAAAAAAAAAAAAAAAAAAAAAAA"))
	b.wants(409, words, "/undo", fields("revision", n, "token", "AAAAAAAAAAAAAAAAAAAAAAAAAA"))
	if st := s.status(); st.Trial == nil || num(st.Trial.Revision) != n {
		t.Fatalf("the test was disturbed: %+v", st.Trial)
	}
	a.keep(testing)
	b.apply()
	var got []string
	for _, r := range s.confirmed().Rules {
		if strings.HasPrefix(r.Descr, "b") {
			got = append(got, r.Descr)
		}
	}
	if want := []string{"by admin", "by berta", "berta at once", "berta goes on"}; !slices.Equal(got, want) {
		t.Errorf("rules %q, want %q", got, want)
	}
}

func TestTwoAdminsGuessingShutsOutOneSource(t *testing.T) {
	t.Parallel()
	s, _ := athome(t)
	guesser := s.from(s.lab.LAN1, lanAddr+":443")
	try := func(p *person, password string) reply {
		return p.try("/login", fields("name", ownerName, "password", password, "next", "/"))
	}
	for i := range 10 {
		if r := try(guesser, "wrong guess number "+strconv.Itoa(i)); r.status != 422 {
			t.Fatalf("guess %d: %d\n%s", i, r.status, text(r.body))
		}
	}
	for _, password := range []string{"wrong guess number 11", ownerPassword} {
		if r := try(guesser, password); r.status != 429 || !strings.Contains(text(r.body), "oo many") {
			t.Errorf("after ten wrong ones: %d, want 429\n%s", r.status, text(r.body))
		}
	}
	other := s.from(s.lab.LAN2, lanAddr+":443")
	other.login(ownerName, ownerPassword)
	if !strings.Contains(text(other.get("/").body), ownerName) {
		t.Error("the other host did not get in")
	}
}
