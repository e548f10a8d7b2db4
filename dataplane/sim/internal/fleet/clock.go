package fleet

import (
	"sync/atomic"
	"time"
)

// Clock is the clock of a server or a node. The zero value is right. It may be used concurrently.
type Clock struct{ ahead atomic.Int64 }

// Now returns the time by the clock.
func (c *Clock) Now() time.Time { return time.Now().Add(c.Ahead()) }

// Ahead returns how far the clock is ahead. It is negative if the clock is behind.
func (c *Clock) Ahead() time.Duration { return time.Duration(c.ahead.Load()) }

// Set sets the clock ahead of the true time.
func (c *Clock) Set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// Move moves the clock from the time that it shows.
func (c *Clock) Move(by time.Duration) { c.ahead.Add(int64(by)) }
