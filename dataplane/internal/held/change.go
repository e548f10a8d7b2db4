package held

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Change is a call about a reservation: it returns what it makes of it, nil for no change.
type Change func(r *Record, nowMs int64) (*Record, error)

// Spend takes what was spent so far, a cost for each item, and with last ends the reservation. Errors wrap
// window.ErrInvalid.
func Spend(costs []int64, last bool) Change {
	return func(r *Record, _ int64) (*Record, error) {
		if len(costs) != len(r.Items) {
			return nil, fmt.Errorf("%w: costs holds %d items (the reservation has %d)", window.ErrInvalid, len(costs),
				len(r.Items))
		}
		for i, cost := range costs {
			if cost < 0 || cost > window.LimitMax {
				return nil, fmt.Errorf("%w: costs[%d] is %d (0 to %d)", window.ErrInvalid, i, cost, int64(window.LimitMax))
			}
		}
		return r.Spend(costs, last), nil
	}
}

// Cancel settles a reservation with what was reported as spent.
func Cancel(r *Record, _ int64) (*Record, error) {
	return r.Spend(make([]int64, len(r.Items)), true), nil
}

// Extend has a reservation end ttl from now, if that is later than it would.
func Extend(ttl time.Duration) Change {
	return func(r *Record, nowMs int64) (*Record, error) {
		ends := nowMs + ttl.Milliseconds()
		if ends <= r.EndsMs {
			return nil, nil
		}
		next := *r
		next.EndsMs = ends
		return &next, nil
	}
}
