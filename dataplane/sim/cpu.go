package sim

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
)

// cpuMeter measures what a relay costs a processor. It runs the relay's steps on a thread of their
// own, whose processor time the system tells. Stores work on other threads, as theirs would on other
// machines; left out with them are the clients' own work and the background part of garbage
// collection, and in it are the turns that allocations make the relay take in that.
type cpuMeter struct {
	spent atomic.Int64 // ns of processor time
}

func (m *cpuMeter) run(ctx context.Context, r *relay.Relay) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	const interval = 200 * time.Millisecond
	for next := time.Now(); ; {
		if next = next.Add(interval); next.Before(time.Now()) {
			next = time.Now() // a step that took longer than the interval
		}
		if network.Pause(ctx, time.Until(next), "step") != nil {
			return
		}
		before := threadTime()
		_ = r.Step(ctx) // faults are the scenario's
		m.spent.Add(int64(threadTime() - before))
	}
}
