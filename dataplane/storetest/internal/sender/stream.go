// Package sender sends costs to an origin as the nodes of a limiter do: in streams of numbered chunks, which a node
// sends again until they are answered, and again if the origin loses them.
package sender

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/resend"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
)

// Stream numbers chunks.
type Stream struct {
	ID     uint64
	Number int64 // of the last chunk
}

var streams atomic.Uint64

// NewStream returns a stream that no other test has.
func NewStream() Stream {
	return Stream{ID: uint64(suite.Began.UnixNano()) + streams.Add(1)}
}

// Chunk returns the stream's next chunk, for the shard of its first cost.
func (s *Stream) Chunk(o store.Origin, costs ...store.Cost) store.Chunk {
	s.Number++
	c := store.Chunk{Stream: s.ID, Number: s.Number, Costs: costs}
	if len(costs) > 0 {
		c.Shard = o.ShardOf(&costs[0].Cell.Key)
	}
	return c
}

// Keeper is an origin that sends chunks as a limiter does: it keeps answered chunks, and sends them again once the
// origin has lost them.
type Keeper struct {
	store.Origin
	Calls atomic.Int64 // of Send, to the origin

	costs   atomic.Int64
	mu      sync.Mutex
	streams map[uint64]*resend.Stream
}

// Send implements store.Origin.
func (k *Keeper) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	k.mu.Lock()
	if k.streams == nil {
		k.streams = make(map[uint64]*resend.Stream)
	}
	stream := k.streams[chunk.Stream]
	if stream == nil {
		stream = resend.New(&k.costs)
		k.streams[chunk.Stream] = stream
	}
	k.mu.Unlock()
	return stream.Send(ctx, func(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
		k.Calls.Add(1)
		return k.Origin.Send(ctx, chunk)
	}, chunk)
}
