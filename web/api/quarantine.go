package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"gatehouse/services/quarantine"
)

// Release is the body of release: addresses and networks as typed.
type Release struct {
	Sources []string `json:"sources"`
}

// ShutOut is everybody who is shut out: what `gatehouse show quarantine` shows.
type ShutOut []quarantine.Entry

func (a *api) release(r *http.Request) (any, error) {
	var in Release
	if err := read(r, &in); err != nil {
		return nil, err
	}
	return a.Release(r.Context(), in.Sources)
}

// ShutOutPart is how many entries one answer holds: there can be very many.
const ShutOutPart = 5000

func (a *api) shutOut(r *http.Request) (any, error) {
	from, err := strconv.Atoi(r.URL.Query().Get("from"))
	if err != nil || from < 0 {
		return nil, errors.New("from is a number of entries to leave out")
	}
	return a.ShutOut(from), nil
}

// Text is the list for a terminal, as it is now.
func (s ShutOut) Text(now time.Time) string {
	if len(s) == 0 {
		return "Nobody is locked out or in quarantine.\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SOURCE\tLEAVES\tSINCE\tDROPPED\tWHY")
	for _, e := range s {
		leaves := "when released"
		if !e.Until.IsZero() {
			leaves = "in " + max(e.Until.Sub(now), 0).Round(time.Second).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", e.Name(), leaves, e.Since.Format(time.DateTime), e.Packets, plain(e.Why()))
	}
	_ = w.Flush() // a Builder takes everything
	return b.String()
}

// plain leaves nothing in a text that a terminal would obey or a column break at.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, s)
}
