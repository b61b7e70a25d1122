package page

import (
	"fmt"
	"time"
)

// Frame is what stands around the content of every page.
type Frame struct {
	Title  string // of the page: heading and browser tab
	Active string // path of the menu entry that is lit, such as "/rules"
	Host   string // full name of the box, shown in the header
	User   string // account; empty when nobody is signed in: no menu then
	WAN    Status // pill in the header; empty text for none
	Bar    Bar
	Toast  Toast
	// ShutOut is how many sources are locked out or in quarantine: the number
	// beside the menu entry of the tables.
	ShutOut int
}

// Status is a word in a coloured pill.
type Status struct {
	Kind Kind
	Text string
}

// Kind is the colour of a pill; the word in it says the same.
type Kind string

// The kinds of pill.
const (
	Plain  Kind = ""
	Pass   Kind = "pass"   // green: allowed, good
	Block  Kind = "block"  // red: blocked, broken
	Reject Kind = "reject" // amber: rejected, waiting
	Info   Kind = "info"   // violet: pending
	Off    Kind = "off"    // outlined: switched off
)

// entry is one line of the menu.
type entry struct{ group, label, path, icon string }

// menu is the one table that the side bar is made of; a new group starts where
// the group differs from the line above.
func menu() []entry {
	return []entry{
		{"", "Dashboard", "/", "layout-dashboard"},
		{"Firewall", "Rules", "/rules", "shield"},
		{"Firewall", "Forwards", "/forwards", "arrow-right-left"},
		{"Firewall", "Aliases", "/aliases", "globe"},
		{"Firewall", "Tables", "/tables", "lock"},
		{"Network", "Interfaces", "/interfaces", "ethernet-port"},
		{"Network", "DHCP", "/leases", "network"},
		{"System", "Revisions", "/revisions", "history"},
		{"System", "Setup wizard", "/setup", "wand-sparkles"},
	}
}

// group is a heading of the menu and the entries below it.
type group struct {
	name    string
	entries []entry
}

func groups() []group {
	var gs []group
	for _, e := range menu() {
		if len(gs) == 0 || gs[len(gs)-1].name != e.group {
			gs = append(gs, group{name: e.group})
		}
		last := &gs[len(gs)-1]
		last.entries = append(last.entries, e)
	}
	return gs
}

// tab is the text of the browser's tab: pending changes are counted in front.
func (f Frame) tab() string {
	title := f.Title
	if f.Host != "" {
		title += " · " + f.Host
	}
	if f.Bar.Pending > 0 {
		return fmt.Sprintf("(%d) %s", f.Bar.Pending, title)
	}
	return title
}

// Bar is the state of the configuration, shown on every page. The zero value
// shows nothing. Paths of its forms, all POST except the review:
//
//	/discard              everything of the draft
//	/review (GET)         what Apply would do
//	/apply    draft       Bar.Draft as it was shown
//	/confirm  revision token [poll=1]
//	/undo     revision token
//
// A /confirm with poll=1 comes from the script every 2 s and answers JSON
// {"state":"testing"|"confirmed"|"reverted","left":seconds}; it confirms only
// when no human is needed. On a connection that is too old it answers 409 and
// "Connection: close", and the script tries again on a new one.
type Bar struct {
	Safe     string   // SAFE MODE: why, and the way out; empty = normal
	Pending  int      // objects that the draft changes
	Draft    string   // version of the draft, sent back with Apply
	Misfits  []string // changes that do not fit the head any more: Apply is off
	Testing  Testing  // a revision that waits for its confirm
	Undo     Undo     // a revision that can still be taken back
	Problems []string // what did not work at the last apply, a sentence each
}

// Testing is a revision that runs and is not confirmed.
type Testing struct {
	Revision int    // 0 = none
	Account  string // who applied it
	Mine     bool   // the person who looks at the page applied it: may keep and undo
	Left     time.Duration
	Auto     bool     // confirms itself when this browser still gets through
	Token    string   // one-time confirm token; only when Mine
	URLs     []string // where the box answers now, when that changed: full URLs
}

// Undo is a confirmed revision that one click takes back.
type Undo struct {
	Revision int // 0 = none
	Left     time.Duration
}

// clock writes a time left as a person reads it: 0:47, 10:00.
func clock(d time.Duration) string {
	s := seconds(d)
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// seconds rounds up: "0:01" until it is over.
func seconds(d time.Duration) int {
	return int((max(d, 0) + time.Second - 1) / time.Second)
}

// Count writes a number with its noun: Count(1, "change") is "1 change",
// Count(2, "change") "2 changes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Number writes a number as a person reads it: 65,536.
func Number[T int | uint64](n T) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func fits(n int) string {
	if n == 1 {
		return "fits"
	}
	return "fit"
}
