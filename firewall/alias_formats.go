package firewall

import (
	"slices"
	"strings"
	"unicode"
)

// word is a part of a line between separators.
type word struct {
	text   string
	loose  bool // after a blank: what may be a note. After a comma it is meant as a value
	quoted bool
}

// split cuts a line at blanks, commas and semicolons; quotes hold a word together.
func split(s string) (ws []word) {
	separator := func(c rune) bool { return unicode.IsSpace(c) || c == ',' || c == ';' }
	for s != "" {
		rest := strings.TrimLeftFunc(s, separator)
		before := s[:len(s)-len(rest)]
		if rest == "" {
			break
		}
		// A semicolon after a blank begins a remark in some published lists.
		w := word{loose: before != "" && !strings.Contains(before, ",") && (before[0] != ';')}
		if w.quoted = rest[0] == '"'; w.quoted {
			w.text, s = unquote(rest)
		} else {
			end := strings.IndexFunc(rest, separator)
			if end < 0 {
				end = len(rest)
			}
			w.text, s = rest[:end], rest[end:]
		}
		ws = append(ws, w)
	}
	return ws
}

// unquote reads a text in quotes, in which "" stands for one, and what follows.
func unquote(s string) (text, rest string) {
	var b strings.Builder
	for s = s[1:]; s != ""; s = s[1:] {
		if s[0] != '"' {
			b.WriteByte(s[0])
			continue
		}
		if !strings.HasPrefix(s, `""`) {
			return b.String(), s[1:]
		}
		b.WriteByte('"')
		s = s[1:]
	}
	return b.String(), ""
}

// ranges joins "10.0.0.1 - 10.0.0.5" to one word, and leaves a dash out that
// divides a value from words: "10.0.0.1 - the printer".
func ranges(ws []word) []word {
	var out []word
	for _, w := range ws {
		text := hyphens(w.text)
		n := len(out) - 1
		if n < 0 || !w.loose || w.quoted || out[n].quoted {
			out = append(out, w)
			continue
		}
		last := hyphens(out[n].text)
		one := strings.Count(last+text, "-") == 1
		switch {
		case one && strings.HasSuffix(last, "-") && looksNumeric(last) && looksNumeric(text),
			one && strings.HasPrefix(text, "-") && looksNumeric(last) && looksNumeric(text[1:]):
			out[n].text = last + text
		case one && last == "-" && n > 0 && looksNumeric(out[n-1].text) && looksNumeric(text) && !strings.Contains(out[n-1].text, "-"):
			out[n-1].text += "-" + text
			out = out[:n]
		case last == "-" && n > 0 && !looksNumeric(text):
			out[n] = w
		default:
			out = append(out, w)
		}
	}
	return out
}

