package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gatehouse/firewall"
)

// Limit is the fields of a limit as a person typed them, byte for byte: of a
// rule, or of a forward, whose linked rule has the limit.
type Limit struct {
	Open, New, Window     string
	Over, LockFor         string
	Strikes, StrikeWindow string
	Never                 string
	DryRun                bool
}

// LimitFields is the names of a limit's form fields, in their order.
func LimitFields() []string {
	return []string{"limit_open", "limit_new", "limit_window", "over", "lock_for", "strikes", "strike_window", "never", "dry_run"}
}

// ReadLimit takes the fields of a POST.
func ReadLimit(p *Form) Limit {
	return Limit{Open: p.Raw("limit_open"), New: p.Raw("limit_new"), Window: p.Raw("limit_window"), Over: p.Get("over"), LockFor: p.Raw("lock_for"),
		Strikes: p.Raw("strikes"), StrikeWindow: p.Raw("strike_window"), Never: p.Raw("never"), DryRun: p.On("dry_run")}
}

// usual is what becomes of an excess when nobody has chosen yet.
func usual(c firewall.Config) firewall.Limit {
	l := firewall.Limit{Over: firewall.LockOut, LockFor: 300, Strikes: 3, StrikeWindow: 3600}
	if a, ok := c.Alias(firewall.NeverQuarantine); ok && a.Kind == firewall.Addresses {
		l.Never = a.Name
	}
	return l
}

// ShowLimit gives the fields of a limit; of none, those that are left to the
// person are empty. ShowLimit and Value undo each other.
func ShowLimit(c firewall.Config, l firewall.Limit) Limit {
	if l == (firewall.Limit{}) {
		l = usual(c)
	}
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	seconds := func(n int) string {
		if n == 0 {
			return ""
		}
		return firewall.Seconds(n)
	}
	return Limit{Open: number(l.Open), New: number(l.New), Window: seconds(l.Window), Over: string(l.Over), LockFor: seconds(l.LockFor),
		Strikes: strconv.Itoa(l.Strikes), StrikeWindow: seconds(l.StrikeWindow), Never: string(l.Never), DryRun: l.DryRun}
}

// Value gives the limit of the fields; was is the one that the form showed.
// Without numbers there is none, as long as the rest was left alone: what was
// chosen is never dropped silently. What cannot be read is told and left at
// something that passes the other checks, so that those are told as well.
func (f Limit) Value(c firewall.Config, was firewall.Limit) (firewall.Limit, firewall.Problems) {
	if f.idle(c, was) {
		return firewall.Limit{}, nil
	}
	var ps firewall.Problems
	add := func(field, text string) { ps = append(ps, firewall.Problem{Field: field, Text: text}) }
	number := func(field, text string, least, most int, says string) int {
		n, err := strconv.ParseUint(digits(text), 10, 32)
		switch {
		case digits(text) == "":
			return 0
		case err != nil || int(n) < least || int(n) > most:
			add(field, says)
			return least
		}
		return int(n)
	}
	seconds := func(field, text string, instead int) int {
		if strings.TrimSpace(text) == "" {
			return 0
		}
		n, err := firewall.ParseSeconds(text)
		if err != nil {
			add(field, Sentence(err))
			return instead
		}
		return n
	}
	const million = "Enter a whole number from 1 to 1 000 000."
	l := firewall.Limit{Over: firewall.Over(f.Over), Never: firewall.Name(strings.TrimSpace(f.Never)), DryRun: f.DryRun,
		Open:         number("limit_open", f.Open, 1, 1_000_000, million),
		New:          number("limit_new", f.New, 1, 1_000_000, million),
		Window:       seconds("limit_window", f.Window, 1),
		LockFor:      seconds("lock_for", f.LockFor, 300),
		Strikes:      number("strikes", f.Strikes, 0, 100, "Enter a whole number from 1 to 100, or 0 for never."),
		StrikeWindow: seconds("strike_window", f.StrikeWindow, 3600)}
	if l.Window == 0 && strings.TrimSpace(f.Window) != "" {
		add("limit_window", "The time must be 1 second to 1 day.")
		l.Window = 1
	}
	return l, ps
}

