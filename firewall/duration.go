package firewall

import (
	"fmt"
	"strconv"
	"strings"
)

// units are what a duration is written in, longest first.
var units = []struct {
	letter  byte
	seconds int
}{{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}

// maxSeconds is where ParseSeconds stops counting: 10 years, more than anything here lasts.
const maxSeconds = 3650 * 86400

// ParseSeconds reads a duration: 90, 90s, 5m, 1h30m, 2d. A number alone is
// seconds; units stand from the longest to the shortest, each once.
func ParseSeconds(s string) (int, error) {
	bad := fmt.Errorf("write for example 30s, 5m or 2h")
	s = strings.ToLower(strings.Join(strings.Fields(s), ""))
	total, from := 0, 0 // units[from:] may still come
	for rest := s; rest != "" || s == ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || n > maxSeconds {
			return 0, bad
		}
		rest = rest[digits:]
		size := 1
		if rest != "" {
			for from < len(units) && units[from].letter != rest[0] {
				from++
			}
			if from == len(units) {
				return 0, bad
			}
			size, rest = units[from].seconds, rest[1:]
			from++
		} else if digits < len(s) {
			return 0, bad // 1h30: minutes or seconds?
		}
		if total += n * size; total > maxSeconds {
			return 0, bad
		}
	}
	return total, nil
}

// Seconds writes a duration as ParseSeconds reads it: 7200 is 2h, 90 is 1m30s.
func Seconds(n int) string {
	var b strings.Builder
	for _, u := range units {
		if q := n / u.seconds; q > 0 {
			fmt.Fprintf(&b, "%d%c", q, u.letter)
			n -= q * u.seconds
		}
	}
	if b.Len() == 0 {
		return "0s"
	}
	return b.String()
}
