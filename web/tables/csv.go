package tables

import (
	"encoding/csv"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gatehouse/services/quarantine"
	"gatehouse/web/page"
)

// export is a whole list as a file, as it is searched and sorted. Its name never
// comes from outside.
func (p *pages) export(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	q.Set("set", r.PathValue("set"))
	a, err := readAsk(q)
	if err != nil || a.Set == setAliases || a.Set == setAutomatic || r.PathValue("set") == "" {
		return page.NotFound{What: "This file"}
	}
	ask := a.query()
	ask.From, ask.Max = 0, math.MaxInt32
	list := p.Lists.List(ask)
	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="gatehouse-`+a.Set+`.csv"`)
	out := csv.NewWriter(w)
	out.UseCRLF = true // RFC 4180
	_ = out.Write([]string{"source", "kind", "why", "rule", "times", "since", "until", "packets", "bytes", "last packet", "by"})
	c := p.Running()
	for _, e := range list.Entries {
		_ = out.Write(cells(e, ruleOf(c, e.Rule)))
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return nil // a reader that went away is not our fault
	}
	return nil
}

// cells is one line of the file.
func cells(e quarantine.Entry, r rule) []string {
	_, word := kind(e)
	line := []string{called(e.Source), word, why(e), r.Name, strconv.Itoa(e.Times), stamp(e.Since), stamp(e.Until),
		fmt.Sprint(e.Packets), fmt.Sprint(e.Bytes), stamp(e.Last), e.By}
	for i, s := range line {
		line[i] = plain(s)
	}
	return line
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// plain keeps a spreadsheet from taking text for a formula: an apostrophe stands
// before what could begin one.
func plain(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r\n|%", rune(s[0])) {
		return "'" + s
	}
	return s
}
