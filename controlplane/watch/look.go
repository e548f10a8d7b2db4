package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
)

// lookTimeout bounds a look.
const lookTimeout = 6 * time.Second

// The values from which a state is a finding.
const (
	lagWarning   = 15 * time.Minute // how far behind the cleanup may be
	lagCritical  = 2 * time.Hour
	skewWarning  = time.Second // how far a node's clock may be from the database's
	skewCritical = 10 * time.Second
	retriesMin   = 3 // how often an invocation has failed before it is reported

	// deadTold is how long a node that is gone is reported while other nodes of its region live. A node that was removed
	// for good looks the same.
	deadTold = time.Hour

	// stalledMin is how long a relay may go without a round on the change feed, and lateMin how old changes may be when a
	// relay reads them and how long counts may wait to be sent. The tuning's feed interval can make both longer.
	stalledMin = time.Minute
	lateMin    = 10 * time.Second
)

// Invocation is an invocation that Restate cannot finish at present.
type Invocation struct {
	ID      string
	Target  string // service/key/handler
	Paused  bool   // given up until a person resumes it; otherwise it is backing off
	Retries int
	SinceMs int64 // when Restate last changed it
	Failure string
}

// Sources are the functions by which a look reads the system. Each may fail: then the failure is a finding. All must be
// safe for concurrent use.
type Sources struct {
	Fleet       func(context.Context) (fleet.Fleet, error)
	Tunings     func(context.Context) ([]tunings.RegionTuning, error)
	Lag         func(context.Context) (time.Duration, error)
	Partitions  func(context.Context) (cleanup.PartitionsProblem, error)
	Cleanup     func(context.Context) (cleanup.Status, error)
	Rollout     func(context.Context) (*rollout.Rollout, error)   // the rollout under way, or nil
	Retirement  func(context.Context) (*retire.Retirement, error) // the newest, or nil
	Invocations func(context.Context) ([]Invocation, error)
}

// Watch looks at every part of the system that a person would look at.
type Watch struct{ sources Sources }

// New returns a watch.
func New(sources Sources) *Watch { return &Watch{sources} }

// Look never fails: a source that does not answer is a finding. It calls all sources at once, each for a bounded time.
func (w *Watch) Look(ctx context.Context, now time.Time) Look {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	parts := []func(context.Context, *Look) error{
		w.lookAtNodes, w.lookAtCleanup, w.lookAtRollout, w.lookAtRetirement, w.lookAtInvocations}
	seen := make([]Look, len(parts))
	var asking sync.WaitGroup
	for i, part := range parts {
		asking.Go(func() {
			if err := part(ctx, &seen[i]); err != nil {
				seen[i].add(troubleOf(err))
			}
		})
	}
	asking.Wait()
	look := Look{AtMs: now.UnixMilli()}
	for _, part := range seen {
		look.Blind = append(look.Blind, part.Blind...)
		for _, f := range part.Findings[:min(len(part.Findings), findingsMax)] {
			f.What, f.Do = controlplane.Clip(f.What), controlplane.Clip(f.Do)
			look.add(f)
		}
	}
	return look
}

// sourceError is an error of a source that is not MySQL.
type sourceError struct {
	kind FindingKind
	error
}

func troubleOf(err error) Finding {
	var source sourceError
	switch {
	case errors.As(err, &source) && source.kind == FindingRestateAdminDown:
		return Finding{
			Kind: FindingRestateAdminDown, Severity: SeverityWarning, What: err.Error(),
			Do: "Start restate-server, or correct --restate-admin of weir-control; until then, failing invocations " +
				"are not found.",
		}
	case errors.As(err, &source):
		return restateDown(err)
	}
	return Finding{
		Kind: FindingMySQLDown, Severity: SeverityCritical, What: err.Error(),
		Do: "Start MySQL, or let this machine reach it. Nodes still decide, by their region's counts; regions exchange " +
			"no counts meanwhile.",
	}
}

func restateDown(err error) Finding {
	return Finding{
		Kind: FindingRestateDown, Severity: SeverityCritical, What: err.Error(),
		Do: "Start restate-server, or correct --restate-ingress of weir-control. Nodes still decide; cleanup and " +
			"rollouts make no progress meanwhile.",
	}
}

func (l *Look) add(f Finding) { l.Findings = append(l.Findings, f) }

func (l *Look) blind(kinds ...FindingKind) { l.Blind = append(l.Blind, kinds...) }

