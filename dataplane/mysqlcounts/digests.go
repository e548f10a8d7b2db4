package mysqlcounts

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
)

// PublishDigest implements store.CountStore.
func (c *Counts) PublishDigest(ctx context.Context, region string, d store.Digest) error {
	err := checkDigest(region, d)
	if err == nil {
		err = c.checkSession(ctx)
	}
	if err == nil {
		err = c.storeDigest(ctx, region, d)
	}
	if err != nil {
		return fmt.Errorf("publish the digest of %q as %q: %w", d.Node, region, err)
	}
	return nil
}

func (c *Counts) storeDigest(ctx context.Context, region string, d store.Digest) error {
	row := dataplanedb.DigestUpsertParams{
		Region: []byte(region), NodeID: []byte(d.Node), KeyCount: uint64(d.Keys), Filter: append([]byte{}, d.Filter...),
		MadeAt: uint64(d.MadeAtMs), ExpiresAt: uint64(d.ExpiresAtMs),
	}
	_, err := c.timely(ctx,
		func(ctx context.Context) error {
			return c.retry.do(ctx, func() error { return classify(c.queries.DigestUpsert(ctx, row)) })
		},
		func(ctx context.Context) error { // without the filter, which is there
			return c.retry.do(ctx, func() error {
				return classify(c.queries.DigestTouch(ctx, dataplanedb.DigestTouchParams{Region: row.Region, NodeID: row.NodeID}))
			})
		})
	return err
}

func checkDigest(region string, d store.Digest) error {
	switch {
	case len(region) < 1 || len(region) > store.RegionBytesMax:
		return fmt.Errorf("region is %d bytes long (1 to %d)", len(region), store.RegionBytesMax)
	case len(d.Node) < 1 || len(d.Node) > nodeIDBytesMax:
		return fmt.Errorf("%w: node is %d bytes long (1 to %d)", store.ErrRefused, len(d.Node), nodeIDBytesMax)
	case len(d.Filter) > store.DigestBytesMax:
		return fmt.Errorf("%w: filter is %d bytes long (at most %d)", store.ErrRefused, len(d.Filter), store.DigestBytesMax)
	case d.Keys < 0 || d.MadeAtMs < 0 || d.ExpiresAtMs < 0:
		return fmt.Errorf("%w: keys %d, made at %d, expires at %d: one is negative", store.ErrRefused, d.Keys, d.MadeAtMs, d.ExpiresAtMs)
	}
	return nil
}

// Digests implements store.CountStore. It yields while the database is still
// sending: filters are large.
func (c *Counts) Digests(ctx context.Context, region string, nowMs int64, after store.Cursor, yield func(store.Digest)) (next store.Cursor, err error) {
	next = after
	err = c.read(ctx, region, func(s snapshot) error {
		since, full := c.since(s, after)
		if full != "" {
			since = 0
		}
		if err := digestsFrom(ctx, s, []byte(region), max(nowMs, 0), since, yield); err != nil {
			return err
		}
		next = s.cursor()
		return nil
	})
	if err != nil {
		return after, fmt.Errorf("read digests as %q: %w", region, err)
	}
	return next, nil
}

func digestsFrom(ctx context.Context, s snapshot, region []byte, nowMs, sinceMs int64, yield func(store.Digest)) (err error) {
	rows, err := s.conn.QueryContext(ctx, dataplanedb.DigestsSince, sinceMs, region, nowMs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var d store.Digest
		var keys, madeAt, expiresAt uint64
		if err := rows.Scan(&d.Region, &d.Node, &keys, &d.Filter, &madeAt, &expiresAt); err != nil {
			return err
		}
		d.Keys, d.MadeAtMs, d.ExpiresAtMs = int(min(keys, math.MaxInt)), saturate(madeAt), saturate(expiresAt)
		yield(d)
	}
	return rows.Err()
}
