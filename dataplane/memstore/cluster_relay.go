package memstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// inShard refuses a shard that is not there.
func (*Cluster) inShard(shard int) error {
	if shard != 0 {
		return fmt.Errorf("shard is %d (0)", shard)
	}
	return nil
}

// scatter makes a call about items to each bucket that has some of their keys, and puts the answers into their places.
func scatter[T, A any](c *Cluster, op Op, shard int, items []T, key func(*T) *window.Key,
	call func(bucket int, items []T) ([]A, time.Time, error)) (answers []A, now time.Time, err error) {
	if err := c.inShard(shard); err != nil {
		return nil, now, opError(op, err)
	}
	answers = make([]A, len(items))
	for bucket, places := range c.split(len(items), func(i int) *window.Key { return key(&items[i]) }) {
		if len(places) == 0 {
			continue
		}
		some, clock, err := call(bucket, at(items, places))
		if err != nil {
			return nil, now, err
		}
		fill(answers, places, some)
		now = clock
	}
	return answers, now, nil
}

// inBuckets calls do for each bucket, even if it has failed for a bucket before.
func (c *Cluster) inBuckets(op Op, shard int, do func(bucket int) error) error {
	if err := c.inShard(shard); err != nil {
		return opError(op, err)
	}
	errs := make([]error, c.Origin.Shards())
	for bucket := range errs {
		errs[bucket] = do(bucket)
	}
	return errors.Join(errs...)
}

// Lease implements store.Relayed.
func (c *Cluster) Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (store.Lease, error) {
	if err := c.inShard(shard); err != nil {
		return store.Lease{}, opError(OpLease, err)
	}
	return c.Origin.Lease(ctx, 0, holder, ttl)
}

// Changes implements store.Relayed.
func (c *Cluster) Changes(ctx context.Context, shard, max int) (store.Changes, error) {
	if err := c.inShard(shard); err != nil {
		return store.Changes{}, opError(OpChanges, err)
	}
	buckets := make([]int, c.Origin.Shards())
	for i := range buckets {
		buckets[i] = i
	}
	changes, epochs, err := c.changesOf(ctx, buckets, max)
	if err != nil {
		return store.Changes{}, err
	}
	changes.Epoch = c.see(epochs)
	return changes, nil
}

// see stores the epochs of all buckets and returns an epoch that stands for all of them.
func (c *Cluster) see(epochs []store.Epoch) store.Epoch {
	h := fnv.New32a()
	for _, e := range epochs {
		_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(e))) // a hash's Write cannot fail
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = clusterEpochs{store.Epoch(h.Sum32() | 1), epochs}
	return c.seen.all
}

// inEpoch calls do for each bucket, with the bucket's epoch at the report of Changes that had the epoch all.
func (c *Cluster) inEpoch(ctx context.Context, op Op, shard int, all store.Epoch,
	do func(bucket int, epoch store.Epoch) error) error {
	if err := ctx.Err(); err != nil {
		return opError(op, err)
	}
	c.mu.Lock()
	seen := c.seen
	c.mu.Unlock()
	if seen.all != all {
		return opError(op, store.ErrEpoch)
	}
	return c.inBuckets(op, shard, func(bucket int) error { return do(bucket, seen.buckets[bucket]) })
}

// Ack implements store.Relayed.
func (c *Cluster) Ack(ctx context.Context, shard int, cells []store.Change) error {
	split := c.split(len(cells), func(i int) *window.Key { return &cells[i].Cell.Key })
	return c.inBuckets(OpAck, shard, func(bucket int) error {
		return c.Origin.Ack(ctx, bucket, at(cells, split[bucket]))
	})
}

// Scan implements store.Relayed. Each bucket begins at the cursor. The next cursor is the lowest of all buckets, so
// cells of the other buckets may come again.
func (c *Cluster) Scan(ctx context.Context, shard int, cursor uint64, max int) (
	cells []store.Change, next uint64, err error,
) {
	err = c.inBuckets(OpScan, shard, func(bucket int) error {
		part, after, err := c.Origin.Scan(ctx, bucket, cursor, max)
		cells = append(cells, part...)
		if after != 0 && (next == 0 || after < next) {
			next = after
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return cells, next, nil
}

// Apply implements store.Relayed.
func (c *Cluster) Apply(ctx context.Context, shard int, totals []store.Foreign) (raised int, err error) {
	split := c.split(len(totals), func(i int) *window.Key { return &totals[i].Cell.Key })
	err = c.inBuckets(OpApply, shard, func(bucket int) error {
		n, err := c.Origin.Apply(ctx, bucket, at(totals, split[bucket]))
		raised += n
		return err
	})
	return raised, err
}

// Raise implements store.Relayed.
func (c *Cluster) Raise(ctx context.Context, shard int, epoch store.Epoch, totals []store.Change) error {
	split := c.split(len(totals), func(i int) *window.Key { return &totals[i].Cell.Key })
	return c.inEpoch(ctx, OpRaise, shard, epoch, func(bucket int, epoch store.Epoch) error {
		return c.Origin.Raise(ctx, bucket, epoch, at(totals, split[bucket]))
	})
}

// Healed implements store.Relayed.
func (c *Cluster) Healed(ctx context.Context, shard int, epoch store.Epoch) error {
	return c.inEpoch(ctx, OpHealed, shard, epoch, func(bucket int, epoch store.Epoch) error {
		return c.Origin.Healed(ctx, bucket, epoch)
	})
}
