package page

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"gatehouse/firewall"
)

// Found is what is wrong with next and was not with was; problems of the
// object come first and carry its form's field names (see Beside).
func Found(was, next firewall.Config, ref firewall.Ref) firewall.Problems {
	old := was.Validate()
	return Beside(slices.DeleteFunc(next.Validate(), func(p firewall.Problem) bool { return slices.Contains(old, p) }), ref)
}

// Warnings is what a valid configuration does that its owner may not expect, by object.
func Warnings(c firewall.Config) map[firewall.Ref][]string {
	out := map[firewall.Ref][]string{}
	for _, p := range c.Warnings() {
		name, _, _ := strings.Cut(p.Field, ".")
		kind, key, _ := strings.Cut(name, "/")
		ref := firewall.Ref{Kind: kind, Key: key}
		out[ref] = append(out[ref], p.Text)
	}
	return out
}

// And adds found to ps, without what is about a field that ps tells of already.
func And(ps, found firewall.Problems) firewall.Problems {
	told := map[string]bool{}
	for _, p := range ps {
		told[p.Field] = true
	}
	for _, p := range found {
		if !told[p.Field] {
			ps = append(ps, p)
		}
	}
	return ps
}

// Sentence makes the error of a parser a sentence that stands beside a field.
func Sentence(err error) string {
	s := err.Error()
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:] + "."
}

// Differ is the fields of two versions that are not the same; the three lists
// are in the same order.
func Differ(names, theirs, yours []string) (out []Stale) {
	for i, name := range names {
		if theirs[i] != yours[i] {
			out = append(out, Stale{Field: name, Theirs: theirs[i], Yours: yours[i]})
		}
	}
	return out
}

// YesNo is a switch as a person reads it.
func YesNo(on bool) string {
	if on {
		return "yes"
	}
	return "no"
}

// Left is how long something lasts, in words.
func Left(until time.Time) string {
	d := time.Until(until).Round(time.Minute)
	switch {
	case d <= 0:
		return "now"
	case d < time.Hour:
		return Count(int(d.Minutes()), "minute")
	case d < 48*time.Hour:
		return Count(int(d.Hours()), "hour")
	}
	return Count(int(d.Hours()/24), "day")
}
