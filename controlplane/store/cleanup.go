package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ cleanup.Store = (*Store)(nil)

func (s expiry) OldestExpiry(ctx context.Context) (at time.Time, ok bool, err error) {
	bound, err := s.oldestOver(ctx)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read the oldest partition: %w", explain(err))
	}
	ms, err := s.queries.WindowCountsOldestUndated(ctx)
	if isNumber(err, notPartitioned) || isNumber(err, unknownPartition) {
		ms, err = s.queries.WindowCountsOldestExpiry(ctx)
	}
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read the oldest expiry: %w", explain(err))
	}
	if bound > 0 && (ms == 0 || bound < ms) {
		ms = bound
	}
	return time.UnixMilli(ms), ms > 0, nil
}

func (s expiry) DeleteExpired(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	return s.briefly(ctx, func(q *queries) (int64, error) { return deleteExpired(ctx, q, cutoff, rows) })
}

func deleteExpired(ctx context.Context, q *queries, cutoff time.Time, rows int) (int64, error) {
	return q.WindowCountsDeleteExpired(ctx, controlplanedb.WindowCountsDeleteExpiredParams{CutoffMs: unixMs(cutoff),
		Limit: int32(rows)})
}

func (s expiry) DeleteDeadNodes(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	return s.briefly(ctx, func(q *queries) (int64, error) {
		return q.NodesDeleteDead(ctx, controlplanedb.NodesDeleteDeadParams{CutoffMs: unixMs(cutoff), Limit: int32(rows)})
	})
}

func (s expiry) DeleteOldUsage(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	return s.briefly(ctx, func(q *queries) (int64, error) {
		return q.UsageDeleteOld(ctx, controlplanedb.UsageDeleteOldParams{CutoffMs: unixMs(cutoff), Limit: int32(rows)})
	})
}

func (s expiry) DeleteOldUsageReports(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	return s.briefly(ctx, func(q *queries) (int64, error) {
		return q.UsageReportsDeleteOld(ctx, controlplanedb.UsageReportsDeleteOldParams{CutoffMs: unixMs(cutoff),
			Limit: int32(rows)})
	})
}