func (w *Watch) lookAtNodes(ctx context.Context, look *Look) error {
	fleet, err := w.sources.Fleet(ctx)
	if err == nil {
		look.Findings = append(look.Findings, nodeFindings(fleet)...)
		var tunings []tunings.RegionTuning
		if tunings, err = w.sources.Tunings(ctx); err == nil {
			look.Findings = append(look.Findings, tuningFindings(fleet, tunings)...)
			w.lookAtTunings(ctx, look, fleet, tunings)
			return nil
		}
	} else {
		look.blind(FindingNodesDead, FindingRegionDark, FindingFleetCutOff, FindingRelayMissing, FindingOriginDown,
			FindingCostDropped, FindingTableFull, FindingSettingsRefused, FindingNodeProblem, FindingClockSkew)
	}
	look.blind(FindingTuningSkew, FindingTuningsDiffer, FindingRelayStalled, FindingRelayLate)
	return err
}

// lookAtTunings reports that regions have different tunings although no rollout is under way. A rollout that was lost
// leaves such a state, and so does a region that was given a tuning of its own.
func (w *Watch) lookAtTunings(ctx context.Context, look *Look, fleet fleet.Fleet,
	tunings []tunings.RegionTuning) {
	r, err := w.sources.Rollout(ctx)
	switch {
	case err != nil: // the error is a finding already
		look.blind(FindingTuningsDiffer)
	case r == nil || r.Phase.Over():
		look.Findings = append(look.Findings, differences(fleet, tunings)...)
	}
}

func (w *Watch) lookAtCleanup(ctx context.Context, look *Look) error {
	status, err := w.sources.Cleanup(ctx)
	if err != nil {
		look.blind(FindingCleanupPaused, FindingCleanupFails, FindingCleanupBatches)
		look.add(restateDown(err))
	}
	for _, f := range scheduleFindings(status) {
		look.add(f)
	}
	partitions, err := w.sources.Partitions(ctx)
	if err != nil {
		look.blind(FindingCleanupLag, FindingCleanupPartitions)
		return err
	}
	if partitions.Refused != "" { // as the newest run found it, or at present
		look.add(batchesFinding(partitions.Refused))
	}
	if partitions.Missing != "" {
		look.add(Finding{Kind: FindingCleanupPartitions, Subject: "cleanup", Severity: SeverityWarning,
			What: partitions.Missing, Do: cleanup.MissingPartitionsAdvice})
	}
	lag, err := w.sources.Lag(ctx)
	if err != nil {
		look.blind(FindingCleanupLag)
		return err
	}
	if lag >= lagWarning {
		f := Finding{
			Kind: FindingCleanupLag, Subject: "cleanup", Severity: SeverityWarning,
			What: fmt.Sprintf("the oldest expired row should have been deleted %v ago", lag.Round(time.Second)),
			Do:   "weirctl cleanup status shows whether it is paused, fails or stops at a limit.",
		}
		if lag >= lagCritical {
			f.Severity = SeverityCritical
		}
		look.add(f)
	}
	return nil
}

// scheduleFindings returns the findings about the cleanup's schedule and its newest run.
func scheduleFindings(status cleanup.Status) (findings []Finding) {
	if p := status.Paused; p != nil {
		findings = append(findings, Finding{
			Kind: FindingCleanupPaused, Subject: "cleanup", Severity: SeverityWarning, SinceMs: p.At.UnixMilli(),
			What: fmt.Sprintf("the cleanup is paused by %s: %s", p.Actor, p.Reason),
			Do:   "Expired rows pile up. When the reason is gone: weirctl cleanup resume --reason TEXT.",
		})
	}
	if len(status.History) == 0 {
		return findings
	}
	if why := status.History[0].Refused; why != "" {
		findings = append(findings, batchesFinding(why))
	}
	if status.History[0].Error == "" {
		return findings
	}
	f := Finding{
		Kind: FindingCleanupFails, Subject: "cleanup", Severity: SeverityWarning,
		What: "the newest run of the cleanup ended in an error: " + status.History[0].Error,
		Do:   "Expired rows pile up. The error names the cause; see also weirctl cleanup status and weirctl doctor.",
	}
	if strings.Contains(status.History[0].Error,
		controlplane.ErrClocksDiffer.Error()) { // it has come through Restate as text
		f.Severity = SeverityCritical
	}
	return append(findings, f)
}

// batchesFinding returns the finding about a cleanup that drops no partitions. A server without partitions is still
// cleaned, but more slowly.
func batchesFinding(why string) Finding {
	f := Finding{
		Kind: FindingCleanupBatches, Subject: "cleanup", Severity: SeverityWarning,
		What: "the cleanup deletes rows in batches, which is slower than dropping partitions: " + why,
		Do:   "Fix the named cause; schema/README.md, Expiry, says how. Rows are still deleted.",
	}
	if why == cleanup.NoPartitions {
		f.Severity = SeverityInfo
	}
	return f
}

