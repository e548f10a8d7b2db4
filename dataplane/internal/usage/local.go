package usage

import (
	"unique"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/shared/window"
)

// familiesMax bounds the families whose cost Local tells apart. The cost of further families counts for no namespace.
const familiesMax = 10_000

// Local adds the cost of a node without an origin to a Book. Nothing confirms the cost of such a node, so Local walks
// the table and compares the cells with those of the walk before. It has these limits:
//
//   - A window shorter than the time between two walks ends unseen. Its cost is estimated from the last complete cell.
//   - Cost of a key that was evicted between two walks, because the table is full, is missing.
//
// Only a single goroutine may use it. The zero Local has walked nothing.
type Local struct {
	walkedMs int64 // time of the last walk, or of the start
	sums     map[unique.Handle[cell.Family]]sums
	full     bool // of families, at the last walk
}

// sums are the costs of a family in its current cell and in the cell before.
type sums struct{ sequence, before, current int64 }

// Begin sets the time from which cost is counted.
func (l *Local) Begin(nowMs int64) { l.walkedMs = nowMs }

// Collect walks the table, and adds the cost since the last walk to the book.
func (l *Local) Collect(table *cell.Table, nowMs int64, b *Book) {
	gapMs := nowMs - l.walkedMs
	if gapMs <= 0 { // the clock was set back
		l.walkedMs = nowMs
		return
	}
	was := l.sums
	l.walkedMs, l.sums = nowMs, make(map[unique.Handle[cell.Family]]sums, len(was))
	full := false
	table.Walk(func(e *cell.Entry) {
		handle := e.Names().FamilyHandle()
		sum, known := l.sums[handle]
		if !known {
			if _, known = was[handle]; !known && len(l.sums) >= familiesMax {
				full = true
				return
			}
			sum.sequence = window.Sequence(nowMs, e.DurationMs())
		}
		switch sequence, before, current := e.OwnCost(); sequence {
		case sum.sequence:
			sum.before, sum.current = sum.before+before, sum.current+current
		case sum.sequence - 1:
			sum.before += current
		}
		l.sums[handle] = sum
	})
	for handle, now := range l.sums {
		last, known := was[handle]
		if !known && l.full {
			continue // its cost counted for no namespace so far
		}
		f := handle.Value()
		b.Accept(f.Workspace, f.Namespace, now.since(last, f.DurationMs, gapMs))
	}
	l.full = full
}

// since returns the cost that was accepted after the sums of an earlier walk, gapMs ago.
func (s sums) since(last sums, durationMs, gapMs int64) int64 {
	if durationMs < gapMs {
		return int64(float64(s.before) * float64(gapMs) / float64(durationMs))
	}
	switch s.sequence - last.sequence {
	case 0:
		return max(0, s.before-last.before) + max(0, s.current-last.current)
	case 1:
		return max(0, s.before-last.current) + s.current
	}
	return s.before + s.current
}
