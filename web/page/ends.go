package page

import "gatehouse/firewall"

// EndNames is what a source or destination can be written as by name, for the
// suggestions of such a field: any, this box (when asked for), the nets and
// addresses of the interfaces, the address aliases.
func EndNames(c firewall.Config, box bool) []string {
	names := []string{"any"}
	if box {
		names = append(names, "this box")
	}
	for _, in := range c.Interfaces {
		names = append(names, string(in.Name)+" net", string(in.Name)+" address")
	}
	return append(names, addressAliases(c)...)
}

func addressAliases(c firewall.Config) (names []string) {
	for _, a := range c.Aliases {
		if a.Kind == firewall.Addresses {
			names = append(names, string(a.Name))
		}
	}
	return names
}

// PortNames is the port aliases, and the services that people forward or allow most.
func PortNames(c firewall.Config) []string {
	var names []string
	for _, a := range c.Aliases {
		if a.Kind == firewall.PortList {
			names = append(names, string(a.Name))
		}
	}
	return append(names, "http", "https", "ssh", "dns", "ntp", "smtp", "imaps", "rdp", "wireguard")
}
