package breaker

import (
	"sync/atomic"
	"time"
)

// Writes tracks whether a shard accepts writes. Successful reads do not show that: a Redis that is full, read-only or
// short of replicas answers reads and refuses writes, and then no node's cost reaches other nodes.
//
// A single failure may only be a lost reply. After failuresMin failures in a row the shard counts as refusing writes,
// until a write succeeds or there has been no write for validFor.
type Writes struct {
	failures atomic.Int64
	until    atomic.Int64  // end of validFor after the last failure, in ms of a steady clock
	refusing *atomic.Int64 // number of shards that refuse writes; while it is 0, decisions need not look at their shard
}

const failuresMin = 2 // in a row

// NewWrites returns a Writes that does not refuse. All shards of a limiter share refusing.
func NewWrites(refusing *atomic.Int64) *Writes { return &Writes{refusing: refusing} }

// Note records the result of a write at a time of a steady clock. A failure counts for validFor, or
// until a success.
func (w *Writes) Note(err error, nowMs int64, validFor time.Duration) {
	if err == nil {
		if w.failures.Load() != 0 && w.failures.Swap(0) >= failuresMin {
			w.refusing.Add(-1)
		}
		return
	}
	w.until.Store(nowMs + validFor.Milliseconds())
	if w.failures.Add(1) == failuresMin {
		w.refusing.Add(1)
	}
}

// Refused reports whether the shard refuses writes at nowMs, by the same steady clock as in Note.
func (w *Writes) Refused(nowMs int64) bool {
	return w.failures.Load() >= failuresMin && nowMs < w.until.Load()
}
