package draft

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"gatehouse/web/page"
)

// Op is what a button of a list asks for: verb:key, verb:key:hash, or
// verb:key:hash:past for a move.
type Op struct {
	Verb string
	Key  string     // of the object
	Hash string     // of the object as the list showed it
	Past string     // key of the neighbour to go past: a position is never in it (C09)
	Also url.Values // the other fields that the page asked for: what the list shows
}

// ReadOp reads the POST of a button: the field op, and those of also.
// Errors: page.BadForm, page.UnknownField and the others of page.ReadForm.
func ReadOp(r *http.Request, also ...string) (Op, error) {
	f, err := page.ReadForm(r)
	if err != nil {
		return Op{}, err
	}
	s := f.Get("op")
	parts := strings.Split(s, ":")
	if len(parts) < 2 || len(parts) > 4 || parts[1] == "" {
		return Op{}, page.BadForm{Err: errors.New("op " + s)}
	}
	parts = append(parts, "", "")
	o := Op{parts[0], parts[1], parts[2], parts[3], url.Values{}}
	for _, name := range also {
		o.Also.Set(name, f.Get(name))
	}
	return o, f.Done()
}

// Unknown is the error for a verb that the page does not know.
func (o Op) Unknown() error { return page.BadForm{Err: errors.New("op " + o.Verb)} }
