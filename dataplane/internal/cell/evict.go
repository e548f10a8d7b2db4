package cell

import (
	"math"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
)

type eviction int

const (
	stays eviction = iota
	goneExpired
	goneIdle
	goneShare // its namespace has more than its share: see Table.fairShareLocked
)

// need is the reason to evict an entry.
type need uint8

const (
	needNone  need = iota // the sweep came by
	needRoom              // a first contact of a namespace that holds as much at most
	needShare             // the same, and no idle entry was found
)

// idleExpiry is how long the table keeps a key whose window is still open, and whose counts the origin holds, without
// an answer of the origin about it.
const idleExpiry = 10 * time.Minute

// evict ends the entry's life if it may go: no part of it is queued, in flight or unsent, and
//
//   - both its cells have expired; or
//   - the origin holds all of it, it is below half its limit, and nothing has arrived for it within idleExpiry: the
//     next request of the key reads it again; or
//   - room is needed, no second request touched it since the hand last passed, and it is below half its limit; or
//   - its key is held back, room is needed, and the entry meets the conditions of the previous case; or
//   - a namespace needs its share.
//
// In the last three cases the caller must count the entry in the overflow, unless the origin holds all of it. Only the
// last case ends an entry whose strict deadline is still ahead. In the estimate mode the origin receives a key's cost
// only now and then, so the entry may go with unsent cost for which no sync is wanted: less than its floor.
//
// So a key at its limit stays until its window ends, or its counts stay in the overflow. For example, a flood of
// identifiers that are used once can't erase the counts of a blocked caller.
func (e *Entry) evict(h *Horizon, nowMs int64, now clock.Steady, graceMs int64, why need) eviction {
	if e.flags.Load()&Dirty != 0 || why != needShare && e.Reads().IsStrict(now) {
		return stays // without the lock: most entries that stay do so here
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	flags := e.flags.Load()
	if flags&(Dirty|flagInReplay|flagFlush|flagRestore|flagRestore1|flagSending|flagSending1|flagAsked|flagClaiming|
		flagClaiming1) != 0 || e.Reads().readingLocked(now) {
		return stays
	}
	seq := e.counter.sequence()
	slot := slotOf(seq)
	word := e.counter.word(slot)
	if word&held != 0 {
		return stays
	}
	sends := flags&(flagFleet|flagEstimate) == flagFleet
	heldBack := flags&flagHeldBack != 0
	if sends && !heldBack && (e.Ledger().unsentLocked(slot) > 0 || e.Ledger().unsentLocked(previousSlot(slot)) > 0) {
		return stays // accepted, and about to be marked dirty
	}
	result := goneExpired
	if !h.past(seq, e.names.durationMs(), nowMs, graceMs) {
		refreshed := e.Reads().RefreshedAt()
		idle := sends && !heldBack && refreshed > 0 && int64(now-refreshed) >= idleExpiry.Milliseconds()
		if why == needShare {
			return e.endLocked(slot, word, goneShare)
		}
		if why == needNone && !idle {
			return stays
		}
		if !idle && flags&Used != 0 {
			e.flags.And(^uint32(Used))
			return stays
		}
		if e.deniedLocked(flags) {
			return stays
		}
		result = goneIdle
	}
	return e.endLocked(slot, word, result)
}

// deniedLocked reports whether a cell has counted half its limit or more, or was denied. It reads the counts, and a
// limit is recorded before its count grows, so a request that has counted but not finished is included. A cell in which
// this node accepted nothing has no limit, because the origin's cost of it can be read again.
func (e *Entry) deniedLocked(flags uint32) bool {
	if flags&(flagDenied|flagDenied1) != 0 {
		return true
	}
	for slot := range 2 {
		count := e.countIn(slot)
		if limit := e.minLimits.get(slot); count > 0 && limit != math.MaxInt64 && count >= limit-count {
			return true
		}
	}
	return false
}

// endLocked ends the entry's life, unless a request has counted since its word was read.
func (e *Entry) endLocked(slot int, word uint64, result eviction) eviction {
	e.flags.Or(flagDead)
	if !e.counter.swap(slot, word, word|sealed) {
		e.flags.And(^uint32(flagDead))
		return stays
	}
	return result
}
