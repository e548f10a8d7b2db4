package cell

import (
	"sync"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Until a node has the origin's clock, it numbers cells by its own clock. Meanwhile it sends nothing, because the
// numbers would mean other cells to other nodes. With the origin's clock, Place moves each entry, with all of its cost
// that still matters, to the cell that this clock shows. If this node's clock is set back before that, SetRight moves
// entries likewise: the origin has no cost of them yet.

// Place replaces an entry that was numbered before the node had the origin's clock, if that clock shows another cell
// than the entry's. tMs is the time by the origin's clock, and ownMs the same moment by this node's clock. Place
// returns the new entry, whose cost is unsent, and the cost of cells that have expired. The new entry is nil if e is in
// the right cell or not in the table.
//
// If the two clocks differ by at most aheadMs, Place moves only entries that are ahead of the origin's clock: this
// node's clock was set back since they were made. The cell of any other entry may come from a caller's own time.
//
// An entry that was read from the origin, or whose cost was sent to it, is numbered by the origin's clock, and stays.
func (t *Table) Place(e *Entry, tMs, ownMs int64) (placed *Entry, expired int64) {
	if max(tMs-ownMs, ownMs-tMs) <= aheadMs && !t.isAhead(e, tMs) {
		return nil, 0
	}
	p := t.part(&e.id)
	p.mu.Lock()
	defer p.mu.Unlock()
	place := p.array.Load().find(e)
	if place == nil {
		return nil, 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Ledger().exchangedLocked() {
		return nil, 0
	}
	return t.moveLocked(place, e, tMs, ownMs)
}

// exchangedLocked reports whether an answer about the entry was merged, or its cost is on its way.
func (l Ledger) exchangedLocked() bool {
	return l.e.Reads().RefreshedAt() != 0 || l.epochs != [2]store.Epoch{} ||
		l.e.flags.Load()&(flagSending|flagSending1) != 0
}

// moveLocked replaces the entry at a place by an entry in the cell of tMs, with all of its cost unsent, except for cost
// of cells that have expired at ownMs. It returns nil if e is dead or in this cell.
func (t *Table) moveLocked(place spot, e *Entry, tMs, ownMs int64) (moved *Entry, expired int64) {
	durationMs := e.names.durationMs()
	seq, to := e.counter.sequence(), window.Sequence(tMs, durationMs)
	if seq == to || e.flags.Load()&flagDead != 0 {
		return nil, 0
	}
	e.counter.seal(slotOf(seq))
	flags := e.flags.Or(flagDead)
	moved = newEntry(&e.id, e.names, to, t.Fleet, flags&flagHistories != 0)
	if flags&flagEstimate != 0 {
		moved.Estimates().begin()
		t.Tiers.Keys[e.Estimates().tier()].Add(-1)
		t.Tiers.Keys[level.Idle].Add(1)
	}
	var cost int64
	for _, s := range [2]int64{seq - 1, seq} {
		if unsent := e.Ledger().giveUpLocked(slotOf(s)); expiredAt(s, durationMs, ownMs) {
			expired += unsent
		} else {
			cost += unsent
		}
	}
	moved.counter.put(slotOf(to), liveWord(to, min(cost, mergedMax)))
	moved.inheritLocked(e, flags)
	place.Store(moved) // no lookup changes: identity and tag are the same
	return moved, expired
}

// early lists the cost that was put into the overflow before the node had the origin's clock, because a sketch can't
// move cost to another cell.
type early struct {
	mu  sync.Mutex
	all []earlySpill
}

type earlySpill struct {
	of   *Entry
	cost int64
	at   clock.Steady
}

// earlyMax bounds the list. Further cost stays in cells of this node's own clock.
const earlyMax = 10_000

func (s *early) add(of *Entry, cost int64, at clock.Steady) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) < earlyMax {
		s.all = append(s.all, earlySpill{of, cost, at})
	}
}

// PlaceSpilled adds the cost in the list to the cells that the origin's clock shows at tMs.
func (t *Table) PlaceSpilled(tMs int64) {
	t.early.mu.Lock()
	all := t.early.all
	t.early.all = nil
	t.early.mu.Unlock()
	now := t.now()
	for i := range all {
		s := &all[i]
		if durationMs := s.of.DurationMs(); int64(now-s.at) < 2*durationMs {
			t.overflow.add(&s.of.id, window.Sequence(tMs, durationMs), durationMs, s.cost, now)
		}
	}
}
