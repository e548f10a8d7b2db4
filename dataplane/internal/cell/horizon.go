package cell

import (
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// Horizon bounds how far a call moves an entry on: to no cell that has not begun by the clock.
//
// A call reads its time once, and comes to the entry later. If the clock is set back in between, the entry may have
// been replaced meanwhile, see SetRight. The time from before the step must not move the replacement on again: it would
// drop the counts that were carried over, and the key could spend its limit once more.
//
// It cannot, because each move reads the clock once more. Let r be the reading of the clock by which SetRight chose the
// cell of the replacement. The replacement is published after r. Each later move of it, and each decision to evict it
// as expired, happens under a lock and takes a reading of the clock under that lock, so after r. Readings are ordered:
// a reading that begins after r ended is no reading from before the step, see clock.Clock. So the replacement moves on
// to a cell only once the clock has shown this cell after the step: because time has passed, or because the clock was
// set ahead again. A call whose time is beyond the horizon changes nothing, and is decided again by Bound.
//
// Callers that pass their own times can lead the clock, by as much as clock.Clock.Near allows.
//
// It is immutable, and belongs to a Table.
type Horizon struct {
	wall  *clock.Clock
	given bool // the times are callers' own
}

// Horizon returns the horizon for times that callers bring, if given is set, or for the clock's own times.
func (t *Table) Horizon(given bool) *Horizon {
	if given {
		return &t.horizons[1]
	}
	return &t.horizons[0]
}

// Given reports whether it is the horizon of times that callers bring.
func (h *Horizon) Given() bool { return h.given }

// leadMs returns how far the horizon is ahead of the clock.
func (h *Horizon) leadMs() int64 {
	if !h.given {
		return 0
	}
	return h.wall.LeadMs() + aheadMs
}

// Bound returns tMs, a time that was read earlier, or the clock's time if tMs is beyond the horizon now.
func (h *Horizon) Bound(tMs int64) int64 {
	if nowMs := h.wall.ReadMs(); tMs > nowMs+h.leadMs() {
		return nowMs
	}
	return tMs
}

// shows reports whether a cell has begun.
func (h *Horizon) shows(sequence, durationMs int64) bool {
	return window.Start(sequence, durationMs) <= h.wall.ReadMs()+h.leadMs()
}

// bound returns the sequence in which to make the first entry of a key, found by an earlier time. It is the clock's
// sequence if the cell is beyond the horizon, or ended so long ago that an entry of the key may just have been evicted
// as expired. Callers must hold the lock under which entries are evicted, so that no key comes back empty in a cell in
// which it has counted.
func (h *Horizon) bound(sequence, durationMs, graceMs int64) int64 {
	nowMs := h.wall.ReadMs()
	if window.Start(sequence, durationMs) > nowMs+h.leadMs() || expiredAt(sequence, durationMs, nowMs-graceMs) {
		return window.Sequence(nowMs, durationMs)
	}
	return sequence
}

// past reports whether a cell had expired so long before a time, and has by the clock now too. The caller has read the
// entry's word before, and ends the entry only if that has not changed: all that was counted then was counted before
// the clock showed that the cell had expired.
func (h *Horizon) past(sequence, durationMs, tMs, graceMs int64) bool {
	return expiredAt(sequence, durationMs, tMs-graceMs) && expiredAt(sequence, durationMs, h.Bound(tMs)-graceMs)
}
