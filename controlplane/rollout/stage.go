package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/tunings"
)

// Advance makes the transition that is due, and answers after how long the next one is;
// less than 0: not before an operator acts. After an error r is to be thrown away: what
// was done is done again, to the same effect, from the document before.
func (r *Rollout) Advance(steps Steps) (wait time.Duration, err error) {
	nowMs, err := steps.nowMs()
	if err != nil {
		return 0, err
	}
	r.MovedMs, r.Trouble = nowMs, ""
	switch {
	case !r.ticks():
		return -1, nil
	case r.Phase == RollingBack:
		return r.rollBack(steps, nowMs)
	case r.Phase == Applying && r.Paused == nil:
		return r.apply(steps, nowMs)
	case r.Phase == Keeping && r.DueMs == 0:
		return r.keep(steps, nowMs)
	case len(r.Touched) == 0 && r.waits():
		return r.waitOn(nowMs), nil
	}
	ended, err := r.renew(steps)
	if err != nil {
		return 0, err
	}
	if ended != "" {
		return r.fail(nowMs, r.lastApplied(), ended), nil
	}
	look, breach, err := r.look(steps, nowMs)
	if err != nil {
		return 0, err
	}
	if breach != nil {
		return r.fail(nowMs, breach.stage, breach.why), nil
	}
	switch {
	case r.waits():
		return r.waitOn(nowMs), nil
	case r.held(look, nowMs):
		return r.Spec.Plan.pollEvery(), nil
	case r.Phase == Measuring:
		return r.measure(steps, nowMs, look)
	case r.Phase == Converging:
		return r.converge(nowMs, look), nil
	case r.Phase == Keeping:
		return r.finish(nowMs, look), nil
	}
	return r.bake(nowMs, look), nil
}

// enter begins a stage. Regions of earlier ones stay watched, so time goes on while a later stage waits for an
// approval.
func (r *Rollout) enter(stage int) (wait time.Duration) {
	r.Stage, r.Phase = stage, Measuring
	r.Baseline, r.Now, r.DueMs, r.Waiting, r.Blind = fleet.HealthRates{}, fleet.HealthRates{}, 0, "", 0
	r.Approvals = nil
	if !r.stage().Approval {
		return 0
	}
	r.Phase, r.Asked = Awaiting, r.Epoch+1
	return r.Spec.Plan.waitEvery(r.stage())
}

// measure takes the baseline, and goes on once every region of the stage is there.
func (r *Rollout) measure(steps Steps, nowMs int64, look fleet.Look) (time.Duration, error) {
	if r.DueMs == 0 {
		r.DueMs = nowMs + r.Spec.Plan.BaselineMs
	}
	if nowMs < r.DueMs {
		return min(r.untilDue(nowMs), r.Spec.Plan.sampleEvery()), nil
	}
	if why := r.unready(look); why != "" {
		return r.overdue(nowMs, why), nil
	}
	before, err := steps.queries(r.Watch.regionsOf(r.Stage), r.Spec.Plan.Guardrails.Queries)
	if err != nil {
		return 0, err
	}
	if wait, blind := r.blind(nowMs, append(before, r.QueriesNow...)); blind {
		return wait, nil
	}
	inForce, err := steps.inForce(r.stage().Scope.Rows())
	if err != nil {
		return 0, err
	}
	r.touch(inForce)
	r.QueriesBefore = queries.AddBaselines(r.QueriesBefore, before)
	r.Baseline = r.Watch.ratesOf(r.Stage, (*RegionWatch).before)
	r.beginComparing()
	r.Phase, r.DueMs, r.Waiting = Applying, 0, ""
	return 0, nil
}

// apply has the stage's regions try the tuning, all at once.
func (r *Rollout) apply(steps Steps, nowMs int64) (time.Duration, error) {
	rows := r.stage().Scope.Rows()
	var touched []*Touched
	var writes []tunings.TrialWrite
	for i := range r.Touched {
		if t := &r.Touched[i]; slices.Contains(rows, t.Region) {
			touched, writes = append(touched, t), append(writes, r.trialWrite(*t))
		}
	}
	written, err := steps.try(writes, r.writtenBy())
	if err != nil {
		return 0, err
	}
	if refused := written.Refused; refused != nil {
		return r.fail(nowMs, r.Stage, "not applied: "+refused.String()), nil
	}
	for i, number := range written.Numbers {
		touched[i].Trial = number
	}
	r.AddEvent(nowMs, controlplane.Itself, "apply", fmt.Sprintf("stage %d: %s", r.Stage+1, r.stage()))
	r.beginWindows(nowMs)
	r.Phase, r.DueMs = Converging, nowMs+r.Spec.Plan.ApplyTimeoutMs
	return 0, nil
}

