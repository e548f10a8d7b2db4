package breaker

import (
	"sync/atomic"
	"time"
)

// Writes keeps whether a shard takes what nodes send it. Reads that the shard answers prove nothing about that: a Redis
// that is full, read-only or short of replicas answers reads and refuses writes, and then no node can count for others.
//
// A single failure says little, because a reply may be lost. From the second in a row on the shard counts as one that
// refuses writes, until a write succeeds, or until nobody has tried one for a while.
type Writes struct {
	failures atomic.Int64
	until    atomic.Int64  // by a steady clock, in ms: until which the last failure counts
	refusing *atomic.Int64 // shards with failuresMin failures or more: 0 spares decisions the look at theirs
}

const failuresMin = 2 // in a row

// NewWrites starts with writes that are taken. All shards of a limiter share refusing.
func NewWrites(refusing *atomic.Int64) *Writes { return &Writes{refusing: refusing} }

// Note takes in what became of a write at a time by a steady clock. A failure counts for validFor, unless a success
// comes first.
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

// Refused reports whether the shard refuses writes, as far as is known, at a time by the steady clock of Note.
func (w *Writes) Refused(nowMs int64) bool {
	return w.failures.Load() >= failuresMin && nowMs < w.until.Load()
}
