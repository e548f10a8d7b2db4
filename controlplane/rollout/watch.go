package rollout

import (
	"slices"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout/guard"
)

// judge returns the judge of the rollout as it stands.
func (r *Rollout) judge(nowMs int64) *guard.Judge {
	tried := r.Trials()
	j := &guard.Judge{
		Figures: &r.Figures, Effect: &r.Effect, Plan: r.Spec.Plan, Stages: r.Stages, Stage: r.Stage, Step: r.Phase.step(),
		With: r.Touched.scope(), Tried: tried.scope(), NowMs: nowMs,
		Reached: func(region string, shadow bool) int64 {
			if t, ok := r.inMode(shadow).of(region); ok {
				return t.below()
			}
			return 0
		},
	}
	if r.Spec.Limits != nil {
		j.Trials = tried.numbers()
	}
	return j
}

func (r *transition) judge() *guard.Judge {
	j := r.Rollout.judge(r.nowMs)
	j.Look = r.look
	return j
}

func (p Phase) step() guard.Step {
	switch p {
	case Awaiting:
		return guard.Waiting
	case Measuring:
		return guard.Measuring
	case Baking, Keeping:
		return guard.Baking
	}
	return guard.Applying
}

// watch looks at all nodes, and returns the first guardrail that a region with the tuning breaks, whatever the phase;
// nil: there is none.
func (r *transition) watch() (*guard.Breach, error) {
	all, err := r.steps.look(fleet.Scope{Rest: true})
	if err != nil {
		return nil, err
	}
	j := r.judge()
	j.Observe(all)
	r.look = j.Look
	if broken := j.Broken(); broken != nil || !r.begun() {
		return broken, nil
	}
	values, err := r.steps.queries(j.TouchedRegions(), r.Spec.Plan.Guardrails.Queries)
	if err != nil {
		return nil, err
	}
	return j.ObserveQueries(values), nil
}

// since starts the wait for a heartbeat of each node, and starts it again if the clock of the database has stepped
// back.
func (r *transition) since() {
	if r.SinceMs == 0 || r.SinceMs > r.look.AtMs {
		r.SinceMs = r.look.AtMs
	}
}

// lastApplied returns the index of the last stage that has been applied, or may have been; less than 0: none.
func (r *Rollout) lastApplied() int {
	if r.Phase.step() < guard.Applying {
		return r.Stage - 1
	}
	return r.Stage
}

// Rails returns the guardrails of the plan, except its queries, in a fixed order: see guard.Judge.Rails.
func (r *Rollout) Rails() []guard.Rail { return r.judge(r.MovedMs).Rails() }

// LimitsEvidence returns the evidence so far of a rollout of limits.
func (r *Rollout) LimitsEvidence() guard.LimitsEvidence {
	mode := r.Touched
	if !slices.ContainsFunc(mode, func(t Touched) bool { return t.Trial > 0 }) {
		mode = r.Shadows
	}
	return r.Effect.Evidence(mode.numbers())
}

// lacksEvidence describes what the evidence of the stage, of a rollout of limits, lacks; empty: nothing.
func (r *transition) lacksEvidence() string {
	if r.Spec.Limits == nil {
		return ""
	}
	rows := r.stage().Scope.Rows()
	tried := slices.DeleteFunc(slices.Clone(r.Touched), func(t Touched) bool { return !slices.Contains(rows, t.Region) })
	return r.Effect.Unjudged(tried.numbers(), spacesOf(*r.Spec.Limits))
}

// numbers returns the numbers of the trials that have begun.
func (ts Touches) numbers() map[int64]bool {
	numbers := map[int64]bool{}
	for _, t := range ts {
		if t.Trial > 0 {
			numbers[t.Trial] = true
		}
	}
	return numbers
}

const clockJumped = "the clock of the database has jumped: the wait for each node's heartbeat starts again"

// held reports whether the rollout waits for nodes that only look silent because a clock jumped.
func (r *transition) held() bool {
	switch unsure := r.Clocks.Unsure(r.look, r.nowMs); {
	case unsure:
		r.Waiting = clockJumped
		return true
	case r.Waiting == clockJumped:
		r.Waiting = ""
	}
	return false
}
