package held

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Change is a change of a reservation.
type Change struct {
	Spent   []int64       // total spent so far, a cost for each item; nil: no change
	TTL     time.Duration // extends the reservation to this time from now, if that is later than its end; 0: no change
	Settled bool          // the reservation ends
}

// record returns the change in the form of an origin.
func (c *Change) record(id string) *store.Record {
	return &store.Record{ID: id, Spent: c.Spent, TTL: c.TTL, Settled: c.Settled, Attempt: rand.Uint64() | 1}
}

// check returns an error that wraps window.ErrInvalid if the costs do not fit a reservation with the given number of
// items.
func (c *Change) check(items int) error {
	if c.Spent == nil {
		return nil
	}
	if len(c.Spent) != items {
		return fmt.Errorf("%w: costs holds %d items (the reservation has %d)", window.ErrInvalid, len(c.Spent), items)
	}
	return c.checkCosts()
}

// checkCosts is check if the number of items is unknown.
func (c *Change) checkCosts() error {
	if n := len(c.Spent); c.Spent != nil && (n < 1 || n > store.RecordItemsMax) {
		return fmt.Errorf("%w: costs holds %d items (1 to %d)", window.ErrInvalid, n, store.RecordItemsMax)
	}
	for i, cost := range c.Spent {
		if cost < 0 || cost > window.LimitMax {
			return fmt.Errorf("%w: costs[%d] is %d (0 to %d)", window.ErrInvalid, i, cost, int64(window.LimitMax))
		}
	}
	return nil
}

// apply returns an open reservation with the change applied. Spent costs only grow: for example, after 30 were spent, a
// change to 20 has no effect.
func (c *Change) apply(r *Record, nowMs int64) *Record {
	next := *r
	next.Items = slices.Clone(r.Items)
	for i, cost := range c.Spent {
		next.Items[i].Spent = max(next.Items[i].Spent, cost)
	}
	if c.TTL > 0 {
		next.EndsMs = max(r.EndsMs, nowMs+c.TTL.Milliseconds())
	}
	next.Settled = c.Settled
	return &next
}
