package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// answer fills d from a verdict and from the rule that operators have set. It is pure, and it is the only function
// that writes the fields of an answer. The window modes differ only in the level that they compute.
func (d *Decision) answer(v *cell.Verdict, c *call, by *rules.Rule, source Source) outcome {
	end := window.Start(v.Sequence+1, c.durationMs)
	below, cost := false, c.ahead+c.cost
	if by.Estimate == nil {
		uncovered := end - v.AtMs
		if v.Precise {
			uncovered = c.durationMs
		}
		at := level.OfCells(v.Current, v.Previous, uncovered, c.durationMs)
		v.Level, d.Current, d.Remaining = at, at.Float(c.durationMs), at.Remaining(c.limit, c.durationMs, false)
	} else {
		below = by.Estimate.Below
		d.Current, d.Remaining = v.Level.Float(c.durationMs), v.Level.Remaining(c.limit, c.durationMs, below)
		v.At = d.Current
	}
	d.Source, d.Limit, d.Duration = source, c.limit, milliseconds(c.durationMs)
	if by.Pattern != "" { // d is zero, and storing a string is costly
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

// deny sets RetryAfter: the time until the same request would pass. It is at most two windows, because no cost counts
// for longer. That bound also holds if the caller's own time is before the key's current cell.
func (d *Decision) deny(v *cell.Verdict, c *call) {
	if v.PassesAtMs > 0 {
		d.RetryAfter = milliseconds(min(v.PassesAtMs-c.nowMs, 2*c.durationMs))
		return
	}
	d.NeverPasses = true
}

// fitsCandidate reports whether another limit than that in force would allow the call, at the same level. If an outage
// policy decides without a level, it decides so for every limit.
func fitsCandidate(v *cell.Verdict, c *call, candidate int64, source Source, below bool) bool {
	cost := c.ahead + c.cost
	switch {
	case source == SourceDegradedClosed:
		return false
	case source == SourceDegradedOpen:
		return cost <= candidate
	case v.Unknown:
		return candidate > 0
	}
	return v.Level.Fits(cost, candidate, c.durationMs, below)
}

// setRetry sets PassesAtMs of a denial, exactly by the formula that computed the level. Only a precise window needs
// e, the key's entry.
func setRetry(e *cell.Entry, v *cell.Verdict, c *call, by *rules.Rule) {
	if v.Refused || v.OverShare {
		return
	}
	cost, below := c.ahead+c.cost, by.Estimate != nil && by.Estimate.Below
	v.PassesAtMs = 0
	if v.Precise {
		v.PassesAtMs, _ = e.Histories().PassesAfter(v, cost, c.limit, c.durationMs)
	} else if !v.Leaky {
		start := window.Start(v.Sequence, c.durationMs)
		v.PassesAtMs, _ = window.PassesAfter(start, v.Current, v.Previous, cost, level.Most(c.limit, below), v.AtMs,
			c.durationMs)
	} else if ms, ok := v.Level.LeaksAway(cost, c.limit, c.durationMs, below); ok {
		v.PassesAtMs = v.AtMs + ms
	}
}
