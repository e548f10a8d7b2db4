package relay

import (
	"math"

	"github.com/weirhq/weir/shared/window"
)

// standing is the state of a cell on which publishing its total depends, apart from the tuning's
// floor.
type standing struct {
	total, published, limit int64
	shared                  bool // another region is known to use the cell
}

// isDue reports whether to publish the total now. Otherwise it waits until it grows, or another region uses the cell.
func (s standing) isDue(floor float64) bool {
	limit := min(s.limit, window.LimitMax)
	switch {
	case s.total <= s.published:
		return false
	case s.shared, s.published == 0:
		return true
	}
	return s.passesFloor(limit, floor) || s.total >= limit && s.published < limit
}

// passesFloor reports whether the total has reached a multiple of the floor that the published total has not. For
// example, with a limit of 1,000 and a floor of 0.1, a total of 301 passes if 299 is published.
func (s standing) passesFloor(limit int64, floor float64) bool {
	of := max(1, shareOf(limit, floor))
	return s.total/of > s.published/of
}

// shareOf returns the share of a limit, rounded up unless the fraction is a rounding error. limit
// is at most window.LimitMax.
func shareOf(limit int64, share float64) int64 {
	return int64(math.Ceil(float64(limit) * share * (1 - 1e-12)))
}
