package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// answer turns what a decision saw, and what operators have set, into what the caller
// is told. It is pure, and the only place where answers are worded.
func (d *Decision) answer(v *cell.Verdict, q *call, by *rule, source Source) outcome {
	end := window.Start(v.Sequence+1, q.durationMs)
	uncovered := end - v.AtMs
	d.Source, d.Limit, d.Duration = source, q.limit, milliseconds(q.durationMs)
	if by.pattern != "" { // d is zero, and a store of a string is dear
		d.Override = by.pattern
	}
	used := v.Current + q.ahead
	if v.Previous != 0 {
		used += window.Carried(v.Previous, uncovered, q.durationMs)
	}
	d.Current, d.Remaining = float64(used+q.cost), q.limit-used
	d.ResetAt = time.UnixMilli(end)
	if by.candidate != 0 {
		d.CandidateDenied = !fitsCandidate(v, q, by.candidate, source)
	}
	if v.Allowed {
		d.Allowed = true
		d.Remaining = max(0, d.Remaining-q.cost)
		return outcomeAllowed
	}
	d.Remaining = max(0, d.Remaining)
	if by.shadow || q.request.Shadow {
		d.Allowed, d.Shadowed = true, true
		return outcomeShadowed
	}
	d.deny(v, q)
	return outcomeDenied
}

// deny tells when what was denied passes.
func (d *Decision) deny(v *cell.Verdict, q *call) {
	if v.PassesAtMs > 0 {
		d.RetryAfter = milliseconds(v.PassesAtMs - q.nowMs)
		return
	}
	d.NeverPasses = true
}

// fitsCandidate is the verdict of a candidate limit on the counts that the live one was
// judged by. An outage policy that decides without them does so for any limit.
func fitsCandidate(v *cell.Verdict, q *call, candidate int64, source Source) bool {
	cost := q.ahead + q.cost
	switch source {
	case SourceDegradedClosed:
		return false
	case SourceDegradedOpen:
		return cost <= candidate
	}
	return window.Fits(v.Current, v.Previous, cost, candidate, window.Start(v.Sequence+1, q.durationMs)-v.AtMs, q.durationMs)
}

// tellRetry sets passesAtMs of a denial by the counts.
func tellRetry(v *cell.Verdict, q *call) {
	if v.Refused || v.Crowded {
		return
	}
	v.PassesAtMs, _ = window.PassesAfter(window.Start(v.Sequence, q.durationMs), v.Current, v.Previous, q.ahead+q.cost, q.limit, v.AtMs, q.durationMs)
}

// answerEstimate is answer in the estimate mode.
func (d *Decision) answerEstimate(v *cell.Estimated, q *call, by *rule) outcome {
	below := by.estimate.Below
	d.Source, d.Limit, d.Duration, d.Override = SourceLocal, q.limit, milliseconds(q.durationMs), by.pattern
	v.At = v.Level.Float(q.durationMs)
	d.Current = v.At + float64(q.ahead+q.cost)
	d.Remaining = v.Level.Remaining(q.limit, q.durationMs, below)
	d.ResetAt = time.UnixMilli(window.Start(v.Sequence+1, q.durationMs))
	if by.candidate != 0 {
		d.CandidateDenied = !v.Unknown && !v.Level.Fits(q.ahead+q.cost, by.candidate, q.durationMs, below)
	}
	if v.Allowed {
		d.Allowed = true
		d.Remaining = max(0, d.Remaining-q.ahead-q.cost)
		return outcomeAllowed
	}
	d.Remaining = max(0, d.Remaining-q.ahead)
	if by.shadow || q.request.Shadow {
		d.Allowed, d.Shadowed = true, true
		return outcomeShadowed
	}
	d.deny(&v.Verdict, q)
	return outcomeDenied
}

// tellRetryEstimated sets passesAtMs of a denial, exactly by the formula that the level was found by.
func tellRetryEstimated(v *cell.Estimated, q *call, k *estimateSettings) {
	cost := q.ahead + q.cost
	v.PassesAtMs = 0
	if !v.Leaky {
		v.PassesAtMs, _ = level.CellsPassAt(v.Current, v.Previous, cost, q.limit, v.AtMs, q.durationMs, k.Below)
	} else if ms, ok := v.Level.LeaksAway(cost, q.limit, q.durationMs, k.Below); ok {
		v.PassesAtMs = v.AtMs + ms
	}
}
