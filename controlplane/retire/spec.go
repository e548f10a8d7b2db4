package retire

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
)

// Blocklist is the table through which verdicts were shared before counts were.
const Blocklist = "ratelimit_blocklist"

// retirable are the tables that nothing needs any more. Whatever is not here cannot be
// retired, by whatever mistake.
var retirable = []string{Blocklist}

// ValidateRetirable refuses tables that are in use, or not ours.
func ValidateRetirable(table string) error {
	if !slices.Contains(retirable, table) {
		return fmt.Errorf("%w: table is %q (%s)", controlplane.ErrInvalid, table, Blocklist)
	}
	return nil
}

// DatedName is the name that a table gets by a retirement that began then.
func DatedName(table string, startedMs int64) string {
	return table + time.UnixMilli(startedMs).UTC().Format("_retired_20060102_150405")
}

// Spec says how careful a retirement is. Start from DefaultSpec.
type Spec struct {
	// QuietMs is how long no process may write, and counts must be healthy in every region,
	// before rows are deleted: 100 ms to 90 days; default 1 day. It should be longer than
	// the longest duration of a limit, and than a deploy of nodes takes.
	QuietMs int64 `json:"quiet_ms"`

	// SoakMs is how long the table is there under its other name before it may be dropped:
	// 100 ms to 90 days; default 7 days, so that what runs once a week has run.
	SoakMs int64 `json:"soak_ms"`

	// HealthWithinMs is how old a relay's last good round of news may be at its node's last
	// heartbeat: 1 s to 1 h; default 2 minutes.
	HealthWithinMs int64 `json:"health_within_ms"`

	// BatchRows is the most rows that one DELETE takes, 1 to 50,000; default 1,000.
	BatchRows int `json:"batch_rows"`

	controlplane.Quorum // of the rename, and of the drop
}

// DefaultSpec are the defaults named at the fields.
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
