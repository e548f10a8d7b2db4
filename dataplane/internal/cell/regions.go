package cell

import (
	"math"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// The protocol between regions: rows of the count store and bulletins.

// hotShare of the limit is from where a key is published at the fast interval.
const hotShare = 0.8

// PublishTurn is a turn of the flush.
type PublishTurn struct {
	NowMs       int64
	HotOnly     bool    // all but keys near their limit wait for the next slow turn
	Floor, Step float64 // of the tuning
}

// Row is one that is due.
type Row struct {
	Cell          window.Cell
	Count         int64
	Shared, Quiet bool
}

// Publish takes an entry off the queue and returns its rows that are due; wait is
// true when it should stay for the next slow turn. Of a local key no other region hears.
func (e *Entry) Publish(turn *PublishTurn, how Loudness, local bool) (rows []Row, wait bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flags.And(^uint32(flagInFlush))
	if local || e.flags.Load()&flagDead != 0 {
		return nil, false
	}
	seq := e.seq.Load()
	if turn.HotOnly && !e.hotLocked(slotOf(seq)) {
		return nil, true
	}
	for _, s := range []int64{seq - 1, seq} {
		slot, how := slotOf(s), how
		if e.names.generation(s) != 0 {
			how = Loud // no bulletin tells of it
		}
		if count, due := e.dueLocked(slot, turn.Floor, turn.Step, how); due && !expiredAt(s, e.names.durationMs(), turn.NowMs) {
			e.flags.Or(flagOffered << slot)
			rows = append(rows, Row{e.Cell(s), count, e.foreignLocked(slot) > 0, how != Loud})
		}
	}
	return rows, false
}

// RefuseRow gives up on a cell's row.
func (e *Entry) RefuseRow(sequence int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.flags.Or(flagRefused << slot)
	}
}

// Loudness is who is to hear of a row.
type Loudness uint8

// How loud a row is.
const (
	Loud       Loudness = iota // every node that imports
	Quiet                      // no node; one node of the region stores it
	QuietAlone                 // no node; this node cannot know whether another stores it
)

// dueLocked applies the filters in their order: own cost in the cell → the floor, or
// another region has published the cell, then everyone does → grown by a step since
// last published, or at all once within a step of the limit. quiet: everybody who needs to
// know is told by bulletins, and the row is but a lower bound for when this region's
// origin is wiped.
func (e *Entry) dueLocked(slot int, floor, step float64, how Loudness) (count int64, due bool) {
	e.netLocked(slot)
	count = e.acceptedLocked(slot)
	grown := count - e.ledger.cells[slot].flushed
	if grown <= 0 || e.flags.Load()&(flagRefused<<slot) != 0 {
		return 0, false
	}
	limit := e.minLimits.get(slot)
	if limit == math.MaxInt64 { // nothing was accepted here: the count came from elsewhere
		return 0, false
	}
	if how != Loud {
		return count, e.dueQuietlyLocked(slot, count, limit, floor, how == QuietAlone)
	}
	if e.foreignLocked(slot) == 0 && float64(count) < floor*float64(limit) {
		return 0, false
	}
	grows := max(1, int64(math.Ceil(step*float64(limit))))
	return count, grown >= grows || count > limit-grows
}

// Marks are the shares of its limit at which a region's count is stored when no region
// waits for it: quietFloor, or the floor if that is higher, hotShare, the limit, and each
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
// passed the mark stores it. If it dies before, the next mark's node does. Without
// an origin's reply the node stores the row.
func (e *Entry) dueQuietlyLocked(slot int, count, limit int64, floor float64, alone bool) bool {
	if markOf(count, limit, floor) <= markOf(e.ledger.cells[slot].flushed, limit, floor) {
		return false
	}
	return alone || e.flags.Load()&(flagEstimate|flagCrossed<<slot) != 0
}

// Cross notes that an increment of this node's took the region's count past a mark.
func (e *Entry) Cross(sequence, before, after int64, floor float64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return false
	}
	limit := e.minLimits.get(slot)
	if limit == math.MaxInt64 || markOf(after, limit, floor) <= markOf(before, limit, floor) {
		return false
	}
	e.flags.Or(flagCrossed << slot)
	return true
}

func (e *Entry) hotLocked(slot int) bool {
	total := e.acceptedLocked(slot) + e.ledger.netted(slot) + e.others[slot].Load()
	return float64(total) >= hotShare*float64(e.minLimits.get(slot))
}

// Published records what is known to be stored. A mark only moves up.
func (e *Entry) Published(sequence, count int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.ledger.cells[slot].flushed = max(e.ledger.cells[slot].flushed, count)
		e.flags.And(^uint32(flagOffered << slot)) // nothing larger was ever offered: flushes take turns
	}
}

// effectiveLocked is what a decision in a cell would go by now.
func (e *Entry) effectiveLocked(sequence, nowMs int64) float64 {
	slot, durationMs := slotOf(sequence), e.names.durationMs()
	known := func(slot int) int64 { return e.acceptedLocked(slot) + e.foreignLocked(slot) }
	if sequence != e.seq.Load() { // closed: it matters by its weight in the cell after it
		return float64(known(slot))
	}
	return float64(window.Effective(known(slot), known(previousSlot(slot)), 0, max(nowMs, window.Start(sequence, durationMs)), durationMs))
}

// learnLocked raises what all other regions are known to have counted in a cell.
func (e *Entry) learnLocked(m *Counters, slot int, foreign int64) (grew bool) {
	foreign = min(foreign, CountMax)
	before := e.foreignLocked(slot)
	if foreign <= before {
		return false
	}
	e.foreign(slot).Store(foreign - e.ledger.credit(slot) - e.ledger.netted(slot))
	m.exceeded(e, slot, foreign-before)
	return true
}

