package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/resend"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/shared/window"
)

func clusterSubject(buckets int) storetest.Origin {
	clock, pass := farClock()
	c := memstore.NewCluster(memstore.OriginOptions{Shards: buckets, Clock: clock})
	ways := []*memstore.Cluster{c}
	return storetest.Origin{
		Origin: c,
		Client: func(testing.TB) store.Origin {
			way := c.Client()
			ways = append(ways, way)
			return way
		},
		Lose: func(lose bool) {
			for _, way := range ways {
				way.Faults.LoseReplies(lose)
			}
		},
		Wipe: func(testing.TB) { c.Wipe() },
		State: func(testing.TB) func(testing.TB) {
			state := c.State()
			return func(testing.TB) { c.Rollback(state) }
		},
		Histories: true,
		Clock:     func(testing.TB) time.Time { return clock() },
		Pass:      pass,
	}
}

func TestClusterKeepsTheContract(t *testing.T) {
	storetest.TestOrigin(t, func(testing.TB) storetest.Origin { return clusterSubject(3) })
}

// cellOfEachBucket returns a cell of each bucket, in the buckets' order.
func cellOfEachBucket(c *memstore.Cluster) []window.Cell {
	cells := make([]window.Cell, c.Origin.Shards())
	for i, found := 0, 0; found < len(cells); i++ {
		cell := minuteCell(fmt.Sprint(i))
		if bucket := c.Origin.ShardOf(&cell.Key); cells[bucket].Workspace == "" {
			cells[bucket] = cell
			found++
		}
	}
	return cells
}

