package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// inWindow is the cost in the sliding window that ends at nowMs, and the region's own part
// of it. It takes no lock: cost that moves meanwhile may be missed, or seen twice.
func (e *entry) inWindow(nowMs int64) (count, regional int64) {
	durationMs := e.names.durationMs()
	seq := e.seq.Load()
	current, previous := slotOf(seq), slotOf(seq-1)
	elapsed := max(0, nowMs-window.Start(seq, durationMs))
	sum := func(slot int, uncoveredMs int64) {
		if uncoveredMs <= 0 {
			return
		}
		own := wordCount(e.words[slot].Load())
		all := max(0, own+e.others[slot].Load())
		count += window.Carried(all, uncoveredMs, durationMs)
		regional += window.Carried(min(own, all), uncoveredMs, durationMs)
	}
	sum(current, min(durationMs, 2*durationMs-elapsed))
	sum(previous, durationMs-elapsed)
	if e.seq.Load() != seq { // others decide about it right now
		return e.inWindow(nowMs)
	}
	return count, regional
}

// lowest is the lowest limit that was counted against, -1 if none is known.
func (e *entry) lowest() int64 {
	if limit := min(e.lows.get(0), e.lows.get(1)); limit <= window.LimitMax {
		return limit
	}
	return -1
}

// look is a reading of an entry, for people and tests.
type look struct {
	sequence          int64 // of current
	refreshedAt       clock.Steady
	strictUntil       clock.Steady // 0 where it is not strict
	current, previous cellLook
}

// cellLook is a reading of a cell.
type cellLook struct {
	held             bool
	counted          int64 // the count in its word
	others           int64 // added to it when judging
	accepted         int64 // of counted: by the region
	claiming, unsent int64
	settled, named   int64
	foreign, credit  int64
	published, told  int64
	refused, sending bool
}

// look reads an entry for a decision in a cell. A clock that has stepped back stands at the start of the entry's
// current one. A request may count meanwhile: what is read is what was there at some moment of the call.
func (e *entry) look(sequence int64, now clock.Steady) (l look) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.sequence = sequence
	if seq := e.seq.Load(); seq >= sequence {
		l.sequence, l.refreshedAt = seq, e.refreshed()
	}
	l.current, l.previous = e.lookLocked(l.sequence), e.lookLocked(l.sequence-1)
	if e.isStrict(now) {
		l.strictUntil = clock.Steady(e.strictUntil.Load())
	}
	return l
}

// lookAt reads a cell.
func (e *entry) lookAt(sequence int64) cellLook {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lookLocked(sequence)
}

func (e *entry) lookLocked(sequence int64) (c cellLook) {
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return c
	}
	c.held, c.counted, c.others = true, wordCount(e.words[slot].Load()), e.others[slot].Load()
	c.accepted = c.counted
	if e.book == nil {
		return c
	}
	cell := &e.book.cells[slot]
	c.claiming = e.book.claiming(slot)
	c.accepted -= e.book.netted(slot) + c.claiming
	c.settled, c.published, c.told = cell.settled.Load(), cell.flushed, e.book.told(slot)
	c.unsent, c.named = c.accepted-c.settled, e.namedLocked(slot)
	c.foreign, c.credit = e.foreignLocked(slot), e.book.credit(slot)
	flags := e.flags.Load()
	c.refused, c.sending = flags&(flagRefused<<slot) != 0, flags&(flagSending<<slot) != 0
	return c
}
