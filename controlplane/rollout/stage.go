package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	"github.com/weirhq/weir/controlplane/tunings"
)

// Advance makes the transition that is due, and returns the time until the next transition; less than 0: none before an
// operator acts. After an error the caller must discard r and call Advance again on the document from before: steps
// that were done are repeated, to the same effect.
func (r *Rollout) Advance(steps Steps) (wait time.Duration, err error) {
	nowMs, err := steps.nowMs()
	if err != nil {
		return 0, err
	}
	r.MovedMs, r.Trouble = nowMs, ""
	if !r.ticks() {
		return -1, nil
	}
	return (&transition{Rollout: r, steps: steps, nowMs: nowMs}).make()
}

// transition is a transition of time, while it is made. Unlike operators' transitions it has effects, and looks at the
// nodes.
type transition struct {
	*Rollout
	steps Steps
	nowMs int64
	look  fleet.Look // at watched regions; in a rollback, at touched regions
}

func (r *transition) make() (time.Duration, error) {
	switch {
	case r.Phase == RollingBack:
		return r.rollBack()
	case r.Phase == Applying && r.Paused == nil:
		return r.apply()
	case r.Phase == Keeping && r.DueMs == 0:
		return r.keep()
	case !r.begun() && r.waits():
		return r.waitOn(), nil
	}
	ended, err := r.renew()
	if err != nil {
		return 0, err
	}
	if ended != "" {
		return r.fail(r.lastApplied(), ended), nil
	}
	broken, err := r.watch()
	if err != nil {
		return 0, err
	}
	if broken != nil {
		return r.fail(broken.Stage, broken.Why), nil
	}
	switch {
	case r.waits():
		return r.waitOn(), nil
	case r.held():
		return r.Spec.Plan.PollEvery(), nil
	case r.Phase == Measuring:
		return r.measure()
	case r.Phase == Converging:
		return r.converge(), nil
	case r.Phase == Keeping:
		return r.finish(), nil
	}
	return r.bake(), nil
}

// enter begins a stage. Regions of earlier stages stay watched, so timers go on while a later stage waits for an
// approval.
func (r *Rollout) enter(stage int) (wait time.Duration) {
	r.Stage = stage
	r.Baseline, r.Now, r.DueMs, r.Waiting, r.Blind = fleet.HealthRates{}, fleet.HealthRates{}, 0, "", 0
	r.Approvals = nil
	if !r.stage().Approval {
		r.beginMeasuring()
		return 0
	}
	r.Phase, r.Asked = Awaiting, r.Epoch+1
	return r.Spec.Plan.WaitEvery(r.stage())
}

// measure takes the baseline, and applies the tuning once every region of the stage is ready.
func (r *transition) measure() (time.Duration, error) {
	if r.DueMs == 0 {
		r.DueMs = r.nowMs + r.Spec.Plan.BaselineMs
	}
	if r.nowMs < r.DueMs {
		return min(r.untilDue(), r.Spec.Plan.SampleEvery()), nil
	}
	if why := r.judge().Unready(); why != "" {
		return r.overdue(why), nil
	}
	before, err := r.steps.queries(r.Watch.RegionsOf(r.Stage), r.Spec.Plan.Guardrails.Queries)
	if err != nil {
		return 0, err
	}
	if wait, blind := r.blind(append(before, r.QueriesNow...)); blind {
		return wait, nil
	}
	inForce, err := r.steps.inForce(r.stage().Scope.Rows())
	if err != nil {
		return 0, err
	}
	r.touch(inForce)
	r.judge().EndBaseline(before)
	r.Phase, r.DueMs, r.Waiting = Applying, 0, ""
	return 0, nil
}

// apply begins the trials of all regions of the stage at once.
func (r *transition) apply() (time.Duration, error) {
	rows := r.stage().Scope.Rows()
	var touched []*Touched
	var writes []tunings.TrialWrite
	for i := range r.Touched {
		if t := &r.Touched[i]; slices.Contains(rows, t.Region) {
			touched, writes = append(touched, t), append(writes, r.trialWrite(*t, r.stage().Shadow))
		}
	}
	written, err := r.steps.try(writes, r.writtenBy())
	if err != nil {
		return 0, err
	}
	if refused := written.Refused; refused != nil {
		return r.fail(r.Stage, "not applied: "+refused.String()), nil
	}
	for i, number := range written.Numbers {
		touched[i].Trial = number
	}
	r.AddEvent(r.nowMs, controlplane.Itself, "apply", fmt.Sprintf("stage %d: %s", r.Stage+1, r.stage()))
	r.judge().BeginWindows()
	r.Phase, r.DueMs = Converging, r.nowMs+r.Spec.Plan.ApplyTimeoutMs
	return 0, nil
}

