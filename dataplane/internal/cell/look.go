package cell

import (
	"math"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// ActiveShare returns the larger of two cells' shares of their limits, or 0 if this node accepted nothing. It takes no
// lock: a rotation in between makes it a little wrong, once.
func (e *Entry) ActiveShare(sequence int64) (share float64) {
	seq := e.counter.sequence()
	for _, s := range []int64{seq - 1, seq} {
		if limit := e.minLimits.get(slotOf(s)); limit != math.MaxInt64 && s >= sequence-1 {
			share = max(share, float64(1+e.counter.count(slotOf(s)))/float64(max(1, limit)))
		}
	}
	return share
}

// HasOthers reports whether other regions have counted in a cell.
func (e *Entry) HasOthers() bool { return e.othersIn(0) > 0 || e.othersIn(1) > 0 }

// InWindow returns the cost in the sliding window that ends at nowMs, and the region's own part of it. It takes no
// lock, so it can miss cost that moves meanwhile, or count it twice.
func (e *Entry) InWindow(nowMs int64) (count, regional int64) {
	durationMs := e.names.durationMs()
	seq := e.counter.sequence()
	elapsed := max(0, nowMs-window.Start(seq, durationMs))
	sum := func(sequence, uncoveredMs int64) {
		if uncoveredMs <= 0 {
			return
		}
		slot := slotOf(sequence)
		own := e.counter.count(slot)
		all := max(0, own+e.othersIn(slot))
		if e.flags.Load()&flagPrecise != 0 {
			if uncoveredMs < durationMs {
				all = e.Histories().counted(sequence, all, e.Histories().of(slot), durationMs-uncoveredMs, durationMs)
			}
			uncoveredMs = durationMs
		}
		count += window.Carried(all, uncoveredMs, durationMs)
		regional += window.Carried(min(own, all), uncoveredMs, durationMs)
	}
	sum(seq, min(durationMs, 2*durationMs-elapsed))
	sum(seq-1, durationMs-elapsed)
	if e.counter.sequence() != seq { // others decide about it right now
		return e.InWindow(nowMs)
	}
	return count, regional
}

// LowestLimit returns the lowest limit that was counted against, or -1 if there is none.
func (e *Entry) LowestLimit() int64 {
	if limit := min(e.minLimits.get(0), e.minLimits.get(1)); limit <= window.LimitMax {
		return limit
	}
	return -1
}

// Look is a reading of an entry, for people and tests.
type Look struct {
	Sequence          int64 // of current
	RefreshedAt       clock.Steady
	StrictUntil       clock.Steady // 0 where it is not strict
	Current, Previous CellLook
}

// CellLook is a reading of a cell.
type CellLook struct {
	Held              bool
	Counted           int64 // the count in its word
	Others            int64 // added to it when judging
	Accepted          int64 // of counted: by the region
	Claiming, Unsent  int64
	Settled, Named    int64
	Foreign, Credit   int64
	Carried           int64 // the part of others from cells that a clock set back made future cells
	Epoch             store.Epoch
	Sending, Restores bool
}

// Look reads an entry for a decision in a cell. If the clock has stepped back, it reads the entry's current cell from
// its start. A request can count meanwhile: each value that Look returns held at some moment of the call.
func (e *Entry) Look(sequence int64, now clock.Steady) (l Look) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.Sequence = sequence
	if seq := e.counter.sequence(); seq >= sequence {
		l.Sequence, l.RefreshedAt = seq, e.Reads().RefreshedAt()
	}
	l.Current, l.Previous = e.lookLocked(l.Sequence), e.lookLocked(l.Sequence-1)
	if e.Reads().IsStrict(now) {
		l.StrictUntil = e.Reads().strictUntil()
	}
	return l
}

// LookAt reads a cell.
func (e *Entry) LookAt(sequence int64) CellLook {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lookLocked(sequence)
}

func (e *Entry) lookLocked(sequence int64) (c CellLook) {
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return c
	}
	c.Held, c.Counted, c.Others = true, e.counter.count(slot), e.othersIn(slot)
	c.Accepted = c.Counted
	e.Ledger().lookLocked(slot, &c)
	return c
}

func (l Ledger) lookLocked(slot int, c *CellLook) {
	if l.books == nil {
		return
	}
	c.Claiming = l.claiming(slot)
	c.Accepted -= l.netted(slot) + c.Claiming
	c.Settled, c.Epoch = l.cells[slot].settled.Load(), l.epochs[slot]
	c.Unsent, c.Named = c.Accepted-c.Settled, l.named(slot)
	c.Foreign, c.Credit, c.Carried = l.foreignLocked(slot), l.credit(slot), l.carried(slot)
	flags := l.e.flags.Load()
	c.Sending, c.Restores = flags&(flagSending<<slot) != 0, flags&(flagRestore<<slot) != 0
}
