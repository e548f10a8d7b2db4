package relay

import (
	"sync/atomic"
	"time"
)

// originClock is the clock of a shard of the origin, as the origin's last answer had it. The zero originClock is
// unknown, and its ms is 0. All methods may be called concurrently, but calls of set must be in the order of the
// answers.
type originClock struct{ last atomic.Pointer[clockReading] }

// clockReading is immutable.
type clockReading struct {
	ms         int64
	answeredAt time.Time // when the answer came, by a clock that does not step; zero: ms is another shard's time
}

// setBackMin is by how much an answer's time must be behind the answer before it to show that the origin's clock was
// set back. Answers can arrive out of order, but no call takes longer than callTimeout.
const setBackMin = 2 * callTimeout

func (c *originClock) read() clockReading {
	if last := c.last.Load(); last != nil {
		return *last
	}
	return clockReading{}
}

// ms returns the time in the last answer, in milliseconds.
func (c *originClock) ms() int64 { return c.read().ms }

// now returns the origin's current time. It can be late by the time that the answer took to arrive. It returns the zero
// time if the origin's clock is unknown.
func (c *originClock) now() time.Time {
	last := c.read()
	if last.answeredAt.IsZero() {
		return time.Time{}
	}
	return time.UnixMilli(last.ms).Add(time.Since(last.answeredAt))
}

// set records the time of an answer, and reports whether the origin's clock was set back.
func (c *originClock) set(ms int64) (setBack bool) {
	was := c.read()
	c.last.Store(&clockReading{ms: ms, answeredAt: time.Now()})
	return !was.answeredAt.IsZero() && was.ms-ms > setBackMin.Milliseconds()
}

// suppose uses another shard's time, until this shard answers.
func (c *originClock) suppose(ms int64) { c.last.Store(&clockReading{ms: ms}) }
