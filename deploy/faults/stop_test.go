package faults

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

// Conformance 27: "SIGTERM during load → after exit the origin's totals equal what was accepted." Hundreds of keys have
// unsent cost at any moment.
func TestStopDuringLoad(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testStopDuringLoad)
}

func testStopDuringLoad(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{})
	l := load{perSecond: 1000, keys: 600}
	l.start(t, f.regions...)
	pause(t.Context(), time.Second)
	f.stopUnderLoad()
	f.settle("stop during load", recovery{}, allowance{})
}

// The same directly after the origin has lost its data: if the last sends find the loss, the node restores the data
// before it ends, because no other node may exist to do it later.
func TestStopAfterRedisLostItsData(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testStopAfterRedisLostItsData)
}

func testStopAfterRedisLostItsData(t *testing.T) {
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
			f.stopLimiter(n)
		})
	}
	stopping.Wait()
}

// "A rolling restart hands out no fresh budget": before a node decides anything after its start, it reads from the
// region's Redis the cost that its callers have used there. It receives their cost in other regions shortly after, as
// every node does.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRollingRestart)
}

func testRollingRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, plan{})
	f.exhaust()
	l := load{perSecond: 300, keys: 100}
	for _, r := range f.regions {
		for _, old := range r.nodes {
			stop := l.start(t, r)
			pause(t.Context(), 200*time.Millisecond)
			old.drain()
			must(t, errors.Join(old.Stop(t.Context()), old.relay.Stop(t.Context())))
			n := r.start()
			for i := range victims.keys {
				used := r.ledger.of(victims.key(i))
				// a busy machine may miss ReadTimeout
				if d := r.ask(n, victims.key(i), victims.limit); d.Allowed && d.Current <= float64(used) && !d.Source.Degraded() {
					t.Errorf("a new node of %s gives %s, which has used %d here, a fresh budget: %+v", r.name, victims.key(i), used, d)
				}
			}
			f.exhaust()
			stop()
		}
	}
	f.settle("rolling restart", recovery{}, allowance{})
}
