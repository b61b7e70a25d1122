package firewall

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Problem is one thing that is wrong, beside the field it is wrong in.
type Problem struct {
	Field string `json:"field"` // "rule/01J...dport": the object's Ref, a dot, the form field
	Text  string `json:"text"`  // a sentence that says what to do
}

// Problems is everything that is wrong with a configuration. It is an error
// when it is not empty; the web answers it with 422.
type Problems []Problem

// Error lists every problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Field + ": " + p.Text
	}
	return strings.Join(lines, "; ")
}

// Or gives ps as an error, nil when there is none.
func (ps Problems) Or() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// Of gives the problems of one object by form field, and the rest.
func (ps Problems) Of(r Ref) (own map[string]string, rest Problems) {
	own = map[string]string{}
	for _, p := range ps {
		field, mine := strings.CutPrefix(p.Field, r.String()+".")
		switch {
		case !mine:
			rest = append(rest, p)
		case own[field] == "":
			own[field] = p.Text
		default:
			own[field] += " " + p.Text
		}
	}
	return own, rest
}

// checker collects problems of one object.
type checker struct {
	ps  *Problems
	ref Ref
}

func (k checker) add(field, format string, args ...any) {
	*k.ps = append(*k.ps, Problem{k.ref.String() + "." + field, fmt.Sprintf(format, args...)})
}

// maxText is how many characters free text can have.
const maxText = 200

// text holds for free text: 200 characters at most and none that moves the cursor.
func (k checker) text(field, s string) {
	if utf8.RuneCountInString(s) > maxText {
		k.add(field, "Use at most 200 characters; this has %d.", utf8.RuneCountInString(s))
	}
	if !utf8.ValidString(s) {
		k.add(field, "This is not valid UTF-8 text.")
		return
	}
	for _, r := range s {
		if r == '\n' || r == '\r' {
			k.add(field, "Remove the line break.")
			return
		}
		if unicode.IsControl(r) {
			k.add(field, "Remove the control character U+%04X.", r)
			return
		}
	}
}

// label holds for one part of a host name (RFC 1123): letters, digits, inner dashes, 1-63.
func label(s string) bool {
	for _, r := range s {
		if r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return s != "" && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-'
}

// DomainName reports whether s is a host or domain name (RFC 1123).
func DomainName(s string) bool {
	for _, part := range strings.Split(s, ".") {
		if !label(part) {
			return false
		}
	}
	return len(s) <= 253
}
