// Package logs remembers the last packets that a rule logged. It lives in
// memory only: a flood cannot fill a disk with it.
package logs

import (
	"sync"
	"time"

	"gatehouse/firewall"
)

// Line is one logged packet. Everything in it came from the network: it is
// values, not text, and pages escape what they show.
type Line struct {
	Time   time.Time
	Action firewall.Action
	Rule   string // "rule/01J..." or "auto/default"
	Out    string // device it would have left by; "" for the box itself
	Length int    // bytes of the packet
	firewall.Packet
}

// Ring keeps the newest lines.
type Ring struct {
	mu    sync.Mutex // guards lines and next
	lines []Line
	next  int
	told  func()
}

// New makes a ring of size lines; told is called after each Add and must not block.
func New(size int, told func()) *Ring { return &Ring{lines: make([]Line, 0, size), told: told} }

// Add puts a line in place of the oldest.
func (r *Ring) Add(l Line) {
	r.mu.Lock()
	if len(r.lines) < cap(r.lines) {
		r.lines = append(r.lines, l)
	} else {
		r.lines[r.next] = l
	}
	r.next = (r.next + 1) % cap(r.lines)
	r.mu.Unlock()
	r.told()
}

// Last gives at most n lines that want holds for, newest first.
func (r *Ring) Last(n int, want func(Line) bool) []Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Line
	for i := range r.lines {
		l := r.lines[(r.next-1-i+2*cap(r.lines))%cap(r.lines)]
		if want(l) {
			if out = append(out, l); len(out) == n {
				break
			}
		}
	}
	return out
}
