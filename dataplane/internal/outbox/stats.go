package outbox

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/histogram"
)

// Results of waits for a reply.
const (
	waitReplied = iota
	waitOutage  // no reply in time, or none to be expected
	waitResults
)

// Results of claims.
const (
	claimAdded = iota
	claimRefused
	claimFailed
	claimResults
)

// Causes for which accepted cost does not reach the origin before its cell expires.
const (
	DroppedExpired = iota // its cell expired while the origin was away
	DroppedFull           // the table had no room for its key
	droppedCauses
)

// Stats count events of an outbox since it was made.
type Stats struct {
	Origin  collect.Calls
	Merged  cell.Counters
	Dropped [droppedCauses]atomic.Int64 // by cause

	SyncsQueued  atomic.Int64 // estimates that were due, and queued for a sync
	SyncsRefused atomic.Int64 // a namespace's pending_max was reached
	Unsynced     atomic.Int64 // cost of the estimate mode below its floor that expired unsent

	replayedCells atomic.Int64
	restored      atomic.Int64
	flushes       atomic.Int64
	waits         [waitResults]atomic.Int64
	claims        [claimResults]atomic.Int64
	drift         *histogram.Histogram
	staleness     *histogram.Histogram
}

func (s *Stats) init() {
	s.Origin.Init()
	s.drift, s.staleness = collect.NewDrift(), collect.NewStaleness()
}

// DroppedCost returns the accepted cost that does not reach the origin before its cell expires.
func (s *Stats) DroppedCost() (cost int64) {
	for cause := range s.Dropped {
		cost += s.Dropped[cause].Load()
	}
	return cost
}

// Collect passes the metrics of the outbox to a sink.
func (o *Outbox) Collect(to collect.Sink) {
	m := &o.Stats
	to.Value(collect.Overshoot, m.Merged.Overshoot.Load())
	m.Origin.Collect(to)
	for _, sh := range o.shards {
		to.Value(collect.Breaker, int64(sh.asks.State()), sh.label, "asks")
		to.Value(collect.Breaker, int64(sh.sends.State()), sh.label, "sends")
		to.Value(collect.PendingSync, int64(sh.replay.pendingKeys()+sh.syncs.size()), sh.label)
	}
	to.Value(collect.Flushes, m.flushes.Load())
	to.Value(collect.Waits, m.waits[waitReplied].Load(), "replied")
	to.Value(collect.Waits, m.waits[waitOutage].Load(), "outage")
	to.Value(collect.Claims, m.claims[claimAdded].Load(), "added")
	to.Value(collect.Claims, m.claims[claimRefused].Load(), "refused")
	to.Value(collect.Claims, m.claims[claimFailed].Load(), "failed")
	to.Value(collect.Replayed, m.replayedCells.Load())
	to.Value(collect.Pending, o.PendingCost())
	to.Value(collect.Restored, m.restored.Load())
	to.Value(collect.Dropped, m.Dropped[DroppedExpired].Load(), "expired")
	to.Value(collect.Dropped, m.Dropped[DroppedFull].Load(), "full")
	to.Value(collect.Cache, m.SyncsQueued.Load(), "sync_queued")
	to.Value(collect.SyncRefused, m.SyncsRefused.Load())
	to.Value(collect.Unsynced, m.Unsynced.Load())
	to.Histogram(collect.Drift, m.drift)
	to.Histogram(collect.Staleness, m.staleness)
}
