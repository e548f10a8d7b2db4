package memstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Read implements store.Origin.
func (o *Origin) Read(ctx context.Context, cells []window.Cell) ([]int64, error) {
	totals := make([]int64, len(cells))
	err := o.visit(ctx, OpRead, len(cells), func(i int) *window.Key { return &cells[i].Key }, func(places []int, nowMs int64) {
		o.stats.CellsRead += int64(len(places))
		for _, i := range places {
			totals[i] = o.aliveLocked(cells[i], nowMs).count
		}
	})
	if err != nil {
		return nil, err
	}
	return totals, nil
}

// Raise implements store.Origin.
func (o *Origin) Raise(ctx context.Context, totals []store.Add) error {
	return o.visit(ctx, OpRaise, len(totals), func(i int) *window.Key { return &totals[i].Cell.Key }, func(places []int, nowMs int64) {
		for _, i := range places {
			if t := totals[i]; t.Cost > o.aliveLocked(t.Cell, nowMs).count {
				o.stats.CellsRaised++
				o.putLocked(t.Cell, t.Cost, nowMs)
			}
		}
	})
}

// visit is a round trip to each shard of a call that can be repeated; apply runs
// under the lock.
func (o *Origin) visit(ctx context.Context, op Op, n int, key func(i int) *window.Key, apply func(places []int, nowMs int64)) error {
	var mu sync.Mutex
	var errs []error
	o.eachShard(n, key, func(shard int, places []int) {
		o.countCall(op)
		j, err := o.depart(ctx, op, shard)
		if err == nil {
			err = j.roundTrip(ctx, func(journey) error {
				o.mu.Lock()
				defer o.mu.Unlock()
				apply(places, o.clock().UnixMilli())
				return nil
			})
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		}
	})
	return errors.Join(errs...)
}

// Add implements store.Origin.
func (o *Origin) Add(ctx context.Context, adds []store.Add) []store.Added {
	added := make([]store.Added, len(adds))
	o.send(ctx, OpAdd, len(adds), func(i int) *window.Key { return &adds[i].Cell.Key },
		func(i int, nowMs int64) { added[i] = o.addLocked(adds[i], nowMs) },
		func(i int, err error) { added[i] = store.Added{Err: err} })
	return added
}

// Claim implements store.Origin.
func (o *Origin) Claim(ctx context.Context, claims []store.Claim) []store.Claimed {
	claimed := make([]store.Claimed, len(claims))
	o.send(ctx, OpClaim, len(claims), func(i int) *window.Key { return &claims[i].Cell.Key },
		func(i int, nowMs int64) { claimed[i] = o.claimLocked(claims[i], nowMs) },
		func(i int, err error) { claimed[i] = store.Claimed{Err: err} })
	return claimed
}

// send is a journey to each shard of a call that must not be repeated: what has left
// is applied, under the lock, and what becomes of its reply is told as fail tells it.
func (o *Origin) send(ctx context.Context, op Op, n int, key func(i int) *window.Key, apply func(i int, nowMs int64), fail func(i int, err error)) {
	o.eachShard(n, key, func(shard int, places []int) {
		o.countCall(op)
		j, err := o.depart(ctx, op, shard)
		if err == nil {
			err = j.deliver(ctx, func() {
				o.mu.Lock()
				defer o.mu.Unlock()
				nowMs := o.clock().UnixMilli()
				for _, i := range places {
					apply(i, nowMs)
				}
			})
		}
		if err != nil {
			for _, i := range places {
				fail(i, err)
			}
		}
	})
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

func (o *Origin) addLocked(a store.Add, nowMs int64) store.Added {
	count := o.aliveLocked(a.Cell, nowMs).count
	switch {
	case a.Cost <= 0:
		return store.Added{Err: costError(OpAdd, a.Cell, a.Cost)}
	case a.Cost > math.MaxInt64-count:
		return store.Added{Err: opError(OpAdd, fmt.Errorf("total of %v would overflow", a.Cell))}
	}
	o.stats.CellsAdded++
	o.putLocked(a.Cell, count+a.Cost, nowMs)
	return store.Added{Total: count + a.Cost}
}

func (o *Origin) claimLocked(c store.Claim, nowMs int64) store.Claimed {
	if c.Cost <= 0 {
		return store.Claimed{Err: costError(OpClaim, c.Cell, c.Cost)}
	}
	count := o.aliveLocked(c.Cell, nowMs).count
	if c.AtMost < c.Cost || count > c.AtMost-c.Cost { // in this order nothing overflows
		return store.Claimed{Total: count}
	}
	o.stats.CellsClaimed++
	o.putLocked(c.Cell, count+c.Cost, nowMs)
	return store.Claimed{Total: count + c.Cost, Added: true}
}

func costError(op Op, c window.Cell, cost int64) error {
	return opError(op, fmt.Errorf("cost of %v is %d, want > 0", c, cost))
}

func (o *Origin) countCall(op Op) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch op {
	case OpRead:
		o.stats.Reads++
	case OpAdd:
		o.stats.Adds++
	case OpClaim:
		o.stats.Claims++
	case OpRaise:
		o.stats.Raises++
	}
}
