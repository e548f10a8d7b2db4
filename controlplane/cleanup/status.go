package cleanup

import (
	"time"

	"github.com/weirhq/weir/controlplane"
)

// Status is the schedule of the cleanup and its recent runs.
type Status struct {
	Running   bool          // false while paused, and before the first start
	Interval  time.Duration // from one slot to the next
	NextAt    time.Time     // zero while not running
	Paused    *Pause        // nil while not paused
	Runs      int64         // since the schedule was first started
	Errors    int64         // runs that ended in an error
	Rows      int64         // window counts deleted
	DeadNodes int64         // heartbeat rows deleted
	History   []Run         // newest first, bounded
}

// Pause is an operator's order that a job must not run by itself. Only an operator ends it.
type Pause struct {
	controlplane.By
	At time.Time
}

// Run is a run in the history.
type Run struct {
	Report
	StartedAt time.Time
	Took      time.Duration
	Trigger   string // TriggerSchedule, or the actor who requested it
	Error     string // empty: it succeeded
}

// TriggerSchedule is the trigger of runs that the schedule starts.
const TriggerSchedule = "schedule"
