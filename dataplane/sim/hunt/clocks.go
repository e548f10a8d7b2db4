package hunt

import (
	"time"

	"github.com/weirhq/weir/dataplane"
)

// clockBound is how far the time that a life goes by may be from its origin's: an answer tells it within half of the
// time that it took, which no call gives more than a second.
const clockBound = 500*time.Millisecond + readTimeout

// clock holds the time that a life goes by to its origin's clock, once the origin has answered it. A life whose own
// clock has been moved hears late of how far that is off: no node's steps once it follows its origin's.
func (w *world) clock(l *life, x *dataplane.Explanation) {
	if !l.answered.Load() || l.steps != l.node.steps.Load() || l.ended.Load() {
		return
	}
	if off := x.At.Sub(time.Now().Add(w.plan.Fleet.Ahead[l.node.region.index])); off.Abs() > clockBound {
		w.record.violate("clock", "%v goes by a time that is %v ahead of its origin's", l, off)
	}
}
