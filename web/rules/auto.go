package rules

import (
	"fmt"
	"strings"

	"gatehouse/firewall"
)

// automatic is one rule that the box makes by itself, in the order of
// evaluation (design 6). It is shown and cannot be changed here.
type automatic struct {
	Action firewall.Action
	What   string // which packets
	Why    string
	Link   string // where it is set; empty: nowhere
}

// automatics is the automatic rules of one interface, before any written rule.
func automatics(c firewall.Config, name firewall.Name) []automatic {
	in, ok := c.Interface(name)
	if !ok {
		return nil
	}
	list := []automatic{{firewall.Pass, "Packets of known connections", "Replies come back by themselves; what fits no connection is dropped.", ""}}
	if in.V4.Mode == firewall.DHCP {
		list = append(list, automatic{firewall.Pass, "DHCP replies", "This port asks for its address by DHCP.", "/setup"})
	}
	if s, ok := c.Scope(name); ok && s.On {
		list = append(list, automatic{firewall.Pass, "DHCP requests", "The DHCP server runs here.", "/leases"})
	}
	list = append(list, automatic{firewall.Pass, "IPv6 neighbour discovery", "Without it IPv6 does not work at all.", ""})
	if in.BlockPrivate {
		list = append(list, automatic{firewall.Block, "Sources in private networks", "Nobody on the internet has such an address.", "/setup"})
	}
	if in.BlockBogons {
		list = append(list, automatic{firewall.Block, "Sources that nobody may use", "Reserved and documentation networks.", "/setup"})
	}
	list = append(list, automatic{firewall.Block, "Forged sources", "The way back would not lead through this port.", ""},
		automatic{firewall.Block, "Web pages by the address of another port", "The pages answer at the address of the port that you come in by.", ""})
	if in.Role == firewall.LAN {
		list = append(list, automatic{firewall.Pass, "Web pages of this box: TCP " + adminPorts(c.Admin), "So that no rule can lock you out.", ""})
	}
	return list
}

func adminPorts(a firewall.Admin) string {
	var ports []string
	for _, p := range a.Ports() {
		ports = append(ports, p.String())
	}
	return strings.Join(ports, ", ")
}

// before says how many automatic rules are folded, of which interface.
func before(name string, list []automatic) string {
	if name == "" {
		name = "Automatic"
	}
	return fmt.Sprintf("%s (%d)", name, len(list))
}
