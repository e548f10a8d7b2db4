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

// deliver applies what has left, whether or not its caller waits for the reply.
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
		err = checkNumber(chunk.Stream, chunk.Number)
	}
	if err != nil {
		return store.Reply{}, opError(op, err)
	}
	j, err := h.depart(ctx, op, chunk.Shard)
	if err != nil {
		return store.Reply{}, fmt.Errorf("%w: %w", store.ErrNotApplied, err)
	}
	id := resend.ID{Stream: chunk.Stream, Shard: chunk.Shard}
	costs := h.stamped(id, chunk)
	var reply store.Reply
	arrive := func() { reply, err = h.arrive(id, chunk.Number, costs) }
	if h.hold(func() { _, _ = h.arrive(id, chunk.Number, costs) }) {
		return store.Reply{}, opError(op, errReplyLost)
	}
	if lost := j.deliver(ctx, arrive); lost != nil {
		return store.Reply{}, lost
	}
	if err != nil {
		return store.Reply{}, opError(op, err)
	}
	costs = applied(costs, &reply)
	h.counters.sent(op, len(costs))
	epoch := h.epochOf(reply, chunk.Shard)
	h.learnEpoch(chunk.Shard, epoch)
	reply.Repeated = h.streams.Answered(id, chunk.Number, epoch, costs, h.clock())
	return reply, nil
}

// opOf is OpClaim for a chunk with bounded costs.
func opOf(chunk *store.Chunk) Op {
	if chunk.Bounded() {
		return OpClaim
	}
	return OpSend
}

// applied returns an answered chunk's costs as they are to be applied again: those that are bounded only if they were
// added, and without the bound.
func applied(costs []store.Cost, reply *store.Reply) (again []store.Cost) {
	for i, c := range costs {
		if total := &reply.Totals[i]; c.AtMost == 0 || total.Added {
			c.AtMost = 0
			if c.Epoch == 0 {
				c.Epoch = total.Epoch
			}
			again = append(again, c)
		}
	}
	return again
}

func checkNumber(stream uint64, number int64) error {
	if stream == 0 || number < 1 {
		return fmt.Errorf("stream is %d, want another than 0, and number %d, want >= 1", stream, number)
	}
	return nil
}

// stamped are a chunk's costs, each in the epoch that it belongs to: see store.Epoch.
func (h *Origin) stamped(id resend.ID, chunk store.Chunk) []store.Cost {
	current := h.knownEpoch(chunk.Shard)
	stamp := h.streams.Stamp(id, chunk.Number, current, current, h.clock())
	costs := make([]store.Cost, len(chunk.Costs))
	for i, c := range chunk.Costs {
		if costs[i] = c; c.Epoch == 0 && c.AtMost == 0 {
			costs[i].Epoch = stamp
		}
	}
	return costs
}

// arrive applies a chunk, after those that the shard has lost.
func (h *Origin) arrive(id resend.ID, number int64, costs []store.Cost) (store.Reply, error) {
	h.originServers.mu.Lock()
	defer h.originServers.mu.Unlock()
	after, epoch := h.streams.Last(id)
	c := sent{stream: id.Stream, number: number, after: after, afterEpoch: epoch, costs: costs}
	reply, err := h.sendLocked(id.Shard, c)
	if behind := (behindError{}); errors.As(err, &behind) {
		h.sendKeptLocked(id, behind.number, number)
		c.after, c.afterEpoch = 0, 0
		return h.sendLocked(id.Shard, c)
	}
	return reply, err
}

// sendKeptLocked applies what a shard has lost of a stream, as far as it is kept: what follows after, before next.
func (h *Origin) sendKeptLocked(id resend.ID, after, next int64) {
	for _, kept := range h.streams.After(id, after) {
		if kept.Number < next {
			_, _ = h.sendLocked(id.Shard, sent{stream: id.Stream, number: kept.Number, costs: kept.Costs})
		}
	}
}

// knownEpoch returns the epoch of the last answer that this Origin value has received from a shard,
// as another process would remember it. If it has received none, it asks for the epoch.
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
	var answered store.Epoch
	err = j.roundTrip(ctx, func(journey) error {
		h.originServers.mu.Lock()
		defer h.originServers.mu.Unlock()
		answered = h.epochLocked(shard)
		return apply(h.shards[shard], answered)
	})
	if !withoutEpoch[op] && (err == nil || errors.Is(err, store.ErrEpoch)) {
		h.learnEpoch(shard, answered)
	}
	return err
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
