package clock

import "time"

// Stamp is the time of a decision.
type Stamp struct {
	Ms     int64
	Cached bool // it comes from the cached time
	Known  bool // it comes from the clock to follow, or there is none
	Given  bool // it is a caller's
}

// WillFollow makes times unknown until there is a clock to follow, or until FollowNone.
func (c *Clock) WillFollow() { c.unknown.Store(true) }

// FollowNone makes this clock's own times known, because there is no clock to follow after all.
func (c *Clock) FollowNone() { c.unknown.Store(false) }

// Known reports whether time is known. Earlier readings are another clock's, and have no meaning for other nodes.
func (c *Clock) Known() bool { return !c.unknown.Load() }

// Now reads the time. It first reads whether time is known, because the clock to follow may appear in between.
func (c *Clock) Now() (s Stamp) {
	s.Known = c.Known()
	if s.Ms = c.cachedMs.Load(); s.Ms != 0 && c.asked.Load() != 0 { // as NowMs, without the call
		s.Cached = true
		return s
	}
	s.Ms, s.Cached = c.ask()
	return s
}

// At returns the stamp of a caller's own time, which must be at most max away from the clock. While no time is known,
// any time is accepted.
func (c *Clock) At(at time.Time, max time.Duration) (s Stamp, skew time.Duration, ok bool) {
	s.Known = c.Known()
	s.Ms, s.Given = at.UnixMilli(), true
	if skew, ok = c.Near(at, max); !ok && !s.Known {
		return c.Now(), 0, true
	}
	return s, skew, ok
}

// Settle returns the time of a stamp now that time is known: the caller's own time, if it is at most max away from the
// clock, or else the clock's time.
func (c *Clock) Settle(ms int64, given bool, max time.Duration) int64 {
	if given {
		if _, ok := c.Near(time.UnixMilli(ms), max); ok {
			return ms
		}
	}
	return c.ReadMs()
}
