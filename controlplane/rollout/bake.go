package rollout

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/sequential"
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
func lookGapMax(bakeMs int64) time.Duration { return 2 * lookEvery(bakeMs) }

// beginBake begins the bake of a stage, or restarts it.
func (r *transition) beginBake() {
	r.beginWindows()
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
	r.Bake.SpentMs += min(r.Clocks.GapMs, r.Spec.Plan.bakeMaxMs(r.stage())/3)
	if wait, blind := r.blind(r.QueriesNow); blind {
		return wait
	}
	r.Bake.WatchedMs += min(r.Clocks.GapMs, lookGapMax(bakeMs).Milliseconds())
	if left := bakeMs - r.Bake.WatchedMs; left > 0 {
		r.DueMs, r.SinceMs = r.nowMs+left, 0
		return r.hold(r.Bake.behind(bakeMs))
	}
	r.since()
	if silent := r.Watch.unheard(func(_ *RegionWatch, n *WatchedNode) bool { return n.SeenMs > r.SinceMs }); silent != "" {
		return r.overdue("no heartbeat since the bake is over: " + silent)
	}
	if applied := r.Touched.applied(r.look, r.Touched.scope(), r.Document); applied.Applied < applied.Live {
		return r.overdue("not all nodes run it when the bake is over: " + applied.String())
	}
	if why := r.undecided(); why != "" {
		r.DueMs = r.nowMs
		return r.hold(why)
	}
	r.Bake = Bake{}
	if r.Spec.Limits != nil {
		if lacks := r.unjudged(); lacks != "" {
			r.AddEvent(r.nowMs, controlplane.Itself, "no evidence", fmt.Sprintf("stage %d: %s", r.Stage+1, lacks))
		}
	}
	if r.Stage+1 < len(r.Stages) {
		return r.enter(r.Stage + 1)
	}
	r.Phase, r.Keeps, r.DueMs, r.Waiting = Keeping, true, 0, ""
	return 0
}

// behind describes how far the bake is if looks came late; empty: no look was late.
func (b Bake) behind(bakeMs int64) string {
	if b.SpentMs <= b.WatchedMs {
		return ""
	}
	return fmt.Sprintf("watched for %s of %s, as looks come late: a time between two looks counts for at most %s",
		msOf(b.WatchedMs), msOf(bakeMs), lookGapMax(bakeMs))
}

func msOf(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// hold goes on with a bake that lacks something; lacks is empty if it lacks only time. It pauses a bake that takes
// longer than Plan.bakeMaxMs: an operator must find out why the guardrails cannot judge it.
func (r *transition) hold(lacks string) time.Duration {
	r.Waiting = lacks
	if lacks == "" || r.Bake.SpentMs < r.Spec.Plan.bakeMaxMs(r.stage()) {
		if r.DueMs > r.nowMs {
			return r.untilDue()
		}
		return r.Spec.Plan.pollEvery()
	}
	reason := fmt.Sprintf("the guardrails of stage %d could not judge it in %s: %s", r.Stage+1,
		controlplane.Seconds(msOf(r.Bake.SpentMs)), lacks)
	r.Paused = &Paused{By: controlplane.By{Actor: controlplane.Itself, Reason: controlplane.ShortReason(reason)},
		AtMs: r.nowMs}
	r.AddEvent(r.nowMs, controlplane.Itself, "pause", reason)
	return r.UntilApproved(r.nowMs)
}

// undecided names a guardrail that cannot be judged yet and the data that is missing; empty: there is none.
func (r *transition) undecided() string {
	var few []string
	for i := range r.Watch {
		w := &r.Watch[i]
		if beyond := w.beyond(r.Stages[w.Stage].borne()); beyond != "" {
			return beyond
		}
		few = append(few, w.few()...)
	}
	g := r.Spec.Plan.Guardrails
	if len(few) > 0 && g.counts() {
		return fmt.Sprintf("heartbeats in fewer than %d parts of the bake: %s", sequential.Least, controlplane.Several(few))
	}
	return cmp.Or(r.Watch.baselineTooShort(g, r.Stages), g.queryBeyond(r.QueriesNow, r.Stages[r.lastApplied()].borne()))
}

// counts reports whether any guardrail on counts of heartbeats is on.
func (g Guardrails) counts() bool {
	return !g.ErrorsPerMinute.Off || !g.RowsPerSecond.Off || !g.DegradedShare.Off || g.DeniedShareShift < 1 ||
		g.NewlyDeniedShare != nil && *g.NewlyDeniedShare < 1
}

// worstIfExact returns the guardrail that would be broken if the baseline were exact.
func (j *judgement) worstIfExact() string {
	j.exact = true
	why, _ := j.worst()
	if why == "" {
		return ""
	}
	return "the baseline is too short to judge " + why
}

// few names the live nodes from before the stage whose heartbeats cover too few parts of the window, or the region if
// its parts are too few. The heartbeats' contents do not matter: nodes without traffic are judged.
func (w *RegionWatch) few() (few []string) {
	live := false
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Gone {
			continue
		}
		live = true
		parts := 0
		for _, s := range n.Window {
			if s[0] > 0 {
				parts++
			}
		}
		if !w.Whole && !n.Came && parts < sequential.Least {
			few = append(few, fmt.Sprintf("%s in %s (%d)", n.ID, w.Region, parts))
		}
	}
	parts := 0
	for _, p := range w.Parts {
		if p.Did[0] > 0 {
			parts++
		}
	}
	if live && len(few) == 0 && parts < sequential.Least {
		few = append(few, fmt.Sprintf("region %s (%d)", w.Region, parts))
	}
	return few
}

// beyond names a measured figure that exceeds its bound, but not yet for long enough to break it; empty: there is none.
func (w *RegionWatch) beyond(borne time.Duration) string {
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Gone || w.Whole {
			continue
		}
		for _, f := range []struct {
			words string
			over  queries.Lasting
		}{{"convergence delay in ms", n.Over.Convergence}, {"decision latency in µs", n.Over.Latency}} {
			if f.over > 0 {
				return fmt.Sprintf("%s is beyond its bound for %s, and breaks it after %s, of node %s in %s", f.words,
					controlplane.Seconds(f.over.Time()), borne, n.ID, w.Region)
			}
		}
	}
	return ""
}
