package rollout

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/sequential"
)

// gaugeLasts is how long a figure that is measured, and not counted, is beyond its bound before that breaks a
// guardrail: longer than any one measurement stands (a minute for latency, heartbeat.LagKeptFor for the convergence
// delay).
const gaugeLasts = 2 * time.Minute

// The figures that are counted, by which a region or a node is held against its past.
const (
	countErrors = iota
	countRows
	countDegraded
	countDenied
	countAllowed
	counts
)

// countsOf returns the counts of a span of time that nodes have spoken for together.
func countsOf(s fleet.Span, nodes int) (all [counts]sequential.Count) {
	minutes, decisions := float64(s[0])/60_000, float64(s.Of(fleet.TallyDecisions))
	all[countErrors] = sequential.Count{Events: float64(s.Of(fleet.TallyErrors)), Exposure: minutes}
	all[countRows] = sequential.Count{Events: float64(s.Of(fleet.TallyRows)),
		Exposure: 60 * minutes / float64(max(1, nodes))}
	all[countDegraded] = sequential.Count{Events: float64(s.Of(fleet.TallyDegraded)), Exposure: decisions}
	all[countDenied] = sequential.Count{Events: float64(s.Of(fleet.TallyDenied)), Exposure: decisions}
	all[countAllowed] = sequential.Count{Events: decisions - float64(s.Of(fleet.TallyDenied)), Exposure: decisions}
	return all
}

// partsMax is how many parts a window has.
const partsMax = 2 * watchBuckets

// WatchedPart is what the nodes of a region did together in a part of the window.
type WatchedPart struct {
	BeganMs int64      `json:"began_ms"`
	Did     fleet.Span `json:"did"`
	Nodes   int        `json:"nodes,omitempty"` // the most that were live at once
}

// add takes in what a node did between two looks.
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

// partEnded reports whether the newest part is as long as it should be, and has something in it: where a bake is
// shorter than the time between heartbeats, parts are as long as that.
func (w *RegionWatch) partEnded(nowMs, lengthMs int64) bool {
	if len(w.Parts) == 0 {
		return true
	}
	newest := w.Parts[len(w.Parts)-1]
	age := nowMs - newest.BeganMs
	return newest.Did[0] > 0 && (age < 0 || age >= lengthMs)
}

// beginPart begins a part of the window, and takes the counts of the oldest in if it drops out.
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

// evidence is how much a region or a node shows against its bounds, beside what it did before.
type evidence struct {
	watch  *RegionWatch
	first  int           // the number of the oldest part of since, from 1
	before []WatchedPart // the one with the higher rate of a figure is its baseline; empty: there is none
	since  []WatchedPart
	enough float64 // logarithm of the e-value from which on a guardrail is broken
	exact  bool    // the baseline is taken for exact, however short it was
}

// of returns what figure shows against the bounds, all of which have to be exceeded, and what it was in that time.
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
		if bound.Times > 0 && before.Exposure == 0 { // what it was before is not known
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

// exceeds reports whether a ceiling is exceeded, by the evidence and not by the figure of a moment.
func (e evidence) exceeds(figure int, c Ceiling) (is sequential.Evidence, worse bool) {
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

// shifted reports whether the share of denied decisions differs from the baseline by more than a shift. Without a
// baseline it is not known.
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

// errorRate is the plan's, or the default where it does not say.
func (g Guardrails) errorRate() float64 {
	if rate := g.Comparison.ErrorRate; rate > 0 {
		return rate
	}
	return DefaultComparison().ErrorRate
}

// judgement is how a region, or a node, stands against the guardrails that are held against its past.
type judgement struct {
	Guardrails
	evidence
	baseline, now fleet.HealthRates
	over          *Overdue      // how long measured figures have been beyond their bounds
	borne         time.Duration // how long they may be
	rows, others  bool          // which figures are judged: rows are a region's, all others a node's too
}

// broken reports whether a figure breaks its guardrail, and the figure that does.
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

// note takes in a look: how long measured figures have been beyond their bounds.
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

// worst says in one line which guardrail is broken most, and by how many times its bound; empty: none.
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
