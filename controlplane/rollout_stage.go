package controlplane

import (
	"fmt"
	"time"
)

// Advance makes the transition that is due, and answers after how long the next one is;
// less than 0: not before an operator acts. After an error r is to be thrown away: what
// was done is done again, to the same effect, from the document before.
func (r *Rollout) Advance(steps RolloutSteps) (wait time.Duration, err error) {
	nowMs, err := steps.NowMs()
	if err != nil {
		return 0, err
	}
	r.MovedMs, r.Trouble = nowMs, ""
	switch {
	case !r.ticks():
		return -1, nil
	case r.Phase == RolloutRollingBack:
		return r.rollBack(steps, nowMs)
	case r.Phase == RolloutApplying && r.Paused == nil:
		return r.apply(steps, nowMs)
	}
	look, breach, err := r.look(steps, nowMs)
	if err != nil {
		return 0, err
	}
	if breach != nil {
		return r.fail(nowMs, breach.stage, breach.why), nil
	}
	switch {
	case r.Paused != nil || r.Phase == RolloutAwaiting:
		return r.watchEvery(), nil
	case r.held(look, nowMs):
		return r.poll(), nil
	case r.Phase == RolloutMeasuring:
		return r.measure(steps, nowMs, look)
	case r.Phase == RolloutConverging:
		return r.converge(nowMs, look), nil
	}
	return r.bake(nowMs, look), nil
}

// enter begins a stage. Regions of earlier ones stay watched, so time goes on while a later stage waits for an
// approval.
func (r *Rollout) enter(stage int) (wait time.Duration) {
	r.Stage, r.Phase = stage, RolloutMeasuring
	r.Baseline, r.Now, r.DueMs, r.Waiting, r.BlindMs = HealthRates{}, HealthRates{}, 0, "", 0
	if !r.stage().Approval {
		return 0
	}
	r.Phase, r.Asked = RolloutAwaiting, r.Epoch+1
	return r.watchEvery()
}

// measure takes the baseline, and goes on once every region of the stage is there.
func (r *Rollout) measure(steps RolloutSteps, nowMs int64, look FleetLook) (time.Duration, error) {
	if r.DueMs == 0 {
		r.DueMs = nowMs + r.Spec.Plan.BaselineMs
	}
	if nowMs < r.DueMs {
		return r.untilDue(nowMs), nil
	}
	if why := r.unready(look); why != "" {
		return r.overdue(nowMs, why), nil
	}
	before, err := r.ask(steps, r.regionsOf(r.Stage))
	if err != nil {
		return 0, err
	}
	if wait, blind := r.blind(nowMs, append(before, r.QueriesNow...)); blind {
		return wait, nil
	}
	rows := r.stage().Scope.rows()
	inForce, err := steps.InForce(rows)
	if err != nil {
		return 0, err
	}
	for _, t := range inForce {
		r.Touched = append(r.Touched, Touched{Region: t.Region, Previous: t.Document, Over: t.Version})
	}
	r.QueriesBefore = addBaselines(r.QueriesBefore, before)
	r.Baseline = r.ratesOf(r.Stage, (*RegionWatch).before)
	r.Phase, r.DueMs, r.Waiting = RolloutApplying, 0, ""
	return 0, nil
}

// apply writes the tuning for the stage's regions, all at once.
func (r *Rollout) apply(steps RolloutSteps, nowMs int64) (time.Duration, error) {
	first := len(r.Touched) - len(r.stage().Scope.rows())
	var writes []TuningWrite
	for _, t := range r.Touched[first:] {
		writes = append(writes, r.applyWrite(t))
	}
	written, err := steps.Write(writes)
	if err != nil {
		return 0, err
	}
	if refused := written.Refused; refused != nil {
		return r.fail(nowMs, r.Stage, "not applied: "+refused.String()), nil
	}
	for i, v := range written.Versions {
		r.Touched[first+i].Applied = v
	}
	r.event(nowMs, rolloutItself, "apply", fmt.Sprintf("stage %d: %s", r.Stage+1, r.stage().Scope))
	r.beginWindows(nowMs)
	r.Phase, r.DueMs = RolloutConverging, nowMs+r.Spec.Plan.ApplyTimeoutMs
	return 0, nil
}

