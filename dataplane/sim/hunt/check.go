package hunt

import (
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// bound returns how long convergence takes at most where nothing fails. It is the bound that package relay documents
// for R2 and R5, plus the time in which a cost reaches its origin and the stores answer.
func (w *world) bound() time.Duration {
	t, f := w.plan.Slowest(), w.plan.Fleet
	relayed := 4*t.FeedInterval.Std() + 4*(f.MySQLTrip+f.OriginTrip)
	return relayed + 2*(t.ReplayTick.Std()+f.OriginTrip)
}

// within checks the origins, to which the bound applies. Nodes read from their origin only when a decision next
// requires it.
func (w *world) within() *check {
	c := &check{world: w}
	c.origins()
	return c
}

// check compares the whole fleet with the ledger at one moment.
type check struct {
	*world
	lines  []string // state found, for the record
	broken []Violation
}

func (w *world) check() *check {
	c := &check{world: w}
	c.all()
	return c
}

func (c *check) violate(invariant, format string, args ...any) {
	c.broken = append(c.broken, Violation{invariant, fmt.Sprintf(format, args...)})
}

func (c *check) all() {
	held := c.origins()
	for _, a := range c.ledger.all() {
		for i, r := range c.regions {
			for _, l := range r.here() {
				if c.converges(a) {
					c.node(l, a, held[i][a.cell])
				}
			}
		}
	}
	for _, l := range c.lives() {
		c.bounded(l)
	}
	c.durable(held)
}

// converges reports whether all nodes and origins must agree on a cell.
func (c *check) converges(a *account) bool {
	return a.exact() && c.operators.counts(a.cell)
}

// origins compares the totals of origins with the ledger and with each other, and returns these totals.
func (c *check) origins() []map[window.Cell]store.Total {
	held := make([]map[window.Cell]store.Total, len(c.regions))
	for i, r := range c.regions {
		held[i] = r.origin.Totals()
	}
	for _, a := range c.ledger.all() {
		for i, r := range c.regions {
			c.origin(a, r, held[i][a.cell].Region)
		}
		if a.live(time.Now()) {
			c.foreign(a, held)
		}
	}
	return held
}

func (c *check) origin(a *account, r *region, total int64) {
	low, high := c.ledger.bounds(r, a.cell)
	c.lines = append(c.lines,
		fmt.Sprintf("%s holds %d of %s, %d to %d were accepted", r.name, total, cellName(a.cell), low, high))
	if total > high {
		c.violate("R3", "%s holds %d of %s, and at most %d were accepted", r.name, total, cellName(a.cell), high)
	}
	if total < low-c.unsent(a, r) && a.live(time.Now()) {
		c.violate("7", "%s holds %d of %s, and has been sent %d that it did not lose",
			r.name, total, cellName(a.cell), low)
	}
}

// unsent returns how much of a cell's cost the nodes of a region may keep unsent.
//
// In the estimate mode a node sends its count once the count passes a step, of up to 2 % of the limit: see
// dataplane/DESIGN.md, "Two modes". There is no bound in these cases:
//
//   - Cost of other regions, or a settlement, takes the count past a step, and the node sends nothing.
//   - The origin has lost data. The node finds out with a sync, up to a minute later.
//   - Limits change.
func (c *check) unsent(a *account, r *region) (most int64) {
	if a.cell.Mode == window.Exact {
		return 0
	}
	if len(c.regions) > 1 || c.plan.Changes(Reserve, Refund, Override, Unset) || c.plan.MayFill() || c.ledger.forgets(r) {
		return window.LimitMax // anything
	}
	step := max(1, c.plan.Fleet.Keys[a.key].Limit/50)
	return int64(len(r.nodes)) * (step - 1)
}

// foreign compares each origin's foreign total with the region totals of all other origins.
func (c *check) foreign(a *account, held []map[window.Cell]store.Total) {
	for i, r := range c.regions {
		least, most := int64(0), int64(0)
		for j, other := range c.regions {
			if j != i {
				_, high := c.ledger.bounds(other, a.cell)
				least += held[j][a.cell].Region
				most += high
			}
		}
		shared := c.plan.Shares(a.cell.Duration) && c.operators.counts(a.cell)
		if !shared || !c.ledger.usedIn(r, a) || held[i][a.cell].Region == 0 {
			least = 0 // below the floor, others need not publish cells that they use alone (R5)
		}
		foreign := held[i][a.cell].Foreign
		if foreign < least || foreign > most {
			c.violate("R2", "%s holds %d foreign cost of %s, others hold %d and accepted at most %d",
				r.name, foreign, cellName(a.cell), least, most)
		}
	}
}

func (c *check) node(l *life, a *account, total store.Total) {
	c.callers.ask(l, a.key, 0) // a request at no cost: the life may still have counted the key as over its limit
	x, ok := c.explain(l, a.key, c.violate)
	if !ok {
		return
	}
	cell := x.Current
	if x.Previous.Sequence == a.cell.Sequence {
		cell = x.Previous
	}
	if a.cell != explained(&x, cell.Sequence) {
		return // the cell has ended or not begun by its region's clock, or the node decides by another cell
	}
	_, high := c.ledger.bounds(l.node.region, a.cell) // others may still count what the origin lost with a node
	if c.plan.MayFill() {
		high = math.MaxInt64 // of a sketch, too, which may over-count
		if !x.Known {
			return // it reads from its origin first
		}
	}
	foreign := total.Foreign
	if c.plan.SetsClock(l.node.region.index) {
		high, foreign = math.MaxInt64, math.MaxInt64 // cost counted while it was ahead counts in the current cell
	}
	over := x.Decision.Current > float64(x.Decision.Limit)
	knows := over || cell.Regional >= total.Region && cell.Foreign >= total.Foreign // otherwise it reads before it allows
	if !knows || cell.Regional > high || cell.Foreign > foreign {
		c.violate("R2", "%v counts %d and %d of %s, its origin holds %d and %d",
			l, cell.Regional, cell.Foreign, cellName(a.cell), total.Region, total.Foreign)
	}
}
