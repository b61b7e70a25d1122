package changes

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gatehouse/firewall"
	"gatehouse/services/commit"
	"gatehouse/web/page"
)

// review is the page before an apply.
type review struct {
	Frame   page.Frame
	Account string
	Addr    netip.Addr
	View    commit.View
	Version string
	Plan    commit.Plan
	Err     error // of the plan: why there is none
	Failed  error // of an apply that came to nothing
	First   bool  // nothing is set up yet: this is step 5 of the wizard
}

// object is the changes of one object: they are discarded together.
type object struct {
	Ref       firewall.Ref
	Sentences []string
	Misfit    string
	Words     []commit.Word
	When      time.Time
	Door      string
}

// objects groups the saved changes, in the order of their first one.
func (s review) objects() (list []object) {
	for _, it := range s.View.Items {
		i := slices.IndexFunc(list, func(o object) bool { return o.Ref == it.Ref })
		if i < 0 {
			list = append(list, object{Ref: it.Ref})
			i = len(list) - 1
		}
		o := &list[i]
		if !slices.Contains(o.Sentences, it.Sentence) {
			o.Sentences = append(o.Sentences, it.Sentence)
		}
		if o.Misfit == "" {
			o.Misfit = it.Misfit
		}
		o.When, o.Door = it.Time, it.Door
	}
	for i := range list {
		for _, w := range s.Plan.Words {
			if w.Ref == list[i].Ref && !list[i].says(w) {
				list[i].Words = append(list[i].Words, w)
			}
		}
	}
	return list
}

// says reports whether the change's own sentence tells all that a word does.
func (o object) says(w commit.Word) bool {
	return slices.ContainsFunc(o.Sentences, func(t string) bool {
		return strings.Contains(strings.ToLower(t), strings.ToLower(w.Text))
	})
}

// also is what changes with the draft and is no change of its own: the rule of
// a forward, say.
func (s review) also() (list []commit.Word) {
	for _, w := range s.Plan.Words {
		if !slices.ContainsFunc(s.View.Items, func(i commit.Item) bool { return i.Ref == w.Ref || i.Ref.Kind == "all" }) {
			list = append(list, w)
		}
	}
	return list
}

// problems is what makes the draft invalid, from the plan or the view.
func (s review) problems() []string {
	var ps firewall.Problems
	for _, err := range []error{s.Err, s.Failed} {
		if e, ok := err.(firewall.Problems); ok && len(ps) == 0 {
			ps = e
		}
	}
	if len(ps) == 0 {
		ps = s.View.Problems
	}
	var out []string
	for _, p := range ps {
		ref, _, _ := strings.Cut(p.Field, ".")
		out = append(out, p.Text+" ("+s.name(ref)+")")
	}
	return out
}

// name is how a person knows the object of a Ref in text.
func (s review) name(ref string) string {
	kind, key, _ := strings.Cut(ref, "/")
	for _, c := range []firewall.Config{s.View.Config, s.View.Head} {
		if r, ok := c.Rule(firewall.ID(key)); kind == "rule" && ok {
			return "rule “" + cmp.Or(r.Descr, r.String()) + "”"
		}
		if f, ok := c.Forward(firewall.ID(key)); kind == "forward" && ok {
			return "forward “" + cmp.Or(f.Descr, f.String()) + "”"
		}
	}
	return strings.TrimSpace(kind + " " + key)
}

// sentence is what an error of the plan or the apply means to the person;
// empty when another part of the page says it.
func (s review) sentence() string {
	for _, err := range []error{s.Failed, s.Plan.Refused, s.Err} {
		if err == nil {
			continue
		}
		if e, ok := err.(*commit.RefusedError); ok {
			what := "The kernel refuses this draft"
			if e.Origin != "" {
				what = "The kernel refuses " + s.name(e.Origin)
			}
			return what + ": " + e.Err.Error() + ". What runs has not changed."
		}
		if e, ok := err.(*commit.TestingError); ok {
			return upper(e.Error()) + ". You can go on editing; Apply has to wait."
		}
		if e, ok := err.(*commit.SafeModeError); ok {
			return e.Error() + "."
		}
	}
	return ""
}

// ready reports whether there is something that can be applied.
func (s review) ready() bool {
	return len(s.View.Items) > 0 && s.Err == nil && s.Plan.Refused == nil && s.View.Fits && len(s.View.Problems) == 0
}

