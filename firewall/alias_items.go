package firewall

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Items is what a text says that the entries of an alias are.
type Items struct {
	Addrs  []Entry     // of an alias of addresses, in the order of the text
	Ports  []PortEntry // of an alias of ports
	Twice  int         // values that were there already: the first stays
	Masked []string    // networks as typed whose host bits were left out
	Words  int         // lines on which words behind the value became its note
	Left   []string    // what is not kept, and is nothing wrong: "a heading", "2 lines without a value"
	Bad    []BadItem   // what cannot be read, in the order of the text
}

// BadItem is one value that cannot be read.
type BadItem struct {
	Line  int    // of the text; 1 is the first
	Value string // as typed, cut when it is long
	Note  string
	Text  string // what is wrong, without the value's line: "`10.0.0.300` is not an IP address"
}

// Lines writes the entries one a line, as ParseItems reads them back.
func (a Alias) Lines() string {
	var b strings.Builder
	line := func(value, note string) {
		b.WriteString(value)
		if note != "" {
			b.WriteString("  # ")
			b.WriteString(note)
		}
		b.WriteByte('\n')
	}
	for _, e := range a.Addrs {
		line(e.End.String(), e.Note)
	}
	for _, e := range a.Ports {
		line(e.End.String(), e.Note)
	}
	return b.String()
}

// ParseItems reads the entries of an alias as people pass such lists on: values
// divided by lines, commas, semicolons or blanks, a note after #; tables with a
// heading (CSV); lines of a hosts file, where names follow the address; what
// `ipset save` writes. known says which aliases there are: a word that is none
// of them is a note when it follows a value after a blank, else it is wrong.
// Nothing is left out in silence: see the fields of Items.
func ParseItems(kind AliasKind, text string, known func(Name) bool) Items {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	r := itemReader{kind: kind, known: known, ports: map[PortEnd]int{}}
	if kind != PortList { // long lists are of addresses: make room at once
		n := min(1+strings.Count(text, "\n"), MaxEntries)
		r.addrs, r.out.Addrs = make(map[End]int, n), make([]Entry, 0, n)
	}
	for line := range strings.Lines(text) {
		r.line++
		r.read(strings.TrimSpace(line))
	}
	if len(r.out.Addrs) == 0 {
		r.out.Addrs = nil
	}
	if r.table != nil {
		r.out.Left = append(r.out.Left, "a heading")
	}
	r.tell(r.empty, "1 line without a value", "%d lines without a value")
	r.tell(r.timeouts, "1 timeout", "%d timeouts")
	r.tell(r.cut, "the end of 1 long note", "the ends of %d long notes")
	if n := len(r.columns); n > 5 {
		r.out.Left = append(r.out.Left, fmt.Sprintf("%d columns", n))
	} else if n > 0 {
		r.out.Left = append(r.out.Left, "the columns "+strings.Join(r.columns, ", "))
	}
	return r.out
}

// Again writes a value that cannot be read, with its note, as a line that
// ParseItems finds wrong again: what is to be mended must not turn into an
// entry on its way to the person who mends it.
func (b BadItem) Again(kind AliasKind, known func(Name) bool) string {
	line := func(value string) string {
		if strings.ContainsFunc(value, func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune(`,;"#`, c) }) {
			value = `"` + strings.ReplaceAll(value, `"`, `""`) + `"`
		}
		if b.Note != "" {
			value += "  # " + b.Note
		}
		return value + "\n"
	}
	if s := line(b.Value); len(ParseItems(kind, s, known).Bad) > 0 {
		return s
	}
	return line("!" + b.Value)
}

// itemReader reads a text line by line.
type itemReader struct {
	kind  AliasKind
	known func(Name) bool
	out   Items
	line  int
	begun bool // a line with values was read: no heading can follow
	table *table
	addrs map[End]int // where an entry stands in out
	ports map[PortEnd]int

	empty, timeouts, cut int // of Left
	columns              []string
}

func (r *itemReader) tell(n int, one, many string) {
	if n == 1 {
		r.out.Left = append(r.out.Left, one)
	} else if n > 1 {
		r.out.Left = append(r.out.Left, fmt.Sprintf(many, n))
	}
}

func (r *itemReader) read(line string) {
	switch {
	case line == "":
		return
	case !utf8.ValidString(line):
		r.bad(strings.ToValidUTF8(line, "\ufffd"), "", "this is not UTF-8 text")
		return
	case line[0] == '#', line[0] == ';', strings.HasPrefix(line, "//"):
		r.empty++
		return
	case r.table != nil:
		r.row(line)
		return
	case !r.begun && r.heading(line):
		return
	}
	r.begun = true
	value, note := cutNote(line)
	ws := split(value)
	if r.ipset(ws, note) {
		return
	}
	r.words(ws, note)
}

// words keeps the values of a line, all with its note.
func (r *itemReader) words(ws []word, note string) {
	ws = ranges(ws)
	var values []item
	before := len(r.out.Bad)
	for i, w := range ws {
		v, err := r.value(w.text)
		if err == nil {
			values = append(values, v)
			continue
		}
		if len(values) > 0 && isNote(ws[i:]) {
			note = r.saidNote(ws[i:], note)
			break
		}
		r.bad(w.text, note, err.Error())
	}
	if len(values) == 0 && len(r.out.Bad) == before {
		r.empty++
	}
	r.keepAll(values, note)
}

// saidNote is the note that words behind a value are, with the one after #.
func (r *itemReader) saidNote(ws []word, note string) string {
	said := phrase(ws)
	if v, found := r.mentions(ws); found {
		r.bad(v, said, "write `"+short(v)+"` on a line of its own, and notes after #")
		return note
	}
	r.out.Words++
	if note != "" {
		said += "; " + note
	}
	return r.shortened(said)
}

