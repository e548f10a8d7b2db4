package cell

import (
	"sync/atomic"
	"unsafe"

	"github.com/weirhq/weir/shared/window"
)

// Histories is the part of an entry that judges by a precise window: the histories of its two cells. See
// window.History.
//
// A cell's history covers its gross cost: the count, and the cost that was given back. An entry without room for
// histories counts its previous cell in full.
type Histories struct{ e *Entry }

// Histories returns the part of the entry that judges by a precise window.
func (e *Entry) Histories() Histories { return Histories{e} }

// past is the data of Histories, by slot.
type past struct {
	// window.History of the cost accepted in the cell, as far as this node has received it. Marks are set under Entry.mu.
	history [2]atomic.Uint64
	// Cost that was given back, at least: nil until the first is, as on nearly every key. It grows before the count
	// falls, so a reader that reads the count first never finds too little of it.
	givenBack atomic.Pointer[[2]atomic.Int64]
	// The last window.Hint about a cell before the current cell, below the cell's sequence: see gone. With it most
	// decisions need not search for the marks that have left.
	hint atomic.Uint64
}

// behindAndPast and behindOfFleetAndPast are behind an entry that has room for histories: a single piece of memory, 88
// or 144 bytes.
type behindAndPast struct {
	behind // the first field: see Histories.past
	past   past
}

type behindOfFleetAndPast struct {
	behindOfFleet // the first field: see Histories.past
	past          past
}

// past returns nil for an entry without room for histories.
func (h Histories) past() *past {
	switch flags := h.e.flags.Load(); {
	case flags&flagHistories == 0:
		return nil
	case flags&flagFleet == 0:
		// newEntry sets flagHistories without flagFleet only where behind is the first field of a behindAndPast.
		return &(*behindAndPast)(unsafe.Pointer(h.e.behind)).past
	default:
		// And with flagFleet only where it is the first field of a behindOfFleetAndPast.
		return &(*behindOfFleetAndPast)(unsafe.Pointer(h.e.behind)).past
	}
}

// of returns the history of a cell.
func (h Histories) of(slot int) window.History {
	if p := h.past(); p != nil {
		return window.History(p.history[slot].Load())
	}
	return 0
}

// givenBack returns how much of a cell's gross cost was given back.
func (h Histories) givenBack(slot int) int64 {
	if p := h.past(); p != nil {
		return p.givenBackOf(slot)
	}
	return 0
}

func (p *past) givenBackOf(slot int) int64 {
	if back := p.givenBack.Load(); back != nil {
		return back[slot].Load()
	}
	return 0
}

// giveBackLocked records that the count of a cell is about to fall by a cost that was accepted.
func (h Histories) giveBackLocked(slot int, cost int64) {
	p := h.past()
	if p == nil {
		return
	}
	back := p.givenBack.Load()
	if back == nil {
		back = &[2]atomic.Int64{}
		p.givenBack.Store(back)
	}
	back[slot].Add(cost)
}

// Precise reports whether the entry is judged by a precise window.
func (f Flags) Precise() bool { return f&flagPrecise != 0 }

// HaveWindow reports whether the entry is judged by the kind of window that its namespace has.
func (f Flags) HaveWindow(precise bool) bool {
	if !precise {
		return f&flagPrecise == 0
	}
	return f&flagPrecise != 0 && f&(flagHistories|flagUntracked) != 0
}

// begin prepares the current cell for a cost that is about to be counted by a verdict: it begins the cell's history, or
// ends the steps until then. So no mark for this cost can be earlier. It takes no lock, because a batch that holds the
// word may call it. If the cell changes meanwhile, ended steps only make later marks later.
func (h Histories) begin(slot int, v *Verdict, durationMs, limit int64) {
	p := h.past()
	if p == nil {
		return
	}
	elapsedMs := v.AtMs - window.Start(v.Sequence, durationMs)
	for {
		was := window.History(p.history[slot].Load())
		if was != 0 && !was.Ends(elapsedMs, durationMs) {
			return
		}
		begun := was
		if was == 0 {
			begun = window.BeginHistory(limit)
		}
		if p.swap(slot, was, begun.Count(0, elapsedMs, durationMs)) {
			return
		}
	}
}

func (p *past) swap(slot int, was, is window.History) bool {
	if !p.history[slot].CompareAndSwap(uint64(was), uint64(is)) {
		return false
	}
	p.hint.Store(0) // it may be of the history before
	return true
}

