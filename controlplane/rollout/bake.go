package rollout

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// Bake is the progress of a stage's bake. It counts the time that looks cover, and not the time that passes, because
// with too few looks the guardrails cannot judge the stage.
type Bake struct {
	// WatchedMs is the time that looks have covered. A gap between two looks counts for at most lookGapMax, and for
	// nothing while a required query has no value.
	WatchedMs int64 `json:"watched_ms,omitempty"`
	// SpentMs is the time since the bake began. A gap between two looks counts for at most a third of the time after which
	// the bake is paused, so that a single stall of the control plane does not pause it.
	SpentMs int64 `json:"spent_ms,omitempty"`
}

// lookGapMax bounds how much of the time between two looks a bake counts: twice the planned time, so that a bake has at
// least ten looks.
func lookGapMax(s plan.StagePlan) time.Duration { return 2 * s.WatchEvery() }

// beginBake begins the bake of a stage, or restarts it.
func (r *transition) beginBake() {
	r.judge().BeginWindows()
	r.DueMs, r.SinceMs, r.Bake = r.nowMs+r.stage().BakeMs, 0, Bake{}
}

// bake ends a stage once all of these hold: looks have covered its bake, each node of this and earlier stages has sent
// a heartbeat since and runs the tuning, and every guardrail has been judged.
func (r *transition) bake() time.Duration {
	if r.DueMs == 0 { // resumed: the bake begins again
		r.beginBake()
		return r.untilDue()
	}
	bakeMs := r.stage().BakeMs
	r.Bake.SpentMs += min(r.Clocks.GapMs, r.Spec.Plan.BakeMaxMs(r.stage())/3)
	if wait, blind := r.blind(r.QueriesNow); blind {
		return wait
	}
	r.Bake.WatchedMs += min(r.Clocks.GapMs, lookGapMax(r.stage()).Milliseconds())
	if left := bakeMs - r.Bake.WatchedMs; left > 0 {
		r.DueMs, r.SinceMs = r.nowMs+left, 0
		return r.hold(r.Bake.behind(r.stage()))
	}
	r.since()
	if silent := r.Watch.Silent(r.SinceMs); silent != "" {
		return r.overdue("no heartbeat since the bake is over: " + silent)
	}
	if applied := r.Touched.applied(r.look, r.Touched.scope(), r.Document); applied.Applied < applied.Live {
		return r.overdue("not all nodes run it when the bake is over: " + applied.String())
	}
	if why := r.judge().Undecided(); why != "" {
		r.DueMs = r.nowMs
		return r.hold(why)
	}
	r.Bake = Bake{}
	if lacks := r.lacksEvidence(); lacks != "" {
		r.AddEvent(r.nowMs, controlplane.Itself, "no evidence", fmt.Sprintf("stage %d: %s", r.Stage+1, lacks))
	}
	if r.Stage+1 < len(r.Stages) {
		return r.enter(r.Stage + 1)
	}
	r.Phase, r.Keeps, r.DueMs, r.Waiting = Keeping, true, 0, ""
	return 0
}

// behind describes how far the bake is if looks came late; empty: no look was late.
func (b Bake) behind(s plan.StagePlan) string {
	if b.SpentMs <= b.WatchedMs {
		return ""
	}
	return fmt.Sprintf("watched for %s of %s, as looks come late: a time between two looks counts for at most %s",
		msOf(b.WatchedMs), msOf(s.BakeMs), lookGapMax(s))
}

func msOf(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// hold goes on with a bake that lacks something; lacks is empty if it lacks only time. It pauses a bake that takes
// longer than Plan.bakeMaxMs: an operator must find out why the guardrails cannot judge it.
func (r *transition) hold(lacks string) time.Duration {
	r.Waiting = lacks
	if lacks == "" || r.Bake.SpentMs < r.Spec.Plan.BakeMaxMs(r.stage()) {
		if r.DueMs > r.nowMs {
			return r.untilDue()
		}
		return r.Spec.Plan.PollEvery()
	}
	reason := fmt.Sprintf("the guardrails of stage %d could not judge it in %s: %s", r.Stage+1,
		controlplane.Seconds(msOf(r.Bake.SpentMs)), lacks)
	r.Paused = &Paused{By: controlplane.By{Actor: controlplane.Itself, Reason: controlplane.ShortReason(reason)},
		AtMs: r.nowMs}
	r.AddEvent(r.nowMs, controlplane.Itself, "pause", reason)
	return r.UntilApproved(r.nowMs)
}
