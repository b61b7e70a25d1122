package kernel

import (
	"context"
	"fmt"

	"gatehouse/firewall/ruleset"

	"golang.org/x/sys/unix"
)

// Numbers of linux/netfilter/nf_tables.h that x/sys lacks.
const (
	nftaTableHandle = 4
	nftaSetHandle   = 16
)

// Made tells one making of a set from the next: what is in a set that was made
// anew, by us or by somebody else, is not what was put into the one before. Sets
// are numbered within their table, and tables within their namespace.
func (k *Kernel) Made(ctx context.Context, set string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s, err := k.dial() // not the writer's: it may be busy
	if err != nil {
		return "", err
	}
	defer s.close()
	var table, own uint64
	var a attrs
	a.text(unix.NFTA_TABLE_NAME, ruleset.Table)
	err = s.request(nft(unix.NFT_MSG_GETTABLE), 0, unix.NFPROTO_INET, a, func(m message) error {
		table = num(find(m.body, nftaTableHandle))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("set %s: %w", set, err)
	}
	a = a[:0]
	a.text(unix.NFTA_SET_TABLE, ruleset.Table)
	a.text(unix.NFTA_SET_NAME, set)
	err = s.request(nft(unix.NFT_MSG_GETSET), 0, unix.NFPROTO_INET, a, func(m message) error {
		own = num(find(m.body, nftaSetHandle))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("set %s: %w", set, err)
	}
	return fmt.Sprintf("%d/%d", table, own), nil
}
