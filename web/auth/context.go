package auth

import "context"

type sessionKey struct{}

// WithSession is for the router: it gives a request its session.
func WithSession(ctx context.Context, s Session) context.Context {
	return context.WithValue(ctx, sessionKey{}, s)
}

// SessionOf returns who asks; false on an open route without a session.
func SessionOf(ctx context.Context) (Session, bool) {
	s, ok := ctx.Value(sessionKey{}).(Session)
	return s, ok
}
