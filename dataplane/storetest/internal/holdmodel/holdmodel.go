// Package holdmodel models the holds of an origin's cells. The model is too simple to be wrong: it goes through all
// holds each time. No hold ends by its time.
package holdmodel

import (
	"maps"

	"github.com/weirhq/weir/dataplane/store"
)

// Cell is a cell of the model: the added cost, its holds, and the largest sum of these. The zero Cell has none.
type Cell struct {
	added, most int64
	holds       map[string]hold
}

type hold struct {
	amount, after    int64
	tentative, final bool
	void             bool // it ended before the origin received it
}

// Add counts some cost.
func (c *Cell) Add(cost int64) { c.added += cost }

// Used returns the cost for which new holds must leave room.
func (c *Cell) Used() int64 {
	all, _ := c.sums()
	return c.added + all
}

// Total returns the cell's region total.
func (c *Cell) Total() int64 { return c.added + c.most }

// Call applies statements about holds, each of the cell with the same index, as a whole or not at all. held has for
// each statement whether the hold is there then.
func Call(of []*Cell, statements []store.Hold) (held []bool, refused bool) {
	earlier := make(map[*Cell]map[string]hold)
	for _, c := range of {
		if c.holds == nil {
			c.holds = make(map[string]hold)
		}
		earlier[c] = maps.Clone(c.holds)
	}
	held = make([]bool, len(of))
	for i, c := range of {
		var ok bool
		held[i], ok = c.state(statements[i])
		refused = refused || !ok
	}
	for c, holds := range earlier {
		if refused {
			c.holds = holds
		}
		_, firm := c.sums()
		c.most = max(c.most, firm)
	}
	return held, refused
}

// sums returns the cost that all holds count, and the cost that holds count that are not tentative.
func (c *Cell) sums() (all, firm int64) {
	for _, h := range c.holds {
		counts := h.amount
		if h.final {
			counts = h.after
		}
		if all += counts; !h.tentative {
			firm += counts
		}
	}
	return all, firm
}

// state applies a statement. It reports whether the hold is there then, and whether the call may be applied.
func (c *Cell) state(h store.Hold) (held, ok bool) {
	was, known := c.holds[h.Owner]
	if was.void && h.As >= store.HoldForced {
		was, known = hold{}, false
	}
	switch {
	case h.As == store.HoldNew && known:
		return !was.final, !was.final || h.Optional
	case h.As == store.HoldNew && c.Used()+h.Amount > h.Limit:
		return false, h.Optional
	case h.As == store.HoldNew:
		c.holds[h.Owner] = hold{amount: h.Amount, after: h.After, tentative: h.Tentative}
	case known && was.final, !known && h.As == store.HoldState && h.TTL > 0:
		return false, true
	case !known && h.As == store.HoldState:
		c.holds[h.Owner] = hold{final: true, void: true}
	default:
		c.holds[h.Owner] = hold{amount: max(was.amount, h.Amount), after: max(was.after, h.After)}
		if h.TTL == 0 {
			c.holds[h.Owner] = hold{amount: h.Amount, after: h.After, final: true}
		}
	}
	return !c.holds[h.Owner].final, true
}
