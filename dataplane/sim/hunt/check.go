package hunt

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// check is a comparison of everything with the ledger, at one moment.
type check struct {
	*world
	lines  []string // what there is
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
	held := make([]map[window.Cell]store.Total, len(c.regions))
	for i, r := range c.regions {
		held[i] = r.origin.Totals()
	}
	for _, a := range c.ledger.accounts {
		for i, r := range c.regions {
			c.origin(a, r, held[i][a.cell].Region)
		}
		if c.plan.Fleet.Mode == window.Exact && a.live(time.Now()) {
			c.foreign(a, held)
		}
	}
	c.durable(held)
}

func (c *check) origin(a *account, r *region, total int64) {
	low, high := c.ledger.bounds(r, a.cell)
	c.lines = append(c.lines,
		fmt.Sprintf("%s holds %d of %s, %d to %d were accepted", r.name, total, cellName(a.cell), low, high))
	if total > high {
		c.violate("R3", "%s holds %d of %s, and at most %d were accepted", r.name, total, cellName(a.cell), high)
	}
	if total < low && c.plan.Fleet.Mode == window.Exact && a.live(time.Now()) {
		c.violate("7", "%s holds %d of %s, and the nodes that are left accepted %d",
			r.name, total, cellName(a.cell), low)
	}
}

// foreign holds each origin and each node to what all origins hold.
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
		if !a.usedIn(r) {
			least = 0 // below the floor others tell it of cells that it uses alone (R5)
		}
		foreign := held[i][a.cell].Foreign
		if foreign < least || foreign > most {
			c.violate("R2", "%s was told of %d of %s, others hold %d and accepted at most %d",
				r.name, foreign, cellName(a.cell), least, most)
		}
		for _, n := range r.here() {
			c.node(n, a, held[i][a.cell])
		}
	}
}

func (c *check) node(n *node, a *account, total store.Total) {
	c.ask(n.life.Load(), a.key, 0) // it was over its limit when it was last asked, and may be no more
	x, err := n.life.Load().limiter.Explain(c.request(a.key, 0))
	if err != nil {
		c.violate("error", "%v explains k%d: %v", n.life.Load(), a.key, err)
		return
	}
	cell := x.Current
	if x.Previous.Sequence == a.cell.Sequence {
		cell = x.Previous
	}
	if cell.Sequence != a.cell.Sequence {
		return // by its region's clock the cell is over, or has not begun
	}
	_, high := c.ledger.bounds(n.region, a.cell) // what the origin has lost with a node, others may still know
	over := x.Decision.Current > float64(x.Decision.Limit)
	knows := over || cell.Regional >= total.Region && cell.Foreign >= total.Foreign // else it asks, before it allows
	if !knows || cell.Regional > high || cell.Foreign > total.Foreign {
		c.violate("R2", "%v knows %d and %d of %s, its origin holds %d and %d",
			n.life.Load(), cell.Regional, cell.Foreign, cellName(a.cell), total.Region, total.Foreign)
	}
}
