package main

import (
	"gatehouse/web/draft"
	"gatehouse/web/page"
	"gatehouse/web/tables"
)

// tables wires the pages of who is shut out.
func (b *box) tables(desk draft.Desk) []page.Route {
	return tables.New(tables.Deps{Desk: desk, Lists: b.quarantine, Keeper: b.quarantine, Watch: b.quarantine,
		Running: b.running, Facts: b.link.Facts, Leases: b.dhcp.List, Flows: b.kernel.Flows, Waiting: b.auth.Waiting})
}

// countShutOut is the number beside the menu entry of the tables.
func (b *box) countShutOut() int {
	n := b.quarantine.Counts()
	return n.Quarantine + n.LockOuts
}
