package cell

import (
	"math"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// reading is a node's state of a key after a sync. Immutable.
type reading struct {
	sequence int64         // of the cell that was current
	atMs     int64         // Unix ms: when known was weighed
	steady   clock.Steady  // the same moment: drains are computed from it
	known    level.Product // the level by two cells, * duration
	covered  [2]int64      // by slot: the part of each cell's count that is in known, or of others
}

// at returns the reading for a later current cell, of which it covers nothing.
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

// SyncPart is an entry's part in a sync, by cell: the previous cell and the current cell.
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

// EndSync takes the reading by which requests are judged from now on, if x is full and its cell is current. It returns
// when the previous reading was taken, or 0 for never, and how far the level has moved as a share of the limit of the
// sync.
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

// settledFor reports whether the origin has answered about the previous cell so late that every other node must have
// sent its cost of that cell: lateMs after its end.
func (es Estimates) settledFor(sequence, durationMs, lateMs int64) bool {
	r := es.e.Ledger().meter().reading.Load()
	return r != nil && r.atMs >= window.Start(sequence, durationMs)+lateMs
}

// takeReadingLocked makes a reading of the counts. It covers only cost that the origin has confirmed: cost that was
// counted during the round trip stays pending.
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

// levelLocked returns the level by which a request would be judged.
func (es Estimates) levelLocked(nowMs int64, now clock.Steady, k *Rules) float64 {
	durationMs := es.e.names.durationMs()
	v := Verdict{Now: now}
	es.JudgeHeld(&v, nowMs, durationMs, es.e.Ledger().meter().limit.Load(), 0, k)
	return v.Level.Float(durationMs)
}

// LacksSync reports whether so much cost is unsent that it must not wait for the next request: more than a step, or any
// cost of a hot key. The cost may be in the previous cell, if the current cell began during a sync. A key that is held
// back waits for its next request all the same: see NewKeys.
func (es Estimates) LacksSync(floor int64) bool {
	if es.e.Flags().Have(flagHeldBack) {
		return false
	}
	seq := es.e.counter.sequence()
	unsent := max(0, es.e.Ledger().UnsentIn(seq)) + max(0, es.e.Ledger().UnsentIn(seq-1))
	limit := min(es.e.minLimits.get(0), es.e.minLimits.get(1))
	return unsent > 0 && (es.tier() == level.Hot || unsent >= level.Step(floor, limit))
}

// Ask marks the entry as waiting for a sync. first is false if the entry waited already.
func (es Estimates) Ask() (first bool) { return es.e.flags.Or(flagAsked)&flagAsked == 0 }

// Unask takes the mark back.
func (es Estimates) Unask() { es.e.flags.And(^uint32(flagAsked)) }

// AskUnsent marks an entry of the estimate mode with unsent cost as waiting for a sync.
func (es Estimates) AskUnsent() (first bool) {
	if !es.e.Flags().Estimates() {
		return false
	}
	es.e.mu.Lock()
	defer es.e.mu.Unlock()
	return (es.e.Flags().Restores() || es.e.Ledger().unsentLocked(0)+es.e.Ledger().unsentLocked(1) > 0) && es.Ask()
}

// WantsSync reports whether a sync is wanted, and not only that the cost is sent.
func (es Estimates) WantsSync() bool {
	return es.e.Flags().Asked() && es.e.Ledger().meter().wantSince.Load() != 0
}
