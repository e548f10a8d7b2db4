package relay

import (
	"math"
	"time"

	"github.com/weirhq/weir/shared/window"
)

const (
	hotShare = 0.6         // of its limit: from here on a shared cell's count is told at every interval
	stillFor = time.Second // a shared cell's count that stands below a step is told after that
)

// What the region's other regions have been told about a cell: nothing, its hash, or a count > 0.
const (
	toldNothing int64 = -1
	toldHash    int64 = 0
)

// verdict is what to do about a cell's total now.
type verdict uint8

const (
	keepIt    verdict = iota // nothing until the total grows or another region uses the cell
	laterIt                  // nothing yet; look again at the next interval
	tellHash                 // announce that the region uses the cell
	tellCount                // tell the total
)

// standing is all that the decision about a cell depends on, beside the tuning.
type standing struct {
	total, told, limit int64
	shared             bool          // another region is known to use the cell
	still              time.Duration // since total last grew
}

func (s standing) verdict(t Tuning) verdict {
	limit := min(s.limit, window.LimitMax)
	untold := s.total - max(s.told, 0)
	switch {
	case untold <= 0:
		return keepIt
	case s.shared && s.mayWait(untold, limit, t.Step):
		return laterIt
	case s.shared, s.passesFloor(limit, t.Floor), s.total >= limit && s.told < limit:
		return tellCount
	case s.told == toldNothing && 2*untold < shareOf(limit, t.Floor):
		return tellHash
	case s.told == toldNothing:
		return tellCount
	}
	return keepIt
}

// passesFloor tells whether the total has reached a multiple of the floor that what was told had not.
func (s standing) passesFloor(limit int64, floor float64) bool {
	of := max(1, shareOf(limit, floor))
	return s.total/of > max(s.told, 0)/of
}

// mayWait is of a shared cell.
func (s standing) mayWait(untold, limit int64, step float64) bool {
	return s.told > toldHash && untold < shareOf(limit, step) && s.total < shareOf(limit, hotShare) && s.still < stillFor
}

// shareOf rounds up, unless what is above a whole number is a float's error. limit is at most window.LimitMax.
func shareOf(limit int64, share float64) int64 {
	return int64(math.Ceil(float64(limit) * share * (1 - 1e-12)))
}
