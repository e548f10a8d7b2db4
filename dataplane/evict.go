package dataplane

import "time"

type eviction int

const (
	stays eviction = iota
	goneExpired
	goneIdle
)

// idleExpiry is how long a key whose window is still open is kept without a word of it
// from the origin, which holds its counts.
const idleExpiry = 10 * time.Minute

// evict ends the entry's life if it may go: nothing of it is queued, in flight or
// unsent, no strict deadline lies ahead, and
//
//   - both its cells have expired; or
//   - the origin holds all of it, it is below half its limit, and nothing was heard of
//     it for idleExpiry: whoever comes back reads it anew; or
//   - room is needed, no second request touched it since the hand last came by, and it
//     is below half its limit.
//
// In the estimate mode, where the origin hears of a key only now and then, it may go with
// unsent cost that no sync is wanted for: less than its floor.
//
// A key at its limit stays until its window ends, so that no flood of one-shot
// identifiers can wash a blocked caller clean.
func (e *entry) evict(nowMs int64, now steadyMs, graceMs int64, pressed, sends bool) eviction {
	if e.flags.Load()&flagDirty != 0 || e.isStrict(now) {
		return stays // without the lock: most entries that stay do so here
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	flags := e.flags.Load()
	if flags&(flagDirty|flagInReplay|flagKicked|flagInFlush|flagSending|flagSending1|flagAsked) != 0 || e.readingLocked(now) {
		return stays
	}
	seq := e.seq.Load()
	slot := slotOf(seq)
	word := e.words[slot].Load()
	if word&held != 0 {
		return stays
	}
	if e.book != nil && flags&flagEstimate == 0 {
		if sends && (e.unsentLocked(slot) > 0 || e.unsentLocked(previousSlot(slot)) > 0) {
			return stays // accepted, and about to be marked dirty
		}
	}
	result := goneExpired
	if !expiredAt(seq, e.names.durationMs(), nowMs-graceMs) {
		heard := e.heardAt.Load()
		idle := sends && flags&flagEstimate == 0 && heard > 0 && int64(now)-heard >= idleExpiry.Milliseconds()
		if !pressed && !idle {
			return stays
		}
		if !idle && flags&flagTouched != 0 {
			e.flags.And(^uint32(flagTouched))
			return stays
		}
		if flags&(flagPressed|flagPressed1) != 0 || e.others[0].Load() != 0 || e.others[1].Load() != 0 {
			return stays
		}
		result = goneIdle
	}
	e.flags.Or(flagDead)
	if !e.words[slot].CompareAndSwap(word, word|sealed) { // a request came
		e.flags.And(^uint32(flagDead))
		return stays
	}
	return result
}
