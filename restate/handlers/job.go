package handlers

import (
	restate "github.com/restatedev/sdk-go"
)

// Job is what WeirCron runs at an interval: the cleanup or the watch.
type Job struct {
	// Run does the work. It is a handler: see the package's documentation. A terminal
	// error is recorded beside the report; any other makes Restate run it again.
	// It may keep one document of its own in the object, under documentKey.
	Run func(ctx restate.ObjectContext) (Report, error)

	// Finished is called when a run is over: once, or more often after a crash. May be nil.
	Finished func(failed bool)
}

// Report is what a run of a job says of itself.
type Report struct {
	Counts   map[string]int64 `json:"counts,omitempty"`   // added to the job's totals
	Readings map[string]int64 `json:"readings,omitempty"` // as they were at this run
	Note     string           `json:"note,omitempty"`
	Trouble  string           `json:"trouble,omitempty"` // what was done in another way, and why
	More     bool             `json:"more,omitempty"`    // work is left: the next tick comes at once
}
