package guard

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/sequential"
)

// The counted figures, by which a region or a node is compared with its past.
const (
	countErrors = iota
	countRows
	countDegraded
	countDenied
	countAllowed
	countNewlyDenied
	counts
)

// countsOf returns the counts of a span of time that this many nodes have reported together.
func countsOf(s fleet.Span, nodes int) (all [counts]sequential.Count) {
	minutes, decisions := float64(s[0])/60_000, float64(s.Of(fleet.TallyDecisions))
	all[countErrors] = sequential.Count{Events: float64(s.Of(fleet.TallyErrors)), Exposure: minutes}
	all[countRows] = sequential.Count{Events: float64(s.Of(fleet.TallyRows)),
		Exposure: 60 * minutes / float64(max(1, nodes))}
	all[countDegraded] = sequential.Count{Events: float64(s.Of(fleet.TallyDegraded)), Exposure: decisions}
	all[countDenied] = sequential.Count{Events: float64(s.Of(fleet.TallyDenied)), Exposure: decisions}
	all[countNewlyDenied] = sequential.Count{Events: float64(s.Of(fleet.TallyNewlyDenied)),
		Exposure: float64(s.Of(fleet.TallyJudged))}
	all[countAllowed] = sequential.Count{Events: decisions - float64(s.Of(fleet.TallyDenied)), Exposure: decisions}
	return all
}

// partsMax is the number of parts of a window.
const partsMax = 2 * watchBuckets

// WatchedPart is the sum of the figures of a region's nodes in a part of the window.
type WatchedPart struct {
	BeganMs int64      `json:"began_ms"`
	Did     fleet.Span `json:"did"`
	Nodes   int        `json:"nodes,omitempty"` // the largest number of live nodes at any look
}

// add adds a node's figures between two looks.
func (w *RegionWatch) add(before, now fleet.Span, nodes int) {
	if len(w.Parts) == 0 {
		w.beginPart(0)
	}
	part := &w.Parts[len(w.Parts)-1]
	for i := range part.Did {
		part.Did[i] += now[i] - before[i]
	}
	part.Nodes = max(part.Nodes, nodes)
}

// partEnded reports whether the newest part is long enough, and not empty. If a bake is shorter than the time between
// heartbeats, parts last until the next heartbeat.
func (w *RegionWatch) partEnded(nowMs, lengthMs int64) bool {
	if len(w.Parts) == 0 {
		return true
	}
	newest := w.Parts[len(w.Parts)-1]
	age := nowMs - newest.BeganMs
	return newest.Did[0] > 0 && (age < 0 || age >= lengthMs)
}

// beginPart begins a part of the window. If that drops the oldest part, its counts go into Past.
func (w *RegionWatch) beginPart(nowMs int64) {
	if len(w.Parts) == partsMax {
		for i, c := range countsOf(w.Parts[0].Did, w.Parts[0].Nodes) {
			w.Past[i].Add(c)
		}
		w.Parts = slices.Delete(w.Parts, 0, 1)
	}
	w.Parts = append(w.Parts, WatchedPart{BeganMs: nowMs})
	w.Begun++
}

// evidence compares the counts of a region or a node since a stage with the counts before it.
type evidence struct {
	watch  *RegionWatch
	first  int           // number of the oldest part in since, from 1
	before []WatchedPart // baselines, of which the higher rate of a figure counts; empty: none
	since  []WatchedPart
	enough float64 // logarithm of the e-value at which a guardrail is broken
	exact  bool    // treats the baseline as exact, however short it was
}

// of returns the evidence that a figure exceeds every one of the bounds.
func (e evidence) of(figure int, scale float64, bounds ...sequential.Bound) sequential.Evidence {
	since := make([]sequential.Count, len(e.since))
	for i, s := range e.since {
		since[i] = countsOf(s.Did, s.Nodes)[figure]
	}
	least := sequential.Evidence{Log: math.Inf(1)}
	var before sequential.Count
	for _, s := range e.before {
		if is := countsOf(s.Did, s.Nodes)[figure]; before.Exposure == 0 || is.Rate() >= before.Rate() {
			before = is
		}
	}
	for _, bound := range bounds {
		if bound.Times > 0 && before.Exposure == 0 { // there is no baseline
			if bound.Plus > 0 || len(bounds) == 1 {
				return sequential.Evidence{}
			}
			continue
		}
		if e.exact {
			bound = sequential.Bound{Plus: bound.Times*before.Rate() + bound.Plus}
		}
		if is := sequential.Exceeds(before, since, e.first, e.watch.Past[figure], bound, scale); is.Log <= least.Log {
			least = is
		}
	}
	return least
}

// exceeds reports whether a ceiling is exceeded, by evidence from the whole window and not by the current figure.
func (e evidence) exceeds(figure int, c plan.Ceiling) (is sequential.Evidence, worse bool) {
	if c.Off {
		return is, false
	}
	scale := c.Least
	if scale <= 0 {
		scale = 0.01
	}
	is = e.of(figure, scale, sequential.Bound{Times: c.Factor}, sequential.Bound{Plus: c.Least})
	return is, is.Log >= e.enough
}

// shifted reports whether the share of denied decisions differs from the baseline by more than shift. Without a
// baseline it returns false.
func (e evidence) shifted(shift float64) (is sequential.Evidence, worse bool) {
	if len(e.before) == 0 || shift >= 1 {
		return is, false
	}
	for _, figure := range []int{countDenied, countAllowed} {
		if is = e.of(figure, 1, sequential.Bound{Times: 1, Plus: shift}); is.Log >= e.enough {
			return is, true
		}
	}
	return is, false
}

