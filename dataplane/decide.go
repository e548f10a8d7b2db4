package dataplane

import (
	"time"

	"github.com/weirhq/weir/shared/window"
)

// decide turns what a decision saw into what the caller is told: pure, and the
// only place where answers are worded.
func decide(v verdict, r Request, nowMs, durationMs int64) Decision {
	uncovered := window.Uncovered(v.tMs, durationMs)
	d := Decision{
		Allowed: v.allowed,
		Limit:   r.Limit,
		Current: window.Effective(v.current, v.previous, r.Cost, v.tMs, durationMs),
		ResetAt: time.UnixMilli(window.Start(v.seq+1, durationMs)),
	}
	counted := v.current
	if v.allowed {
		counted += r.Cost
	} else if at, ok := window.PassesAt(v.current, v.previous, r.Cost, r.Limit, v.tMs, durationMs); ok {
		d.RetryAfter = time.Duration(at-nowMs) * time.Millisecond
	}
	d.Remaining = window.Remaining(counted, v.previous, r.Limit, uncovered, durationMs)
	return d
}

// ruled applies what operators have set: a denial passes in shadow mode.
func (d Decision) ruled(by rule) (Decision, outcome) {
	d.Override = by.pattern
	switch {
	case d.Allowed:
		return d, outcomeAllowed
	case by.shadow:
		d.Allowed, d.Shadowed, d.RetryAfter = true, true, 0
		return d, outcomeShadowed
	}
	return d, outcomeDenied
}
