package memstore

import "sync/atomic"

// HubStats count what was asked of a way to a Hub, failed calls included, and the cells of calls that were answered.
type HubStats struct {
	Gets, Sends, Claims                 int64
	CellsRead, CellsAdded, CellsClaimed int64
}

// Calls is all of them.
func (s HubStats) Calls() int64 { return s.Gets + s.Sends + s.Claims }

type hubCounters struct {
	gets, sends, claims                 atomic.Int64
	cellsRead, cellsAdded, cellsClaimed atomic.Int64
}

// Stats is a snapshot.
func (h *Hub) Stats() HubStats {
	c := &h.counters
	return HubStats{c.gets.Load(), c.sends.Load(), c.claims.Load(), c.cellsRead.Load(), c.cellsAdded.Load(), c.cellsClaimed.Load()}
}
