package tunings

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/tuning"
)

const (
	// PageMax bounds a page of the versions of the tuning.
	PageMax           = 100
	tuningPageDefault = 20
)

// Version is a version of the tuning as it was written.
type Version struct {
	RegionTuning
	controlplane.By
	At      time.Time // by the clock of the database
	Rollout string    // that wrote it; empty: none did
	Problem string    // why Document is as it is stored, without the fields that it leaves out
}

// Query asks for versions of the tuning.
type Query struct {
	Region *string // nil: all; empty: of the fleet
	Before int64   // a version; 0: the newest
	Limit  int     // 1 to PageMax; 0: 20
}

// Log reads versions of the tuning.
type Log interface {
	// TuningVersions returns at most rows versions below before, newest first.
	TuningVersions(ctx context.Context, region *string, before int64, rows int) ([]Version, error)
}

// History is a page of versions, newest first; more tells that there are older ones.
func History(ctx context.Context, log Log, q Query) (versions []Version, more bool, err error) {
	switch {
	case q.Limit < 0 || q.Limit > PageMax:
		return nil, false, fmt.Errorf("%w: limit is %d (1 to %d, 0 for %d)", controlplane.ErrInvalid, q.Limit, PageMax,
			tuningPageDefault)
	case q.Before < 0:
		return nil, false, fmt.Errorf("%w: before_version is %d (0 for the newest, or a version)", controlplane.ErrInvalid,
			q.Before)
	case q.Region != nil:
		if err := controlplane.ValidateLength("region", *q.Region, RegionBytesMax); err != nil {
			return nil, false, err
		}
	}
	limit := cmp.Or(q.Limit, tuningPageDefault)
	versions, err = log.TuningVersions(ctx, q.Region, cmp.Or(q.Before, math.MaxInt64), limit+1)
	if err != nil {
		return nil, false, err
	}
	if more = len(versions) > limit; more {
		versions = versions[:limit]
	}
	for i := range versions {
		versions[i].fill()
	}
	return versions, more, nil
}

// fill gives a document every field, unless a build wrote it whose fields this one cannot read.
func (v *Version) fill() {
	set, err := tuning.Read([]byte(v.Document))
	if err == nil {
		var whole []byte
		if whole, err = set.Document(); err == nil {
			v.Document = string(whole)
			return
		}
	}
	v.Problem = err.Error()
}
