package memstore

import "sync/atomic"

// OriginStats count what was asked of a way to an Origin, failed calls included, and the cells of calls that were
// answered. Claims are chunks with bounded costs.
type OriginStats struct {
	Gets, Sends, Claims                 int64
	CellsRead, CellsAdded, CellsClaimed int64
}

// Calls is all of them.
func (s OriginStats) Calls() int64 { return s.Gets + s.Sends + s.Claims }

type originCounters struct {
	gets, sends, claims                 atomic.Int64
	cellsRead, cellsAdded, cellsClaimed atomic.Int64
}

// send counts a call of Send.
func (c *originCounters) send(op Op) {
	if op == OpClaim {
		c.claims.Add(1)
		return
	}
	c.sends.Add(1)
}

// sent counts the cells of an answered call of Send.
func (c *originCounters) sent(op Op, cells int) {
	if op == OpClaim {
		c.cellsClaimed.Add(int64(cells))
		return
	}
	c.cellsAdded.Add(int64(cells))
}

// Stats is a snapshot.
func (h *Origin) Stats() OriginStats {
	c := &h.counters
	return OriginStats{c.gets.Load(), c.sends.Load(), c.claims.Load(), c.cellsRead.Load(), c.cellsAdded.Load(),
		c.cellsClaimed.Load()}
}
