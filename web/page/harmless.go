package page

import "unicode"

// Harmless makes text that others wrote harmless for the eye: no control
// characters, nothing that turns the text around, 200 characters at most. What
// stands in it is still text for the page to escape.
func Harmless(s string) string {
	var out []rune
	for _, r := range s {
		if len(out) == 200 {
			return string(out) + "…"
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		out = append(out, r)
	}
	return string(out)
}
