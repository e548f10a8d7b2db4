package memstore

import (
	"context"
	"errors"
	"fmt"

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
			reply.Totals[i] = store.Total{Region: r.region(), Foreign: r.foreign, Epoch: epoch}
		}
		return h.inShard(shard, len(cells), func(i int) *window.Key { return &cells[i].Key })
	})
	if err != nil {
		return store.Reply{}, err
	}
	h.counters.cellsRead.Add(int64(len(cells)))
	return reply, nil
}

// Claim implements store.Origin.
func (h *Origin) Claim(ctx context.Context, claims []store.Claim) store.ClaimReply {
	reply := store.ClaimReply{
		Reply: store.Reply{Totals: make([]store.Total, len(claims))},
		Added: make([]bool, len(claims)),
	}
	if len(claims) == 0 {
		return reply
	}
	h.counters.claims.Add(1)
	shard := h.ShardOf(&claims[0].Cell.Key)
	err := h.inShard(shard, len(claims), func(i int) *window.Key { return &claims[i].Cell.Key })
	var j journey
	if err == nil {
		j, err = h.depart(ctx, OpClaim, shard)
	}
	if err == nil {
		err = j.deliver(ctx, func() {
			h.originServers.mu.Lock()
			defer h.originServers.mu.Unlock()
			for i, c := range claims {
				if reply.Totals[i], reply.Added[i] = h.claimLocked(shard, c); reply.Added[i] {
					h.counters.cellsClaimed.Add(1)
				}
			}
			reply.Now = h.clock()
		})
	}
	if err != nil {
		reply.Added, reply.Reply = make([]bool, len(claims)), store.Reply{Totals: make([]store.Total, len(claims))}
		for i := range claims {
			reply.Totals[i].Err = err
		}
	}
	return reply
}

// deliver applies what has left, whether or not its caller waits for the reply.
func (j journey) deliver(ctx context.Context, apply func()) error {
	lost := j.travel(ctx)
	apply()
	if lost == nil {
		lost = j.comeBack(ctx)
	}
	if lost != nil {
		return fmt.Errorf("%w: %w", store.ErrMaybeApplied, lost)
	}
	return nil
}

// Send implements store.Origin.
func (h *Origin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	h.counters.sends.Add(1)
	if chunk.Stream == 0 || chunk.Number < 1 {
		return store.Reply{}, opError(OpSend,
			fmt.Errorf("stream is %d, want another than 0, and number %d, want >= 1", chunk.Stream, chunk.Number))
	}
	err := h.inShard(chunk.Shard, len(chunk.Costs), func(i int) *window.Key { return &chunk.Costs[i].Cell.Key })
	if err != nil {
		return store.Reply{}, opError(OpSend, err)
	}
	j, err := h.depart(ctx, OpSend, chunk.Shard)
	if err != nil {
		return store.Reply{}, err
	}
	id := resend.ID{Stream: chunk.Stream, Shard: chunk.Shard}
	costs := h.stamped(id, chunk)
	var reply store.Reply
	arrive := func() { reply = h.arrive(id, chunk.Number, costs) }
	if h.hold(func() { _ = h.arrive(id, chunk.Number, costs) }) {
		return store.Reply{}, opError(OpSend, errReplyLost)
	}
	if err := j.deliver(ctx, arrive); err != nil {
		return store.Reply{}, err
	}
	h.counters.cellsAdded.Add(int64(len(costs)))
	h.streams.Answered(id, chunk.Number, h.epochOf(reply, chunk.Shard), costs, h.clock())
	return reply, nil
}

// stamped are a chunk's costs, each in the epoch that it belongs to: see store.Epoch.
func (h *Origin) stamped(id resend.ID, chunk store.Chunk) []store.Cost {
	current := h.epoch(chunk.Shard)
	stamp := h.streams.Stamp(id, chunk.Number, current, current, h.clock())
	costs := make([]store.Cost, len(chunk.Costs))
	for i, c := range chunk.Costs {
		if costs[i] = c; c.Epoch == 0 {
			costs[i].Epoch = stamp
		}
	}
	return costs
}

// arrive applies a chunk, after those that the shard has lost.
func (h *Origin) arrive(id resend.ID, number int64, costs []store.Cost) store.Reply {
	h.originServers.mu.Lock()
	defer h.originServers.mu.Unlock()
	after, epoch := h.streams.Last(id)
	c := sent{stream: id.Stream, number: number, after: after, afterEpoch: epoch, costs: costs}
	reply, err := h.sendLocked(id.Shard, c)
	if behind := (behindError{}); errors.As(err, &behind) {
		for _, kept := range h.streams.After(id, behind.number) {
			if kept.Number < number {
				_, _ = h.sendLocked(id.Shard, sent{stream: id.Stream, number: kept.Number, costs: kept.Costs})
			}
		}
		c.after, c.afterEpoch = 0, 0
		reply, _ = h.sendLocked(id.Shard, c) // certain, as it follows nothing
	}
	return reply
}

func (h *Origin) epoch(shard int) store.Epoch {
	h.originServers.mu.Lock()
	defer h.originServers.mu.Unlock()
	return h.epochLocked(shard)
}

// epochOf is the epoch of an answer.
func (h *Origin) epochOf(reply store.Reply, shard int) store.Epoch {
	if len(reply.Totals) > 0 {
		return reply.Totals[0].Epoch
	}
	return h.epoch(shard)
}

// call is a round trip to a shard; apply runs under the servers' lock.
func (h *Origin) call(ctx context.Context, op Op, shard int,
	apply func(s *originShard, epoch store.Epoch) error) error {
	if err := h.inShard(shard, 0, nil); err != nil {
		return opError(op, err)
	}
	j, err := h.depart(ctx, op, shard)
	if err != nil {
		return err
	}
	return j.roundTrip(ctx, func(journey) error {
		h.originServers.mu.Lock()
		defer h.originServers.mu.Unlock()
		epoch := h.epochLocked(shard)
		return apply(h.shards[shard], epoch)
	})
}

// inShard refuses a shard that is not there, and cells of another one.
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