// converge waits until every live node of the stage's trials reports the tuning.
func (r *transition) converge() time.Duration {
	applied := r.Touched.applied(r.look, r.stage().Scope, r.Document)
	if applied.Applied < applied.Live {
		r.Waiting = applied.String()
		if r.nowMs >= r.DueMs {
			return r.fail(r.Stage, "not all nodes run it in time: "+r.Waiting)
		}
		return r.Spec.Plan.PollEvery()
	}
	r.Phase, r.Waiting = Baking, ""
	r.beginBake()
	r.AddEvent(r.nowMs, controlplane.Itself, "bake", fmt.Sprintf("stage %d: applied by %d live nodes", r.Stage+1,
		applied.Live))
	return r.untilDue()
}

// keep stores the subject, which ends the trials.
func (r *transition) keep() (time.Duration, error) {
	store := r.keepTuning
	if r.Spec.Limits != nil {
		store = r.keepLimits
	}
	kept, refused, err := store()
	if err != nil {
		return 0, err
	}
	if refused != "" {
		return r.fail(r.Stage, "not stored: "+refused), nil
	}
	r.AddEvent(r.nowMs, controlplane.Itself, "keep", "stored "+kept)
	r.DueMs = r.nowMs + r.Spec.Plan.ApplyTimeoutMs
	return 0, nil
}

// keepTuning stores the tuning as a version of all regions at once.
func (r *transition) keepTuning() (kept, refused string, err error) {
	var writes []tunings.Write
	for _, t := range r.Touched {
		writes = append(writes, r.applyWrite(t))
	}
	written, err := r.steps.write(writes)
	if err != nil {
		return "", "", err
	}
	if written.Refused != nil {
		return "", written.Refused.String(), nil
	}
	for i, v := range written.Versions {
		r.Touched[i].Applied = v
	}
	return "for " + r.Touched.scope().String(), "", nil
}

// finish ends a rollout once every live node runs the stored subject.
func (r *transition) finish() time.Duration {
	lag := r.notKept()
	if lag == "" {
		r.noteUnknown(r.silentNodes())
		return r.end(Done, controlplane.Itself)
	}
	r.Waiting = lag
	if r.nowMs >= r.DueMs {
		return r.fail(r.Stage, fmt.Sprintf("not all nodes run the stored %s in time: %s", r.noun(), lag))
	}
	return r.Spec.Plan.PollEvery()
}

// notKept names the live nodes that do not run the stored subject; empty: there is none. A node runs a tuning if it
// reports the version and hash. It runs limits if it has sent a heartbeat since they were stored, and runs no trial.
func (r *transition) notKept() string {
	if r.Spec.Limits != nil {
		r.since()
		return r.laggards()
	}
	if kept := r.Touched.applied(r.look, r.Touched.scope(), r.Document); kept.Applied < kept.Live {
		return kept.String()
	}
	return ""
}

// noteUnknown records in the outcome that silent nodes may run either subject.
func (r *transition) noteUnknown(silent string) {
	switch {
	case silent == "":
	case r.Spec.Limits != nil:
		r.Unknown = silent + ", so their limits are unknown"
	default:
		r.Unknown = silent + ", so their tuning is unknown"
	}
}

// overdue waits for the condition why, which a phase needs to end. It fails the rollout if that takes longer than
// apply_timeout_ms.
func (r *transition) overdue(why string) time.Duration {
	if r.nowMs >= r.DueMs+r.Spec.Plan.ApplyTimeoutMs {
		return r.fail(r.Stage, why)
	}
	r.Waiting = why
	return r.Spec.Plan.PollEvery()
}

// blind waits while a required query has no value. It fails the rollout after apply_timeout_ms.
func (r *transition) blind(values []queries.Value) (wait time.Duration, blind bool) {
	why := guard.Blind(r.Spec.Plan.Guardrails, values)
	if why == "" {
		if r.Blind > 0 {
			r.Blind, r.Waiting = 0, ""
		}
		return 0, false
	}
	borne := time.Duration(r.Spec.Plan.ApplyTimeoutMs) * time.Millisecond
	if r.Blind.See(true, r.Clocks.GapMs, borne); r.Blind.Reaches(borne) {
		return r.fail(r.Stage, why), true
	}
	r.Waiting = why
	return r.Spec.Plan.PollEvery(), true
}

// untilDue returns the time until a phase ends, or until the next look at watched regions.
func (r *transition) untilDue() time.Duration {
	left := time.Duration(max(0, r.DueMs-r.nowMs)) * time.Millisecond
	if !r.begun() {
		return left
	}
	return min(left, r.stage().WatchEvery())
}
