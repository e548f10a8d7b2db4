package memstore_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
)

// originSubject is an Origin with its hooks. The servers' clock is far from the process's.
func originSubject(shards int) storetest.Origin {
	clock := func() time.Time { return time.Now().Add(-10 * time.Minute) }
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
		Clock: func(testing.TB) time.Time { return clock() },
	}
}

func TestOriginKeepsTheContract(t *testing.T) {
	storetest.TestOrigin(t, func(testing.TB) storetest.Origin { return originSubject(1) })
}

func TestShardedOriginKeepsTheContract(t *testing.T) {
	storetest.TestOrigin(t, func(testing.TB) storetest.Origin { return originSubject(3) })
}
