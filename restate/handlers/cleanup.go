package handlers

import (
	"context"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
)

// CleanupJob is the cleanup's key in CronService.
const CleanupJob = "cleanup"

// Names of figures in the cleanup's reports.
const (
	countRows      = "rows"
	countBatches   = "batches"
	countDropped   = "partitions"
	countDeadNodes = "dead_nodes"
	readingLagMs   = "lag_ms"
)

// cleanupJob returns the expiry cleanup as a job. Each step of cleanup.Cleanup is journaled.
func cleanupJob(cleaner *cleanup.Cleanup, steps *stepper, metrics *controlplane.Metrics) Job {
	return Job{
		Run: func(ctx restate.ObjectContext) (Report, error) {
			r, err := cleaner.Run(steps.on(ctx))
			return Report{
				Counts: map[string]int64{countRows: r.Rows, countBatches: int64(r.Batches), countDropped: int64(r.Partitions),
					countDeadNodes: r.DeadNodes},
				Readings: map[string]int64{readingLagMs: r.Lag.Milliseconds()},
				Note:     string(r.StoppedBy),
				Trouble:  r.Refused,
				More:     r.StoppedBy.AtOnce(),
			}, err
		},
		Finished: metrics.CleanupRun,
	}
}

// finished returns the step that ends a run: it calls the job's Finished, and returns the time.
func finished(job Job, failed bool) func(context.Context) (int64, error) {
	return func(context.Context) (int64, error) {
		if job.Finished != nil {
			job.Finished(failed)
		}
		return time.Now().UnixMilli(), nil
	}
}

// cleanupRun converts a run of the job.
func cleanupRun(r Run) cleanup.Run {
	return cleanup.Run{
		Report: cleanup.Report{
			Rows:       r.Report.Counts[countRows],
			Batches:    int(r.Report.Counts[countBatches]),
			Partitions: int(r.Report.Counts[countDropped]),
			DeadNodes:  r.Report.Counts[countDeadNodes],
			Lag:        time.Duration(r.Report.Readings[readingLagMs]) * time.Millisecond,
			StoppedBy:  cleanup.StoppedBy(r.Report.Note),
			Refused:    r.Report.Trouble,
		},
		StartedAt: time.UnixMilli(r.StartedMs),
		Took:      time.Duration(r.TookMs) * time.Millisecond,
		Trigger:   r.Trigger,
		Error:     r.Error,
	}
}

// cleanupStatus converts the state of the job.
func cleanupStatus(s State) cleanup.Status {
	status := cleanup.Status{
		Running:   s.Running,
		Interval:  time.Duration(s.IntervalMs) * time.Millisecond,
		Runs:      s.Runs,
		Errors:    s.Errors,
		Rows:      s.Totals[countRows],
		DeadNodes: s.Totals[countDeadNodes],
	}
	if s.Running {
		status.NextAt = time.UnixMilli(s.DueMs)
	}
	if s.Pause != nil {
		status.Paused = &cleanup.Pause{By: s.Pause.By, At: time.UnixMilli(s.Pause.AtMs)}
	}
	for _, r := range s.History {
		status.History = append(status.History, cleanupRun(r))
	}
	return status
}
