package main

import (
	"fmt"
	"io"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

type cleanupStatus struct{ again }

func (s cleanupStatus) Run(c *call) error {
	return s.look(c, func(c *call) error {
		return show(c, c.Control.CleanupStatus, &controlv1.CleanupStatusRequest{},
			func(w io.Writer, answer *controlv1.CleanupStatusResponse) { c.writeStatus(w, answer.GetStatus()) })
	})
}

type cleanupRun struct{ by }

// Run starts a cleanup run and prints its result. If the run failed, the command fails.
func (r cleanupRun) Run(c *call) error {
	answer, err := apiclient.Ask(c.ctx, c.Control.CleanupRun,
		&controlv1.CleanupRunRequest{Actor: r.Actor, Reason: r.Reason})
	if err != nil {
		return err
	}
	run := answer.GetRun()
	err = c.print(answer, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, "deleted %s in %s within %s%s\n", format.Plural(run.GetRowsDeleted(), "row"),
			format.Plural(run.GetBatches(), "batch"), format.Span(run.GetDurationMs()), more(run))
	})
	if err == nil && run.GetError() != "" {
		return fmt.Errorf("%w: %s", errRunFailed, run.GetError())
	}
	return err
}

// more returns the reason why a run stopped while rows were left.
func more(run *controlv1.CleanupRunRecord) string {
	if !run.GetCapped() {
		return ""
	}
	return fmt.Sprintf("; it reached its limit (%s) with rows left", run.GetStoppedBy())
}

type cleanupPause struct{ by }

func (p cleanupPause) Run(c *call) error {
	return show(c, c.Control.CleanupPause, &controlv1.CleanupPauseRequest{Actor: p.Actor, Reason: p.Reason},
		func(w io.Writer, answer *controlv1.CleanupPauseResponse) { c.writeSchedule(w, answer.GetStatus()) })
}

type cleanupResume struct{ by }

func (r cleanupResume) Run(c *call) error {
	return show(c, c.Control.CleanupResume, &controlv1.CleanupResumeRequest{Actor: r.Actor, Reason: r.Reason},
		func(w io.Writer, answer *controlv1.CleanupResumeResponse) { c.writeSchedule(w, answer.GetStatus()) })
}

// writeSchedule prints the state of the schedule.
func (c *call) writeSchedule(w io.Writer, s *controlv1.CleanupStatus) {
	switch {
	case s.GetPausedBy() != "":
		_, _ = fmt.Fprintf(w, "paused by %s %s: %s\n", format.Plain(s.GetPausedBy()), c.ago(s.GetPausedAtMs()),
			format.Plain(s.GetPausedReason()))
		_, _ = fmt.Fprintln(w, "Expired rows pile up. Resume with: weirctl cleanup resume --reason TEXT")
	case s.GetRunning():
		_, _ = fmt.Fprintf(w, "running every %s, next %s\n", format.Span(s.GetIntervalMs()), c.in(s.GetNextAtMs()))
	default:
		_, _ = fmt.Fprintln(w, "not started yet: weir-control starts it within seconds of reaching Restate")
	}
}

func (c *call) writeStatus(w io.Writer, s *controlv1.CleanupStatus) {
	c.writeSchedule(w, s)
	lag := "unknown: MySQL does not answer"
	if s.LagMs != nil {
		lag = format.Span(s.GetLagMs())
	}
	t := format.NewTable(w)
	t.Row("lag", lag)
	if problem := s.GetPartitionsProblem(); problem != "" {
		t.Row("partitions", format.Plain(problem))
	}
	t.Row("runs", fmt.Sprintf("%s, %s with an error", format.Digits(s.GetRunsTotal()), format.Digits(s.GetErrorsTotal())))
	t.Row("rows deleted", format.Digits(s.GetRowsDeletedTotal()))
	t.Row("dead nodes deleted", format.Digits(s.GetDeadNodesDeletedTotal()))
	t.Flush()
	if len(s.GetHistory()) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	t = format.NewTable(w)
	t.Row("STARTED", "TOOK", "ROWS", "BATCHES", "LAG", "BY", "RESULT")
	for _, r := range s.GetHistory() {
		t.Row(format.Moment(r.GetStartedAtMs()), format.Span(r.GetDurationMs()), format.Digits(r.GetRowsDeleted()),
			format.Digits(r.GetBatches()),
			format.Span(r.GetLagMs()), r.GetTrigger(), result(r))
	}
	t.Flush()
}

func result(r *controlv1.CleanupRunRecord) string {
	switch {
	case r.GetError() != "":
		return "error: " + r.GetError()
	case r.GetCapped():
		return "more left (" + r.GetStoppedBy() + ")"
	}
	return "ok"
}
