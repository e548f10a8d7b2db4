package hunt

import (
	"time"

	"github.com/weirhq/weir/dataplane"
)

// clockBound is how far a life's time may be from its origin's time. A life estimates its origin's clock to within half
// of the time that the answer took, and no call may take more than a second.
const clockBound = 500*time.Millisecond + readTimeout

// clock compares a life's time with its origin's clock, once the origin has answered the life. If the node's own clock
// has been moved, the life learns late how far the clock is off. Once the life follows its origin's clock, such steps
// have no effect on it.
func (w *world) clock(l *life, x *dataplane.Explanation) {
	if !l.answered.Load() || l.steps != l.node.steps.Load() || l.ended.Load() ||
		w.wasSet(l.node.region) {
		return
	}
	if off := x.At.Sub(l.node.region.clock.Now()); off.Abs() > clockBound {
		w.record.violate("clock", "%v goes by a time that is %v ahead of its origin's", l, off)
	}
}
