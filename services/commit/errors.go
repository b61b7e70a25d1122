package commit

import (
	"errors"
	"fmt"
	"time"

	"gatehouse/firewall"
)

// Errors that say why there is nothing to do. They are 409 on the web.
var (
	ErrNothing    = errors.New("there is nothing to apply")
	ErrNoTrial    = errors.New("no revision waits for a confirm")
	ErrNoUndo     = errors.New("there is nothing to take back any more")
	ErrConnection = errors.New("a confirm counts only on a connection opened at least 2 seconds after the apply")
	ErrTooLate    = errors.New("the time to confirm is over; the revision before it comes back")
	ErrExtended   = errors.New("the time was extended three times already")
	ErrReviewed   = errors.New("the draft or what runs has changed since it was reviewed")
	ErrNoRevision = errors.New("there is no such revision any more")
)

// StaleError says that an object is not as the person saw it (409). Both
// versions are in it: the object Ref of Yours and of Theirs.
type StaleError struct {
	Ref    firewall.Ref
	Yours  firewall.Config
	Theirs firewall.Config
	Why    string // a sentence
}

// Error names the object.
func (e *StaleError) Error() string { return fmt.Sprintf("%s: %s", e.Ref, e.Why) }

// TestingError says that somebody else's revision waits for its confirm (409).
type TestingError struct {
	Account  string
	Revision uint64
	Left     time.Duration
}

// Error says who and how long.
func (e *TestingError) Error() string {
	left := e.Left.Round(time.Second)
	return fmt.Sprintf("%s is testing revision %d, %d:%02d left", e.Account, e.Revision, int(left.Minutes()), int(left.Seconds())%60)
}

// NeededError says that a later change needs the one to be discarded (409).
type NeededError struct {
	Ref firewall.Ref // what was to be discarded
	By  string       // the later change, as a sentence
	Why string
}

// Error names the change that needs it.
func (e *NeededError) Error() string {
	return fmt.Sprintf("%s is needed by a later change: %s (%s)", e.Ref, e.By, e.Why)
}

// RefusedError says that the kernel would not take, or did not take, the candidate (422).
type RefusedError struct {
	Origin string // the object, as Ref.String writes it; "" when the kernel did not say
	Err    error
}

// Error names the object.
func (e *RefusedError) Error() string {
	if e.Origin == "" {
		return fmt.Sprintf("the kernel refused it: %v", e.Err)
	}
	return fmt.Sprintf("the kernel refused %s: %v", e.Origin, e.Err)
}

// Unwrap is what the kernel said.
func (e *RefusedError) Unwrap() error { return e.Err }

// SafeModeError says that nothing can be changed now (503).
type SafeModeError struct{ Reason string }

// Error says why.
func (e *SafeModeError) Error() string {
	return "SAFE MODE, nothing can be changed until a revision is restored: " + e.Reason
}
