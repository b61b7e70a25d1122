package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"gatehouse/web/page"
)

// The limits of a listener. A browser needs six connections, one with HTTP/2.
const (
	connsTotal  = 1024
	connsSource = 64
	streams     = 64
	headerLimit = 32 << 10
	headerTime  = 5 * time.Second
	readTime    = 30 * time.Second // for a whole request
	writeTime   = 60 * time.Second // for a whole answer; live events lift it
	idleTime    = 60 * time.Second
)

// Server listens: HTTPS for the pages, HTTP only to send people there.
type Server struct {
	log   *slog.Logger
	https *http.Server
	http  *http.Server
	caps  *caps

	mu     sync.Mutex // guards the fields below
	secure net.Listener
	plain  net.Listener
	port   uint16                  // of secure, for the redirect
	bound  map[uint16]net.Listener // open, and not served yet
	wait   sync.WaitGroup
}

// NewServer returns a Server for the pages h with the certificate cert.
// Requests see their context end when ctx ends.
func NewServer(ctx context.Context, log *slog.Logger, h http.Handler, cert *Cert) *Server {
	s := &Server{log: log, caps: newCaps(connsTotal, connsSource)}
	server := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler:           h,
			ReadHeaderTimeout: headerTime,
			ReadTimeout:       readTime,
			WriteTimeout:      writeTime,
			IdleTimeout:       idleTime,
			MaxHeaderBytes:    headerLimit,
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams},
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // bad handshakes of strangers
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ConnContext:       stamp,
		}
	}
	s.https, s.http = server(h), server(http.HandlerFunc(s.redirect))
	s.https.TLSConfig = &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: cert.Get,
		CipherSuites: []uint16{ // of TLS 1.2: forward secret and AEAD only
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		NextProtos: []string{"h2", "http/1.1"},
	}
	return s
}

// Bind opens ports of all addresses without answering yet: who cannot have them
// learns it before anything else is done. The next Listen serves on those that it
// names and closes the others. An error (a port that is taken) leaves none open.
func (s *Server) Bind(ports ...uint16) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound = map[uint16]net.Listener{}
	for _, port := range ports {
		l, err := s.open(nil, port)
		if err != nil {
			return errors.Join(err, s.unbind())
		}
		if l != nil {
			s.bound[port] = l
		}
	}
	return nil
}

// unbind closes what Bind opened and nobody serves. The caller holds mu.
func (s *Server) unbind() error {
	var errs []error
	for port, l := range s.bound {
		errs = append(errs, l.Close())
		delete(s.bound, port)
	}
	return errors.Join(errs...)
}

// Listen serves on these ports of all addresses; plain 0 means no redirect.
// Ports that are open already stay as they are; others are closed after the
// new ones are open, and connections on them go on. An error (a port that is
// taken) changes nothing.
func (s *Server) Listen(https, plain uint16) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	secure, err := s.open(s.secure, https)
	if err != nil {
		return err
	}
	redirect, err := s.open(s.plain, plain)
	if err != nil {
		if secure != s.secure && secure != nil {
			err = errors.Join(err, secure.Close())
		}
		return err
	}
	s.port = https
	s.secure = s.change(s.secure, secure, func(l net.Listener) error { return s.https.ServeTLS(l, "", "") })
	s.plain = s.change(s.plain, redirect, s.http.Serve)
	return s.unbind()
}

// Serve serves on listeners that are open already: port 0 in tests, or sockets
// handed in. plain may be nil.
func (s *Server) Serve(secure, plain net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := secure.Addr().(*net.TCPAddr); ok {
		s.port = uint16(a.Port)
	}
	s.secure = s.change(s.secure, secure, func(l net.Listener) error { return s.https.ServeTLS(l, "", "") })
	if plain != nil {
		s.plain = s.change(s.plain, plain, s.http.Serve)
	}
}

// Close stops listening and ends every connection.
func (s *Server) Close() error {
	err := errors.Join(s.https.Close(), s.http.Close())
	s.mu.Lock()
	err = errors.Join(err, s.unbind())
	s.mu.Unlock()
	s.wait.Wait()
	return err
}

// open returns the listener for a port: have, when it is that already.
func (s *Server) open(have net.Listener, port uint16) (net.Listener, error) {
	if port == 0 {
		return nil, nil
	}
	if have != nil {
		if a, ok := have.Addr().(*net.TCPAddr); ok && a.Port == int(port) {
			return have, nil
		}
	}
	if l := s.bound[port]; l != nil {
		delete(s.bound, port)
		return l, nil
	}
	l, err := net.Listen("tcp", ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return l, nil
}

// change swaps one listener for another and serves on it.
func (s *Server) change(have, want net.Listener, serve func(net.Listener) error) net.Listener {
	if have == want {
		return want
	}
	if want != nil {
		s.wait.Go(func() {
			err := serve(&capped{Listener: want, caps: s.caps})
			if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				s.log.Error("listener ended", "addr", want.Addr(), "err", err)
			}
		})
	}
	if have != nil {
		if err := have.Close(); err != nil {
			s.log.Warn("listener not closed", "addr", have.Addr(), "err", err)
		}
	}
	return want
}

// redirect sends people to HTTPS at the address their connection came to,
// never to what the Host header says.
func (s *Server) redirect(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	port := s.port
	s.mu.Unlock()
	to := "https://" + literal(page.ConnOf(r.Context()).Local)
	if port != 443 {
		to += ":" + strconv.Itoa(int(port))
	}
	h := w.Header()
	h.Set("Location", to+page.Local(r.URL.RequestURI()))
	h.Set("Connection", "close")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusPermanentRedirect)
}

// stamp gives a connection's context its values. It runs right after accept.
func stamp(ctx context.Context, c net.Conn) context.Context {
	return page.WithConn(ctx, page.Conn{Peer: addr(c.RemoteAddr()), Local: addr(c.LocalAddr()), Since: time.Now()})
}

func addr(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
