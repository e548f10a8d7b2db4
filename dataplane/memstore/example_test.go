package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Two nodes of a region share an origin; two regions share the counts.
func Example() {
	ctx := context.Background()
	now := time.Date(2026, 1, 1, 12, 0, 30, 0, time.UTC)
	clock := func() time.Time { return now }
	origin := memstore.NewOrigin(memstore.OriginOptions{Clock: clock})
	counts := memstore.NewCounts(memstore.CountsOptions{Clock: clock})

	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "alice", Duration: time.Minute}
	cell := window.Cell{Key: key, Sequence: window.Sequence(now.UnixMilli(), key.DurationMs())}

	send := func(stream uint64, cost int64) store.Total {
		reply, _ := origin.Send(ctx, store.Chunk{Stream: stream, Number: 1, Costs: []store.Cost{{Cell: cell, Add: cost}}})
		return reply.Totals[0]
	}
	one, other := send(1, 4), send(2, 2)
	fmt.Println("one node learns", one.Region, "and the other", other.Region)

	_ = counts.Publish(ctx, "eu", []store.Count{{Cell: cell, Count: 6}})
	_ = counts.Publish(ctx, "us", []store.Count{{Cell: cell, Count: 3}})
	stored := make(map[string]int64)
	_ = counts.Import(ctx, now.UnixMilli(), func(region string, n store.Count) { stored[region] = n.Count })
	fmt.Println("stored:", stored)
	// Output:
	// one node learns 4 and the other 6
	// stored: map[eu:6 us:3]
}

// A reply that is lost leaves the chunk applied; to send it again adds nothing.
func ExampleFaults() {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	cell := window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: "alice", Duration: time.Hour}}
	cell.Sequence = window.Sequence(time.Now().UnixMilli(), cell.DurationMs())
	chunk := store.Chunk{Stream: 1, Number: 1, Costs: []store.Cost{{Cell: cell, Add: 1}}}

	origin.Faults.LoseReplies(true)
	_, err := origin.Send(context.Background(), chunk)
	fmt.Println("no answer:", err != nil, "total:", origin.Totals()[cell].Region)

	origin.Faults.LoseReplies(false)
	reply, _ := origin.Send(context.Background(), chunk)
	fmt.Println("sent again, total:", reply.Totals[0].Region)
	// Output:
	// no answer: true total: 1
	// sent again, total: 1
}
