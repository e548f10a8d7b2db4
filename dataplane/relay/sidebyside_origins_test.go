package relay_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// interrupted is an origin that runs a function before a relay's n-th call.
type interrupted struct {
	store.FullOrigin
	left    int // calls before it
	happens func()
}

func (h *interrupted) call() {
	if h.happens == nil {
		return
	}
	if h.left--; h.left <= 0 {
		happens := h.happens
		h.happens = nil
		happens()
	}
}

func (h *interrupted) Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (store.Lease, error) {
	h.call()
	return h.FullOrigin.Lease(ctx, shard, holder, ttl)
}

func (h *interrupted) Changes(ctx context.Context, shard, max int) (store.Changes, error) {
	h.call()
	return h.FullOrigin.Changes(ctx, shard, max)
}

func (h *interrupted) Ack(ctx context.Context, shard int, cells []store.Change) error {
	h.call()
	return h.FullOrigin.Ack(ctx, shard, cells)
}

func (h *interrupted) Scan(ctx context.Context, shard int, cursor uint64, max int) ([]store.Change, uint64, error) {
	h.call()
	return h.FullOrigin.Scan(ctx, shard, cursor, max)
}

func (h *interrupted) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	h.call()
	return h.FullOrigin.Apply(ctx, shard, totals)
}

func (h *interrupted) Raise(ctx context.Context, shard int, epoch store.Epoch, totals []store.Change) error {
	h.call()
	return h.FullOrigin.Raise(ctx, shard, epoch, totals)
}

func (h *interrupted) Healed(ctx context.Context, shard int, epoch store.Epoch) error {
	h.call()
	return h.FullOrigin.Healed(ctx, shard, epoch)
}

// fullModel is memstore's origin that refuses the calls that a full Redis refuses: all calls that need memory, and no
// others.
type fullModel struct {
	*memstore.Origin
	full  *bool
	clock func() time.Time
}

var errFull = errors.New("full")

func (h *fullModel) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	if *h.full {
		return store.Reply{}, errFull
	}
	return h.Origin.Send(ctx, chunk)
}

func (h *fullModel) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	known := h.Totals()
	for _, f := range totals {
		if *h.full && f.Cell.ExpiresAtMs() > h.clock().UnixMilli() && f.Count > known[f.Cell].Foreign {
			return 0, errFull
		}
	}
	return h.Origin.Apply(ctx, shard, totals)
}

// movedOrigin is a Redis server whose data moves back when the model's clock moves on.
type movedOrigin struct {
	*redisorigin.Origin
	w     *sideBySide
	raw   *redis.Client
	lease *movedLease
}

// movedLease is the end of a server's lease, by the model's clock.
type movedLease struct{ until time.Time }

// real returns the server's cell for a cell of the model.
func (h *movedOrigin) real(c window.Cell) window.Cell {
	c.Sequence -= int64(h.w.moved / c.Duration)
	return c
}

func (h *movedOrigin) model(c window.Cell) window.Cell {
	c.Sequence += int64(h.w.moved / c.Duration)
	return c
}

// timed records whether a call took so long that the history proves nothing.
func (h *movedOrigin) timed(most time.Duration) func() {
	began := time.Now()
	return func() { h.w.busy = h.w.busy || time.Since(began) > most }
}

func (h *movedOrigin) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	defer h.timed(busyCall)()
	cells = slices.Clone(cells)
	for i := range cells {
		cells[i] = h.real(cells[i])
	}
	return h.Origin.Read(ctx, cells)
}

func (h *movedOrigin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	defer h.timed(busyCall)()
	chunk.Costs = slices.Clone(chunk.Costs)
	for i := range chunk.Costs {
		chunk.Costs[i].Cell = h.real(chunk.Costs[i].Cell)
	}
	return h.Origin.Send(ctx, chunk)
}

func (h *movedOrigin) Changes(ctx context.Context, shard, max int) (store.Changes, error) {
	defer h.timed(busyCall)()
	if h.w.paged {
		max = min(max, store.ChangesPage)
	}
	changes, err := h.Origin.Changes(ctx, shard, max)
	if err != nil {
		return changes, err
	}
	h.modelChanges(changes.Cells)
	changes.Now = h.w.now
	return changes, nil
}

func (h *movedOrigin) Scan(ctx context.Context, shard int, cursor uint64, max int) ([]store.Change, uint64, error) {
	defer h.timed(busyCall)()
	cells, next, err := h.Origin.Scan(ctx, shard, cursor, max)
	h.modelChanges(cells)
	return cells, next, err
}

func (h *movedOrigin) Ack(ctx context.Context, shard int, cells []store.Change) error {
	defer h.timed(busyCall)()
	return h.Origin.Ack(ctx, shard, h.realChanges(cells))
}

func (h *movedOrigin) Raise(ctx context.Context, shard int, epoch store.Epoch, totals []store.Change) error {
	defer h.timed(busyCall)()
	return h.Origin.Raise(ctx, shard, epoch, h.realChanges(totals))
}

func (h *movedOrigin) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	defer h.timed(busyCall)()
	totals = slices.Clone(totals)
	for i := range totals {
		totals[i].Cell = h.real(totals[i].Cell)
	}
	return h.Origin.Apply(ctx, shard, totals)
}

func (h *movedOrigin) modelChanges(changes []store.Change) {
	for i := range changes {
		changes[i].Cell = h.model(changes[i].Cell)
	}
}

func (h *movedOrigin) realChanges(changes []store.Change) []store.Change {
	changes = slices.Clone(changes)
	for i := range changes {
		changes[i].Cell = h.real(changes[i].Cell)
	}
	return changes
}

// Lease first sets the rest of the server's lease to the rest by the model's clock.
func (h *movedOrigin) Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (store.Lease, error) {
	defer h.timed(busyLease)()
	if err := h.raw.PExpire(ctx, "weir:{origin}:lease", h.lease.until.Sub(h.w.now)).Err(); err != nil {
		return store.Lease{}, err
	}
	lease, err := h.Origin.Lease(ctx, shard, holder, ttl)
	if err == nil && lease.Holder == holder {
		h.lease.until = h.w.now.Add(lease.Left)
	}
	return lease, err
}
