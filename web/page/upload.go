package page

import (
	"errors"
	"io"
	"net/http"
	"net/url"
)

// File is a file that was sent with a form.
type File struct {
	Name  string // as the browser says: text of a stranger
	Body  []byte
	Large bool // it is larger than what was asked for, and Body is empty
}

// ReadUpload reads the body of r: multipart/form-data with the fields of a form
// and at most one file, of at most so many bytes. Without a file Name and Body
// are empty. Errors: BadForm; *http.MaxBytesError (413).
func ReadUpload(r *http.Request, most int64) (*Form, File, error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, File{}, BadForm{Err: err}
	}
	values, file, files := url.Values{}, File{}, 0
	for n := 0; ; n++ {
		p, err := parts.NextPart()
		if err == io.EOF {
			return &Form{values: values, asked: map[string]bool{}}, file, nil
		}
		if err != nil {
			return nil, File{}, unreadable(err)
		}
		if n >= 2000 {
			return nil, File{}, BadForm{Err: errors.New("too many fields")}
		}
		if p.FileName() == "" { // a field, or a file that was not chosen
			b, err := io.ReadAll(p) // the body as a whole is limited
			if err != nil {
				return nil, File{}, unreadable(err)
			}
			values.Add(p.FormName(), string(b))
			continue
		}
		if files++; files > 1 {
			return nil, File{}, BadForm{Err: errors.New("more than one file")}
		}
		b, err := io.ReadAll(io.LimitReader(p, most+1))
		if err != nil {
			return nil, File{}, unreadable(err)
		}
		file = File{Name: p.FileName(), Body: b}
		if int64(len(b)) > most {
			file.Body, file.Large = nil, true
		}
		values.Add(p.FormName(), file.Name)
	}
}

// unreadable tells a body that is too large from one that is no form.
func unreadable(err error) error {
	if tooBig, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooBig
	}
	return BadForm{Err: err}
}
