package hunt

import (
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// check compares everything with the ledger, after convergence.
func (w *world) check() {
	held := make([]map[window.Cell]store.Total, len(w.regions))
	for i, r := range w.regions {
		held[i] = r.origin.Totals()
	}
	for _, a := range w.ledger.accounts {
		for i, r := range w.regions {
			w.checkOrigin(a, r, held[i][a.cell].Region)
		}
		if w.plan.Fleet.Mode == window.Exact && a.live(time.Now()) {
			w.checkForeign(a, held)
		}
	}
}

func (w *world) checkOrigin(a *account, r *region, total int64) {
	low, high := w.ledger.bounds(r, a.cell)
	w.record.note("%s holds %d of %s, %d to %d were accepted", r.name, total, cellName(a.cell), low, high)
	if total > high {
		w.record.violate("R3", "%s holds %d of %s, and at most %d were accepted", r.name, total, cellName(a.cell), high)
	}
	if total < low && w.plan.Fleet.Mode == window.Exact && a.live(time.Now()) {
		w.record.violate("7", "%s holds %d of %s, and the nodes that are left accepted %d",
			r.name, total, cellName(a.cell), low)
	}
}

// checkForeign holds each origin and each node to what all origins hold.
func (w *world) checkForeign(a *account, held []map[window.Cell]store.Total) {
	for i, r := range w.regions {
		least, most := int64(0), int64(0)
		for j, other := range w.regions {
			if j != i {
				_, high := w.ledger.bounds(other, a.cell)
				least += held[j][a.cell].Region
				most += high
			}
		}
		if !a.usedIn(r) {
			least = 0 // below the floor others tell it of cells that it uses alone (R5)
		}
		foreign := held[i][a.cell].Foreign
		if foreign < least || foreign > most {
			w.record.violate("R2", "%s was told of %d of %s, others hold %d and accepted at most %d",
				r.name, foreign, cellName(a.cell), least, most)
		}
		for _, n := range r.nodes {
			w.checkNode(n, a, held[i][a.cell])
		}
	}
}

func (w *world) checkNode(n *node, a *account, total store.Total) {
	w.ask(n.life.Load(), a.key, 0) // it was over its limit when it was last asked, and may be no more
	x, err := n.life.Load().limiter.Explain(w.request(a.key, 0))
	if err != nil {
		w.record.violate("error", "%v explains k%d: %v", n.life.Load(), a.key, err)
		return
	}
	cell := x.Current
	if x.Previous.Sequence == a.cell.Sequence {
		cell = x.Previous
	}
	if cell.Sequence != a.cell.Sequence {
		return // by its region's clock the cell is over, or has not begun
	}
	_, high := w.ledger.bounds(n.region, a.cell) // what the origin has lost with a node, others may still know
	over := x.Decision.Current > float64(x.Decision.Limit)
	knows := over || cell.Regional >= total.Region && cell.Foreign >= total.Foreign // else it asks, before it allows
	if !knows || cell.Regional > high || cell.Foreign > total.Foreign {
		w.record.violate("R2", "%v knows %d and %d of %s, its origin holds %d and %d",
			n.life.Load(), cell.Regional, cell.Foreign, cellName(a.cell), total.Region, total.Foreign)
	}
}
