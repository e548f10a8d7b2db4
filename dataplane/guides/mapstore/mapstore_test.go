package mapstore_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/guides/mapstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/shared/window"
)

func TestOriginKeepsTheContract(t *testing.T) {
	storetest.TestOrigin(t, func(testing.TB) storetest.Origin {
		origin := mapstore.New()
		return storetest.Origin{
			Origin: origin,
			Client: func(testing.TB) store.Origin { return origin },
			Wipe:   func(testing.TB) { origin.Wipe() },
			Clock:  func(testing.TB) time.Time { return time.Now() },
		}
	})
}

// put removes expired cells as new cells come, so a flood of new keys needs memory only for the length of its windows.
func TestExpiredCellsAreRemoved(t *testing.T) { synctest.Test(t, testExpiredCellsAreRemoved) }

func testExpiredCellsAreRemoved(t *testing.T) {
	origin := mapstore.New()
	most := 0
	for number := range int64(100) {
		var costs []store.Cost
		for i := range 1000 {
			key := window.Key{Workspace: "w", Namespace: "n", Identifier: fmt.Sprint(number, "/", i), Duration: time.Second}
			costs = append(costs, store.Cost{Cell: window.Cell{Key: key,
				Sequence: window.Sequence(time.Now().UnixMilli(), key.DurationMs())}, Add: 1})
		}
		if _, err := origin.Send(t.Context(), store.Chunk{Stream: 1, Number: number + 1, Costs: costs}); err != nil {
			t.Fatal(err)
		}
		most = max(most, origin.Len())
		time.Sleep(10 * time.Second)
	}
	if most > 12_000 {
		t.Errorf("it had %d cells at once, of which at most 4,000 were in use", most)
	}
}