// link is where an object is edited; empty for one that has no page or is gone.
func (s review) link(r firewall.Ref) string {
	switch r.Kind {
	case "rule":
		if _, ok := s.View.Config.Rule(firewall.ID(r.Key)); ok {
			return "/rules/" + r.Key
		}
	case "forward":
		if _, ok := s.View.Config.Forward(firewall.ID(r.Key)); ok {
			return "/forwards/" + r.Key
		}
	case "alias":
		if _, ok := s.View.Config.Alias(firewall.Name(r.Key)); ok {
			return "/aliases/" + r.Key
		}
	}
	return ""
}

func door(d string) string {
	return cmp.Or(map[string]string{"web": "web page", "cli": "command line", "console": "console", "api": "API"}[d], d)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// clock writes a time left: 0:47, 3:00.
func clock(d time.Duration) string {
	n := seconds(d)
	return fmt.Sprintf("%d:%02d", n/60, n%60)
}

func seconds(d time.Duration) int { return int((max(d, 0) + time.Second - 1) / time.Second) }

// result is the page after an apply.
type result struct {
	Frame    page.Frame
	Revision uint64
	Token    string
	Left     time.Duration
	Human    bool
	Extends  int
	Why      []string // what makes a click necessary
	URLs     []string // where the box answers now, when that changed
	Problems []string
	Over     bool   // nothing waits any more
	Draft    int    // changes in the draft now
	Reason   string // why they came back
	Other    string // somebody else is testing
	First    bool   // the box was as delivered before: this is step 6 of the wizard
}

// question is the page at a new address, and the answers to it.
type question struct {
	Frame    page.Frame
	Token    string
	Revision uint64
	Left     time.Duration
	Waits    bool
	Again    bool // the connection proved nothing
	Kept     bool
	Back     bool
}

func (q question) revision() string {
	if q.Revision == 0 {
		return ""
	}
	return fmt.Sprint(q.Revision)
}

// moved is the addresses of the pages that are new in c, when the one that a
// person's connection came to is not among those that stay.
func moved(old, c firewall.Config, local netip.Addr) (list []string) {
	if stays(c, local) {
		return nil
	}
	was := urls(old)
	for _, u := range urls(c) {
		if !slices.Contains(was, u) {
			list = append(list, u)
		}
	}
	return list
}

// elsewhere is where the pages answer when that is not where a connection came
// to: the test moved them, and the old address stays for a while.
func elsewhere(c firewall.Config, local netip.Addr) []string {
	if !local.IsValid() || stays(c, local) {
		return nil
	}
	return urls(c)
}

// stays reports whether a configuration keeps an address of the box. One that
// a provider gives cannot be told from it, so it is taken to stay.
func stays(c firewall.Config, local netip.Addr) bool {
	return local.IsLoopback() || slices.ContainsFunc(c.Interfaces, func(in firewall.Interface) bool {
		mine := in.V4.Addr.Addr() == local || in.V6.Addr.Addr() == local
		return in.On && local.IsValid() && (mine || in.V4.Mode == firewall.DHCP && in.Role != firewall.WAN)
	})
}

// link is where an address is opened: with the token it needs no sign-in.
func (s result) link(u string) string {
	if s.Token == "" {
		return u
	}
	return u + "/confirm#c=" + s.Token
}

// urls is where the pages answer: the fixed addresses of the LANs.
func urls(c firewall.Config) (list []string) {
	add := func(a netip.Addr) {
		host := a.String()
		if a.Is6() {
			host = "[" + host + "]"
		}
		if c.Admin.HTTPS != 443 {
			host = net.JoinHostPort(a.String(), fmt.Sprint(c.Admin.HTTPS))
		}
		list = append(list, "https://"+host)
	}
	for _, in := range c.Interfaces {
		if in.Role != firewall.LAN || !in.On {
			continue
		}
		if in.V4.Mode == firewall.Static && in.V4.Addr.IsValid() {
			add(in.V4.Addr.Addr())
		}
		if in.V6.Mode == firewall.Static && in.V6.Addr.IsValid() {
			add(in.V6.Addr.Addr())
		}
	}
	return list
}

func (s review) reached() string {
	if !s.Addr.IsValid() {
		return "You keep reaching these pages."
	}
	return "You keep reaching these pages from your address " + s.Addr.String() + "."
}

func (s review) shutOut() string {
	if !s.Addr.IsValid() {
		return "This would shut you out."
	}
	return "This would shut you out: your address is " + s.Addr.String() + "."
}
