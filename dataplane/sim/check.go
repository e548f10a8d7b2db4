package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// violation is a broken promise.
type violation string

// The promises that can be checked from outside of the limiters.
const (
	violationPublished violation = "published more than accepted" // invariants 3, 4 and 6
	// invariant 5, and "never sent twice after a definite answer"
	violationCounted violation = "counted more than accepted"
	violationError   violation = "a decision failed" // whatever server is down
	violationTable   violation = "table larger than its bound"
	violationLost    violation = "lost accepted cost" // invariant 7, if nothing was killed or wiped
)

// Violation is a promise that was broken in a run, with the number of times.
type Violation struct {
	Promise string `json:"promise"`
	Times   int64  `json:"times"`
	First   string `json:"first"` // describes the first time
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

// checkTables checks that each node's table is within its bound.
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

// auditAfter is how long after its expiry a cell is audited. By then nodes have sent its cost or given up, and origins
// still keep the cell.
const auditAfter = 30 * time.Second

// balance is the result of audits.
type balance struct {
	lost    int64 // accepted, but not at the region's origin
	doubled int64 // at the origin, but never accepted
}

func (b *balance) add(c balance) {
	b.lost += c.lost
	b.doubled += c.doubled
}

// checkLost compares the lost cost with the cost that nodes report as dropped.
func (w *world) checkLost(r *Report) {
	for _, n := range w.nodes {
		r.DroppedCost += n.limiter().Health().DroppedCost
	}
	if r.LostCost > r.DroppedCost && !w.losesCost {
		w.violate(violationLost, "cost %d never reached an origin, and nodes count %d as dropped: first %s", r.LostCost,
			r.DroppedCost, w.firstLost)
	}
}

// audit compares the ledger with the origins for every cell that has expired, and removes these cells from the ledger.
// At the end of a run it audits all cells. If origins cannot be reached until the end, nodes then send the chunks that
// got no answer when the outage began, and relays publish their cost. So with keepsBooks the compared cells stay in the
// ledger until the end.
func (w *world) audit(end bool) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	dueMs := time.Now().Add(-auditAfter).UnixMilli()
	held := make([]map[window.Cell]store.Total, len(w.regions))
	for i, r := range w.regions {
		held[i] = r.origin.Totals() // without a network in between
	}
	for _, a := range w.ledger.order {
		a.cells = slices.DeleteFunc(a.cells, func(c *cellAccount) bool { // unsorted if an origin's clock was set back
			switch {
			case c.compared:
				return end
			case !end && window.ExpiresAt(c.sequence, a.key.DurationMs()) > dueMs:
				return false
			}
			name := window.Cell{Key: a.key, Sequence: c.sequence}
			for i, accepted := range c.accepted {
				if accepted > 0 {
					w.compare(i, a, &name, held[i][name].Region, accepted, c.twice[i])
				}
			}
			w.ledger.missed(a, c, w.nodesOf)
			c.compared = true
			return end || !w.keepsBooks
		})
	}
}

// compare checks that a region's origin holds at most the cost that the region accepted in a cell, plus the cost that
// may have been sent twice.
func (w *world) compare(region int, a *account, name *window.Cell, total, accepted, twice int64) {
	a.books.add(w.balance(region, name, total, accepted))
	if most := accepted + twice; total > most {
		w.violate(violationCounted, "the origin of %s holds %d of %v, cell %d, and at most %d can have been sent",
			w.regions[region].name, total, name.Key, name.Sequence, most)
	}
}

// balance compares an origin's total of a cell with the accepted cost.
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
