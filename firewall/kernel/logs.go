package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gatehouse/firewall"

	"github.com/florianl/go-nflog/v2"
	"golang.org/x/sys/unix"
)

// LogLine is one packet that a Log statement sent to its group.
type LogLine struct {
	Time   time.Time
	Prefix string
	In     string // devices; "" = none, or gone since
	Out    string
	Packet firewall.Packet // zero addresses when it was no IP packet
	Length int             // of the whole packet at the network layer, in bytes
}

// headBytes is how much of a logged packet is copied: room for the headers, not for secrets.
const headBytes = 256

// Logs calls fn for each packet that is logged to the group, at once, until ctx
// is done, one at a time. Only one listener can have a group.
func (k *Kernel) Logs(ctx context.Context, group uint16, fn func(LogLine)) error {
	var listener *nflog.Nflog
	err := k.inside(func() (err error) {
		listener, err = nflog.Open(&nflog.Config{
			Group: group, Copymode: nflog.CopyPacket, Bufsize: headBytes,
			QThresh: 1, // deliver each packet by itself; the default waits a second for more
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("open a log listener: %w", err)
	}
	defer func() { _ = listener.Close() }()
	if err := listener.Con.SetReadBuffer(8 << 20); err != nil {
		return fmt.Errorf("set up a log listener: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = listener.RegisterWithErrorFunc(ctx, func(a nflog.Attribute) int {
		fn(k.logLine(a))
		return 0
	}, func(err error) int {
		if errors.Is(err, unix.ENOBUFS) {
			k.log.Warn("log lines were lost", "group", group)
			return 0
		}
		cancel(fmt.Errorf("read logged packets: %w", err))
		return 1
	})
	if err != nil {
		return fmt.Errorf("listen to log group %d: %w", group, err)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (k *Kernel) logLine(a nflog.Attribute) LogLine {
	l := LogLine{Time: time.Now()}
	if a.Timestamp != nil {
		l.Time = *a.Timestamp
	}
	if a.Prefix != nil {
		l.Prefix = *a.Prefix
	}
	if a.InDev != nil {
		l.In = k.device(*a.InDev)
	}
	if a.OutDev != nil {
		l.Out = k.device(*a.OutDev)
	}
	if a.Payload != nil {
		l.Packet, l.Length, _ = parsePacket(*a.Payload)
	}
	l.Packet.In = l.In
	return l
}
