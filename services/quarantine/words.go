package quarantine

import (
	"fmt"

	"gatehouse/firewall"
)

// Name is the source as a person reads it: one address without its length.
func (e Entry) Name() string {
	if e.Source.IsSingleIP() {
		return e.Source.Addr().String()
	}
	return e.Source.String()
}

// Why says in a few words why the source is shut out: "104 open, limit 100". By
// hand it is what the person wrote, which is for the page to make harmless.
func (e Entry) Why() string {
	var said string
	switch {
	case e.Rule == "" && e.Reason == "":
		return "added by hand, without a reason"
	case e.Rule == "":
		return e.Reason
	case e.What == firewall.OverOpen && e.Open > 0:
		said = fmt.Sprintf("%d open, limit %d", e.Open, e.Limit.Open)
	case e.What == firewall.OverOpen:
		said = fmt.Sprintf("more than %d open", e.Limit.Open)
	default:
		said = fmt.Sprintf("more than %d new in %s", e.Limit.New, firewall.Seconds(e.Limit.Window))
	}
	if e.Kind == Quarantine && e.Limit.Over == firewall.LockOut && e.Times > 1 {
		return fmt.Sprintf("%s lock-out in %s: %s", Ordinal(e.Times), firewall.Seconds(e.Limit.StrikeWindow), said)
	}
	return said
}

// Ordinal is 1st, 2nd, 3rd, 4th.
func Ordinal(n int) string {
	end := "th"
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		end = "st"
	case n%10 == 2:
		end = "nd"
	case n%10 == 3:
		end = "rd"
	}
	return fmt.Sprintf("%d%s", n, end)
}
