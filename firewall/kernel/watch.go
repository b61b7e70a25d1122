package kernel

import (
	"context"
	"errors"
	"fmt"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// Watch calls onForeign whenever another program changed or deleted our table
// or a part of it, once per change, until ctx is done. It is also called when
// the kernel dropped events (ENOBUFS), because then nobody knows. Our own
// changes are told by the port of our socket (kernel fact 9).
func (k *Kernel) Watch(ctx context.Context, onForeign func()) error {
	s, err := k.dial()
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.conn.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return fmt.Errorf("subscribe to nftables events: %w", err)
	}
	defer s.stopWith(ctx)()
	foreign := false
	for {
		b, err := s.receive(false)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, unix.ENOBUFS):
			k.log.Warn("nftables events were lost")
			onForeign()
			continue
		case err != nil:
			return fmt.Errorf("read nftables events: %w", err)
		}
		err = messages(b, func(m message) error {
			if m.port == k.sock.port() || len(m.body) < genmsg {
				return nil
			}
			if m.typ == nft(unix.NFT_MSG_NEWGEN) { // the end of one change
				if foreign {
					onForeign()
				}
				foreign = false
				return nil
			}
			foreign = foreign || ours(m.typ, m.body)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read nftables events: %w", err)
		}
	}
}

// ours reports whether an event is about our table. In every kind of nftables
// message the first attribute is the table's name.
func ours(typ uint16, body []byte) bool {
	const nftaTable = 1
	return typ>>8 == unix.NFNL_SUBSYS_NFTABLES && body[0] == unix.NFPROTO_INET && str(find(body[genmsg:], nftaTable)) == ruleset.Table
}
