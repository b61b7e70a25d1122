package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// batch is a list of changes that the kernel makes together or not at all. The
// messages are numbered from 1; parts remembers what each is about, since the
// kernel only names the number.
type batch struct {
	msgs    []byte
	parts   []part
	last    int     // offset of the last message
	sets    uint32  // ids given to sets of this batch
	refused []error // what could not be encoded
}

type part struct {
	origin ruleset.Origin
	what   string
}

// add appends one message of type msg (unix.NFT_MSG_*).
func (b *batch) add(msg, flags uint16, origin ruleset.Origin, what string, body attrs) {
	b.parts = append(b.parts, part{origin, what})
	b.last = len(b.msgs)
	if more := unix.NLMSG_HDRLEN + genmsg + len(body); cap(b.msgs)-b.last < more {
		b.msgs = slices.Grow(b.msgs, b.last+more) // append grows long slices in too small steps
	}
	b.msgs = appendMessage(b.msgs, nft(msg), flags, uint32(len(b.parts)), unix.NFPROTO_INET, 0, body)
}

// setID is a new id by which rules of the batch name a set of the batch.
func (b *batch) setID() uint32 {
	b.sets++
	return b.sets
}

func nft(msg uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | msg }

// errUnheard says that the kernel's answer got lost: what it did must be read back.
var errUnheard = errors.New("the kernel's answer to a batch was lost")

// batchGenID is NFNL_BATCH_GENID of linux/netfilter/nfnetlink.h.
const batchGenID = 1

// transact sends the batch and gathers what the kernel has against it. Without
// commit the batch lacks its end: the kernel checks all and takes all back. A
// ruleset that is no longer of the generation makes it ERESTART.
func (s *sock) transact(b *batch, generation uint32, commit bool) error {
	if len(b.parts) == 0 {
		return nil
	}
	// The last message, and only it, is acknowledged when all went well.
	flags := binary.NativeEndian.Uint16(b.msgs[b.last+6:])
	binary.NativeEndian.PutUint16(b.msgs[b.last+6:], flags|unix.NLM_F_ACK)

	var gen attrs
	gen.u32(batchGenID, generation)
	msgs := make([]byte, 0, len(b.msgs)+100)
	msgs = appendMessage(msgs, unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, gen)
	msgs = append(msgs, b.msgs...)
	if commit {
		msgs = appendMessage(msgs, unix.NFNL_MSG_BATCH_END, 0, uint32(len(b.parts))+1, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	}
	s.drain()
	if err := s.send(msgs); err != nil {
		return fmt.Errorf("send a batch of %d messages, %d bytes: %w", len(b.parts), len(msgs), err)
	}
	return s.answers(b)
}

// answers reads the answers to a batch. They are all there when the send returns.
func (s *sock) answers(b *batch) error {
	var refusals []error
	heard, lost := false, false
	for {
		data, err := s.receive(true)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if errors.Is(err, unix.ENOBUFS) {
			lost = true
			continue
		}
		if err != nil {
			return err
		}
		err = messages(data, func(m message) error {
			if m.typ != unix.NLMSG_ERROR || int(m.seq) > len(b.parts) {
				return nil
			}
			heard = heard || int(m.seq) == len(b.parts)
			err := b.refusal(m)
			if errors.Is(err, unix.ERESTART) {
				return err
			}
			if err != nil {
				refusals = append(refusals, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	switch {
	case len(refusals) > 0:
		return errors.Join(refusals...)
	case !heard || lost:
		return errUnheard
	}
	return nil
}

// drain throws away what an earlier exchange left behind.
func (s *sock) drain() {
	for {
		if _, err := s.receive(true); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// refusal is what an NLMSG_ERROR message says, nil for an acknowledgement.
func (b *batch) refusal(m message) error {
	err := ackError(m.body)
	if err == nil || errors.Is(err, errAttr) {
		return err
	}
	errno, _ := err.(syscall.Errno)
	r := &Refusal{Detail: "the whole table", Errno: errno, message: m.seq}
	if m.seq > 0 {
		p := b.parts[m.seq-1]
		r.Part, r.Detail = p.origin, p.what
	}
	if words := extack(m); words != "" {
		r.Detail += ": " + words
	}
	return r
}

// extack is the text that the kernel adds to an error, "" when it has none
// (linux/netlink.h, enum nlmsgerr_attrs).
func extack(m message) string {
	const nlmsgerrAttrMsg = 1
	skip := 4 + unix.NLMSG_HDRLEN
	if m.flags&unix.NLM_F_ACK_TLVS == 0 || len(m.body) < skip {
		return ""
	}
	if m.flags&unix.NLM_F_CAPPED == 0 { // our own message is quoted whole
		skip = 4 + int(binary.NativeEndian.Uint32(m.body[4:]))
	}
	if skip > len(m.body) {
		return ""
	}
	return str(find(m.body[skip:], nlmsgerrAttrMsg))
}
