package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Lease implements store.Relayed.
func (h *Origin) Lease(ctx context.Context, shard int, holder string,
	ttl time.Duration) (lease store.Lease, err error) {
	if n := len(holder); n < 1 || n > store.HolderBytesMax || ttl < time.Millisecond {
		err := fmt.Errorf("holder is %d bytes long (1 to %d), ttl is %v (at least 1ms)", n, store.HolderBytesMax, ttl)
		return lease, opError(OpLease, err)
	}
	err = h.call(ctx, OpLease, shard, func(s *originShard, _ store.Epoch) error {
		now := s.clock.steady()
		held := s.lease.until.After(now)
		switch {
		case !held:
			s.lease = heldLease{holder, now.Add(ttl)}
		case s.lease.holder == holder && s.lease.until.Before(now.Add(ttl)):
			s.lease.until = now.Add(ttl)
		}
		lease = store.Lease{Holder: s.lease.holder, Left: s.lease.until.Sub(now)}
		return nil
	})
	if err != nil {
		return store.Lease{}, err
	}
	return lease, nil
}

// Release implements store.Relayed.
func (h *Origin) Release(ctx context.Context, shard int, holder string) error {
	return h.call(ctx, OpRelease, shard, func(s *originShard, _ store.Epoch) error {
		if s.lease.holder == holder {
			s.lease = heldLease{}
		}
		return nil
	})
}

// Changes implements store.Relayed.
func (h *Origin) Changes(ctx context.Context, shard, max int) (store.Changes, error) {
	changes, epochs, err := h.changesOf(ctx, []int{shard}, max)
	if err != nil {
		return store.Changes{}, err
	}
	changes.Epoch = epochs[0]
	return changes, nil
}

// changesOf returns the changes of some shards, which are read in a single call, and the epoch of each.
func (h *Origin) changesOf(ctx context.Context, shards []int, max int) (
	changes store.Changes, epochs []store.Epoch, err error,
) {
	if max < 1 {
		return changes, nil, opError(OpChanges, fmt.Errorf("max is %d, want >= 1", max))
	}
	err = h.call(ctx, OpChanges, shards[0], func(*originShard, store.Epoch) error {
		changes = store.Changes{Healed: true, Now: h.clock()}
		for _, shard := range shards {
			s, _ := h.shardLocked(shard)
			s.sweep(changes.Now.UnixMilli())
			for c := range s.changed {
				changes.Cells = append(changes.Cells, s.change(c))
			}
			changes.Healed = changes.Healed && s.healed
			epochs = append(epochs, h.epochLocked(shard))
			h.learnEpoch(shard, epochs[len(epochs)-1])
		}
		sortChanges(changes.Cells)
		if changes.More = len(changes.Cells) > max; changes.More {
			changes.Cells = h.inTurn(shards[0], changes.Cells, max)
		}
		return nil
	})
	return changes, epochs, err
}

// inTurn returns the changes that follow the last call's changes. all must be sorted.
func (h *Origin) inTurn(shard int, all []store.Change, max int) []store.Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := sort.Search(len(all), func(i int) bool { return all[i].Cell.Compare(h.changes[shard]) > 0 })
	turn := append(slices.Clone(all[from:]), all[:from]...)[:max]
	h.changes[shard] = turn[max-1].Cell
	return turn
}

func (s *originShard) change(c window.Cell) store.Change {
	r := s.cells[c]
	return store.Change{Cell: c, Total: r.region(), Limit: r.limit}
}

func sortChanges(changes []store.Change) {
	slices.SortFunc(changes, func(a, b store.Change) int { return a.Cell.Compare(b.Cell) })
}

// Ack implements store.Relayed.
func (h *Origin) Ack(ctx context.Context, shard int, cells []store.Change) error {
	return h.call(ctx, OpAck, shard, func(s *originShard, _ store.Epoch) error {
		for _, c := range cells {
			if s.change(c.Cell) == c {
				delete(s.changed, c.Cell)
			}
		}
		return nil
	})
}

// Scan implements store.Relayed. The cursor is the hash of the next cell, so that cells that come
// and go move no other.
func (h *Origin) Scan(
	ctx context.Context, shard int, cursor uint64, max int,
) (cells []store.Change, next uint64, err error) {
	if max < 1 {
		return nil, 0, opError(OpScan, fmt.Errorf("max is %d, want >= 1", max))
	}
	err = h.call(ctx, OpScan, shard, func(s *originShard, _ store.Epoch) error {
		s.sweep(h.clock().UnixMilli())
		type place struct {
			hash uint64
			cell window.Cell
		}
		var places []place
		for c, r := range s.cells {
			if hash := hashNames(&c.Key) | 1; r.limit > 0 && hash >= cursor {
				places = append(places, place{hash, c})
			}
		}
		slices.SortFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(a.hash, b.hash), a.cell.Compare(b.cell)) })
		for i, p := range places {
			if i >= max && p.hash != places[i-1].hash { // cells of the same hash come together
				next = p.hash
				return nil
			}
			cells = append(cells, s.change(p.cell))
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return cells, next, nil
}

// Apply implements store.Relayed.
func (h *Origin) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	var raised []store.Foreign
	err := h.call(ctx, OpApply, shard, func(s *originShard, _ store.Epoch) error {
		nowMs := h.clock().UnixMilli()
		for _, f := range totals {
			before := s.record(f.Cell, nowMs)
			if after := before; counted(f.Count) > before.foreign {
				after.foreign = counted(f.Count)
				after = after.marked(&f.Cell, nowMs)
				if h.put(s, f.Cell, before, after, nowMs) {
					raised = append(raised, store.Foreign{Cell: f.Cell, Count: after.foreign})
				}
			}
		}
		if len(raised) > 0 {
			for l := range s.listeners {
				l.announce(raised)
			}
		}
		return nil
	})
	return len(raised), err
}

// Raise implements store.Relayed.
func (h *Origin) Raise(ctx context.Context, shard int, epoch store.Epoch, totals []store.Change) error {
	return h.call(ctx, OpRaise, shard, func(s *originShard, current store.Epoch) error {
		switch {
		case current != epoch:
			return store.ErrEpoch
		case s.healed:
			return nil
		}
		nowMs := h.clock().UnixMilli()
		for _, t := range totals {
			if t.Total <= 0 {
				continue // a limit without cost is not a change
			}
			before := s.record(t.Cell, nowMs)
			after := before
			after.known = max(after.known, counted(t.Total))
			if after.region() > 0 {
				after.limit = lowered(after.limit, counted(t.Limit))
			}
			h.put(s, t.Cell, before, after, nowMs)
		}
		return nil
	})
}

// Healed implements store.Relayed.
func (h *Origin) Healed(ctx context.Context, shard int, epoch store.Epoch) error {
	return h.call(ctx, OpHealed, shard, func(s *originShard, current store.Epoch) error {
		if current != epoch {
			return store.ErrEpoch
		}
		s.healed = true
		return nil
	})
}
