package commit

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"gatehouse/firewall"
)

// State is where a revision is in its life.
type State string

// The states. A pending revision runs and is not what the box boots.
const (
	Pending   State = "pending"
	Confirmed State = "confirmed"
	Reverted  State = "reverted"
)

// Revision is what the list of revisions shows.
type Revision struct {
	Number   uint64    `json:"number"`
	Time     time.Time `json:"time"`
	Who      Who       `json:"who"`
	Sentence string    `json:"sentence"` // what was changed
	State    State     `json:"state"`
	Auto     bool      `json:"auto,omitempty"`    // confirmed without a click
	Reason   string    `json:"reason,omitempty"`  // why it was reverted
	Deadline time.Time `json:"deadline,omitzero"` // of the confirm, as set at the apply
	Added    int       `json:"added"`             // lines of the compiled ruleset
	Removed  int       `json:"removed"`           // lines of the compiled ruleset
	Target   uint64    `json:"target"`            // the confirmed revision that a revert brings back
	Stack    []uint64  `json:"stack,omitempty"`   // unconfirmed revisions that it was put on, and that its confirm covers
	Damaged  string    `json:"damaged,omitempty"` // why the record cannot be read
}

// Record is a revision as it is kept.
type Record struct {
	Revision
	Changes []Entry `json:"changes"` // what a revert makes the draft again
	Doc     []byte  `json:"doc"`     // the whole configuration, compressed
}

// Draft is the changes that an account has saved and not applied.
type Draft struct {
	Changes []Entry `json:"changes"`
	Reason  string  `json:"reason,omitempty"` // why changes came back: shown in the bar
}

// Entry is one saved change.
type Entry struct {
	ID   firewall.ID `json:"id"`
	Time time.Time   `json:"time"`
	Door string      `json:"door"`
	Base string      `json:"base"` // hash of the object in what ran when it was saved
	// Also is the same for other objects that the change removes with its own.
	Also   map[string]string `json:"also,omitempty"`
	Change firewall.Change   `json:"-"`
}

type entryJSON struct {
	plainEntry
	Change json.RawMessage `json:"change"`
}

type plainEntry Entry

// MarshalJSON writes the change with its kind.
func (e Entry) MarshalJSON() ([]byte, error) {
	c, err := firewall.EncodeChange(e.Change)
	if err != nil {
		return nil, err
	}
	return json.Marshal(entryJSON{plainEntry(e), c})
}

// UnmarshalJSON reads what MarshalJSON wrote; an unknown change is an error.
func (e *Entry) UnmarshalJSON(b []byte) error {
	var j entryJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	c, err := firewall.DecodeChange(j.Change)
	if err != nil {
		return err
	}
	*e = Entry(j.plainEntry)
	e.Change = c
	return nil
}

// pack compresses a configuration.
func pack(c firewall.Config) ([]byte, error) {
	doc, err := firewall.Encode(c)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(doc); err != nil {
		return nil, fmt.Errorf("compress configuration: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress configuration: %w", err)
	}
	return b.Bytes(), nil
}

// unpack reads what pack wrote and insists that it is valid: what does not
// validate must never reach the compiler.
func unpack(b []byte) (firewall.Config, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return firewall.Config{}, fmt.Errorf("expand configuration: %w", err)
	}
	doc, err := io.ReadAll(io.LimitReader(z, maxDoc+1))
	if err != nil {
		return firewall.Config{}, fmt.Errorf("expand configuration: %w", err)
	}
	if len(doc) > maxDoc {
		return firewall.Config{}, errors.New("expand configuration: it is too large")
	}
	c, err := firewall.Decode(doc)
	if err != nil {
		return firewall.Config{}, err
	}
	return c, c.Validate().Or()
}

const maxDoc = 16 << 20 // bytes: what firewall.Decode takes

// Snapshot is what a snapshot file holds.
type Snapshot struct {
	Revision Revision `json:"revision"`
	Doc      []byte   `json:"doc"`
	Extra    []byte   `json:"extra"` // of Deps.Extra: the accounts
}

// ReadSnapshot reads a snapshot and its configuration.
func ReadSnapshot(b []byte) (Snapshot, firewall.Config, error) {
	var s Snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return s, firewall.Config{}, fmt.Errorf("read snapshot: %w", err)
	}
	c, err := unpack(s.Doc)
	return s, c, err
}
