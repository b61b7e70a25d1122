package draft

import (
	"errors"
	"strings"

	"gatehouse/web/page"
)

// Op is what a button of a list asks for: verb:key, verb:key:hash, or
// verb:key:hash:past for a move.
type Op struct {
	Verb string
	Key  string // of the object
	Hash string // of the object as the list showed it
	Past string // key of the neighbour to go past: a position is never in it (C09)
}

// ReadOp reads the field op. Errors: page.BadForm.
func ReadOp(f *page.Form) (Op, error) {
	s := f.Get("op")
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 4 || parts[1] == "" {
		return Op{}, page.BadForm{Err: errors.New("op " + s)}
	}
	parts = append(parts, "", "")
	return Op{parts[0], parts[1], parts[2], parts[3]}, nil
}

// Unknown is the error for a verb that the page does not know.
func (o Op) Unknown() error { return page.BadForm{Err: errors.New("op " + o.Verb)} }
