package network

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// Origin is a region's origin as a process calls it: behind a link, and metered.
//
// A call that was sent arrives and is applied, even if its reply is lost, or its caller gives up meanwhile. A link that
// is cut loses requests and messages. If a link repeats a call, the reply is the result of the second.
type Origin struct {
	store.FullOrigin
	Link   *Link
	Meters *OriginMeters
}

var _ store.FullOrigin = (*Origin)(nil)

// OriginMeters count the load on origins.
type OriginMeters struct {
	Trips, Commands atomic.Int64
	Messages        atomic.Int64 // received by listeners
	MessageCells    atomic.Int64 // in those messages
}

// originOp is a method of an origin, with the commands that redisorigin.Origin runs for it in Redis: for each call,
// including the script itself, and for each cell that is written.
type originOp struct {
	name              string
	perCall, perTouch int64
}

var (
	originRead  = originOp{"origin read", 3, 1}  // EVAL, GET epoch, TIME; HMGET
	originSend  = originOp{"origin send", 7, 2}  // and GET, SET stream, ZADD, ZREMRANGEBYSCORE changes; HMGET, HSET
	originClaim = originOp{"origin claim", 8, 2} // for a chunk with bounded costs: also SET stream with the added cost
	// EVAL, GET epoch, TIME, and four for the changes and the mark; HMGET
	originChanges = originOp{"origin changes", 7, 1}
	originAck     = originOp{"origin ack", 2, 1}   // EVAL, ZREM; HMGET
	originScan    = originOp{"origin scan", 4, 1}  // EVAL, GET epoch, TIME, SCAN; HMGET
	originApply   = originOp{"origin apply", 3, 2} // EVAL, TIME, PUBLISH; HMGET, HSET
	// EVAL, GET epoch, TIME, GET mark, and two for the changes; HMGET, HSET
	originRaise   = originOp{"origin raise", 6, 2}
	originHealed  = originOp{"origin healed", 4, 0}  // EVAL, GET epoch, TIME, SET
	originLease   = originOp{"origin lease", 4, 0}   // EVAL, GET, PTTL, SET
	originRelease = originOp{"origin release", 3, 0} // EVAL, GET, DEL
	originListen  = originOp{"origin listen", 1, 0}  // SUBSCRIBE

	originHold = originOp{"origin hold", 3, 8} // EVAL, GET epoch, TIME; for both cells and their holds
	originNote = originOp{"origin note", 6, 0} // EVAL, GET epoch, TIME, HMGET, HSET, PEXPIRE
	// EVAL, GET epoch, GET birth, TIME; for each request HGETALL, three for the leases, and two that write
	originGrants = originOp{"origin grants", 4, 6}

	originSettings      = originOp{"origin settings", 3, 0}       // EVAL, HMGET, TIME
	originStoreSettings = originOp{"origin store settings", 6, 0} // EVAL, GET, HMGET, TIME, HSET, PEXPIRE
	originHeartbeat     = originOp{"origin heartbeat", 8, 0}      // EVAL, TIME, two ZRANGE, ZSCORE, ZADD, HSET, PEXPIREAT
	originHeartbeats    = originOp{"origin beats", 4, 1}          // EVAL, TIME, two ZRANGE; HMGET
	originStored        = originOp{"origin stored", 2, 3}         // EVAL, TIME; ZSCORE, ZREM, HDEL
)

const originMessage = "origin message"

func (m *OriginMeters) count(op originOp, cells int) {
	m.Trips.Add(1)
	m.Commands.Add(op.perCall + op.perTouch*int64(cells))
}

// ask makes a round trip to a shard. serve runs when the call arrives, with a context that the caller does not end.
func ask[R any](ctx context.Context, h *Origin, op originOp, shard, cells int,
	serve func(context.Context) (R, error)) (reply R, err error) {
	v, err := h.Link.embarkCall(op.name, shard)
	if err != nil {
		return reply, err
	}
	return carry(ctx, v, op.name, func(ctx context.Context) (R, error) {
		h.Meters.count(op, cells)
		return serve(ctx)
	})
}

