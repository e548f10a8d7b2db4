// Package cpu measures the processor time of a relay.
package cpu

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
)

// Meter measures the processor time of a relay. It runs the relay's steps on a separate thread, whose processor time
// the system reports. The stores run on other threads, as they would run on other machines. The figure leaves out the
// work of the stores' clients and the background part of garbage collection. It includes the garbage collection that
// allocations make the relay's own thread do.
type Meter struct {
	spent atomic.Int64 // ns of processor time
}

// Spent returns the processor time so far, always 0 on systems that do not report a thread's time.
func (m *Meter) Spent() time.Duration { return time.Duration(m.spent.Load()) }

// Run runs a relay until ctx ends.
func (m *Meter) Run(ctx context.Context, r *relay.Relay) {
	runtime.LockOSThread() // not unlocked, so the thread ends with the goroutine
	const interval = 200 * time.Millisecond
	for next := time.Now(); ; {
		if next = next.Add(interval); next.Before(time.Now()) {
			next = time.Now() // the last step took longer than the interval
		}
		if network.Pause(ctx, time.Until(next), "step") != nil {
			return
		}
		before := ThreadTime()
		_ = r.Step(ctx) // the scenario causes the errors
		m.spent.Add(int64(ThreadTime() - before))
	}
}
