package web

import (
	"fmt"
	"net/http"
	"time"

	"gatehouse/web/page"
)

const (
	heartbeat  = 20 * time.Second // a comment, so that a dead peer is noticed
	writeLimit = 10 * time.Second // for one event to a slow reader
)

// events streams the names of what happens; the page fetches again what it
// shows of it. A stream ends with its session.
func (rt *router) events(w http.ResponseWriter, r *http.Request) error {
	c := http.NewResponseController(w)
	// The server's limits are for requests that end.
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("lift read limit: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
	happened := rt.Events.Subscribe(r.Context())
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	line := ": hello\n\n"
	for {
		if err := c.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
			return nil // the connection is gone
		}
		if _, err := fmt.Fprint(w, line); err != nil || c.Flush() != nil {
			return nil
		}
		select {
		case <-r.Context().Done():
			return nil
		case e, ok := <-happened:
			if !ok {
				return nil
			}
			line = event(e.Name)
		case <-beat.C:
			line = ":\n\n"
		}
		if _, signed, err := rt.Sessions.Of(r, false); err != nil || !signed {
			return nil
		}
	}
}

// event writes one event; a name that is no plain word is left out, so that
// nothing can forge a line.
func event(name string) string {
	for _, c := range name {
		if (c < 'a' || c > 'z') && c != '-' {
			return ":\n\n"
		}
	}
	return "event: " + name + "\ndata: 1\n\n"
}

var _ page.Handler = (*router)(nil).events
