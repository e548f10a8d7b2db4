package sim

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// remoteHub is a region's hub as one process sees it: behind a link, and metered.
//
// A call that has left arrives, whatever becomes of its caller: one whose reply is lost, or whose
// caller gives up while it travels, is applied. A link that is cut loses requests and messages.
type remoteHub struct {
	store.RelayHub
	link   *link
	meters *hubMeters
}

var _ store.RelayHub = (*remoteHub)(nil)

// hubMeters count what hubs are asked for.
type hubMeters struct {
	trips, commands atomic.Int64
	cells           atomic.Int64 // named in calls
	messages        atomic.Int64 // that listeners heard
	messageCells    atomic.Int64 // in those messages
}

// hubOp is a method of a hub, and what redisorigin.Hub has Redis do for it on one server: commands
// a call, the script itself among them, and commands a cell that is written.
type hubOp struct {
	name              string
	perCall, perTouch int64
}

var (
	hubGet     = hubOp{"hub get", 3, 1}     // EVAL, GET epoch, TIME; HMGET
	hubSend    = hubOp{"hub send", 7, 2}    // and GET, SET stream, ZADD, ZREMRANGEBYSCORE changes; HMGET, HSET
	hubClaim   = hubOp{"hub claim", 5, 2}   // as send, without a stream
	hubChanges = hubOp{"hub changes", 7, 1} // EVAL, GET epoch, TIME, and four for the changes and the mark; HMGET
	hubTold    = hubOp{"hub told", 2, 1}    // EVAL, ZREM; HMGET
	hubScan    = hubOp{"hub scan", 4, 1}    // EVAL, GET epoch, TIME, SCAN; HMGET
	hubTell    = hubOp{"hub tell", 3, 2}    // EVAL, TIME, PUBLISH; HMGET, HSET
	hubRaise   = hubOp{"hub raise", 6, 2}   // EVAL, GET epoch, TIME, GET mark, and two for the changes; HMGET, HSET
	hubHealed  = hubOp{"hub healed", 4, 0}  // EVAL, GET epoch, TIME, SET
	hubLease   = hubOp{"hub lease", 4, 0}   // EVAL, GET, PTTL, SET
	hubRelease = hubOp{"hub release", 3, 0} // EVAL, GET, DEL
	hubListen  = hubOp{"hub listen", 1, 0}  // SUBSCRIBE
)

const hubMessage = "hub message"

func (m *hubMeters) count(op hubOp, cells int) {
	m.trips.Add(1)
	m.cells.Add(int64(cells))
	m.commands.Add(op.perCall + op.perTouch*int64(cells))
}

// call is one round trip to a shard. serve runs when the call arrives, with a context that its
// caller does not end; what it sets may be read only after nil.
func (h *remoteHub) call(ctx context.Context, op hubOp, shard, cells int, serve func(context.Context) error) error {
	v, err := h.link.embarkTo(op.name, shard)
	if err != nil {
		return err
	}
	return v.carry(ctx, op.name, func(ctx context.Context) error {
		h.meters.count(op, cells)
		return serve(ctx)
	})
}

// Read implements store.Hub.
func (h *remoteHub) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	if len(cells) == 0 {
		return store.Reply{}, nil
	}
	cells = slices.Clone(cells)
	var reply store.Reply
	err := h.call(ctx, hubGet, h.ShardOf(&cells[0].Key), len(cells), func(ctx context.Context) (err error) {
		reply, err = h.RelayHub.Read(ctx, cells)
		return err
	})
	if err != nil {
		return store.Reply{}, err
	}
	return reply, nil
}

// Send implements store.Hub.
func (h *remoteHub) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	chunk.Costs = slices.Clone(chunk.Costs)
	var reply store.Reply
	err := h.call(ctx, hubSend, chunk.Shard, len(chunk.Costs), func(ctx context.Context) (err error) {
		reply, err = h.RelayHub.Send(ctx, chunk)
		return err
	})
	if err != nil {
		return store.Reply{}, err
	}
	return reply, nil
}

