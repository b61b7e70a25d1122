package tables

import (
	"fmt"
	"net/netip"
	"time"

	"gatehouse/services/quarantine"
	"gatehouse/web/page"
)

// called is a source as a person reads it: one address without its length.
func called(src netip.Prefix) string {
	if src.IsSingleIP() {
		return src.Addr().String()
	}
	return src.String()
}

// why says why a source is shut out.
func why(e quarantine.Entry) string { return page.Harmless(e.Why()) }

// kind is how a source is shut out, in a coloured word.
func kind(e quarantine.Entry) (page.Kind, string) {
	switch {
	case e.Would:
		return page.Info, "only counted"
	case e.Kind == quarantine.Quarantine:
		return page.Block, "quarantine"
	}
	return page.Reject, "locked out"
}

// leaves is how long it still lasts.
func leaves(e quarantine.Entry, now time.Time) string {
	switch {
	case e.Until.IsZero():
		return "until released"
	case !e.Until.After(now):
		return "now"
	}
	return "in " + length(e.Until.Sub(now))
}

// length is a length of time, more exact the shorter it is.
func length(d time.Duration) string {
	s := int(d.Seconds() + 0.5)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
	}
	return page.Count(s/86400, "day")
}

// size is an amount of bytes in three digits or so.
func size(n uint64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/1000, 0
	for f >= 999.5 && unit < 3 {
		f, unit = f/1000, unit+1
	}
	if f < 9.95 {
		return fmt.Sprintf("%.1f %cB", f, "kMGT"[unit])
	}
	return fmt.Sprintf("%.0f %cB", f, "kMGT"[unit])
}

// act is one line of the audit in words.
type act struct {
	Time   time.Time
	Who    string
	What   string
	Name   string // the source
	Reason string
	Again  string // path of the form that shuts it out again; "" when it makes no sense
}

// describe words a line of the audit.
func describe(a quarantine.Act) act {
	out := act{Time: a.Time, Who: a.Who.Account, What: a.What, Name: called(a.Source), Reason: page.Harmless(a.Reason)}
	switch {
	case !a.Source.IsValid():
		out.Name = page.Number(a.Count) + " sources"
	case a.What == quarantine.Released:
		out.Again = addPath(a.Source, "")
	}
	return out
}

// spared says why limits spare a source.
func spared(e quarantine.Exemption) string {
	if s, ok := map[string]string{"box": "this box", "gateway": "a gateway of this box", "resolver": "a name server of this box",
		"admin": "an administrator was signed in there within 15 minutes", "released": "released and never again"}[e.Why]; ok {
		return s
	}
	return page.Harmless(e.Why)
}
