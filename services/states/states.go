// Package states cuts the connections that a new policy denies. Accepting known
// connections first means that a new block rule would not touch them (kernel
// fact 7); a revert cannot bring them back, and the plan says so.
package states

import (
	"context"
	"fmt"
	"log/slog"

	"gatehouse/firewall"
	"gatehouse/firewall/simulate"
)

// Conntrack is the kernel's connection table.
type Conntrack interface {
	// Flows calls f for every entry; an error of f ends it.
	Flows(ctx context.Context, f func(firewall.Flow) error) error
	// Cut deletes entries and tells how many were still there.
	Cut(ctx context.Context, flows []firewall.Flow) (int, error)
}

// Cutter decides every connection anew.
type Cutter struct {
	log   *slog.Logger
	table Conntrack
	facts func() firewall.Facts
}

// New makes a Cutter; facts is asked at each Cut, for who is shut out too.
func New(log *slog.Logger, table Conntrack, facts func() firewall.Facts) *Cutter {
	return &Cutter{log: log, table: table, facts: facts}
}

// Cut ends the connections whose first packet cfg would not pass, or would
// translate elsewhere, also because their source is shut out by now, and those
// that a limit refused. It leaves the others alone.
func (c *Cutter) Cut(ctx context.Context, cfg firewall.Config) error {
	eval := simulate.New(cfg, c.facts())
	var denied []firewall.Flow
	err := c.table.Flows(ctx, func(f firewall.Flow) error {
		if !eval.Survives(f) {
			denied = append(denied, f)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list connections: %w", err)
	}
	if len(denied) == 0 {
		return nil
	}
	n, err := c.table.Cut(ctx, denied)
	if err != nil {
		return fmt.Errorf("cut connections: %w", err)
	}
	c.log.Info("connections cut", "count", n)
	return nil
}
