package memstore_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
)

// hubSubject is a Hub with its hooks. The servers' clock is far from the process's.
func hubSubject(shards int) storetest.Hub {
	clock := func() time.Time { return time.Now().Add(-10 * time.Minute) }
	h := memstore.NewHub(memstore.HubOptions{Shards: shards, Clock: clock})
	ways := []*memstore.Hub{h}
	return storetest.Hub{
		RelayHub: h,
		Client: func(testing.TB) store.RelayHub {
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

func TestHubKeepsTheContract(t *testing.T) {
	storetest.TestHub(t, func(testing.TB) storetest.Hub { return hubSubject(1) })
}

func TestShardedHubKeepsTheContract(t *testing.T) {
	storetest.TestHub(t, func(testing.TB) storetest.Hub { return hubSubject(3) })
}