// Claim implements store.Hub. A call that the link refuses has changed nothing; after any other
// error of the link it may have.
func (h *remoteHub) Claim(ctx context.Context, claims []store.Claim) store.ClaimReply {
	if len(claims) == 0 {
		return store.ClaimReply{}
	}
	claims = slices.Clone(claims)
	v, err := h.link.embarkTo(hubClaim.name, h.ShardOf(&claims[0].Cell.Key))
	if err != nil {
		return refusedClaims(err, len(claims))
	}
	var reply store.ClaimReply
	err = v.carry(ctx, hubClaim.name, func(ctx context.Context) error {
		h.meters.count(hubClaim, len(claims))
		reply = h.RelayHub.Claim(ctx, claims)
		return nil
	})
	if err != nil {
		return refusedClaims(maybeApplied(err), len(claims))
	}
	return reply
}

func refusedClaims(err error, n int) store.ClaimReply {
	totals := slices.Repeat([]store.Total{{Err: err}}, n)
	return store.ClaimReply{Reply: store.Reply{Totals: totals}, Added: make([]bool, n)}
}

// maybeApplied is what is known of a claim that has left and was not answered.
func maybeApplied(err error) error { return fmt.Errorf("%w: %w", store.ErrMaybeApplied, err) }

// Lease implements store.RelayHub.
func (h *remoteHub) Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (store.Lease, error) {
	var lease store.Lease
	err := h.call(ctx, hubLease, shard, 0, func(ctx context.Context) (err error) {
		lease, err = h.RelayHub.Lease(ctx, shard, holder, ttl)
		return err
	})
	if err != nil {
		return store.Lease{}, err
	}
	return lease, nil
}

// Release implements store.RelayHub.
func (h *remoteHub) Release(ctx context.Context, shard int, holder string) error {
	return h.call(ctx, hubRelease, shard, 0, func(ctx context.Context) error {
		return h.RelayHub.Release(ctx, shard, holder)
	})
}

// Changes implements store.RelayHub.
func (h *remoteHub) Changes(ctx context.Context, shard, max int) (store.Changes, error) {
	var changes store.Changes
	err := h.call(ctx, hubChanges, shard, 0, func(ctx context.Context) (err error) {
		changes, err = h.RelayHub.Changes(ctx, shard, max)
		h.meters.commands.Add(hubChanges.perTouch * int64(len(changes.Cells)))
		return err
	})
	if err != nil {
		return store.Changes{}, err
	}
	return changes, nil
}

// Told implements store.RelayHub.
func (h *remoteHub) Told(ctx context.Context, shard int, cells []store.Change) error {
	cells = slices.Clone(cells)
	return h.call(ctx, hubTold, shard, len(cells), func(ctx context.Context) error {
		return h.RelayHub.Told(ctx, shard, cells)
	})
}

// Scan implements store.RelayHub.
func (h *remoteHub) Scan(ctx context.Context, shard int, cursor uint64, max int) ([]store.Change, uint64, error) {
	var cells []store.Change
	var next uint64
	err := h.call(ctx, hubScan, shard, 0, func(ctx context.Context) (err error) {
		cells, next, err = h.RelayHub.Scan(ctx, shard, cursor, max)
		h.meters.commands.Add(hubScan.perTouch * int64(len(cells)))
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return cells, next, nil
}

// Tell implements store.RelayHub.
func (h *remoteHub) Tell(ctx context.Context, shard int, totals []store.Foreign) error {
	totals = slices.Clone(totals)
	return h.call(ctx, hubTell, shard, len(totals), func(ctx context.Context) error {
		return h.RelayHub.Tell(ctx, shard, totals)
	})
}

// Raise implements store.RelayHub.
func (h *remoteHub) Raise(ctx context.Context, shard int, epoch store.Epoch, totals []store.Change) error {
	totals = slices.Clone(totals)
	return h.call(ctx, hubRaise, shard, len(totals), func(ctx context.Context) error {
		return h.RelayHub.Raise(ctx, shard, epoch, totals)
	})
}

// Healed implements store.RelayHub.
func (h *remoteHub) Healed(ctx context.Context, shard int, epoch store.Epoch) error {
	return h.call(ctx, hubHealed, shard, 0, func(ctx context.Context) error {
		return h.RelayHub.Healed(ctx, shard, epoch)
	})
}