// askAbout is ask for a call with a list. It copies the list, because the caller may change it after giving up.
func askAbout[E, R any](ctx context.Context, h *Origin, op originOp, shard int, list []E,
	serve func(context.Context, int, []E) (R, error)) (R, error) {
	list = slices.Clone(list)
	return ask(ctx, h, op, shard, len(list), func(ctx context.Context) (R, error) { return serve(ctx, shard, list) })
}

// call is ask for a call whose reply is only an acknowledgment.
func (h *Origin) call(ctx context.Context, op originOp, shard, cells int, serve func(context.Context) error) error {
	_, err := ask(ctx, h, op, shard, cells, unanswered(serve))
	return err
}

// unanswered adapts a function without a result.
func unanswered(serve func(context.Context) error) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, serve(ctx) }
}

// Hold implements store.Granter. A call with only a record counts as one touch.
func (h *Origin) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	call.Holds = slices.Clone(call.Holds)
	op := originHold
	if len(call.Holds) == 0 {
		op = originNote
	}
	return ask(ctx, h, op, h.ShardOf(&call.Group), len(call.Holds), func(ctx context.Context) (store.HoldReply, error) {
		return h.FullOrigin.Hold(ctx, call)
	})
}

// Grants implements store.Granter.
func (h *Origin) Grants(ctx context.Context, shard int, call store.GrantCall) (store.GrantReply, error) {
	call.Asks = slices.Clone(call.Asks)
	return ask(ctx, h, originGrants, shard, len(call.Asks), func(ctx context.Context) (store.GrantReply, error) {
		return h.FullOrigin.Grants(ctx, shard, call)
	})
}

// list is ask for a call that returns a list, whose length is known only then.
func list[E any](ctx context.Context, h *Origin, op originOp, shard int,
	serve func(context.Context) ([]E, error)) ([]E, error) {
	return ask(ctx, h, op, shard, 0, func(ctx context.Context) ([]E, error) {
		found, err := serve(ctx)
		h.Meters.Commands.Add(op.perTouch * int64(len(found)))
		return found, err
	})
}

// Read implements store.Origin.
func (h *Origin) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	if len(cells) == 0 {
		return store.Reply{}, nil
	}
	cells = slices.Clone(cells)
	return ask(ctx, h, originRead, h.ShardOf(&cells[0].Key), len(cells), func(ctx context.Context) (store.Reply, error) {
		return h.FullOrigin.Read(ctx, cells)
	})
}

// Send implements store.Origin. If the link refuses a chunk, nothing was changed. After any other error of the link the
// chunk may have been applied.
func (h *Origin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	op := originSend
	if chunk.Bounded() {
		op = originClaim
	}
	chunk.Costs = slices.Clone(chunk.Costs)
	v, err := h.Link.embarkCall(op.name, chunk.Shard)
	if err != nil {
		return store.Reply{}, fmt.Errorf("%w: %w", store.ErrNotApplied, err)
	}
	return carry(ctx, v, op.name, func(ctx context.Context) (store.Reply, error) {
		h.Meters.count(op, len(chunk.Costs))
		return h.FullOrigin.Send(ctx, chunk)
	})
}

// Lease implements store.Relayed.
func (h *Origin) Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (store.Lease, error) {
	return ask(ctx, h, originLease, shard, 0, func(ctx context.Context) (store.Lease, error) {
		return h.FullOrigin.Lease(ctx, shard, holder, ttl)
	})
}

// Release implements store.Relayed.
func (h *Origin) Release(ctx context.Context, shard int, holder string) error {
	return h.call(ctx, originRelease, shard, 0, func(ctx context.Context) error {
		return h.FullOrigin.Release(ctx, shard, holder)
	})
}