func (w *Watch) lookAtRollout(ctx context.Context, look *Look) error {
	r, err := w.sources.Rollout(ctx)
	if err != nil {
		look.blind(FindingRolloutTrouble, FindingRolloutWaits)
		return sourceError{FindingRestateDown, err}
	}
	if r == nil || r.Phase.Over() {
		return nil
	}
	if r.Trouble != "" {
		look.add(Finding{
			Kind: FindingRolloutTrouble, Subject: r.ID, Severity: SeverityCritical,
			What: fmt.Sprintf("rollout %s cannot go on: %s", r.ID, r.Trouble),
			Do:   troubleOfRollout(r),
		})
	}
	switch {
	case r.Phase == rollout.RollingBack:
		look.add(Finding{
			Kind: FindingRolloutTrouble, Subject: r.ID + " rolls back", Severity: SeverityWarning,
			What: fmt.Sprintf("rollout %s is being rolled back: %s", r.ID, cmp.Or(r.Why, "the reason is unknown")),
			Do:   fmt.Sprintf("Wait until it is over: weirctl rollout status --watch %s.", r.ID),
		})
	case r.Paused != nil:
		look.add(Finding{
			Kind: FindingRolloutWaits, Subject: r.ID, Severity: SeverityWarning, SinceMs: r.Paused.AtMs,
			What: fmt.Sprintf("rollout %s is paused by %s: %s", r.ID, r.Paused.Actor, r.Paused.Reason),
			Do:   fmt.Sprintf("The fleet runs two tunings meanwhile: weirctl rollout resume %s, or abort.", r.ID),
		})
	case r.Phase == rollout.Awaiting:
		look.add(Finding{
			Kind: FindingRolloutWaits, Subject: r.ID, Severity: SeverityInfo,
			What: fmt.Sprintf("rollout %s waits for an approval of stage %d", r.ID, r.Stage+1),
			Do: fmt.Sprintf("Look at weirctl rollout status %s, then weirctl rollout approve %s --stage %d, or abort.", r.ID,
				r.ID, r.Stage+1),
		})
	}
	return nil
}

func troubleOfRollout(r *rollout.Rollout) string {
	if r.Phase == rollout.RollingBack && r.DueMs > 0 {
		return fmt.Sprintf(
			"Restart or stop the nodes that it names, or give them up: weirctl rollout abort %s --reason TEXT.", r.ID)
	}
	return fmt.Sprintf("The step is retried. Fix the named cause, or: weirctl rollout abort %s --reason TEXT.",
		r.ID)
}

func (w *Watch) lookAtRetirement(ctx context.Context, look *Look) error {
	r, err := w.sources.Retirement(ctx)
	if err != nil {
		look.blind(FindingRetirementTrouble, FindingRetirementWaits)
		return sourceError{FindingRestateDown, err}
	}
	if r == nil || !r.UnderWay() {
		return nil
	}
	if r.Trouble != "" {
		look.add(Finding{
			Kind: FindingRetirementTrouble, Subject: r.Table, Severity: SeverityWarning,
			What: fmt.Sprintf("the retirement of %s cannot go on: %s", r.Table, r.Trouble),
			Do:   "The step is retried. Fix the named cause, or: weirctl retire abort --reason TEXT.",
		})
	}
	step := map[retire.Phase]string{retire.Awaiting: "rename",
		retire.AwaitingFinal: "drop"}[r.Phase]
	if step != "" {
		look.add(Finding{
			Kind: FindingRetirementWaits, Subject: r.Table, Severity: SeverityInfo,
			What: fmt.Sprintf("the retirement of %s waits for an approval to %s it", r.Table, step),
			Do:   fmt.Sprintf("Look at weirctl retire status, then weirctl retire approve %s, or abort.", step),
		})
	}
	return nil
}

func (w *Watch) lookAtInvocations(ctx context.Context, look *Look) error {
	invocations, err := w.sources.Invocations(ctx)
	if err != nil {
		look.blind(FindingInvocationPaused, FindingInvocationBackoff)
		return sourceError{FindingRestateAdminDown, err}
	}
	for _, i := range invocations {
		switch {
		case i.Paused:
			look.add(Finding{
				Kind: FindingInvocationPaused, Subject: i.ID, Severity: SeverityCritical, SinceMs: i.SinceMs,
				What: fmt.Sprintf("%s is paused after %d attempts: %s", i.Target, i.Retries,
					cmp.Or(i.Failure, "no failure is recorded")),
				Do: fmt.Sprintf("Fix the cause, then resume it at Restate's admin API: curl -X PATCH …/invocations/%s/resume.",
					i.ID),
			})
		case i.Retries >= retriesMin:
			look.add(Finding{
				Kind: FindingInvocationBackoff, Subject: i.ID, Severity: SeverityWarning,
				What: fmt.Sprintf("%s has failed %d times: %s", i.Target, i.Retries, cmp.Or(i.Failure, "no failure is recorded")),
				Do:   "Restate retries it; fix the cause that the failure names.",
			})
		}
	}
	return nil
}
