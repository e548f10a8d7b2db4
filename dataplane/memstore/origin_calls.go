package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirhq/weir/dataplane/internal/resend"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Read implements store.Origin.
func (h *Origin) Read(ctx context.Context, cells []window.Cell) (reply store.Reply, err error) {
	if len(cells) == 0 {
		return store.Reply{}, nil
	}
	h.counters.gets.Add(1)
	shard := h.ShardOf(&cells[0].Key)
	err = h.call(ctx, OpRead, shard, func(s *originShard, epoch store.Epoch) error {
		reply = store.Reply{Totals: make([]store.Total, len(cells)), Now: h.clock()}
		for i, c := range cells {
			r := s.record(c, reply.Now.UnixMilli())
			reply.Totals[i] = r.total(epoch)
		}
		return h.inShard(shard, len(cells), func(i int) *window.Key { return &cells[i].Key })
	})
	if err != nil {
		return store.Reply{}, err
	}
	h.counters.cellsRead.Add(int64(len(cells)))
	return reply, nil
}

// deliver applies a call that has left, whether or not its caller waits for the reply.
func (j journey) deliver(ctx context.Context, apply func()) error {
	lost := j.travel(ctx)
	apply()
	if lost == nil {
		lost = j.comeBack(ctx)
	}
	return lost
}

// Send implements store.Origin.
func (h *Origin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	op := opOf(&chunk)
	h.counters.send(op)
	err := h.inShard(chunk.Shard, len(chunk.Costs), func(i int) *window.Key { return &chunk.Costs[i].Cell.Key })
	if err == nil {
		err = checkChunk(&chunk)
	}
	if err != nil {
		return store.Reply{}, opError(op, err)
	}
	j, err := h.depart(ctx, op, chunk.Shard)
	if err != nil {
		return store.Reply{}, fmt.Errorf("%w: %w", store.ErrNotApplied, err)
	}
	chunk.Costs = h.stamped(&chunk)
	var reply store.Reply
	arrive := func() { reply, err = h.arrive(&chunk) }
	if h.hold(func() { _, _ = h.arrive(&chunk) }) {
		return store.Reply{}, opError(op, errReplyLost)
	}
	if lost := j.deliver(ctx, arrive); lost != nil {
		return store.Reply{}, lost
	}
	if err != nil {
		return store.Reply{}, opError(op, err)
	}
	h.counters.sent(chunk.Costs, &reply)
	h.learnEpoch(chunk.Shard, h.epochOf(reply, chunk.Shard))
	return reply, nil
}

// opOf returns OpClaim for a chunk with bounded costs, or OpSend.
func opOf(chunk *store.Chunk) Op {
	if chunk.Bounded() {
		return OpClaim
	}
	return OpSend
}

func checkChunk(c *store.Chunk) error {
	if c.Stream == 0 || c.Number < 1 || len(c.Costs) > store.ChunkMax {
		return fmt.Errorf("stream is %d, want another than 0; number %d, want >= 1; and %d costs, want 0 to %d",
			c.Stream, c.Number, len(c.Costs), store.ChunkMax)
	}
	return nil
}

// stamped returns a chunk's costs, each with the epoch that it belongs to: see store.Epoch.
func (h *Origin) stamped(chunk *store.Chunk) []store.Cost {
	costs, current := slices.Clone(chunk.Costs), h.knownEpoch(chunk.Shard)
	for i := range costs {
		if c := &costs[i]; c.Epoch == 0 && c.AtMost == 0 {
			id := resend.ID{Stream: chunk.Stream, Shard: chunk.Shard}
			c.Epoch = h.stamps.Of(id, chunk.Number, current, current, h.clock())
		}
	}
	return costs
}

// arrive applies a chunk.
func (h *Origin) arrive(chunk *store.Chunk) (store.Reply, error) {
	h.originServers.mu.Lock()
	defer h.originServers.mu.Unlock()
	return h.sendLocked(chunk)
}

// knownEpoch returns the epoch of the last answer that this Origin value has received from a shard, as another process
// would store it. If it has received none, it reads the epoch.
func (h *Origin) knownEpoch(shard int) store.Epoch {
	current := h.epoch(shard)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known[shard] == 0 {
		h.known[shard] = current
	}
	return h.known[shard]
}

// learnEpoch records the epoch of an answer.
func (h *Origin) learnEpoch(shard int, epoch store.Epoch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known[shard] = epoch
}

// withoutEpoch holds the calls whose answers have no epoch.
var withoutEpoch = map[Op]bool{OpListen: true, OpLease: true, OpRelease: true, OpAck: true, OpScan: true, OpApply: true,
	OpSettings: true, OpStoreSettings: true, OpHeartbeat: true, OpHeartbeats: true, OpStored: true}

func (h *Origin) epoch(shard int) store.Epoch {
	h.originServers.mu.Lock()
	defer h.originServers.mu.Unlock()
	return h.epochLocked(shard)
}

// epochOf returns the epoch of an answer.
func (h *Origin) epochOf(reply store.Reply, shard int) store.Epoch {
	if len(reply.Totals) > 0 {
		return reply.Totals[0].Epoch
	}
	return h.epoch(shard)
}

// call makes a round trip to a shard. apply runs under the servers' lock, so it must not call the Origin.
func (h *Origin) call(ctx context.Context, op Op, shard int,
	apply func(s *originShard, epoch store.Epoch) error) error {
	if err := h.inShard(shard, 0, nil); err != nil {
		return opError(op, err)
	}
	j, err := h.depart(ctx, op, shard)
	if err != nil {
		return err
	}
	var answered store.Epoch
	err = j.roundTrip(ctx, func(journey) error {
		h.originServers.mu.Lock()
		defer h.originServers.mu.Unlock()
		answered = h.epochLocked(shard)
		at, _ := h.shardLocked(shard)
		return apply(at, answered)
	})
	if !withoutEpoch[op] && (err == nil || errors.Is(err, store.ErrEpoch)) {
		h.learnEpoch(shard, answered)
	}
	return err
}

// inShard returns an error if a shard does not exist, or a cell is in another shard.
func (h *Origin) inShard(shard, n int, key func(i int) *window.Key) error {
	if shard < 0 || shard >= len(h.shards) {
		return fmt.Errorf("shard is %d (0 to %d)", shard, len(h.shards)-1)
	}
	for i := range n {
		if k := key(i); h.ShardOf(k) != shard {
			return fmt.Errorf("%v is in shard %d, not in %d", *k, h.ShardOf(k), shard)
		}
	}
	return nil
}

// depart is Faults.depart for a call to a shard.
func (h *Origin) depart(ctx context.Context, op Op, shard int) (journey, error) {
	return departTo(ctx, &h.Faults, h.shardFaults, op, shard)
}
