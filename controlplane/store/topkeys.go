package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ limits.TopStore = (*Store)(nil)

func (s nodes) TopReports(ctx context.Context, within time.Duration,
	rows int) (now time.Time, reports []limits.TopReport, err error) {
	found, err := s.queries.FleetTopKeys(ctx, controlplanedb.FleetTopKeysParams{WithinMs: within.Milliseconds(),
		Limit: int32(rows)})
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("read top keys: %w", explain(err))
	}
	if len(found) == 0 { // no row has the clock
		now, err = s.Now(ctx)
		return now, nil, err
	}
	for _, f := range found {
		reports = append(reports, limits.TopReport{Region: string(f.Region), Node: string(f.NodeID),
			SeenAt: time.UnixMilli(int64(f.SeenAt)), SentAtMs: int64(f.SentAt),
			Document: []byte(f.TopKeys.String)})
	}
	return time.UnixMilli(found[0].NowMs), reports, nil
}