// ActiveShare is the larger of two cells' shares of their limits; 0 when nothing was
// accepted here. It takes no lock: a rotation in between makes it a little wrong, once.
func (e *Entry) ActiveShare(sequence int64) (share float64) {
	seq := e.seq.Load()
	for _, s := range []int64{seq - 1, seq} {
		if limit := e.minLimits.get(slotOf(s)); limit != math.MaxInt64 && s >= sequence-1 {
			share = max(share, float64(1+wordCount(e.words[slotOf(s)].Load()))/float64(max(1, limit)))
		}
	}
	return share
}

// Aged takes note of how old cost of another region is when a decision first uses it.
type Aged interface{ Observe(age time.Duration) }

// news is cost of another region that was handed to this node and that no decision has
// used yet.
type news struct {
	from    Aged  // nil: none
	countMs int64 // when its youngest was accepted, by the other node's clock
}

// newsLocked remembers what a cell was told, for the next decision on it.
func (e *Entry) newsLocked(slot int, from Aged, countedAtMs int64) {
	if countedAtMs <= 0 || from == nil {
		return
	}
	n := &e.ledger.needExtra().news[slot]
	if n.from != nil && n.countMs <= countedAtMs {
		return // what waits is older: the decision that uses both is late by that
	}
	*n = news{from, countedAtMs}
	e.flags.Or(flagNews << slot)
}

// UseNews is for the first decision after newsLocked: it takes note of how old the news
// is by now.
func (e *Entry) UseNews(nowMs int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flags.And(^uint32(flagNews | flagNews1))
	if e.ledger.extra == nil {
		return
	}
	for slot := range e.ledger.extra.news {
		if n := &e.ledger.extra.news[slot]; n.from != nil {
			n.from.Observe(time.Duration(nowMs-n.countMs) * time.Millisecond)
			*n = news{}
		}
	}
}

// Tellable is what a bulletin may tell of a cell.
type Tellable struct {
	sequence, Limit int64
	Count           int64 // of the region
	Effective       float64
	Foreign         bool // another region has told of it
}

// LeaveTell takes the entry off the queue of what to tell of.
func (e *Entry) LeaveTell() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flags.And(^uint32(flagInTell))
}

// TellableCells are those that cost was accepted in and that a bulletin may tell of: the previous one and the current one.
func (e *Entry) TellableCells(nowMs int64) (cells []window.Cell) {
	seq, durationMs := e.seq.Load(), e.names.durationMs()
	for _, s := range []int64{seq - 1, seq} {
		if e.minLimits.get(slotOf(s)) != math.MaxInt64 && !expiredAt(s, durationMs, nowMs) && e.names.generation(s) == 0 {
			cells = append(cells, e.Cell(s))
		}
	}
	return cells
}

// TellCell raises what others are known to have counted in a cell, and has decide say whether the count is told, under
// the entry's lock.
func (e *Entry) TellCell(m *Counters, sequence, nowMs, foreign int64, decide func(Tellable) (told bool)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, limit := slotOf(sequence), e.minLimits.get(slotOf(sequence))
	if seq := e.seq.Load(); sequence != seq && sequence != seq-1 || limit == math.MaxInt64 {
		return
	}
	e.netLocked(slot)
	count := e.acceptedLocked(slot)
	if count <= 0 {
		return
	}
	e.learnLocked(m, slot, foreign)
	if decide(Tellable{sequence, limit, count, e.effectiveLocked(sequence, nowMs), e.foreignLocked(slot) > 0}) {
		e.ledger.needExtra().told[slot] = count
	}
}

// ForeignCount is what others are known to have counted in a cell, and who told.
type ForeignCount struct {
	Sequence, Count int64
	From            Aged // nil: none
	CountedAtMs     int64
}

// LearnCount merges a count of a bulletin. answer is true when this node has cost in the cell and has not told of it.
func (e *Entry) LearnCount(m *Counters, current int64, in ForeignCount) (agedOut int64, learned, answer bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	agedOut, alive := e.rotateLocked(current)
	slot, ok := e.slotLocked(in.Sequence)
	if !alive || !ok || !e.learnLocked(m, slot, in.Count) {
		return agedOut, false, false
	}
	e.newsLocked(slot, in.From, in.CountedAtMs)
	return agedOut, true, e.ledger.told(slot) == 0 && e.acceptedLocked(slot) > 0
}

// MergedRow is what came of an imported row.
type MergedRow struct {
	AgedOut                 int64
	Held, Changed, Unshared bool // unshared: this node has cost in the cell that it has neither published nor told of
}

// MergeRow merges an imported row: the others' sum by maximum, the region's own component as a lower bound.
func (e *Entry) MergeRow(m *Counters, current int64, in ForeignCount, own int64, floor, step float64) (r MergedRow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var alive bool
	if r.AgedOut, alive = e.rotateLocked(current); !alive {
		return r
	}
	slot, ok := e.slotLocked(in.Sequence)
	if !ok {
		return r
	}
	r.Held = true
	if r.Changed = e.learnLocked(m, slot, in.Count); r.Changed {
		e.newsLocked(slot, in.From, in.CountedAtMs)
	}
	if own > e.acceptedLocked(slot) {
		e.floorLocked(slot, own)
		r.Changed = true
	}
	e.ledger.cells[slot].flushed = max(e.ledger.cells[slot].flushed, own) // it is stored already
	_, due := e.dueLocked(slot, floor, step, Loud)
	r.Unshared = due || r.Changed && e.ledger.told(slot) == 0 && e.acceptedLocked(slot) > 0
	return r
}
