package dataplane

import (
	"time"

	"github.com/weirhq/weir/shared/window"
)

// answer turns what a decision saw, and what operators have set, into what the caller
// is told. It is pure, and the only place where answers are worded.
func (d *Decision) answer(v *verdict, q *question, by rule, source Source) outcome {
	end := window.Start(v.seq+1, q.durationMs)
	uncovered := end - v.tMs
	d.Source, d.Limit, d.Override = source, q.limit, by.pattern
	d.Current = float64(v.current + q.ahead + q.cost)
	d.Remaining = q.limit - v.current - q.ahead
	if v.previous != 0 {
		d.Current += float64(v.previous) * float64(uncovered) / float64(q.durationMs)
		d.Remaining -= window.Carried(v.previous, uncovered, q.durationMs)
	}
	d.ResetAt = time.UnixMilli(end)
	if v.allowed {
		d.Allowed = true
		d.Remaining = max(0, d.Remaining-q.cost)
		return outcomeAllowed
	}
	d.Remaining = max(0, d.Remaining)
	if by.shadow {
		d.Allowed, d.Shadowed = true, true
		return outcomeShadowed
	}
	if v.passesAtMs > 0 {
		d.RetryAfter = milliseconds(v.passesAtMs - q.nowMs)
	}
	return outcomeDenied
}

// tellRetry sets passesAtMs of a denial by the counts.
func (v *verdict) tellRetry(q *question) {
	if v.refused {
		return
	}
	v.passesAtMs, _ = window.PassesAt(v.current, v.previous, q.ahead+q.cost, q.limit, v.tMs, q.durationMs)
}
