package benchmarks

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/benchmarks/workload"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// bareOrigin answers as an origin does that has counted nothing before, and keeps nothing.
type bareOrigin struct{}

func (bareOrigin) Shards() int             { return 1 }
func (bareOrigin) ShardOf(*window.Key) int { return 0 }

func (bareOrigin) Read(_ context.Context, cells []window.Cell) (store.Reply, error) {
	reply := store.Reply{Totals: make([]store.Total, len(cells)), Now: time.Now()}
	for i := range reply.Totals {
		reply.Totals[i].Epoch = 1
	}
	return reply, nil
}

func (bareOrigin) Send(_ context.Context, chunk store.Chunk) (store.Reply, error) {
	reply := store.Reply{Totals: make([]store.Total, len(chunk.Costs)), Now: time.Now()}
	for i, c := range chunk.Costs {
		reply.Totals[i] = store.Total{Region: c.Add, Epoch: 1, Added: true}
	}
	return reply, nil
}

func (bareOrigin) Listen(ctx context.Context, _ int, _ func([]store.Foreign)) error {
	<-ctx.Done()
	return nil
}

// BenchmarkFleetKey reports the bytes that a limiter of a fleet keeps for a key, without its identifier, once the
// origin has answered for its cost, and the sender has dropped the chunk. Run it with -benchtime 300000x: the table
// grows in steps, so the number of keys matters.
func BenchmarkFleetKey(b *testing.B) {
	l := must(dataplane.New(dataplane.Config{EntriesMax: 2_000_000, Region: "eu", NodeID: "a", Origin: bareOrigin{}}))
	if err := l.Start(background); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Stop(background) }()
	before := heap()
	for i := range b.N {
		l.Allow(background, ask(workload.Identifier(i), workload.Never))
	}
	for l.Health().PendingCost > 0 {
		runtime.Gosched()
	}
	if b.N > 1 {
		<-time.After(2 * store.KeepFor) // No call reports when a chunk is dropped: it is kept for this time.
	}
	b.ReportMetric((heap()-before)/float64(b.N)-workload.IdentifierBytes, "B/key")
	b.ReportMetric(0, "ns/op")
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
