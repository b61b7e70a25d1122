package page

import (
	"fmt"
	"time"
)

// Ago is how long ago something was, in one unit: 40 s ago, 2 min ago.
func Ago(t, now time.Time) string {
	s := int(now.Sub(t).Seconds())
	switch {
	case s < 1:
		return "now"
	case s < 60:
		return fmt.Sprintf("%d s ago", s)
	case s < 3600:
		return fmt.Sprintf("%d min ago", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h ago", s/3600)
	}
	return Count(s/86400, "day") + " ago"
}
