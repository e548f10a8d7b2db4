package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// answer turns what a decision saw, and what operators have set, into what the caller
// gets. It is pure, and the only place where answers are worded. The modes differ in the level that they answer by.
func (d *Decision) answer(v *cell.Verdict, c *call, by *rules.Rule, source Source) outcome {
	end := window.Start(v.Sequence+1, c.durationMs)
	below, cost := false, c.ahead+c.cost
	if by.Estimate == nil {
		at := level.OfCells(v.Current, v.Previous, end-v.AtMs, c.durationMs)
		v.Level, d.Current, d.Remaining = at, at.Float(c.durationMs), at.Remaining(c.limit, c.durationMs, false)
	} else {
		below = by.Estimate.Below
		d.Current, d.Remaining = v.Level.Float(c.durationMs), v.Level.Remaining(c.limit, c.durationMs, below)
		v.At = d.Current
	}
	d.Source, d.Limit, d.Duration = source, c.limit, milliseconds(c.durationMs)
	if by.Pattern != "" { // d is zero, and a store of a string is dear
		d.Override = by.Pattern
	}
	d.Current += float64(cost)
	d.ResetAt = time.UnixMilli(end)
	if by.Candidate != 0 {
		d.CandidateDenied = !fitsCandidate(v, c, by.Candidate, source, below)
	}
	if v.Allowed {
		d.Allowed = true
		d.Remaining = max(0, d.Remaining-cost)
		return outcomeAllowed
	}
	d.Remaining = max(0, d.Remaining-c.ahead)
	if by.Shadow || c.request.Shadow {
		d.Allowed, d.Shadowed = true, true
		return outcomeShadowed
	}
	d.deny(v, c)
	return outcomeDenied
}

// deny sets when the same request would pass: after two windows at most, because no cost counts for
// longer. That bound also holds if the caller's own time is before the key's current cell.
func (d *Decision) deny(v *cell.Verdict, c *call) {
	if v.PassesAtMs > 0 {
		d.RetryAfter = milliseconds(min(v.PassesAtMs-c.nowMs, 2*c.durationMs))
		return
	}
	d.NeverPasses = true
}

// fitsCandidate is the verdict of a candidate limit on the level that the live one was
// judged by. An outage policy that decides without it does so for any limit.
func fitsCandidate(v *cell.Verdict, c *call, candidate int64, source Source, below bool) bool {
	cost := c.ahead + c.cost
	switch {
	case source == SourceDegradedClosed:
		return false
	case source == SourceDegradedOpen:
		return cost <= candidate
	case v.Unknown:
		return true
	}
	return v.Level.Fits(cost, candidate, c.durationMs, below)
}

// setRetry sets PassesAtMs of a denial, exactly by the formula that the level was found by.
func setRetry(v *cell.Verdict, c *call, by *rules.Rule) {
	if v.Refused || v.OverShare {
		return
	}
	cost, below := c.ahead+c.cost, by.Estimate != nil && by.Estimate.Below
	v.PassesAtMs = 0
	if !v.Leaky {
		start := window.Start(v.Sequence, c.durationMs)
		v.PassesAtMs, _ = window.PassesAfter(start, v.Current, v.Previous, cost, level.Most(c.limit, below), v.AtMs,
			c.durationMs)
	} else if ms, ok := v.Level.LeaksAway(cost, c.limit, c.durationMs, below); ok {
		v.PassesAtMs = v.AtMs + ms
	}
}