// phrase is words as a note.
func phrase(ws []word) string {
	var b strings.Builder
	for i, w := range ws {
		switch {
		case i > 0 && w.loose:
			b.WriteByte(' ')
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(w.text)
	}
	return strings.TrimSpace(b.String())
}

// cutNote cuts a line at the first # that is not in quotes.
func cutNote(line string) (value, note string) {
	quoted := false
	for i := range len(line) {
		switch {
		case line[i] == '"':
			quoted = !quoted
		case line[i] == '#' && !quoted:
			return line[:i], strings.TrimSpace(line[i+1:])
		}
	}
	return line, ""
}

// table is where the columns of a table with a heading are.
type table struct {
	divider     byte
	value, note int // note -1: there is none
}

// What the columns of tables are called.
var (
	addrHeadings = []string{"value", "ip", "ips", "address", "addresses", "addr", "ip address", "ip_address", "network", "cidr", "prefix", "range", "entry", "item"}
	portHeadings = []string{"value", "port", "ports", "range", "entry", "item"}
	noteHeadings = []string{"note", "notes", "comment", "comments", "description", "descr", "remark", "name", "host", "hostname", "label", "reason"}
)

// heading reports whether a line, the first of a text, is the heading of a table.
func (r *itemReader) heading(line string) bool {
	if strings.Contains(line, "#") {
		return false
	}
	t := table{divider: ',', value: -1, note: -1}
	for _, d := range []byte{'\t', ';'} {
		if strings.IndexByte(line, d) >= 0 {
			t.divider = d
			break
		}
	}
	values := addrHeadings
	if r.kind == PortList {
		values = portHeadings
	}
	var other []string
	for i, c := range cells(line, t.divider) {
		low := strings.ToLower(c)
		switch {
		case looksNumeric(c) || r.known(Name(c)):
			return false
		case t.value < 0 && slices.Contains(values, low):
			t.value = i
		case t.note < 0 && slices.Contains(noteHeadings, low):
			t.note = i
		case c != "":
			other = append(other, short(c))
		}
	}
	if t.value < 0 {
		return false
	}
	r.table, r.columns = &t, other
	return true
}

// row reads a line of a table.
func (r *itemReader) row(line string) {
	cs := cells(line, r.table.divider)
	note := ""
	if at := r.table.note; at >= 0 && at < len(cs) {
		note = r.shortened(plainCell(cs[at]))
	}
	var ws []word
	if r.table.value < len(cs) {
		value, more := cutNote(cs[r.table.value])
		ws, note = ranges(split(value)), strings.TrimSpace(note+" "+more)
	}
	if len(ws) == 0 {
		r.empty++
		return
	}
	var values []item
	for _, w := range ws {
		v, err := r.value(w.text)
		if err != nil {
			r.bad(w.text, note, err.Error())
			continue
		}
		values = append(values, v)
	}
	r.keepAll(values, note)
}

// cells cuts a line of a table; a cell in quotes may hold the divider.
func cells(line string, divider byte) (list []string) {
	for {
		line = strings.TrimLeft(line, " ")
		cell := ""
		if strings.HasPrefix(line, `"`) {
			cell, line = unquote(line)
		}
		end := strings.IndexByte(line, divider)
		if end < 0 {
			return append(list, strings.TrimSpace(cell+line))
		}
		list = append(list, strings.TrimSpace(cell+line[:end]))
		line = line[end+1:]
	}
}

// CSV writes the entries as a table that spreadsheets open and ParseItems reads.
func (a Alias) CSV() string {
	var b strings.Builder
	b.WriteString("value,note\r\n")
	line := func(value, note string) {
		b.WriteString(value + ",")
		if note != "" {
			b.WriteString(`"` + strings.ReplaceAll(safeCell(note), `"`, `""`) + `"`)
		}
		b.WriteString("\r\n")
	}
	for _, e := range a.Addrs {
		line(e.End.String(), e.Note)
	}
	for _, e := range a.Ports {
		line(e.End.String(), e.Note)
	}
	return b.String()
}

// formula is what makes a spreadsheet compute a cell instead of showing it.
const formula = "=+-@"

// safeCell puts an apostrophe before what would be a formula; plainCell takes it away.
func safeCell(s string) string {
	if first := strings.TrimLeft(s, "'"); first != "" && strings.Contains(formula, first[:1]) {
		return "'" + s
	}
	return s
}

func plainCell(s string) string {
	if rest, ok := strings.CutPrefix(s, "'"); ok && safeCell(rest) != rest {
		return rest
	}
	return s
}

// ipset reads a line of what `ipset save` writes; false when it is none.
func (r *itemReader) ipset(ws []word, note string) bool {
	ws = slices.DeleteFunc(slices.Clone(ws), func(w word) bool {
		return slices.Contains([]string{"ipset", "sudo", "-exist", "-!", "-q", "-quiet"}, w.text)
	})
	if len(ws) < 2 || r.known(Name(ws[0].text)) {
		return false
	}
	switch ws[0].text {
	case "create", "-N", "flush", "-F", "destroy", "-X":
		r.empty++
		return true
	case "add", "-A":
	default:
		return false
	}
	if len(ws) < 3 {
		return false
	}
	if len(ws) > 3 && !ws[3].loose && !ws[3].quoted {
		r.bad(ws[2].text+","+ws[3].text, note, "an entry of address and port cannot stand in an alias")
		return true
	}
	for i, w := range ws[3:] {
		after := ""
		if i+4 < len(ws) {
			after = ws[i+4].text
		}
		switch w.text {
		case "nomatch":
			r.bad(ws[2].text, note, "an exception (nomatch) cannot stand in an alias")
			return true
		case "timeout":
			if after != "0" {
				r.timeouts++
			}
		case "comment":
			note = r.shortened(strings.TrimSpace(after + " " + note))
		}
	}
	v, err := r.value(ws[2].text)
	if err != nil {
		r.bad(ws[2].text, note, err.Error())
		return true
	}
	r.keepAll([]item{v}, note)
	return true
}
