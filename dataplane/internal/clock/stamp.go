package clock

import "time"

// Stamp is a time to decide by.
type Stamp struct {
	Ms     int64
	Cached bool // it is the cached time
	Known  bool // it is that of the clock to follow, or there is none
	Given  bool // it is a caller's
}

// WillFollow makes times unknown until there is a clock to follow, or it turns out that there is none.
func (c *Clock) WillFollow() { c.unknown.Store(true) }

// FollowNone makes this clock's own times known, where there is no clock to follow after all.
func (c *Clock) FollowNone() { c.unknown.Store(false) }

// Known reports whether time is known: what was read before is another clock's, and means nothing to others.
func (c *Clock) Known() bool { return !c.unknown.Load() }

// Now reads the time. Whether it is known is asked first: the clock to follow may appear in between.
func (c *Clock) Now() (s Stamp) {
	s.Known = c.Known()
	if s.Ms = c.cachedMs.Load(); s.Ms != 0 && c.asked.Load() != 0 { // as NowMs, without the call
		s.Cached = true
		return s
	}
	s.Ms, s.Cached = c.ask()
	return s
}

// At is the stamp of a caller's own time, at most max away from the clock. While no time is known, any time will do.
func (c *Clock) At(at time.Time, max time.Duration) (s Stamp, skew time.Duration, ok bool) {
	s.Known = c.Known()
	s.Ms, s.Given = at.UnixMilli(), true
	if skew, ok = c.Near(at, max); !ok && !s.Known {
		return c.Now(), 0, true
	}
	return s, skew, ok
}

// Settle is the time of a stamp now that time is known: a caller's own, if it is at most max away from the clock, or
// else the clock's.
func (c *Clock) Settle(ms int64, given bool, max time.Duration) int64 {
	if given {
		if _, ok := c.Near(time.UnixMilli(ms), max); ok {
			return ms
		}
	}
	return c.ReadMs()
}
