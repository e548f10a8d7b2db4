package cleanup

import (
	"time"

	"github.com/weirhq/weir/controlplane"
)

// Status is how the schedule of the cleanup stands, and what it did lately.
type Status struct {
	Running   bool          // false while paused, and before the first start
	Interval  time.Duration // from one slot to the next
	NextAt    time.Time     // zero while not running
	Paused    *Pause        // nil while not paused
	Runs      int64         // since the schedule was first started
	Errors    int64         // of those, the ones that ended in an error
	Rows      int64         // window counts deleted
	DeadNodes int64         // heartbeat rows deleted
	History   []Run         // newest first, bounded
}

// Pause is an operator's will that a job does not run by itself. Nothing but an
// operator ends it.
type Pause struct {
	controlplane.By
	At time.Time
}

// Run is one run in the history.
type Run struct {
	Report
	StartedAt time.Time
	Took      time.Duration
	Trigger   string // TriggerSchedule, or the actor who asked for it
	Error     string // empty when it went well
}

// TriggerSchedule is the trigger of runs that the schedule starts.
const TriggerSchedule = "schedule"