// converge waits until every live node of the stage reports the tuning.
func (r *Rollout) converge(nowMs int64, look FleetLook) time.Duration {
	applied := r.appliedBy(look, r.stage().Scope)
	if applied.Applied < applied.Live {
		r.Waiting = applied.String()
		if nowMs >= r.DueMs {
			return r.fail(nowMs, r.Stage, "not applied in time: "+r.Waiting)
		}
		return r.poll()
	}
	r.beginWindows(nowMs)
	r.Phase, r.DueMs, r.SinceMs, r.Waiting = RolloutBaking, nowMs+r.stage().BakeMs, 0, ""
	r.event(nowMs, rolloutItself, "bake", fmt.Sprintf("stage %d: applied by %d live nodes", r.Stage+1, applied.Live))
	return r.untilDue(nowMs)
}

// bake ends a stage that has been watched for long enough, once each node of it and of those
// before has been heard of after that, and runs the tuning.
func (r *Rollout) bake(nowMs int64, look FleetLook) time.Duration {
	if r.DueMs == 0 { // resumed: it bakes from here on
		r.beginWindows(nowMs)
		r.DueMs, r.SinceMs = nowMs+r.stage().BakeMs, 0
		return r.untilDue(nowMs)
	}
	if wait, blind := r.blind(nowMs, r.QueriesNow); blind {
		return wait
	}
	if nowMs < r.DueMs {
		return r.untilDue(nowMs)
	}
	r.since(look)
	if silent := r.unheard(func(_ *RegionWatch, n *WatchedNode) bool { return n.SeenMs > r.SinceMs }); silent != "" {
		return r.overdue(nowMs, "no heartbeat since the bake is over: "+silent)
	}
	if applied := r.appliedBy(look, r.touchedScope()); applied.Applied < applied.Live {
		return r.overdue(nowMs, "not run by all when the bake is over: "+applied.String())
	}
	if r.Stage+1 < len(r.Stages) {
		return r.enter(r.Stage + 1)
	}
	return r.end(nowMs, RolloutDone, rolloutItself)
}

// overdue waits for what a phase needs to end, and gives up when that takes as long as
// nodes may take to apply the tuning.
func (r *Rollout) overdue(nowMs int64, why string) time.Duration {
	if nowMs >= r.DueMs+r.Spec.Plan.ApplyTimeoutMs {
		return r.fail(nowMs, r.Stage, why)
	}
	r.Waiting = why
	return r.poll()
}

// ask is what the queries of the plan answer now, for regions.
func (r *Rollout) ask(steps RolloutSteps, regions []string) ([]QueryValue, error) {
	rails := r.Spec.Plan.Guardrails.Queries
	if len(rails) == 0 {
		return nil, nil
	}
	return steps.Queries(regions, rails)
}

// blind waits while a required query has no value, and gives up after a time.
func (r *Rollout) blind(nowMs int64, values []QueryValue) (wait time.Duration, blind bool) {
	why := r.Spec.Plan.Guardrails.blind(values)
	if why == "" {
		if r.BlindMs > 0 {
			r.BlindMs, r.Waiting = 0, ""
		}
		return 0, false
	}
	if r.BlindMs == 0 {
		r.BlindMs = nowMs
	}
	if nowMs-r.BlindMs >= r.Spec.Plan.ApplyTimeoutMs {
		return r.fail(nowMs, r.Stage, why), true
	}
	r.Waiting = why
	return r.poll(), true
}

// poll is the time between two looks at nodes that are waited for.
func (r *Rollout) poll() time.Duration {
	timeout := time.Duration(r.Spec.Plan.ApplyTimeoutMs) * time.Millisecond
	return min(max(timeout/60, 100*time.Millisecond), 5*time.Second)
}

// untilDue is the time to the end of a phase, or to the next look at what is watched.
func (r *Rollout) untilDue(nowMs int64) time.Duration {
	left := time.Duration(max(0, r.DueMs-nowMs)) * time.Millisecond
	if len(r.Touched) == 0 {
		return left
	}
	return min(left, r.watchEvery())
}

// watchEvery is the time between two looks: ten in a bake, and one every half minute at the
// least.
func (r *Rollout) watchEvery() time.Duration {
	bake := time.Duration(r.stage().BakeMs) * time.Millisecond
	return min(max(bake/10, 50*time.Millisecond), 30*time.Second)
}
