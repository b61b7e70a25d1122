package page

import (
	"fmt"
	"strings"
)

// NotFound is the error for a thing that is not there: 404.
type NotFound struct{ What string } // "This rule", starts the sentence

func (e NotFound) Error() string { return e.What + " is not there (any more)." }

// Refused is an error whose text a person may read, with its status: 409 for
// "A is testing revision 7, 0:47 left", 429 and so on.
type Refused struct {
	Status int
	Title  string
	Text   string
}

func (e Refused) Error() string { return e.Text }

// UnknownField is the error for form fields that the page did not ask for: 400.
type UnknownField struct{ Names []string }

func (e UnknownField) Error() string {
	return fmt.Sprintf("The form holds a field that this page does not know: %s.", strings.Join(e.Names, ", "))
}

// BadForm is the error for a body that is no form: 400.
type BadForm struct{ Err error }

func (e BadForm) Error() string { return "The form could not be read." }
func (e BadForm) Unwrap() error { return e.Err }

// Stale is one field of a thing that someone else changed since the form was
// shown: both values as a person reads them.
type Stale struct{ Field, Theirs, Yours string }

// StaleError is the error for such a form: 409, both versions side by side.
type StaleError struct {
	What   string  // "Rule “web”", starts the sentence
	Fields []Stale // only those that differ, or all
	Back   string  // path of the form as it is now
}

func (e StaleError) Error() string { return e.What + " was changed by someone else in the meantime." }
