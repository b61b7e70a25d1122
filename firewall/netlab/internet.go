package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// openInternet configures the internet side: addresses, routes, name server, web server.
func (l *Lab) openInternet(ctx context.Context) error {
	in := l.Inet
	for _, s := range [][2]string{
		{"net.ipv4.ip_forward", "1"}, {"net.ipv6.conf.all.forwarding", "1"},
		// A server of the provider may be reached through the gateway although it is on the same segment.
		{"net.ipv4.conf.all.send_redirects", "0"}, {"net.ipv4.conf.eth0.send_redirects", "0"},
	} {
		if err := in.Sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	near := []string{Gateway4 + "/24", Gateway6 + "/64"}
	for _, a := range NearHosts4() {
		near = append(near, a+"/24")
	}
	var far []string
	for _, a := range FarHosts4() {
		far = append(far, a+"/32")
	}
	for _, a := range Hosts6() {
		if netip.MustParsePrefix(near[1]).Contains(netip.MustParseAddr(a)) {
			near = append(near, a+"/64")
		} else {
			far = append(far, a+"/128")
		}
	}
	if err := errors.Join(in.AddAddr("eth0", near...), in.AddAddr("lo", far...), in.AddRoute(InsideNet6, BoxWAN6)); err != nil {
		return err
	}
	if err := l.serveNames(ctx); err != nil {
		return err
	}
	return l.serveWeb()
}

// serveNames answers for www.example.test and inet.example.test on every address of inet, port 53.
func (l *Lab) serveNames(ctx context.Context) error {
	p, err := l.Inet.Start(l.ctx, "dnsmasq", "--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--user=root",
		"--no-resolv", "--no-hosts", "--pid-file=", "--log-queries",
		"--host-record=www.example.test,"+Web4+","+Web6,
		"--host-record=inet.example.test,"+Gateway4+","+Gateway6)
	if err != nil {
		return err
	}
	_, err = p.Find(ctx, `started, version`)
	return err
}

// serveWeb answers on every address of inet, port 80, with one line that names the address it sees.
func (l *Lab) serveWeb() error {
	ln, err := l.Inet.Listen(":80")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		fmt.Fprintf(w, "This is the internet at %v. You are %s.\n", at, r.RemoteAddr)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(ln) }() // ends with the lab, which closes the listener
	return nil
}

// DHCP describes the provider's DHCP server. The zero value gives 203.0.113.100 to .150 for two minutes.
type DHCP struct {
	First, Last string        // of the pool, in 203.0.113.0/24
	Lease       time.Duration // 0 means two minutes, which is also dnsmasq's minimum
	Renew       time.Duration // T1, RFC 2131 section 4.4.5; 0 means half of Lease; dnsmasq takes no less than 4 s
	Rebind      time.Duration // T2; 0 means seven eighths of Lease
	// Server is an address for the server outside the pool's net, such as 10.64.0.1, as many providers have it: its
	// offers come from there, and a renewal to it goes through the gateway. "" means inet itself is the server.
	Server string
	// Extra are further arguments for dnsmasq.
	Extra []string
}

// ServeDHCP starts the provider's DHCP server on the WAN segment with no memory of older leases. Stop the process to
// take it away; start another to change it.
func (l *Lab) ServeDHCP(ctx context.Context, d DHCP) (*Process, error) {
	host := l.Inet
	if d.First == "" {
		d.First, d.Last = "203.0.113.100", "203.0.113.150"
	}
	if d.Lease == 0 {
		d.Lease = 2 * time.Minute
	}
	args := []string{"--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--user=root", "--pid-file=", "--port=0",
		"--log-dhcp", "--no-ping", "--dhcp-authoritative", "--interface=eth0", "--bind-interfaces", "--leasefile-ro",
		fmt.Sprintf("--dhcp-range=%s,%s,255.255.255.0,%d", d.First, d.Last, int(d.Lease/time.Second)),
		"--dhcp-option=option:router," + Gateway4, "--dhcp-option=option:dns-server," + Gateway4}
	for _, t := range []struct {
		option string
		after  time.Duration
	}{{"T1", d.Renew}, {"T2", d.Rebind}} {
		if t.after > 0 {
			args = append(args, fmt.Sprintf("--dhcp-option-force=option:%s,%d", t.option, int(t.after/time.Second)))
		}
	}
	if d.Server != "" {
		var err error
		if host, err = l.provider(ctx, d.Server); err != nil {
			return nil, err
		}
		args = append(args, "--shared-network=eth0,"+Gateway4)
	}
	p, err := host.Start(l.ctx, "dnsmasq", append(args, d.Extra...)...)
	if err != nil {
		return nil, err
	}
	if _, err := p.Find(ctx, `started, version|DHCP, IP range`); err != nil {
		return nil, err
	}
	return p, nil
}

// provider returns the machine that has the DHCP server's address on the WAN segment and is reached through inet.
func (l *Lab) provider(ctx context.Context, addr string) (*Host, error) {
	server, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, err
	}
	h, err := l.machine("isp")
	if err != nil {
		if h, err = l.AddHost(ctx, "isp", 0); err != nil {
			return nil, err
		}
	}
	// inet takes the last address of the server's /24 to reach it.
	b := server.As4()
	b[3] = 254
	return h, errors.Join(
		h.AddAddr("eth0", addr+"/24"),
		l.Inet.AddAddr("eth0", netip.AddrFrom4(b).String()+"/24"),
		h.AddDirectRoute("203.0.113.0/24", "eth0"),
		h.AddRoute("default", netip.AddrFrom4(b).String()),
	)
}

func (l *Lab) machine(name string) (*Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hosts {
		if h.Name == name {
			return h, nil
		}
	}
	return nil, fmt.Errorf("netlab: no host %s", name)
}