// idle reports whether no number is given and the rest is as it stands on a new
// form, as it was, or cleared.
func (f Limit) idle(c firewall.Config, was firewall.Limit) bool {
	if f.isSet() || f.DryRun && !was.DryRun {
		return false
	}
	rest := func(f Limit) []string { return []string{f.Over, f.LockFor, f.Strikes, f.StrikeWindow, f.Never} }
	left, fresh, old, cleared := rest(f), rest(ShowLimit(c, firewall.Limit{})), rest(ShowLimit(c, was)), rest(Limit{Strikes: "0"})
	for i, text := range left {
		if text = strings.TrimSpace(text); text != "" && text != fresh[i] && text != old[i] && text != cleared[i] {
			return false
		}
	}
	return true
}

// digits is a number without the blanks that people group it with.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// isSet reports whether somebody asks for a limit.
func (f Limit) isSet() bool { return strings.TrimSpace(f.Open+f.New+f.Window) != "" }

// isOpen reports whether the fields are in sight without a click.
func (f Limit) isOpen(ps firewall.Problems) bool {
	return f.isSet() || slices.ContainsFunc(ps, func(p firewall.Problem) bool { return slices.Contains(LimitFields(), p.Field) })
}

// Asks names the first field that asks for a limit: where to say that there can be none.
func (f Limit) Asks() string {
	switch {
	case strings.TrimSpace(f.Open) != "":
		return "limit_open"
	case strings.TrimSpace(f.New) != "":
		return "limit_new"
	case strings.TrimSpace(f.Window) != "":
		return "limit_window"
	}
	return "limit_open"
}

// gist is the limit in a few characters as far as it can be read, for the line
// that is in sight while the fields are folded.
func (f Limit) gist() string {
	if !f.isSet() {
		return "none"
	}
	l, ps := f.Value(firewall.Config{}, firewall.Limit{})
	if len(ps) > 0 {
		return ""
	}
	return LimitGist(l)
}

// speed says what the kernel makes of the two numbers (firewall.Limit.Rate).
func (f Limit) speed() string {
	n, window := 10, 5
	start := "For example 10 in 5s: "
	typed, err := strconv.Atoi(digits(f.New))
	if s, e := firewall.ParseSeconds(f.Window); err == nil && e == nil && typed > 0 && typed <= 1_000_000 && s > 0 && s <= 86400 {
		n, window, start = typed, s, ""
	}
	rate, unit := firewall.Limit{New: n, Window: window}.Rate()
	return fmt.Sprintf("%s%d at once, then %d %s; never more than %d in any %s.", start, n, rate, per(unit), 2*n, firewall.Seconds(window))
}

// per is a unit of firewall.Limit.Rate in words.
func per(unit time.Duration) string {
	return map[time.Duration]string{time.Second: "a second", time.Minute: "a minute", time.Hour: "an hour", 24 * time.Hour: "a day", 7 * 24 * time.Hour: "a week"}[unit]
}

// LimitGist is a limit in a few characters: "20 open · 10/5s"; empty without one.
func LimitGist(l firewall.Limit) string {
	var parts []string
	if l.Open > 0 {
		parts = append(parts, fmt.Sprintf("%d open", l.Open))
	}
	if l.New > 0 {
		parts = append(parts, fmt.Sprintf("%d/%s", l.New, firewall.Seconds(l.Window)))
	}
	if len(parts) > 0 && l.DryRun {
		parts = append(parts, "counts only")
	}
	return strings.Join(parts, " · ")
}

// LimitNames is what the parts of a limit are called where two versions stand
// beside each other; LimitWords is the parts.
func LimitNames() []string {
	return []string{"Open connections", "New connections", "When exceeded", "Lock out for", "Quarantine after", "Never lock out", "Only count"}
}

// LimitWords is the parts of a limit as a person reads them.
func LimitWords(l firewall.Limit) []string {
	words := []string{"no limit", "no limit", "", "", "", "", ""}
	if l.Open > 0 {
		words[0] = strconv.Itoa(l.Open)
	}
	if l.New > 0 {
		words[1] = fmt.Sprintf("%d in %s", l.New, firewall.Seconds(l.Window))
	}
	if l == (firewall.Limit{}) {
		return words
	}
	words[2], words[3], words[4], words[5], words[6] = overWord(l.Over), firewall.Seconds(l.LockFor), "never", "nobody", YesNo(l.DryRun)
	if l.Strikes > 0 {
		words[4] = fmt.Sprintf("%d in %s", l.Strikes, firewall.Seconds(l.StrikeWindow))
	}
	if l.Never != "" {
		words[5] = string(l.Never)
	}
	return words
}

func overWord(o firewall.Over) string {
	switch o {
	case firewall.DropExcess:
		return "drop only the excess"
	case firewall.LockOut:
		return "lock out"
	}
	return string(o)
}
