package dataplane

import (
	"math"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// The protocol between regions: rows of the count store and bulletins.

// hotShare of the limit is from where a key is published at the fast interval.
const hotShare = 0.8

// publishTurn is a turn of the flush.
type publishTurn struct {
	nowMs       int64
	hotOnly     bool    // all but keys near their limit wait for the next slow turn
	floor, step float64 // of the tuning
}

// row is one that is due.
type row struct {
	cell          window.Cell
	count         int64
	shared, quiet bool
}

// publish takes an entry off the queue and returns its rows that are due; wait is
// true when it should stay for the next slow turn. Of a local key no other region hears.
func (e *entry) publish(turn *publishTurn, how loudness, local bool) (rows []row, wait bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flags.And(^uint32(flagInFlush))
	if local || e.flags.Load()&flagDead != 0 {
		return nil, false
	}
	seq := e.seq.Load()
	if turn.hotOnly && !e.hotLocked(slotOf(seq)) {
		return nil, true
	}
	for _, s := range []int64{seq - 1, seq} {
		slot, how := slotOf(s), how
		if e.names.generation(s) != 0 {
			how = loud // no bulletin tells of it
		}
		if count, due := e.dueLocked(slot, turn.floor, turn.step, how); due && !expiredAt(s, e.names.durationMs(), turn.nowMs) {
			e.flags.Or(flagOffered << slot)
			rows = append(rows, row{e.cell(s), count, e.foreignLocked(slot) > 0, how != loud})
		}
	}
	return rows, false
}

// refuseRow gives up on a cell's row.
func (e *entry) refuseRow(sequence int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.flags.Or(flagRefused << slot)
	}
}

// loudness is who is to hear of a row.
type loudness uint8

const (
	loud       loudness = iota // every node that imports
	quiet                      // nobody, and one node of the region stores it
	quietAlone                 // nobody, and this node cannot know whether another stores it
)

// dueLocked applies the filters in their order: own cost in the cell → the floor, or
// another region has published the cell, then everyone does → grown by a step since
// last published, or at all once within a step of the limit. quiet: everybody who needs to
// know is told by bulletins, and the row is but a lower bound for when this region's
// origin is wiped.
func (e *entry) dueLocked(slot int, floor, step float64, how loudness) (count int64, due bool) {
	e.netLocked(slot)
	count = e.acceptedLocked(slot)
	grown := count - e.book.cells[slot].flushed
	if grown <= 0 || e.flags.Load()&(flagRefused<<slot) != 0 {
		return 0, false
	}
	limit := e.lows.get(slot)
	if limit == math.MaxInt64 { // nothing was accepted here: the count came from elsewhere
		return 0, false
	}
	if how != loud {
		return count, e.dueQuietlyLocked(slot, count, limit, floor, how == quietAlone)
	}
	if e.foreignLocked(slot) == 0 && float64(count) < floor*float64(limit) {
		return 0, false
	}
	grows := max(1, int64(math.Ceil(step*float64(limit))))
	return count, grown >= grows || count > limit-grows
}

// Marks are the shares of its limit at which a region's count is stored when nobody is
// waiting for it: quietFloor, or the floor if that is higher, hotShare, the limit, and each
// doubling after that.
const quietFloor = 0.5

// markOf is how many marks a count has passed.
func markOf(count, limit int64, floor float64) (marks int) {
	share := float64(count) / float64(max(1, limit))
	for _, mark := range [...]float64{max(floor, quietFloor), hotShare, 1} {
		if count > 0 && share >= mark {
			marks++
		}
	}
	for doubled := 2.0; share >= doubled; doubled *= 2 {
		marks++
	}
	return marks
}

// dueQuietlyLocked is true when the count has passed a mark since it was last stored, and
// this node should store it. All nodes of a region see the count; the one whose increment
// passed the mark stores it. If it dies before, the next mark's node does. Who has no
// origin, or gets no answer from it, cannot know, and stores it.
func (e *entry) dueQuietlyLocked(slot int, count, limit int64, floor float64, alone bool) bool {
	if markOf(count, limit, floor) <= markOf(e.book.cells[slot].flushed, limit, floor) {
		return false
	}
	return alone || e.flags.Load()&(flagEstimate|flagCrossed<<slot) != 0
}

// cross notes that an increment of this node's took the region's count past a mark.
func (e *entry) cross(sequence, before, after int64, floor float64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return false
	}
	limit := e.lows.get(slot)
	if limit == math.MaxInt64 || markOf(after, limit, floor) <= markOf(before, limit, floor) {
		return false
	}
	e.flags.Or(flagCrossed << slot)
	return true
}

func (e *entry) hotLocked(slot int) bool {
	total := e.acceptedLocked(slot) + e.book.netted(slot) + e.others[slot].Load()
	return float64(total) >= hotShare*float64(e.lows.get(slot))
}

// published records what is known to be stored. A mark only moves up.
func (e *entry) published(sequence, count int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.book.cells[slot].flushed = max(e.book.cells[slot].flushed, count)
		e.flags.And(^uint32(flagOffered << slot)) // nothing larger was ever offered: flushes take turns
	}
}

// effectiveLocked is what a decision in a cell would go by now.
func (e *entry) effectiveLocked(sequence, nowMs int64) float64 {
	slot, durationMs := slotOf(sequence), e.names.durationMs()
	known := func(slot int) int64 { return e.acceptedLocked(slot) + e.foreignLocked(slot) }
	if sequence != e.seq.Load() { // closed: it matters by its weight in the cell after it
		return float64(known(slot))
	}
	return float64(window.Effective(known(slot), known(previousSlot(slot)), 0, max(nowMs, window.Start(sequence, durationMs)), durationMs))
}

