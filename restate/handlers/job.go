package handlers

import (
	restate "github.com/restatedev/sdk-go"
)

// Job is work that WeirCron runs at an interval: the cleanup or the watch.
type Job struct {
	// Run does the work. It is a handler, so it must keep the rules of the package documentation. A terminal error is
	// recorded with the report; after any other error Restate runs it again. It can store one document of its own in the
	// object, under documentKey.
	Run func(ctx restate.ObjectContext) (Report, error)

	// Finished is called when a run has ended: once, or more often after a crash. It can be nil. For
	// example, the cleanup counts its runs in a metric.
	Finished func(failed bool)
}

// Report is the result of a run of a job.
type Report struct {
	Counts   map[string]int64 `json:"counts,omitempty"`   // added to the job's totals
	Readings map[string]int64 `json:"readings,omitempty"` // values at this run
	Note     string           `json:"note,omitempty"`
	Trouble  string           `json:"trouble,omitempty"` // the reason for work done in another way, e.g. in batches
	More     bool             `json:"more,omitempty"`    // work is left: the next tick comes at once
}
