package setup

import (
	"net/netip"

	"gatehouse/firewall"
	"gatehouse/services/commit"
)

// wizardNote is what the alias of those who are never shut out says of its first entry.
const wizardNote = "wizard's browser"

// never is the changes, beside those of a step, that keep the browser of the
// first set-up from being shut out by a limit: one entry in the alias that
// limits exempt, as long as the address is inside the new local network. Later
// runs, and an alias that somebody has edited, are left alone.
func never(v commit.View, step []firewall.Change, browser netip.Addr) []firewall.Change {
	if _, again := find(v.Head, firewall.LAN); again {
		return nil
	}
	c := v.Config
	for _, ch := range step {
		next, err := ch.Apply(c)
		if err != nil {
			return nil // the step itself is refused
		}
		c = next
	}
	was, known := c.Alias(firewall.NeverQuarantine)
	if known && (len(was.Addrs) != 1 || was.Addrs[0].Note != wizardNote) {
		return nil
	}
	lan, _ := find(c, firewall.LAN)
	inside := lan.V4.Addr.IsValid() && lan.V4.Addr.Contains(browser) || lan.V6.Addr.IsValid() && lan.V6.Addr.Contains(browser)
	now := firewall.Alias{Name: firewall.NeverQuarantine, Kind: firewall.Addresses, Descr: "Limited like all others, but never locked out",
		Addrs: []firewall.Entry{{End: firewall.End{Kind: firewall.EndAddr, Addr: browser}, Note: wizardNote}}}
	switch {
	case !inside && known:
		return []firewall.Change{firewall.DeleteAlias{Name: was.Name}}
	case !inside || known && was.Addrs[0] == now.Addrs[0]:
		return nil
	case known:
		was.Addrs = now.Addrs
		return []firewall.Change{firewall.UpdateAlias{Name: was.Name, Alias: was}}
	}
	return []firewall.Change{firewall.AddAlias{Alias: now}}
}