// learnLocked raises what all other regions are known to have counted in a cell.
func (e *entry) learnLocked(m *counters, slot int, foreign int64) (grew bool) {
	foreign = min(foreign, countMax)
	before := e.foreignLocked(slot)
	if foreign <= before {
		return false
	}
	e.foreign(slot).Store(foreign - e.book.credit(slot) - e.book.netted(slot))
	m.exceeded(e, slot, foreign-before)
	return true
}

// activeShare is the larger of two cells' shares of their limits; 0 when nothing was
// accepted here. It takes no lock: a rotation in between makes it a little wrong, once.
func (e *entry) activeShare(sequence int64) (share float64) {
	seq := e.seq.Load()
	for _, s := range []int64{seq - 1, seq} {
		if limit := e.lows.get(slotOf(s)); limit != math.MaxInt64 && s >= sequence-1 {
			share = max(share, float64(1+wordCount(e.words[slotOf(s)].Load()))/float64(max(1, limit)))
		}
	}
	return share
}

// aged takes note of how old cost of another region is when a decision first uses it.
type aged interface{ Observe(age time.Duration) }

// news is cost of another region that was handed to this node and that no decision has
// used yet.
type news struct {
	from    aged  // nil: none
	countMs int64 // when its youngest was accepted, by the other node's clock
}

// newsLocked remembers what a cell was told, for the next decision on it.
func (e *entry) newsLocked(slot int, from aged, countedAtMs int64) {
	if countedAtMs <= 0 || from == nil {
		return
	}
	n := &e.book.rarely().news[slot]
	if n.from != nil && n.countMs <= countedAtMs {
		return // what waits is older: the decision that uses both is late by that
	}
	*n = news{from, countedAtMs}
	e.flags.Or(flagNews << slot)
}

// useNews is for the first decision after newsLocked: it takes note of how old the news
// is by now.
func (e *entry) useNews(nowMs int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flags.And(^uint32(flagNews | flagNews1))
	if e.book.rare == nil {
		return
	}
	for slot := range e.book.rare.news {
		if n := &e.book.rare.news[slot]; n.from != nil {
			n.from.Observe(time.Duration(nowMs-n.countMs) * time.Millisecond)
			*n = news{}
		}
	}
}

// tellable is what a bulletin may tell of a cell.
type tellable struct {
	sequence, limit int64
	count           int64 // of the region
	effective       float64
	foreign         bool // another region has told of it
}

// leaveTell takes the entry off the queue of what to tell of.
func (e *entry) leaveTell() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flags.And(^uint32(flagInTell))
}

// tellableCells are those that cost was accepted in and that a bulletin may tell of: the previous one and the current one.
func (e *entry) tellableCells(nowMs int64) (cells []window.Cell) {
	seq, durationMs := e.seq.Load(), e.names.durationMs()
	for _, s := range []int64{seq - 1, seq} {
		if e.lows.get(slotOf(s)) != math.MaxInt64 && !expiredAt(s, durationMs, nowMs) && e.names.generation(s) == 0 {
			cells = append(cells, e.cell(s))
		}
	}
	return cells
}

// tellCell raises what others are known to have counted in a cell, and has decide say whether the count is told, under
// the entry's lock.
func (e *entry) tellCell(m *counters, sequence, nowMs, foreign int64, decide func(tellable) (told bool)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, limit := slotOf(sequence), e.lows.get(slotOf(sequence))
	if seq := e.seq.Load(); sequence != seq && sequence != seq-1 || limit == math.MaxInt64 {
		return
	}
	e.netLocked(slot)
	count := e.acceptedLocked(slot)
	if count <= 0 {
		return
	}
	e.learnLocked(m, slot, foreign)
	if decide(tellable{sequence, limit, count, e.effectiveLocked(sequence, nowMs), e.foreignLocked(slot) > 0}) {
		e.book.rarely().told[slot] = count
	}
}

// foreignCount is what others are known to have counted in a cell, and who told.
type foreignCount struct {
	sequence, count int64
	from            aged // nil: none
	countedAtMs     int64
}

// learnCount merges a count of a bulletin. answer is true when this node has cost in the cell and has not told of it.
func (e *entry) learnCount(m *counters, current int64, in foreignCount) (agedOut int64, learned, answer bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	agedOut, alive := e.rotateLocked(current)
	slot, ok := e.slotLocked(in.sequence)
	if !alive || !ok || !e.learnLocked(m, slot, in.count) {
		return agedOut, false, false
	}
	e.newsLocked(slot, in.from, in.countedAtMs)
	return agedOut, true, e.book.told(slot) == 0 && e.acceptedLocked(slot) > 0
}

// merged is what came of an imported row.
type merged struct {
	agedOut                 int64
	held, changed, unshared bool // unshared: this node has cost in the cell that it has neither published nor told of
}

// mergeRow merges an imported row: the others' sum by maximum, the region's own component as a lower bound.
func (e *entry) mergeRow(m *counters, current int64, in foreignCount, own int64, floor, step float64) (r merged) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var alive bool
	if r.agedOut, alive = e.rotateLocked(current); !alive {
		return r
	}
	slot, ok := e.slotLocked(in.sequence)
	if !ok {
		return r
	}
	r.held = true
	if r.changed = e.learnLocked(m, slot, in.count); r.changed {
		e.newsLocked(slot, in.from, in.countedAtMs)
	}
	if own > e.acceptedLocked(slot) {
		e.floorLocked(slot, own)
		r.changed = true
	}
	e.book.cells[slot].flushed = max(e.book.cells[slot].flushed, own) // it is stored already
	_, due := e.dueLocked(slot, floor, step, loud)
	r.unshared = due || r.changed && e.book.told(slot) == 0 && e.acceptedLocked(slot) > 0
	return r
}
