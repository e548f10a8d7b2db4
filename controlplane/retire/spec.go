package retire

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
)

// Blocklist is the table in which nodes shared verdicts before they shared counts.
const Blocklist = "ratelimit_blocklist"

// retirable are the tables that no process needs any more. No other table can be retired, not even by mistake.
var retirable = []string{Blocklist}

// ValidateRetirable rejects tables that are in use, or are not Weir's.
func ValidateRetirable(table string) error {
	if !slices.Contains(retirable, table) {
		return fmt.Errorf("%w: table is %q (%s)", controlplane.ErrInvalid, table, Blocklist)
	}
	return nil
}

// DatedName returns the name of a table after a retirement that began at startedMs.
func DatedName(table string, startedMs int64) string {
	return table + time.UnixMilli(startedMs).UTC().Format("_retired_20060102_150405")
}

// Spec configures how careful a retirement is. Start from DefaultSpec.
type Spec struct {
	// QuietMs is how long no process may write, and counts must be healthy in every region, before rows are deleted: 100
	// ms to 90 days; default 1 day. It should be longer than the longest duration of a limit, and longer than a deploy of
	// all nodes.
	QuietMs int64 `json:"quiet_ms"`

	// SoakMs is how long the table keeps its other name before it can be dropped: 100 ms to 90 days; default 7 days, so
	// that for example weekly jobs have run.
	SoakMs int64 `json:"soak_ms"`

	// HealthWithinMs is the greatest age of a relay's last successful round at its node's last heartbeat: 1 s to 1 h;
	// default 2 minutes.
	HealthWithinMs int64 `json:"health_within_ms"`

	// BatchRows bounds the rows of a DELETE, 1 to 50,000; default 1,000.
	BatchRows int `json:"batch_rows"`

	controlplane.Quorum // for the rename, and for the drop
}

// DefaultSpec returns the defaults named at the fields.
func DefaultSpec() Spec {
	return Spec{
		QuietMs:        (24 * time.Hour).Milliseconds(),
		SoakMs:         (7 * 24 * time.Hour).Milliseconds(),
		HealthWithinMs: (2 * time.Minute).Milliseconds(),
		BatchRows:      1000,
		Quorum:         controlplane.Quorum{Approvers: 1, ApprovalTTLMs: controlplane.ApprovalTTLDefault.Milliseconds()},
	}
}

// Validate reports the first field outside its bounds.
func (s Spec) Validate() error {
	const day = 24 * time.Hour
	return cmp.Or(controlplane.ValidateMs("quiet_ms", s.QuietMs, 100*time.Millisecond, 90*day),
		controlplane.ValidateMs("soak_ms", s.SoakMs, 100*time.Millisecond, 90*day),
		controlplane.ValidateMs("health_within_ms", s.HealthWithinMs, time.Second, time.Hour),
		controlplane.ValidateCount("batch_rows", s.BatchRows, 1, cleanup.BatchRowsLimit), s.Quorum.Validate())
}
