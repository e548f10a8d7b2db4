package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Two nodes of one region meet at an origin; two regions meet in the counts.
func Example() {
	ctx := context.Background()
	now := time.Date(2026, 1, 1, 12, 0, 30, 0, time.UTC)
	clock := func() time.Time { return now }
	origin := memstore.NewOrigin(memstore.OriginOptions{Clock: clock})
	counts := memstore.NewCounts(memstore.CountsOptions{Clock: clock})

	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "alice", Duration: time.Minute}
	cell := window.Cell{Key: key, Sequence: window.Sequence(now.UnixMilli(), key.DurationMs())}

	one := origin.Add(ctx, []store.Add{{Cell: cell, Cost: 4}})
	other := origin.Add(ctx, []store.Add{{Cell: cell, Cost: 2}})
	fmt.Println("one node learns", one[0].Total, "and the other", other[0].Total)

	_ = counts.Publish(ctx, "eu", []store.Count{{Cell: cell, Count: 6}})
	_ = counts.Publish(ctx, "us", []store.Count{{Cell: cell, Count: 3}})
	_, _ = counts.Import(ctx, "eu", now.UnixMilli(), 0, func(i store.Imported) {
		fmt.Println("eu has published", i.Own, "and the others", i.Foreign)
	})
	// Output:
	// one node learns 4 and the other 6
	// eu has published 6 and the others 3
}

// A reply that is lost leaves the increment applied, which is what a limiter has to
// reckon with.
func ExampleFaults() {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	cell := window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: "alice", Duration: time.Hour}}
	cell.Sequence = window.Sequence(time.Now().UnixMilli(), cell.DurationMs())

	origin.Faults.LoseReplies(true)
	added := origin.Add(context.Background(), []store.Add{{Cell: cell, Cost: 1}})
	fmt.Println(added[0].Err)
	fmt.Println("total:", origin.Totals()[cell])
	// Output:
	// origin: reply lost, the increment may have been applied: memstore: add: the reply was lost
	// total: 1
}
