package faults

import (
	"sync/atomic"
	"testing"
	"time"
)

// canary reads the time every few milliseconds. Its lateness is the delay that the machine can add to a decision.
type canary struct{ worstNs atomic.Int64 }

func newCanary(t *testing.T) *canary {
	c := &canary{}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		c.run(stop)
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return c
}

func (c *canary) run(stop <-chan struct{}) {
	const every = 5 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			now := time.Now()
			c.worstNs.Store(max(c.worstNs.Load(), int64(now.Sub(last)-every)))
			last = now
		}
	}
}

func (c *canary) worst() time.Duration { return time.Duration(c.worstNs.Load()) }
