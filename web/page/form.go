package page

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Form reads the fields of a POST and remembers which were asked for, so that
// a field nobody knows is refused instead of ignored.
type Form struct {
	values url.Values
	asked  map[string]bool
}

// ReadForm reads the body of r: application/x-www-form-urlencoded, at most 2,000
// different fields. Errors: BadForm; *http.MaxBytesError (413).
func ReadForm(r *http.Request) (*Form, error) {
	if err := r.ParseForm(); err != nil {
		if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, tooBig
		}
		return nil, BadForm{Err: err}
	}
	if r.ContentLength != 0 && r.Method == http.MethodPost &&
		!strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		return nil, BadForm{Err: errors.New("content type " + r.Header.Get("Content-Type"))}
	}
	if len(r.PostForm) > 2000 {
		return nil, BadForm{Err: errors.New("too many fields")}
	}
	return &Form{values: r.PostForm, asked: map[string]bool{}}, nil
}

// Get returns the first value of a field without the white space around it;
// empty when it was not sent.
func (f *Form) Get(name string) string { return strings.TrimSpace(f.Raw(name)) }

// Raw returns the first value of a field exactly as sent: passwords.
func (f *Form) Raw(name string) string {
	f.asked[name] = true
	return f.values.Get(name)
}

// All returns every value of a field, trimmed, without empty ones.
func (f *Form) All(name string) []string {
	f.asked[name] = true
	var vs []string
	for _, v := range f.values[name] {
		if v = strings.TrimSpace(v); v != "" {
			vs = append(vs, v)
		}
	}
	return vs
}

// On reports whether a check box was ticked or a button with this name pressed.
func (f *Form) On(name string) bool {
	f.asked[name] = true
	return f.values.Has(name)
}

// Done returns UnknownField when the form holds a field that was not asked
// for. Call it when everything was read, before anything is changed.
func (f *Form) Done() error {
	var unknown []string
	for name := range f.values {
		if !f.asked[name] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return UnknownField{Names: unknown}
}
