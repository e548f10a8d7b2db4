package memstore_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
)

// farClock returns a servers' clock that is far from the process's, and a function that sets it forward, or back.
func farClock() (clock func() time.Time, pass func(testing.TB, time.Duration)) {
	var ahead atomic.Int64
	ahead.Store(int64(-10 * time.Minute))
	return func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		func(_ testing.TB, d time.Duration) { ahead.Add(int64(d)) }
}

// originSubject returns an Origin with its hooks.
func originSubject(shards int) storetest.Origin {
	clock, pass := farClock()
	h := memstore.NewOrigin(memstore.OriginOptions{Shards: shards, Clock: clock})
	ways := []*memstore.Origin{h}
	return storetest.Origin{
		Origin: h,
		Client: func(testing.TB) store.Origin {
			way := h.Client()
			ways = append(ways, way)
			return way
		},
		Lose: func(lose bool) {
			for _, way := range ways {
				way.Faults.LoseReplies(lose)
			}
		},
		Wipe: func(testing.TB) { h.Wipe() },
		State: func(testing.TB) func(testing.TB) {
			state := h.State()
			return func(testing.TB) { h.Rollback(state) }
		},
		Clock:     func(testing.TB) time.Time { return clock() },
		Histories: true,
		Pass:      pass,
		Step:      pass,
	}
}

func TestOriginKeepsTheContract(t *testing.T) {
	storetest.TestOrigin(t, func(testing.TB) storetest.Origin { return originSubject(1) })
}

func TestShardedOriginKeepsTheContract(t *testing.T) {
	storetest.TestOrigin(t, func(testing.TB) storetest.Origin { return originSubject(3) })
}
