package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

func (s expiry) DeleteExpiredBlocklist(ctx context.Context, cutoff time.Time, rows int) (int64, error) {
	deleted, err := s.briefly(ctx, func(q *queries) (int64, error) {
		return q.BlocklistDeleteExpired(ctx, controlplanedb.BlocklistDeleteExpiredParams{CutoffMs: unixMs(cutoff),
			Limit: int32(rows)})
	})
	if err != nil {
		return 0, fmt.Errorf("delete at most %d blocklist rows expired before %d: %w", rows, cutoff.UnixMilli(), err)
	}
	return deleted, nil
}
