package faults

import (
	"context"
	"sync"
	"testing"
	"time"
)

// Conformance 27: "SIGTERM during load → after exit the origin's totals equal what was
// accepted." Hundreds of keys have unsent cost at any moment.
func TestStopDuringLoad(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{})
	l := load{perSecond: 1000, keys: 600}
	l.start(t, f.regions...)
	pause(t.Context(), time.Second)
	f.stopUnderLoad()
	f.settle("stop during load", recovery{}, allowance{})
}

// The same right after the origin has lost its data: what the last sends find lost is
// healed before the node is gone, as nobody may be there to do it later.
func TestStopAfterRedisLostItsData(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{nodes: 1})
	l := load{perSecond: 1000, keys: 600}
	l.touch(f.regions...)
	stop := l.start(t, f.regions...)
	pause(t.Context(), time.Second)
	eu := f.region("eu")
	must(t, eu.redis.Kill())
	stop()
	l.touch(eu)
	must(t, eu.redis.Restart(t.Context()))
	f.settle("stop after Redis lost its data", recovery{}, allowance{})
}

// stopUnderLoad stops every node of the fleet at the same time, each once its callers
// have turned elsewhere.
func (f *fleet) stopUnderLoad() {
	f.t.Helper()
	var stopping sync.WaitGroup
	for _, n := range f.nodes() {
		stopping.Go(func() {
			n.drain()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := n.Stop(ctx); err != nil {
				f.t.Errorf("stop %s: %v", n.id, err)
			}
		})
	}
	stopping.Wait()
}