// keepAll keeps the values of a line, when its note can stand.
func (r *itemReader) keepAll(values []item, note string) {
	note = strings.TrimSpace(strings.ReplaceAll(note, "\t", " "))
	why := wrongNote(note)
	for i, v := range values {
		switch {
		case why == "":
			r.keep(v, note)
		case i == 0:
			r.bad(v.typed, note, why)
		}
	}
}

// item is one value, of the alias's kind.
type item struct {
	end   End
	port  PortEnd
	typed string
}

// value reads one value.
func (r *itemReader) value(s string) (v item, err error) {
	v.typed = s
	s = hyphens(s)
	switch {
	case len(s) > 100:
		return v, fmt.Errorf("`%s` is too long", short(s))
	case r.kind == PortList:
		v.port, err = r.portValue(s)
	default:
		v.end, err = r.addrValue(s)
	}
	return v, err
}

func (r *itemReader) portValue(s string) (PortEnd, error) {
	if strings.Count(s, ":") > 1 || looksNumeric(s) && strings.Contains(s, ".") {
		return PortEnd{}, fmt.Errorf("`%s`: ports cannot contain addresses", s)
	}
	p, err := ParsePortEnd(s)
	switch {
	case err != nil:
		return p, fmt.Errorf("`%s`: %w", s, err)
	case p.Alias != "" && !r.known(p.Alias):
		return p, fmt.Errorf("there is no alias or service `%s`", s)
	}
	return p, nil
}

func (r *itemReader) addrValue(s string) (End, error) {
	name := Name(s)
	switch {
	case looksNumeric(s) && strings.Trim(s, "0123456789-:") == "" && strings.Count(s, ":") < 2:
		return End{}, fmt.Errorf("`%s`: addresses cannot contain ports", s)
	case looksNumeric(s):
		return ParseEnd(s)
	case name.Valid(31) && r.known(name):
		return End{Kind: EndAlias, Name: name}, nil
	case name.Valid(31):
		return End{}, fmt.Errorf("there is no alias `%s`", s)
	case DomainName(s):
		return End{}, fmt.Errorf("`%s` is a host name; write its address", s)
	}
	return End{}, fmt.Errorf("`%s` is not an address, a network, a range or an alias", s)
}

// keep adds a value, or finds it there already.
func (r *itemReader) keep(v item, note string) {
	if r.kind == PortList {
		if at, ok := r.ports[v.port]; ok {
			r.again(&r.out.Ports[at].Note, note)
			return
		}
		r.ports[v.port] = len(r.out.Ports)
		r.out.Ports = append(r.out.Ports, PortEntry{End: v.port, Note: note})
		return
	}
	if v.end.Kind == EndNet {
		if p, err := ParsePrefix(v.typed); err == nil && p.Addr() != v.end.Net.Addr() {
			r.out.Masked = append(r.out.Masked, v.typed)
		}
	}
	if at, ok := r.addrs[v.end]; ok {
		r.again(&r.out.Addrs[at].Note, note)
		return
	}
	r.addrs[v.end] = len(r.out.Addrs)
	r.out.Addrs = append(r.out.Addrs, Entry{End: v.end, Note: note})
}

func (r *itemReader) again(kept *string, note string) {
	r.out.Twice++
	if *kept == "" {
		*kept = note
	}
}

func (r *itemReader) bad(value, note, text string) {
	clean := func(c rune) rune {
		if unicode.IsControl(c) {
			return unicode.ReplacementChar
		}
		return c
	}
	r.out.Bad = append(r.out.Bad, BadItem{r.line, strings.Map(clean, short(value)), strings.Map(clean, cut(note, maxText)), strings.Map(clean, text)})
}

// isNote reports whether words are no try at a value: they stand after a blank,
// in quotes, are several, or could be no name of an alias.
func isNote(ws []word) bool {
	w := ws[0]
	if looksNumeric(w.text) && !w.quoted {
		return false
	}
	several := len(ws) > 1 && ws[1].loose
	return w.loose || w.quoted || several || !Name(w.text).Valid(31)
}

// mentions finds a value among the words of a note that was not marked as one:
// whoever wrote it may have meant it as a value.
func (r *itemReader) mentions(ws []word) (string, bool) {
	for _, w := range ws {
		for _, s := range strings.FieldsFunc(w.text, func(c rune) bool { return unicode.IsSpace(c) || c == ',' || c == ';' }) {
			if _, err := r.value(s); err == nil {
				return s, true
			}
		}
	}
	return "", false
}

// shortened is a note that nobody typed as one, cut to what fits.
func (r *itemReader) shortened(note string) string {
	if utf8.RuneCountInString(note) <= maxText {
		return note
	}
	r.cut++
	return cut(note, maxText-1)
}

// wrongNote says what validation would say of a note.
func wrongNote(note string) string {
	if n := utf8.RuneCountInString(note); n > maxText {
		return fmt.Sprintf("the note has %d characters; at most %d fit", n, maxText)
	}
	for _, c := range note {
		if unicode.IsControl(c) {
			return fmt.Sprintf("the note holds the control character U+%04X", c)
		}
	}
	return ""
}

// short is a value that a sentence can hold.
func short(s string) string { return cut(s, 60) }

// cut is a text of at most max characters and, when it had more, dots.
func cut(s string, max int) string {
	for i := range s {
		if max--; max < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// hyphens is a text in which a hyphen is what word processors made another dash of.
func hyphens(s string) string {
	if strings.Contains(s, "\xe2") { // how all of them begin: most lists have none
		return dashes.Replace(s)
	}
	return s
}

var dashes = strings.NewReplacer("–", "-", "—", "-", "‐", "-", "‑", "-", "−", "-")
