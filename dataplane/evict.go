package dataplane

type eviction int

const (
	stays eviction = iota
	goneExpired
	goneIdle
)

// evict ends the entry's life if it may go: nothing of it is queued, in flight or
// unsent, no strict deadline lies ahead, and both its cells have expired; or, when
// room is needed, it is untouched since the hand last came by and both its cells
// are below half their limit. A key at its limit stays until its window ends, so
// that no flood of one-shot identifiers can wash a blocked caller clean.
func (e *entry) evict(nowMs int64, pressed, sends bool) eviction {
	flags := e.flags.Load()
	if flags&flagDirty != 0 || e.strictUntil.Load() > nowMs {
		return stays
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if flags&(flagInReplay|flagInFlush) != 0 || e.readingLocked(nowMs) {
		return stays
	}
	seq := e.seq.Load()
	slot := slotOf(seq)
	word := e.words[slot].Load()
	if b := e.book; b != nil {
		if b.cells[0].reserved+b.cells[1].reserved != 0 {
			return stays
		}
		if sends && (e.unsentLocked(slot) > 0 || e.unsentLocked(previousSlot(slot)) > 0) {
			return stays // accepted, and about to be marked dirty
		}
	}
	result := goneExpired
	if !expiredAt(seq, e.names.durationMs(), nowMs) {
		if !pressed {
			return stays
		}
		if flags&flagTouched != 0 {
			e.flags.And(^uint32(flagTouched))
			return stays
		}
		if flags&flagPressed != 0 || e.others[0].Load() > 0 || e.others[1].Load() > 0 {
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
