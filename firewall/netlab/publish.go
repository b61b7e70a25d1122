package netlab

import (
	"context"
	"io"
	"net"
	"sync"
)

// Publish listens for TCP on an address of the machine the lab runs on (loopback, please: "127.0.0.1:0") and joins
// every connection with one that dial makes, usually by Dial of a host. It ends when the listener is closed or with the
// lab, which also ends the context of dial.
func (l *Lab) Publish(addr string, dial func(context.Context) (net.Conn, error)) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(l.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(l.ctx, func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go l.join(c, dial)
		}
	}()
	return ln, nil
}

// join carries bytes both ways until both are finished; the asker sees a closed connection if dial fails.
func (l *Lab) join(outer net.Conn, dial func(context.Context) (net.Conn, error)) {
	defer outer.Close()
	inner, err := dial(l.ctx)
	if err != nil {
		return
	}
	defer inner.Close()
	stop := context.AfterFunc(l.ctx, func() { outer.Close(); inner.Close() })
	defer stop()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{inner, outer}, {outer, inner}} {
		both.Go(func() {
			_, err := io.Copy(way[0], way[1])
			half, ok := way[0].(interface{ CloseWrite() error })
			if err == nil && ok && half.CloseWrite() == nil {
				return // finished in this direction only
			}
			outer.Close()
			inner.Close()
		})
	}
	both.Wait()
}