// gone returns the cost that has left the window of the cell with a sequence, by its history, elapsedMs after its end.
func (p *past) gone(sequence int64, history window.History, elapsedMs, durationMs int64) int64 {
	if hint := p.hint.Load(); int64(hint>>window.HintBits) == sequence {
		if gone, ok := history.GoneBy(window.Hint(hint&(1<<window.HintBits-1)), elapsedMs, durationMs); ok {
			return gone
		}
	}
	return p.goneAnew(sequence, history, elapsedMs, durationMs)
}

// goneAnew is gone without a hint. It stores a hint for the decisions that follow.
func (p *past) goneAnew(sequence int64, history window.History, elapsedMs, durationMs int64) int64 {
	hint := history.Hint(elapsedMs, durationMs)
	if 0 <= sequence && sequence < 1<<(64-window.HintBits) {
		p.hint.Store(uint64(sequence)<<window.HintBits | uint64(hint))
		if p.history[slotOf(sequence)].Load() != uint64(history) {
			p.hint.Store(0) // swap may have cleared the hint before it was stored
		}
	}
	gone, _ := history.GoneBy(hint, elapsedMs, durationMs)
	return gone
}

// Note marks the groups that the count of a cell has completed, at a time when it was judged. Claims on their way are
// not accepted yet, and complete no group.
func (h Histories) Note(sequence, atMs int64) {
	slot := slotOf(sequence)
	p := h.past()
	if p == nil {
		return
	}
	if w := window.History(p.history[slot].Load()); w == 0 || h.e.countIn(slot)+p.givenBackOf(slot) < w.Next() {
		return
	}
	h.noteDue(p, sequence, atMs)
}

func (h Histories) noteDue(p *past, sequence, atMs int64) {
	h.e.mu.Lock()
	defer h.e.mu.Unlock()
	slot, ok := h.e.slotLocked(sequence)
	if !ok {
		return
	}
	durationMs := h.e.names.durationMs()
	elapsedMs := atMs - window.Start(sequence, durationMs)
	for {
		was := h.of(slot)
		gross := h.grossIn(slot)
		if b := h.e.keeps(); b != nil {
			gross -= b.claiming(slot)
		}
		if p.swap(slot, was, was.Count(gross, elapsedMs, durationMs)) {
			return
		}
	}
}

func (h Histories) grossIn(slot int) int64 { return h.e.countIn(slot) + h.givenBack(slot) }

// mergeLocked merges the origin's history of a cell. It is safe because the marks of both are never early.
func (h Histories) mergeLocked(slot int, of window.History) {
	p := h.past()
	if p == nil || of == 0 {
		return
	}
	for {
		was := window.History(p.history[slot].Load())
		if p.swap(slot, was, window.MergeHistories(of, was)) {
			return
		}
	}
}

// sentLocked returns an empty history with the division of the cell's history, or 0 if the cell has none. A cost with
// it makes the origin keep a history of the cell too.
func (h Histories) sentLocked(slot int) window.History {
	if h.e.flags.Load()&flagPrecise == 0 {
		return 0
	}
	return h.of(slot).Empty()
}

func (h Histories) resetLocked(slot int) {
	if p := h.past(); p != nil {
		p.history[slot].Store(0)
		if back := p.givenBack.Load(); back != nil {
			back[slot].Store(0)
		}
	}
}

// weigh is Entry.weigh by a precise window: the cost of the previous cell counts in full, without the groups that have
// left the window.
func (h Histories) weigh(v *Verdict, slot int, word uint64, limit, cost, uncoveredMs, durationMs int64) {
	// The history must be read first, because its marks cover cost that was merged before. The returned cost must be read
	// last, because it grows before the count falls.
	before := previousSlot(slot)
	history := h.of(before)
	v.Precise = true
	v.Current, v.Previous = wordCount(word), h.e.counter.count(before)
	if h.e.flags.Load()&(flagOthers|flagOthers1) != 0 {
		v.Current = max(0, v.Current+h.e.othersIn(slot))
		v.Previous = max(0, v.Previous+h.e.othersIn(before))
	}
	if v.Previous > 0 {
		v.Previous = h.counted(v.Sequence-1, v.Previous, history, durationMs-uncoveredMs, durationMs)
	}
	v.Allowed = v.Previous <= limit-v.Current-cost
}

// Gone returns the cost of the cell before a cell that has left the window at a time in the cell.
func (h Histories) Gone(sequence, atMs int64) int64 {
	before, durationMs := slotOf(sequence-1), h.e.names.durationMs()
	history, count := h.of(before), max(0, h.e.countIn(before))
	elapsedMs := min(atMs-window.Start(sequence, durationMs), durationMs)
	return count - h.counted(sequence-1, count, history, elapsedMs, durationMs)
}

