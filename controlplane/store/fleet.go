package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/heartbeat"
)

var _ fleet.Repair = (*Store)(nil)

// leftFor is how long a node that was shut down in order stays listed. It must outlast the time between two looks of a
// rollout, a quarter of a minute.
const leftFor = time.Hour

func (s nodes) FleetNodes(ctx context.Context, rows int) (now time.Time, nodes []fleet.Row, err error) {
	found, err := s.queries.FleetNodes(ctx, int32(rows))
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("read heartbeats: %w", explain(err))
	}
	left, err := s.queries.FleetNodesLeft(ctx, controlplanedb.FleetNodesLeftParams{WithinMs: leftFor.Milliseconds(),
		Limit: int32(rows)})
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("read which nodes have left: %w", explain(err))
	}
	if len(found) > 0 {
		now = time.UnixMilli(found[0].NowMs)
	} else if now, err = s.Now(ctx); err != nil { // without rows, the clock must be read separately
		return now, nil, err
	}
	for _, f := range found {
		nodes = append(nodes, fleet.Row{
			Heartbeat: heartbeat.Heartbeat{
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
	for _, l := range left {
		nodes = append(nodes, fleet.Row{Left: true,
			Heartbeat: heartbeat.Heartbeat{NodeID: string(l.NodeID), Region: string(l.Region)}})
	}
	return now, nodes, nil
}

// SetNodesRight implements fleet.Repair.
func (s nodes) SetNodesRight(ctx context.Context, max time.Duration) (int64, error) {
	return s.briefly(ctx, func(q *queries) (int64, error) { return q.NodesSetRight(ctx, max.Milliseconds()) })
}