// converge waits until every live node of the stage that is to try the tuning reports it.
func (r *Rollout) converge(nowMs int64, look fleet.Look) time.Duration {
	applied := r.Touched.applied(look, r.stage().Scope, r.Document)
	if applied.Applied < applied.Live {
		r.Waiting = applied.String()
		if nowMs >= r.DueMs {
			return r.fail(nowMs, r.Stage, "not all nodes run it in time: "+r.Waiting)
		}
		return r.Spec.Plan.pollEvery()
	}
	r.Phase, r.Waiting = Baking, ""
	r.beginBake(nowMs)
	r.AddEvent(nowMs, controlplane.Itself, "bake", fmt.Sprintf("stage %d: applied by %d live nodes", r.Stage+1,
		applied.Live))
	return r.untilDue(nowMs)
}

// keep stores the tuning for good, for all regions at once, which ends the trials.
func (r *Rollout) keep(steps Steps, nowMs int64) (time.Duration, error) {
	var writes []tunings.Write
	for _, t := range r.Touched {
		writes = append(writes, r.applyWrite(t))
	}
	written, err := steps.write(writes)
	if err != nil {
		return 0, err
	}
	if refused := written.Refused; refused != nil {
		return r.fail(nowMs, r.Stage, "not stored: "+refused.String()), nil
	}
	for i, v := range written.Versions {
		r.Touched[i].Applied = v
	}
	r.AddEvent(nowMs, controlplane.Itself, "keep", "stored for "+r.Touched.scope().String())
	r.DueMs = nowMs + r.Spec.Plan.ApplyTimeoutMs
	return 0, nil
}

// finish ends a rollout once every live node reports the stored tuning: its version and its hash.
func (r *Rollout) finish(nowMs int64, look fleet.Look) time.Duration {
	kept := r.Touched.applied(look, r.Touched.scope(), r.Document)
	if kept.Applied == kept.Live {
		if silent := r.silentNodes(look); silent != "" {
			r.Unknown = silent + ", so it is not known which tuning they run"
		}
		return r.end(nowMs, Done, controlplane.Itself)
	}
	r.Waiting = kept.String()
	if nowMs >= r.DueMs {
		return r.fail(nowMs, r.Stage, "not all nodes run the stored tuning in time: "+r.Waiting)
	}
	return r.Spec.Plan.pollEvery()
}

// overdue waits for what a phase needs to end, and gives up when that takes as long as
// nodes may take to apply the tuning.
func (r *Rollout) overdue(nowMs int64, why string) time.Duration {
	if nowMs >= r.DueMs+r.Spec.Plan.ApplyTimeoutMs {
		return r.fail(nowMs, r.Stage, why)
	}
	r.Waiting = why
	return r.Spec.Plan.pollEvery()
}

// blind waits while a required query has no value, and gives up after a time.
func (r *Rollout) blind(nowMs int64, values []queries.Value) (wait time.Duration, blind bool) {
	why := r.Spec.Plan.Guardrails.blind(values)
	if why == "" {
		if r.Blind > 0 {
			r.Blind, r.Waiting = 0, ""
		}
		return 0, false
	}
	borne := time.Duration(r.Spec.Plan.ApplyTimeoutMs) * time.Millisecond
	if r.Blind.See(true, r.Clocks.GapMs, borne); r.Blind.Reaches(borne) {
		return r.fail(nowMs, r.Stage, why), true
	}
	r.Waiting = why
	return r.Spec.Plan.pollEvery(), true
}

// untilDue is the time to the end of a phase, or to the next look at what is watched.
func (r *Rollout) untilDue(nowMs int64) time.Duration {
	left := time.Duration(max(0, r.DueMs-nowMs)) * time.Millisecond
	if len(r.Touched) == 0 {
		return left
	}
	return min(left, r.stage().watchEvery())
}
