package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ tunings.Log = (*Store)(nil)

// TuningVersions returns the versions below a version, newest first, at most rows: of a region, or of all regions if
// region is nil.
func (s rollouts) TuningVersions(ctx context.Context, region *string, before int64,
	rows int) ([]tunings.Version, error) {
	found, err := s.tuningRows(ctx, region, uint64(before), int32(rows))
	if err != nil {
		return nil, fmt.Errorf("read versions of the tuning: %w", explain(err))
	}
	var versions []tunings.Version
	for _, r := range found {
		rollout, _, _ := strings.Cut(r.WriteID.String, "/")
		versions = append(versions, tunings.Version{
			RegionTuning: tunings.RegionTuning{Region: string(r.Region), Version: int64(r.Version), Document: r.Document},
			By:           controlplane.By{Actor: r.Actor, Reason: r.Reason},
			At:           time.UnixMilli(int64(r.CreatedAt)), Rollout: rollout,
		})
	}
	return versions, nil
}

func (s rollouts) tuningRows(ctx context.Context, region *string, before uint64,
	rows int32) (found []controlplanedb.TuningVersionsRow, err error) {
	if region == nil {
		return s.queries.TuningVersions(ctx, controlplanedb.TuningVersionsParams{BeforeVersion: before, Limit: rows})
	}
	of, err := s.queries.TuningVersionsOf(ctx, controlplanedb.TuningVersionsOfParams{
		Region: []byte(*region), BeforeVersion: before, Limit: rows,
	})
	for _, r := range of {
		found = append(found, controlplanedb.TuningVersionsRow(r))
	}
	return found, err
}
