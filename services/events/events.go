// Package events tells whoever listens in this process what has happened. It
// is a hint to look again, never the only copy of a fact: a listener that is
// too slow loses the oldest events.
package events

import (
	"context"
	"sync"
	"time"
)

// depth is how many events wait for one subscriber.
const depth = 64

// Event is one thing that has happened and lasts: it is published after the
// disk and the kernel have it.
type Event struct {
	Name    string    `json:"name"`              // what changed, as pages name it: "revision", "lease", "bar"
	Time    time.Time `json:"time"`              // when
	Ref     string    `json:"ref,omitempty"`     // which object: "rule/01J...", "revision/12"
	Account string    `json:"account,omitempty"` // whose doing, or whose page alone it is about
	Text    string    `json:"text,omitempty"`    // a sentence for a toast
}

// Bus carries events from publishers to subscribers.
type Bus struct {
	mu   sync.Mutex // guards subs and the order of events
	subs map[chan Event]bool
}

// NewBus is a bus that nobody listens to yet.
func NewBus() *Bus { return &Bus{subs: map[chan Event]bool{}} }

// Publish hands e to every subscriber and never waits: where 64 events wait
// already, the oldest is dropped.
func (b *Bus) Publish(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for sub := range b.subs {
		for sent := false; !sent; {
			select {
			case sub <- e:
				sent = true
			default:
				select { // the subscriber may have made room in between
				case <-sub:
				default:
				}
			}
		}
	}
}

// Subscribe gives the events from now on, in order, until ctx ends; then the
// channel is closed.
func (b *Bus) Subscribe(ctx context.Context) <-chan Event {
	sub := make(chan Event, depth)
	b.mu.Lock()
	b.subs[sub] = true
	b.mu.Unlock()
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, sub)
		close(sub)
	})
	return sub
}
