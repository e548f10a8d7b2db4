package cell

import (
	"math"
	"sync"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// Until a node knows the origin's clock, it numbers cells by its own clock. Meanwhile it sends
// nothing, because the numbers would mean other cells to other nodes. Once the clock is known,
// Place moves each entry, with all of its cost that still matters, to the cell that the origin's
// clock shows.

// Place replaces an entry that was made before the origin's clock was known and is in another cell
// than that clock shows. tMs is the time by the origin's clock, and ownMs the same moment by this
// node's clock. Place returns the new entry, whose cost is unsent, and the cost of cells that have
// expired. The new entry is nil if e is in the right cell or not in the table.
//
// If the two clocks differ by at most aheadMs, Place moves no entry, because its cell may come from
// a caller's own time.
func (t *Table) Place(e *Entry, tMs, ownMs int64) (placed *Entry, expired int64) {
	if max(tMs-ownMs, ownMs-tMs) <= aheadMs {
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
	durationMs := e.names.durationMs()
	seq, to := e.seq.Load(), window.Sequence(tMs, durationMs)
	if seq == to || e.flags.Load()&flagDead != 0 {
		return nil, 0
	}
	e.sealLocked(slotOf(seq))
	flags := e.flags.Or(flagDead)
	placed = newEntry(&e.id, e.names, to, t.Fleet)
	if flags&flagEstimate != 0 {
		placed.beEstimate()
		t.Tiers.Keys[e.tier()].Add(-1)
		t.Tiers.Keys[level.Idle].Add(1)
	}
	var cost int64
	for _, s := range [2]int64{seq - 1, seq} {
		if unsent := e.giveUpLocked(slotOf(s)); expiredAt(s, durationMs, ownMs) {
			expired += unsent
		} else {
			cost += unsent
		}
	}
	placed.words[slotOf(to)].Store(liveWord(to, min(cost, mergedMax)))
	if limit := min(e.minLimits.get(0), e.minLimits.get(1)); limit != math.MaxInt64 {
		placed.noteMinLimit(slotOf(to), limit)
	}
	if flags&(flagPressed|flagPressed1) != 0 {
		placed.flags.Or(Pressed(to))
	}
	placed.flags.Or(flags & (Touched | flagShared))
	if f := e.flight; f != nil && f.restUntil.Load() != 0 {
		placed.flight = f
	}
	place.Store(placed) // no lookup changes: identity and tag are the same
	return placed, expired
}

// early lists the cost that was put into the overflow before the origin's clock was known, because
// a sketch can't move cost to another cell.
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
