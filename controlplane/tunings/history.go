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

// Version is a stored version of the tuning.
type Version struct {
	RegionTuning
	controlplane.By
	At      time.Time // by the clock of the database
	Rollout string    // that wrote it; empty: none did
	Problem string    // why Document is not completed but as stored
}

// Query selects versions of the tuning.
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

// History returns a page of versions, newest first. more reports whether there are older versions.
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

// fill gives a document every field, unless this build cannot read all fields of the build that wrote it.
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
