package store

import "fmt"

// ErrFull says that the disk has no room. What was there stays readable, and
// writing works again as soon as there is room.
var ErrFull error = full{}

type full struct{}

func (full) Error() string { return "the disk is full" }

// Full lets those ask who do not know this package.
func (full) Full() bool { return true }

// ErrDamaged says that something that was kept cannot be read as it was written.
type ErrDamaged struct {
	What string // a path, or bucket/key
	Why  string
}

// Error names what is damaged and how that was noticed.
func (e *ErrDamaged) Error() string { return fmt.Sprintf("%s is damaged: %s", e.What, e.Why) }

// ErrLocked says that another process has the database open.
type ErrLocked struct {
	Path string
	PID  int // 0 when it did not say
}

// Error names the process that holds it.
func (e *ErrLocked) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is in use by another process", e.Path)
	}
	return fmt.Sprintf("%s is in use by process %d", e.Path, e.PID)
}