// A bucket that is emptied has a new epoch, and so has the shard. The other buckets have lost nothing, and a call for
// their epoch is applied to them alone.
func TestBucketsLoseTheirCountsApart(t *testing.T) {
	c := memstore.NewCluster(memstore.OriginOptions{Shards: 3})
	cells := cellOfEachBucket(c)
	changes := func() store.Changes {
		t.Helper()
		got, err := c.Changes(t.Context(), 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	var costs []store.Cost
	for _, cell := range cells {
		costs = append(costs, store.Cost{Cell: cell, Add: 5, Limit: 100})
	}
	sent, err := c.Send(t.Context(), store.Chunk{Stream: 7, Number: 1, Costs: costs})
	if err != nil {
		t.Fatal(err)
	}
	before := changes()
	if e := sent.Totals; e[0].Epoch == e[1].Epoch || e[1].Epoch == e[2].Epoch || e[0].Epoch == e[2].Epoch {
		t.Errorf("epochs of buckets: %+v", e)
	}
	c.WipeShard(1)
	if err := c.Healed(t.Context(), 0, before.Epoch); !errors.Is(err, store.ErrEpoch) {
		t.Errorf("healed in an epoch that has ended: %v", err)
	}
	after := changes()
	if after.Epoch == before.Epoch || after.Healed || len(after.Cells) != 2 {
		t.Errorf("after bucket 1 was emptied: %+v", after)
	}
	if err := c.Healed(t.Context(), 0, after.Epoch); err != nil || !changes().Healed {
		t.Errorf("healed: %v, %+v", err, changes())
	}
	for i, total := range c.Totals() {
		if want := sent.Totals[c.Origin.ShardOf(&i.Key)]; total.Region != 5 || total.Epoch != want.Epoch {
			t.Errorf("%v: %+v, was %+v", i, total, want)
		}
	}
}

// If a bucket has lost chunks of a stream, it reports this with the next chunk of the stream that compares its mark,
// whatever cells the chunk has.
func TestABucketThatFailsOverLosesNoAnsweredChunk(t *testing.T) {
	c := memstore.NewCluster(memstore.OriginOptions{Shards: 2})
	cells := cellOfEachBucket(c)
	stream := resend.New(new(atomic.Int64))
	send := func(number int64, costs ...store.Cost) {
		t.Helper()
		_, err := stream.Send(t.Context(), func(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
			for i := range chunk.After {
				chunk.After[i].Ask = true
			}
			return c.Send(ctx, chunk)
		}, store.Chunk{Stream: 7, Number: number, Costs: costs})
		if err != nil {
			t.Fatal(err)
		}
	}
	send(1, store.Cost{Cell: cells[0], Add: 1}, store.Cost{Cell: cells[1], Add: 10})
	replica := c.State()
	send(2, store.Cost{Cell: cells[0], Add: 2}, store.Cost{Cell: cells[1], Add: 20})
	c.RollbackShard(1, replica)
	if totals := c.Totals(); totals[cells[0]].Region != 3 || totals[cells[1]].Region != 10 {
		t.Errorf("after bucket 1 failed over: %+v", totals)
	}
	send(3, store.Cost{Cell: cells[0], Add: 4})
	if totals := c.Totals(); totals[cells[0]].Region != 7 || totals[cells[1]].Region != 30 {
		t.Errorf("after the next chunk: %+v", totals)
	}
}

// A chunk that has no cost for a bucket, and no mark of its epoch, leaves the stream's number there as it is: a larger
// number would hide from the next chunk that the bucket has lost an earlier chunk.
func TestAChunkForOneBucketHidesNoLossInAnother(t *testing.T) {
	c := memstore.NewCluster(memstore.OriginOptions{Shards: 2})
	cells := cellOfEachBucket(c)
	send := func(chunk store.Chunk) store.Reply {
		t.Helper()
		chunk.Stream = 7
		reply, err := c.Send(t.Context(), chunk)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	send(store.Chunk{Number: 1, Costs: []store.Cost{{Cell: cells[0], Add: 1}}})
	replica := c.State()
	epoch := send(store.Chunk{Number: 2, Costs: []store.Cost{{Cell: cells[0], Add: 2}}}).Totals[0].Epoch
	c.Rollback(replica)
	send(store.Chunk{Number: 3, Costs: []store.Cost{{Cell: cells[1], Add: 4}}})
	reply := send(store.Chunk{Number: 4, After: []store.Mark{{Epoch: epoch, Number: 2, Ask: true}}})
	if want := []store.Mark{{Epoch: epoch, Number: 1}}; !slices.Equal(reply.Behind, want) {
		t.Errorf("behind is %+v, want %+v", reply.Behind, want)
	}
}

// A chunk with bounded costs compares the marks of other epochs too, and reports the epochs that give no answer. The
// other buckets answer.
func TestBoundedChunksAskOtherBuckets(t *testing.T) {
	c := memstore.NewCluster(memstore.OriginOptions{Shards: 2})
	cells := cellOfEachBucket(c)
	sent, err := c.Send(t.Context(), store.Chunk{Stream: 7, Number: 1, Costs: []store.Cost{
		{Cell: cells[0], Add: 1, AtMost: 9}, {Cell: cells[1], Add: 1, AtMost: 9}}})
	if err != nil {
		t.Fatal(err)
	}
	epoch := sent.Totals[1].Epoch
	claim := func(number int64, ask bool) store.Reply {
		t.Helper()
		reply, err := c.Send(t.Context(), store.Chunk{Stream: 7, Number: number,
			Costs: []store.Cost{{Cell: cells[0], Add: 1, AtMost: 9}},
			After: []store.Mark{{Epoch: epoch, Number: 5, Ask: ask}}})
		if err != nil || !reply.Totals[0].Added {
			t.Fatalf("chunk %d: %+v, %v", number, reply, err)
		}
		return reply
	}
	if r := claim(2, false); r.Behind != nil || r.Unanswered != nil {
		t.Errorf("a chunk that asks nothing: %+v", r)
	}
	if r := claim(3, true); !slices.Equal(r.Behind, []store.Mark{{Epoch: epoch, Number: 1}}) || r.Unanswered != nil {
		t.Errorf("a bucket that lacks chunks: %+v", r)
	}
	c.ShardFaults(1).Fail(errDown)
	if r := claim(4, true); r.Behind != nil || !slices.Equal(r.Unanswered, []store.Epoch{epoch}) {
		t.Errorf("a bucket that is down: %+v", r)
	}
}
