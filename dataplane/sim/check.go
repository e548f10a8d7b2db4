package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// violation names a promise that was broken.
type violation string

// The promises that can be seen from outside.
const (
	violationPublished violation = "published more than accepted" // invariants 3, 4 and 6
	// invariant 5, and "never sent twice after a definite answer"
	violationCounted violation = "counted more than accepted"
	violationError   violation = "a decision failed" // whatever is down
	violationTable   violation = "table larger than its bound"
	violationLost    violation = "lost accepted cost" // invariant 7, where nothing was killed or wiped
)

// Violation is a promise that was broken in a run.
type Violation struct {
	Promise string `json:"promise"`
	Times   int64  `json:"times"`
	First   string `json:"first"` // in words
}

func (w *world) violate(v violation, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.violations[v] == nil {
		first := fmt.Sprintf("at %v: ", time.Since(w.began)) + fmt.Sprintf(format, args...)
		w.violations[v] = &Violation{Promise: string(v), First: first}
	}
	w.violations[v].Times++
}

func (w *world) broken() []Violation {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []Violation{}
	for _, v := range w.violations {
		list = append(list, *v)
	}
	slices.SortFunc(list, func(a, b Violation) int { return cmp.Compare(a.Promise, b.Promise) })
	return list
}

// checkTables holds every node to the bound of its table.
func (w *world) checkTables() {
	if w.shape.EntriesMax == 0 {
		return
	}
	for _, n := range w.nodes {
		if held := n.limiter().Health().Entries; held > int64(w.shape.EntriesMax) {
			w.violate(violationTable, "node %d holds %d keys of %d", n.index, held, w.shape.EntriesMax)
		}
	}
}

// auditAfter is how long after a cell has expired the books on it are compared: nodes
// have sent or given up by then. Origins keep cells for longer than that.
const auditAfter = 30 * time.Second

// balance is what the audits found.
type balance struct {
	lost    int64 // accepted, and not at the region's origin
	doubled int64 // at the origin, and never accepted
}

func (b *balance) add(c balance) {
	b.lost += c.lost
	b.doubled += c.doubled
}

// checkLost holds what is missing against what the nodes say that they have dropped.
func (w *world) checkLost(r *Report) {
	for _, n := range w.nodes {
		r.DroppedCost += n.limiter().Health().DroppedCost
	}
	if r.LostCost > r.DroppedCost && !w.losesCost {
		w.violate(violationLost, "cost %d never reached an origin, and nodes count %d as dropped: first %s", r.LostCost,
			r.DroppedCost, w.firstLost)
	}
}

// audit compares the books with the origins for every cell that is over, and closes
// them. At the end of a run all are over.
func (w *world) audit(end bool) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	dueMs := time.Now().Add(-auditAfter).UnixMilli()
	held := make([]map[window.Cell]store.Total, len(w.regions))
	for i, r := range w.regions {
		held[i] = r.origin.Totals() // no network in between
	}
	for _, a := range w.ledger.order {
		for len(a.cells) > 0 {
			c := a.cells[0]
			if !end && window.ExpiresAt(c.sequence, a.key.DurationMs()) > dueMs {
				break
			}
			a.cells = a.cells[1:]
			name := window.Cell{Key: a.key, Sequence: c.sequence}
			for i, accepted := range c.accepted {
				if accepted > 0 {
					w.compare(i, a, &name, held[i][name].Region, accepted, c.twice[i])
				}
			}
			w.ledger.missed(a, c, w.nodesOf)
		}
	}
}

// compare holds a region's origin to what it accepted of a cell, and to what may have been sent twice.
func (w *world) compare(region int, a *account, name *window.Cell, total, accepted, twice int64) {
	a.books.add(w.balance(region, name, total, accepted))
	if most := accepted + twice; total > most {
		w.violate(violationCounted, "the origin of %s holds %d of %v, cell %d, and at most %d can have been sent",
			w.regions[region].name, total, name.Key, name.Sequence, most)
	}
}

// balance compares what a region's origin holds of a cell with what was accepted.
func (w *world) balance(region int, cell *window.Cell, total, accepted int64) balance {
	if total < accepted && w.firstLost == "" {
		w.firstLost = fmt.Sprintf("the origin of %s holds %d of %v, cell %d, and %d were accepted", w.regions[region].name,
			total, cell.Key, cell.Sequence, accepted)
	}
	return balance{max(0, accepted-total), max(0, total-accepted)}
}

func (w *world) nodesOf(region int) []int {
	var indexes []int
	for _, n := range w.regions[region].nodes {
		indexes = append(indexes, n.index)
	}
	return indexes
}
