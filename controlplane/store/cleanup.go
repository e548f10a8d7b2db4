package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ controlplane.CleanupStore = (*Store)(nil)

// OldestExpiry is the earliest expires_at of any window count; false without rows.
func (s *Store) OldestExpiry(ctx context.Context) (at time.Time, ok bool, err error) {
	ms, err := s.queries.WindowCountsOldestExpiry(ctx)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read the oldest expiry: %w", explain(err))
	}
	return time.UnixMilli(ms), ms > 0, nil
}

// DeleteExpired deletes at most rows window counts with expires_at < cutoff, oldest first.
func (s *Store) DeleteExpired(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	return s.deleting(ctx, func(q *queries) (int64, error) { return deleteExpired(ctx, q, cutoff, rows) })
}

func deleteExpired(ctx context.Context, q *queries, cutoff time.Time, rows int) (int64, error) {
	return q.WindowCountsDeleteExpired(ctx, controlplanedb.WindowCountsDeleteExpiredParams{CutoffMs: unixMs(cutoff),
		Limit: int32(rows)})
}

// DeleteDeadNodes deletes at most rows heartbeats last seen before cutoff.
func (s *Store) DeleteDeadNodes(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	return s.deleting(ctx, func(q *queries) (int64, error) {
		return q.NodesDeleteDead(ctx, controlplanedb.NodesDeleteDeadParams{CutoffMs: unixMs(cutoff), Limit: int32(rows)})
	})
}