// Changes implements store.Relayed.
func (h *Origin) Changes(ctx context.Context, shard, max int) (store.Changes, error) {
	changes, err := ask(ctx, h, originChanges, shard, 0, func(ctx context.Context) (store.Changes, error) {
		changes, err := h.FullOrigin.Changes(ctx, shard, max)
		h.Meters.Commands.Add(originChanges.perTouch * int64(len(changes.Cells)))
		return changes, err
	})
	for read := store.ChangesPage; err == nil && read < len(changes.Cells); read += store.ChangesPage {
		err = h.call(ctx, originChanges, shard, 0, func(context.Context) error { return nil }) // another page
	}
	if err != nil {
		return store.Changes{}, err
	}
	return changes, nil
}

// Ack implements store.Relayed.
func (h *Origin) Ack(ctx context.Context, shard int, cells []store.Change) error {
	cells = slices.Clone(cells)
	return h.call(ctx, originAck, shard, len(cells), func(ctx context.Context) error {
		return h.FullOrigin.Ack(ctx, shard, cells)
	})
}

// Scan implements store.Relayed.
func (h *Origin) Scan(ctx context.Context, shard int, cursor uint64, max int) ([]store.Change, uint64, error) {
	var next uint64
	cells, err := list(ctx, h, originScan, shard, func(ctx context.Context) (cells []store.Change, err error) {
		cells, next, err = h.FullOrigin.Scan(ctx, shard, cursor, max)
		return cells, err
	})
	if err != nil {
		return nil, 0, err
	}
	return cells, next, nil
}

// Apply implements store.Relayed.
func (h *Origin) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	return askAbout(ctx, h, originApply, shard, totals, h.FullOrigin.Apply)
}

// Raise implements store.Relayed.
func (h *Origin) Raise(ctx context.Context, shard int, epoch store.Epoch, totals []store.Change) error {
	totals = slices.Clone(totals)
	return h.call(ctx, originRaise, shard, len(totals), func(ctx context.Context) error {
		return h.FullOrigin.Raise(ctx, shard, epoch, totals)
	})
}

// Healed implements store.Relayed.
func (h *Origin) Healed(ctx context.Context, shard int, epoch store.Epoch) error {
	return h.call(ctx, originHealed, shard, 0, func(ctx context.Context) error {
		return h.FullOrigin.Healed(ctx, shard, epoch)
	})
}

// Settings implements store.Mailbox. Any shard may answer.
func (h *Origin) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	return ask(ctx, h, originSettings, 0, 0, func(ctx context.Context) (store.SettingsRows, error) {
		return h.FullOrigin.Settings(ctx, region)
	})
}

// Heartbeat implements store.Mailbox.
func (h *Origin) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	return h.call(ctx, originHeartbeat, 0, 0, func(ctx context.Context) error {
		return h.FullOrigin.Heartbeat(ctx, beats...)
	})
}

// StoreSettings implements store.Mailbox.
func (h *Origin) StoreSettings(ctx context.Context, shard int, holder string, rows store.SettingsRows,
	asOf time.Time,
) error {
	return h.call(ctx, originStoreSettings, shard, 0, func(ctx context.Context) error {
		return h.FullOrigin.StoreSettings(ctx, shard, holder, rows, asOf)
	})
}

// Heartbeats implements store.Mailbox.
func (h *Origin) Heartbeats(ctx context.Context, shard, max int) ([]store.StoredHeartbeat, error) {
	return list(ctx, h, originHeartbeats, shard, func(ctx context.Context) ([]store.StoredHeartbeat, error) {
		return h.FullOrigin.Heartbeats(ctx, shard, max)
	})
}

// AckHeartbeats implements store.Mailbox.
func (h *Origin) AckHeartbeats(ctx context.Context, shard int, beats []store.StoredHeartbeat) error {
	return h.call(ctx, originStored, shard, len(beats), func(ctx context.Context) error {
		return h.FullOrigin.AckHeartbeats(ctx, shard, beats)
	})
}
