package hunt

import (
	"sync"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// views holds each life's counts of other regions at its latest answer.
type views struct {
	world *world

	mu      sync.Mutex // held while a view is taken: of two views of a cell, the later has no less
	foreign map[view]int64
}

type view struct {
	life  *life
	cell  window.Cell
	since window.Reset // of its key: with a reset a life forgets all of the key's cells, and reads its origin again
}

// look compares a life's counts, as it answers, with its earlier counts and with the cost that others have accepted.
func (v *views) look(l *life, key int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	x, ok := v.world.explain(l, key, v.world.record.violate)
	if !ok {
		return
	}
	if x.Trial != 0 && !l.ended.Load() && v.world.operators.outlived(x.Trial) {
		v.world.record.violate("trial", "%v runs trial %d, whose time is over", l, x.Trial)
	}
	v.world.clock(l, &x)
	v.foreignLocked(l, &x, &x.Current)
	v.foreignLocked(l, &x, &x.Previous)
}

func (v *views) foreignLocked(l *life, x *dataplane.Explanation, c *dataplane.ExplainedCell) {
	if !c.Held {
		return
	}
	cell := explained(x, c.Sequence)
	at := view{l, cell, judgedBy(x).reset}
	set := v.world.plan.SetsClock(l.node.region.index) // cost counted while it was ahead counts in the current cell
	if before := v.foreign[at]; c.Foreign < before && !v.mayForget(l) && !set {
		v.world.record.violate("R1", "%v counted %d of other regions in %s, and then %d",
			l, before, cellName(cell), c.Foreign)
	}
	if most := v.world.ledger.others(l.node.region, cell); c.Foreign > most && !set {
		v.world.record.violate("R1", "%v counts %d of other regions in %s, and they accepted at most %d",
			l, c.Foreign, cellName(cell), most)
	}
	v.foreign[at] = c.Foreign
}

// mayForget reports whether a life may lose its counts of a cell. A full table drops keys. A step of the node's clock
// replaces the entry of a key whose cell has not begun, and the new entry lacks the cell before its own, which it reads
// again: see cell.Table.SetRight.
func (v *views) mayForget(l *life) bool {
	return v.world.plan.MayFill() || l.steps != l.node.steps.Load()
}
