package memstore

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/store"
)

// OriginStats count the calls of a way to an Origin, including failed calls, and the cells of calls that were answered.
// Claims are chunks with bounded costs.
type OriginStats struct {
	Gets, Sends, Claims                 int64
	CellsRead, CellsAdded, CellsClaimed int64
}

// Calls returns the number of all calls.
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

// sent counts the costs of an answered call of Send. Bounded costs count if they were added.
func (c *originCounters) sent(costs []store.Cost, reply *store.Reply) {
	for i := range costs {
		if costs[i].AtMost == 0 {
			c.cellsAdded.Add(1)
		} else if reply.Totals[i].Added {
			c.cellsClaimed.Add(1)
		}
	}
}

// Stats returns a snapshot of the counters.
func (h *Origin) Stats() OriginStats {
	c := &h.counters
	return OriginStats{c.gets.Load(), c.sends.Load(), c.claims.Load(), c.cellsRead.Load(), c.cellsAdded.Load(),
		c.cellsClaimed.Load()}
}
