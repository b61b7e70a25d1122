package page

import (
	"context"
	"net/netip"
	"time"
)

// Conn is what the server knows of the connection a request came on.
type Conn struct {
	Peer  netip.Addr // the other end, without zone, IPv4 unmapped
	Local netip.Addr // our end
	// Since is when the server accepted the connection. The kernel may have
	// shaken hands before an apply what is accepted after it, so a confirm asks
	// for a connection that is 2 s younger than the apply.
	Since time.Time
}

type connKey struct{}

// WithConn is for the server: it gives a connection's context its values.
func WithConn(ctx context.Context, c Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnOf returns the connection of a request's context; the zero Conn outside
// of the server. Its zero time is never younger than an apply.
func ConnOf(ctx context.Context) Conn {
	c, _ := ctx.Value(connKey{}).(Conn)
	return c
}

// ConnTime returns when the request's connection was accepted.
func ConnTime(ctx context.Context) time.Time { return ConnOf(ctx).Since }
