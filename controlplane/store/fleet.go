package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
)

var _ controlplane.FleetStore = (*Store)(nil)

// FleetNodes returns at most rows heartbeats, by region and node id, and the clock
// of the database.
func (s *Store) FleetNodes(ctx context.Context, rows int) (now time.Time, nodes []controlplane.FleetRow, err error) {
	found, err := s.queries.FleetNodes(ctx, int32(rows))
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("read heartbeats: %w", explain(err))
	}
	if len(found) == 0 { // no row to carry the clock
		now, err = s.Now(ctx)
		return now, nil, err
	}
	for _, f := range found {
		nodes = append(nodes, controlplane.FleetRow{
			Beat: heartbeat.Beat{
				NodeID:        string(f.NodeID),
				Region:        string(f.Region),
				Build:         f.Build,
				TuningVersion: int64(f.TuningVersion),
				StartedAtMs:   int64(f.StartedAt),
				SentAtMs:      int64(f.SentAt),
			},
			SeenAt: time.UnixMilli(int64(f.SeenAt)),
			Health: f.Health,
		})
	}
	return time.UnixMilli(found[0].NowMs), nodes, nil
}
