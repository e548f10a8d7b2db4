package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/weirhq/weir/dataplane/store"
)

type nodeName struct{ region, node string }

type storedDigest struct {
	store.Digest
	updatedMs int64
}

// PublishDigest implements store.CountStore.
func (c *Counts) PublishDigest(ctx context.Context, region string, d store.Digest) error {
	c.count(func(s *CountsStats) { s.DigestsPublished++; s.Statements++ })
	return c.Faults.roundTrip(ctx, OpPublishDigest, func(journey) error {
		if len(d.Filter) > store.DigestBytesMax || d.Node == "" || d.Keys < 0 || d.MadeAtMs < 0 || d.ExpiresAtMs < 0 {
			return fmt.Errorf("%w: digest of %q, %d bytes long", store.ErrRefused, d.Node, len(d.Filter))
		}
		d.Region, d.Filter = region, append([]byte{}, d.Filter...)
		c.mu.Lock()
		defer c.mu.Unlock()
		keptMs := c.clock().UnixMilli() - c.keepMs
		maps.DeleteFunc(c.digests, func(_ nodeName, d storedDigest) bool { return d.ExpiresAtMs <= keptMs && d.updatedMs <= keptMs })
		c.stats.RowsWritten++
		c.stats.DigestRowsWritten++
		name := nodeName{region, d.Node}
		c.digests[name] = storedDigest{d, max(c.digests[name].updatedMs, c.clock().UnixMilli())}
		return nil
	})
}

// Digests implements store.CountStore.
func (c *Counts) Digests(ctx context.Context, region string, nowMs int64, after store.Cursor, yield func(store.Digest)) (store.Cursor, error) {
	c.count(func(s *CountsStats) { s.DigestReads++; s.Statements += 2 })
	var found []store.Digest
	var next store.Cursor
	err := c.Faults.roundTrip(ctx, OpDigests, func(journey) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		next = c.nowLocked()
		sinceMs, all := c.sinceLocked(after)
		for _, d := range c.digests {
			if !all && d.updatedMs < sinceMs {
				continue
			}
			c.stats.RowsRead++
			c.stats.DigestRowsRead++
			if d.Region != region && d.ExpiresAtMs > nowMs {
				found = append(found, d.Digest)
			}
		}
		c.stats.DigestsRead += int64(len(found))
		return nil
	})
	if err != nil {
		return after, err
	}
	for _, d := range found {
		d.Filter = slices.Clone(d.Filter)
		yield(d)
	}
	return next, nil
}
