package cell

import (
	"math"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// reading is what a node knows of a key after a sync. Immutable.
type reading struct {
	sequence int64         // of the cell that was current
	atMs     int64         // Unix ms: what known was weighed at
	steady   clock.Steady  // the same moment: what has drained since
	known    level.Product // the level by two cells, * duration
	covered  [2]int64      // by slot: the part of each cell's count that is in known, or the others'
}

// at is the reading once a later cell has become current: it covers nothing of that.
func (r *reading) at(sequence int64) reading {
	next := *r
	next.sequence = sequence
	switch sequence - r.sequence {
	case 0:
	case 1:
		next.covered[slotOf(sequence)] = 0
	default:
		next.covered = [2]int64{}
	}
	return next
}

// cover keeps cost of others that a reply has brought between two readings apart from the
// local cost.
func (m *meter) cover(sequence int64, slot int, cost int64) {
	if r := m.reading.Load(); r != nil {
		next := r.at(sequence)
		next.covered[slot] += cost
		m.reading.Store(&next)
	}
}

// SyncPart is an entry's part in a sync, by cell: the previous one and the current one.
type SyncPart struct {
	alive    bool
	AgedOut  int64 // own cost that its cell has taken along unsent
	Sequence int64 // of the current cell
	full     bool  // a sync is wanted, and not only that the cost is sent
	before   float64
	Costs    [2]store.Cost // on their way
	Sends    [2]bool       // which of them are to be sent
	Read     [2]bool       // nothing is sent for the cell, and it should be read
}

// BeginSync puts unsent cost on its way. The previous cell need not be read once the origin has answered about it
// lateMs after its end.
func (es Estimates) BeginSync(h *Horizon, nowMs int64, now clock.Steady, k *Rules, lateMs int64,
	shared bool) (x SyncPart) {
	es.e.mu.Lock()
	defer es.e.mu.Unlock()
	durationMs := es.e.names.durationMs()
	if x.alive = es.e.flags.Load()&flagDead == 0; !x.alive {
		return x
	}
	nowMs = h.Bound(nowMs)
	// Or it stays in its cell, as the clock was set back.
	x.AgedOut, _ = es.e.rotateLocked(h, window.Sequence(nowMs, durationMs))
	x.Sequence = es.e.counter.sequence()
	x.full = es.e.Ledger().meter().wantSince.Load() != 0
	x.before = es.levelLocked(nowMs, now, k)
	for i, s := range [2]int64{x.Sequence - 1, x.Sequence} {
		if x.Costs[i], x.Sends[i] = es.e.Ledger().loadLocked(s, shared); !x.Sends[i] {
			x.Read[i] = x.full && (s == x.Sequence || !es.settledFor(x.Sequence, durationMs, lateMs))
		}
	}
	return x
}

// EndSync takes the reading that requests are judged by from now on, if x is full and its cell is current. It returns
// when the one before was taken, 0 for never, and how far the level has moved as a share of the limit it was asked by.
func (es Estimates) EndSync(h *Horizon, x *SyncPart, nowMs int64, now clock.Steady,
	k *Rules) (last clock.Steady, drift float64) {
	es.e.mu.Lock()
	defer es.e.mu.Unlock()
	if x.full && x.alive && es.e.counter.sequence() == x.Sequence {
		was := es.e.Reads().RefreshedAt()
		nowMs = h.Bound(nowMs)
		es.takeReadingLocked(nowMs, now)
		m := es.e.Ledger().meter()
		if limit := m.limit.Load(); was > 0 && limit > 0 {
			last, drift = was, math.Abs(es.levelLocked(nowMs, now, k)-x.before)/float64(limit)
		}
		m.wantSince.Store(0)
	}
	es.Unask()
	return last, drift
}

// settledFor is true once the origin has answered about the previous cell so late that every
// other node must have sent what it had for it: lateMs after its end.
func (es Estimates) settledFor(sequence, durationMs, lateMs int64) bool {
	r := es.e.Ledger().meter().reading.Load()
	return r != nil && r.atMs >= window.Start(sequence, durationMs)+lateMs
}

// takeReadingLocked makes a reading of what is known now. Only cost that the origin has
// confirmed is covered by it: what came in during the round trip stays pending.
func (es Estimates) takeReadingLocked(nowMs int64, now clock.Steady) {
	seq, durationMs := es.e.counter.sequence(), es.e.names.durationMs()
	r := &reading{sequence: seq, atMs: max(nowMs, window.Start(seq, durationMs)), steady: now}
	for slot := range r.covered {
		r.covered[slot] = max(0, es.e.countIn(slot)-max(0, es.e.Ledger().unsentLocked(slot)))
	}
	slot := slotOf(seq)
	uncovered := window.Start(seq+1, durationMs) - r.atMs
	r.known = level.Mul(r.covered[slot], durationMs).Plus(level.Mul(r.covered[previousSlot(slot)], max(0, uncovered)))
	es.e.Ledger().meter().reading.Store(r)
	es.e.Reads().markRefreshed(now)
}

// levelLocked is the level that a request would be judged by.
func (es Estimates) levelLocked(nowMs int64, now clock.Steady, k *Rules) float64 {
	durationMs := es.e.names.durationMs()
	v := Verdict{Now: now}
	es.JudgeHeld(&v, nowMs, durationMs, es.e.Ledger().meter().limit.Load(), 0, k)
	return v.Level.Float(durationMs)
}

// Ask marks the entry as one that waits for a sync; first is false if it was already.
func (es Estimates) Ask() (first bool) { return es.e.flags.Or(flagAsked)&flagAsked == 0 }

// Unask takes the mark back.
func (es Estimates) Unask() { es.e.flags.And(^uint32(flagAsked)) }

// AskUnsent asks for an entry of the estimate mode with unsent cost.
func (es Estimates) AskUnsent() (first bool) {
	if !es.e.Flags().Estimates() {
		return false
	}
	es.e.mu.Lock()
	defer es.e.mu.Unlock()
	return (es.e.Flags().Restores() || es.e.Ledger().unsentLocked(0)+es.e.Ledger().unsentLocked(1) > 0) && es.Ask()
}

// WantsSync is true while a sync is wanted, and not only that the cost is sent.
func (es Estimates) WantsSync() bool {
	return es.e.Flags().Asked() && es.e.Ledger().meter().wantSince.Load() != 0
}
