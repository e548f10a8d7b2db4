package relay

import (
	"time"

	"github.com/weirhq/weir/shared/window"
)

const (
	tellPercent = 10          // of its limit: from here on a cell's count is told whether or not it is shared
	hotPercent  = 60          // from here on it is told at every interval
	stillFor    = time.Second // a count that stands below a step is told after that
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

// standing is all that the decision about a cell depends on.
type standing struct {
	total, told, limit int64
	shared             bool          // another region is known to use the cell
	still              time.Duration // since total last grew
}

func (s standing) verdict() verdict {
	if s.total <= max(s.told, 0) {
		return keepIt
	}
	limit := min(s.limit, window.LimitMax)
	if s.told <= toldHash {
		switch {
		case s.shared || s.total >= percentOf(limit, tellPercent):
			return tellCount
		case s.told == toldNothing:
			return tellHash
		}
		return keepIt
	}
	if s.total-s.told >= stepOf(limit) || s.total >= percentOf(limit, hotPercent) || s.still >= stillFor {
		return tellCount
	}
	return laterIt
}

// stepOf is how much a count grows between two tellings: 1 % of the limit, at least 1.
func stepOf(limit int64) int64 { return max(1, limit/100) }

// percentOf rounds up. limit is at most window.LimitMax.
func percentOf(limit, percent int64) int64 { return (limit*percent + 99) / 100 }