// judgement compares a region or a node with its past.
type judgement struct {
	bounds
	evidence
	baseline, now fleet.HealthRates
	over          *Overdue      // how long measured figures have been beyond their bounds
	borne         time.Duration // how long they may be
	rows, others  bool          // figures to judge: rows only for a region, others also for a node
}

// broken reports whether a figure breaks its guardrail, and returns the figure.
func (j *judgement) broken(h held) (is float64, broken bool) {
	if h.now == nil || h.ceiling.Off || (h.field == "rows_per_second") != j.rows && !(j.rows && j.others) {
		return 0, false
	}
	var found sequential.Evidence
	switch h.field {
	case "errors_per_minute":
		found, broken = j.exceeds(countErrors, h.ceiling)
	case "rows_per_second":
		found, broken = j.exceeds(countRows, h.ceiling)
	case "degraded_share":
		found, broken = j.exceeds(countDegraded, h.ceiling)
	default:
		return *h.now, j.over.of(h.field).Reaches(j.borne)
	}
	return found.Since.Rate(), broken
}

// note updates how long measured figures have been beyond their bounds.
func (j *judgement) note(gapMs int64) {
	for _, h := range j.ceilings(j.baseline, j.now) {
		if over := j.over.of(h.field); over != nil {
			_, most := h.bound()
			over.See(h.now != nil && *h.now > most && !h.ceiling.Off, gapMs, j.borne)
		}
	}
}

// deniedBroken reports whether the share of denied decisions breaks its guardrail.
func (j *judgement) deniedBroken() bool {
	if j.now.DeniedShare == nil || j.baseline.DeniedShare == nil || !j.others {
		return false
	}
	_, broken := j.shifted(j.DeniedShareShift)
	return broken
}

// worst returns a line about the guardrail that is broken most, and the factor by which it exceeds its bound; empty:
// none.
func (j *judgement) worst() (why string, by float64) {
	worse := func(text string, is, most float64) {
		if times := is / max(most, math.SmallestNonzeroFloat64); times > by {
			why, by = text, times
		}
	}
	if dropped := j.now.DroppedCost; dropped > 0 && j.others {
		worse(fmt.Sprintf("nodes dropped accepted cost: %d, more than 0", dropped), float64(dropped), 0)
	}
	for _, h := range j.ceilings(j.baseline, j.now) {
		if is, broken := j.broken(h); broken {
			was, most := h.bound()
			worse(fmt.Sprintf("%s: %s, more than %s (before the stage %s)", h.words, controlplane.Figure(is),
				controlplane.Figure(most), controlplane.Figure(was)), is,
				most)
		}
	}
	if j.deniedBroken() {
		is, was := *j.now.DeniedShare, *j.baseline.DeniedShare
		worse(fmt.Sprintf("share of denied decisions: %s, off by more than %s (before the stage %s)", controlplane.Figure(is),
			controlplane.Figure(j.DeniedShareShift), controlplane.Figure(was)),
			max(math.Abs(is-was), math.SmallestNonzeroFloat64), j.DeniedShareShift)
	}
	if is, broken, _ := j.newlyDenied(); broken {
		worse(fmt.Sprintf("share of newly denied decisions: %s, more than %s", controlplane.Figure(is.Since.Rate()),
			controlplane.Figure(*j.NewlyDeniedShare)), is.Since.Rate(), *j.NewlyDeniedShare)
	}
	return why, by
}

// Overdue is how long measured figures have been beyond their bounds.
type Overdue struct {
	Convergence queries.Lasting `json:"convergence_for_ms,omitempty"`
	Latency     queries.Lasting `json:"latency_for_ms,omitempty"`
}

func (o *Overdue) of(field string) *queries.Lasting {
	switch field {
	case "convergence_ms":
		return &o.Convergence
	case "latency_us":
		return &o.Latency
	}
	return nil
}

// decisionsMin is how many decisions a share of decisions needs at least.
const decisionsMin = 100

// bounds are the guardrails of a plan, which judge figures.
type bounds struct{ plan.Guardrails }

// held is a ceiling with the figures that are compared with it; nil: not measured.
type held struct {
	field, words  string
	ceiling       plan.Ceiling
	baseline, now *float64
}

func (g bounds) ceilings(baseline, now fleet.HealthRates) []held {
	return []held{
		{"errors_per_minute", "errors of relays and settings a node and minute", g.ErrorsPerMinute, baseline.ErrorsPerMinute,
			now.ErrorsPerMinute},
		{"rows_per_second", "MySQL rows of a region's relays a second", g.RowsPerSecond, baseline.RowsPerSecond,
			now.RowsPerSecond},
		{"degraded_share", "share of decisions without the origin", g.DegradedShare, baseline.DegradedShare,
			now.DegradedShare},
		{"convergence_ms", "convergence delay in ms", g.ConvergenceMs, baseline.ConvergenceMs, now.ConvergenceMs},
		{"latency_us", "decision latency in µs", g.LatencyUs, baseline.LatencyUs, now.LatencyUs},
	}
}

// bound returns the figure before the stage, 0 if it was not measured, and the most that it may be now.
func (h held) bound() (was, most float64) {
	most = h.ceiling.Least
	if h.baseline != nil {
		was = *h.baseline
		most = max(most, h.ceiling.Factor*was)
	}
	return was, most
}
