package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// answer turns what a decision saw, and what operators have set, into what the caller
// is told. It is pure, and the only place where answers are worded.
func (d *Decision) answer(v *verdict, q *question, by *rule, source Source) outcome {
	end := window.Start(v.seq+1, q.durationMs)
	uncovered := end - v.tMs
	d.Source, d.Limit, d.Duration = source, q.limit, milliseconds(q.durationMs)
	if by.pattern != "" { // d is zero, and a store of a string is dear
		d.Override = by.pattern
	}
	used := v.current + q.ahead
	if v.previous != 0 {
		used += window.Carried(v.previous, uncovered, q.durationMs)
	}
	d.Current, d.Remaining = float64(used+q.cost), q.limit-used
	d.ResetAt = time.UnixMilli(end)
	if by.candidate != 0 {
		d.CandidateDenied = !fitsCandidate(v, q, by.candidate, source)
	}
	if v.allowed {
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
func (d *Decision) deny(v *verdict, q *question) {
	if v.passesAtMs > 0 {
		d.RetryAfter = milliseconds(v.passesAtMs - q.nowMs)
		return
	}
	d.NeverPasses = true
}

// fitsCandidate is the verdict of a candidate limit on the counts that the live one was
// judged by. An outage policy that decides without them does so for any limit.
func fitsCandidate(v *verdict, q *question, candidate int64, source Source) bool {
	cost := q.ahead + q.cost
	switch source {
	case SourceDegradedClosed:
		return false
	case SourceDegradedOpen:
		return cost <= candidate
	}
	return window.Fits(v.current, v.previous, cost, candidate, window.Start(v.seq+1, q.durationMs)-v.tMs, q.durationMs)
}

// tellRetry sets passesAtMs of a denial by the counts.
func tellRetry(v *verdict, q *question) {
	if v.refused || v.crowded {
		return
	}
	v.passesAtMs, _ = window.PassesAfter(window.Start(v.seq, q.durationMs), v.current, v.previous, q.ahead+q.cost, q.limit, v.tMs, q.durationMs)
}

// answerEstimate is answer in the estimate mode.
func (d *Decision) answerEstimate(v *estimated, q *question, by *rule) outcome {
	below := by.estimate.below
	d.Source, d.Limit, d.Duration, d.Override = SourceLocal, q.limit, milliseconds(q.durationMs), by.pattern
	v.at = v.level.Float(q.durationMs)
	d.Current = v.at + float64(q.ahead+q.cost)
	d.Remaining = v.level.Remaining(q.limit, q.durationMs, below)
	d.ResetAt = time.UnixMilli(window.Start(v.seq+1, q.durationMs))
	if by.candidate != 0 {
		d.CandidateDenied = !v.unknown && !v.level.Fits(q.ahead+q.cost, by.candidate, q.durationMs, below)
	}
	if v.allowed {
		d.Allowed = true
		d.Remaining = max(0, d.Remaining-q.ahead-q.cost)
		return outcomeAllowed
	}
	d.Remaining = max(0, d.Remaining-q.ahead)
	if by.shadow || q.request.Shadow {
		d.Allowed, d.Shadowed = true, true
		return outcomeShadowed
	}
	d.deny(&v.verdict, q)
	return outcomeDenied
}

// tellRetryEstimated sets passesAtMs of a denial, exactly by the formula that the level was found by.
func tellRetryEstimated(v *estimated, q *question, k *knobs) {
	cost := q.ahead + q.cost
	v.passesAtMs = 0
	if !v.leaky {
		v.passesAtMs, _ = level.CellsPassAt(v.current, v.previous, cost, q.limit, v.tMs, q.durationMs, k.below)
	} else if ms, ok := v.level.LeaksAway(cost, q.limit, q.durationMs, k.below); ok {
		v.passesAtMs = v.tMs + ms
	}
}
