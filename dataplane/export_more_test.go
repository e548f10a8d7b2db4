package dataplane

import (
	"context"

	"github.com/weirhq/weir/shared/window"
)

// Entry stands for the memory that holds a key at this moment, nil for none. It is
// equal to an earlier one only if the key was not forgotten in between.
func (l *Limiter) Entry(k window.Key) any {
	if e := l.entryOf(k); e != nil {
		return e
	}
	return nil
}

// SweepTick is one tick of the sweep. It returns how many entries it looked at.
func (l *Limiter) SweepTick() (looked int) { return l.table.sweep(l.nowMs()) }

// BreakersOff lets every call to the origin through.
func (l *Limiter) BreakersOff() {
	for _, sh := range l.shards {
		sh.breaker.turnOff()
	}
}

// SyncOnce syncs the keys of the estimate mode that wait, in all shards.
func (l *Limiter) SyncOnce(ctx context.Context) error { return l.syncOnce(ctx) }

// Waiting is how many keys wait for a sync, and how many were not taken.
func (l *Limiter) Waiting() (keys int, refused int64) {
	for _, sh := range l.shards {
		keys += sh.syncs.size()
	}
	return keys, l.syncs.refused.Load()
}

// Asked is true while a key waits for a sync, and not only to be sent.
func (l *Limiter) Asked(k window.Key) bool {
	e := l.entryOf(k)
	return e != nil && e.flags.Load()&flagAsked != 0 && e.book.meter().wantSinceMs.Load() != 0
}

// Waits is true while a key waits to be sent or synced.
func (l *Limiter) Waits(k window.Key) bool {
	e := l.entryOf(k)
	return e != nil && e.flags.Load()&flagAsked != 0
}
