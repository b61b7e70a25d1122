package dhcp

import "strings"

// CleanHost makes one LDH label (RFC 1123 section 2.1: letters, digits and
// hyphens, 1-63 characters, lower case) out of whatever a client calls itself.
// Only the first label of a dotted name counts; anything else becomes a hyphen.
// A name of which nothing is left gives "": a bad name never refuses a lease.
func CleanHost(raw []byte) string {
	first, _, _ := strings.Cut(strings.Trim(string(raw), ".\x00 "), ".")
	var b strings.Builder
	for i := range len(first) {
		c := first[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			b.WriteByte(c)
		case c >= 'A' && c <= 'Z':
			b.WriteByte(c + 'a' - 'A')
		case b.Len() > 0 && b.String()[b.Len()-1] != '-':
			b.WriteByte('-')
		}
		if b.Len() == 63 {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}

// fqdnName takes the name out of option 81 (RFC 4702): three bytes of flags and
// codes, then ASCII text or, with the E bit, DNS labels.
func fqdnName(opt []byte) []byte {
	if len(opt) < 4 {
		return nil
	}
	name := opt[3:]
	if opt[0]&0x04 == 0 {
		return name
	}
	n := int(name[0])
	if n == 0 || n > 63 || n > len(name)-1 {
		return nil
	}
	return name[1 : 1+n]
}
