package link

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"gatehouse/services/link/wan"
)

// Neighbour reports whether a host with this IPv4 address answers ARP on the
// port's link. Nothing but two probes is sent (RFC 5227 section 2.1.1).
func Neighbour(ctx context.Context, device string, a netip.Addr) (bool, error) {
	return wan.Sockets{}.Taken(ctx, device, a)
}

// Answers reports whether a resolver answers at all, if only to say that there
// is no such name. It waits three seconds at most.
func Answers(ctx context.Context, resolver netip.Addr) bool {
	ctx, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, netip.AddrPortFrom(resolver, 53).String())
	}}
	_, err := r.LookupNS(ctx, "example.com.")
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e.IsNotFound
	}
	return err == nil
}