// counted returns the cost that still counts of the cell with a sequence, elapsedMs after its end. With N for its
// count, B for the cost that was given back, and G = N + B,
//
//	counted = min(N, G - gone)
//
// Of the groups that are gone, B units may have been given back. The others are in the count, and were accepted before
// the window began.
func (h Histories) counted(sequence, count int64, history window.History, elapsedMs, durationMs int64) int64 {
	if history == 0 {
		return count
	}
	p := h.past()
	gone := p.gone(sequence, history, elapsedMs, durationMs)
	if gone == 0 {
		return count
	}
	return max(0, count-max(0, gone-p.givenBackOf(slotOf(sequence))))
}

// PassesAfter returns the earliest time in milliseconds, v's or later, at which cost fits the limit if nothing else is
// counted meanwhile. ok is false if cost > limit. Of no entry, for a key that only the origin has judged, it returns
// the latest such time.
func (h Histories) PassesAfter(v *Verdict, cost, limit, durationMs int64) (atMs int64, ok bool) {
	if cost > limit {
		return 0, false
	}
	if h.e == nil { // without histories, each cell counts in full until it has left the window
		leaves := v.Sequence + 1
		if v.Current+cost > limit {
			leaves++
		}
		return window.Start(leaves, durationMs), true
	}
	slot, start := slotOf(v.Sequence), window.Start(v.Sequence, durationMs)
	if v.Current+cost <= limit {
		before := previousSlot(slot)
		// v.Previous is the cost that counts at v's time; so many of the groups must have left in all.
		count := max(0, h.e.countIn(before))
		if at, ok := h.frees(before, count, limit-cost-v.Current, durationMs); ok {
			return max(v.AtMs, start+at), true
		}
		return max(v.AtMs, start+durationMs), true
	}
	at, ok := h.frees(slot, v.Current, limit-cost, durationMs)
	if !ok {
		at = durationMs
	}
	return start + durationMs + at, true
}

// frees returns the earliest time after a cell's end from which at most room of its count counts.
func (h Histories) frees(slot int, count, room, durationMs int64) (elapsedMs int64, ok bool) {
	if count <= room {
		return 0, true
	}
	return h.of(slot).FreesAt(count-room+h.givenBack(slot), durationMs)
}

// SetWindow makes decisions judge the entry by a precise window, or by the weight of its cells. replaced reports that
// the table now holds another entry of the key, with all counts: an entry is made with room for histories or without.
// While cost of an entry without room is on its way, it stays, and counts its previous cell in full.
func (t *Table) SetWindow(e *Entry, precise bool) (replaced bool) {
	if !precise {
		e.flags.And(^uint32(flagPrecise))
		return false
	}
	if e.flags.Or(flagPrecise)&(flagHistories|flagUntracked) != 0 {
		return false
	}
	p := t.part(&e.id)
	p.mu.Lock()
	defer p.mu.Unlock()
	place := p.array.Load().find(e)
	if place == nil {
		return true // evicted or replaced meanwhile
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flags.Load()&flagDead != 0 || !e.Histories().restLocked() {
		return false
	}
	place.Store(e.roomierLocked()) // no lookup changes: identity and tag are the same
	return true
}

// restLocked reports whether no cost of the entry is on its way or to be restored.
func (h Histories) restLocked() bool {
	const busy = flagSending | flagSending1 | flagClaiming | flagClaiming1 | flagRestore | flagRestore1
	b := h.e.keeps()
	return h.e.flags.Load()&busy == 0 && (b == nil || !b.isFirst(0) && !b.isFirst(1))
}

// roomierLocked ends the entry and returns an entry with room for histories and with all of its counts.
func (e *Entry) roomierLocked() *Entry {
	seq := e.counter.sequence()
	e.counter.seal(slotOf(seq))
	flags := e.flags.Or(flagDead)
	with := newEntry(&e.id, e.names, seq, flags&flagFleet != 0, true)
	with.counter.put(slotOf(seq), liveWord(seq, e.counter.count(slotOf(seq))))
	with.counter.put(slotOf(seq-1), liveWord(seq-1, e.counter.count(slotOf(seq-1)))|sealed)
	for slot := range e.others {
		if others := e.othersIn(slot); others != 0 {
			with.addOthers(slot, others)
		}
		with.lowerMinLimit(slot, e.minLimits.get(slot))
	}
	if b := with.keeps(); b != nil {
		b.take(e.keeps())
		for slot := range e.others {
			e.Ledger().giveUpLocked(slot) // its unsent cost is unsent in the other entry
		}
	}
	with.flags.Or(flags & (flagPrecise | flagWaits | flagStrict | Used | flagHeldBack |
		flagDenied | flagDenied1 | flagStale | flagStale1 | flagOthers | flagOthers1))
	with.Reads().inheritLocked(e.Reads())
	return with
}
