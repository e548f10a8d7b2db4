package mysqlcounts

import (
	"context"
	"time"
)

// How an incremental import comes to miss nothing.
//
// A row is stamped (updated_at) when its statement begins and becomes visible when it
// commits. An import's cursor is the database's clock, read before its rows. With s the
// stamp, v the moment of visibility and c a cursor whose import did not see the row,
//
//	c <= v        the row was not there when the rows of c were read, nor before
//	c' = c - overlap    is where the next import begins to read
//
// so the row is seen by it if v - s <= overlap. To be sure of that without asking the
// database a second time, a publish is timed by its caller, who waits for at least v - s:
// one that took longer than lateAfter stamps its rows anew, and times that as well.
// lateAfter is less than the overlap by what the clocks of two machines may differ in
// pace, and what the milliseconds cut off.
//
// What this rests on: the overlap is the same in the whole fleet, and the database's
// clock does not go back by more than the rest. Whoever dies between the two statements
// leaves rows to the next full import.

// overlapDefault is long enough for a commit from the other side of the world, and short
// enough that an import each second reads little twice.
const overlapDefault = 500 * time.Millisecond

// touchesMax bounds how often the same rows are stamped anew: a database that is too
// slow for that is not helped by more of it.
const touchesMax = 3

func (c *Counts) lateAfter() time.Duration { return c.overlap - c.overlap/5 }

// timely runs write, and touch as long as they take too long for an import to be sure to
// see what they wrote. ok is false if that remained so.
func (c *Counts) timely(ctx context.Context, write, touch func(context.Context) error) (ok bool, err error) {
	step := write
	for range 1 + touchesMax {
		began := c.clock()
		if err := step(ctx); err != nil {
			return false, err
		}
		if c.clock().Sub(began) <= c.lateAfter() {
			return true, nil
		}
		c.totals.touched.Inc()
		step = touch
	}
	return false, nil
}
