package dataplane

import (
	"fmt"
	"time"
)

// Breaker says when the limiter stops calling a shard of the origin, and when it tries
// again. Each shard has two: one for what decisions wait for, so that they are made at
// once while it is open, and one for what the loops send, so that unsent cost stays in
// its entries. A breaker opens when calls fail, and then none is made. After a while it is half-open: a few calls go
// through, and if all succeed it closes. The first one that fails opens it again.
//
// The zero value is a good breaker.
type Breaker struct {
	// FailureRatio is the share of calls within Interval that must have failed for it
	// to open, more than 0 and at most 1; 0 is 0.5. Lower: one bad second cuts the
	// nodes of a region off from each other. Higher: more decisions wait in vain.
	FailureRatio float64

	// CallsMin is how many calls there must have been within Interval before their
	// ratio means anything; 0 is 5, at most 1,000,000. A shard that hangs is called about once
	// a second by replay alone: many more than that within Interval would never be.
	CallsMin int

	// Interval is how far back calls count, in ten steps; 0 is 10 s, otherwise 100 ms to
	// one hour.
	Interval time.Duration

	// OpenFor is how long it stays open; 0 is 1 s, otherwise 10 ms to one hour. Replay
	// probes at its next tick after that.
	OpenFor time.Duration

	// HalfOpenCalls is how many calls go through when it is half-open, all of which
	// must succeed; 0 is 3, at most 1,000.
	HalfOpenCalls int
}

const (
	breakerRatioDefault    = 0.5
	breakerCallsMinDefault = 5
	breakerCallsMinMax     = 1_000_000
	breakerInterval        = 10 * time.Second
	breakerIntervalMin     = 100 * time.Millisecond
	breakerOpenFor         = time.Second
	breakerOpenForMin      = 10 * time.Millisecond
	breakerTimeMax         = time.Hour
	breakerHalfOpenCalls   = 3
	breakerHalfOpenMax     = 1_000
)

func (b Breaker) withDefaults() (Breaker, error) {
	switch {
	case !(b.FailureRatio >= 0 && b.FailureRatio <= 1): // NaN too
		return b, fmt.Errorf("%w: Config.Breaker.FailureRatio is %v (more than 0, at most 1; 0 for %v)", ErrInvalid,
			b.FailureRatio, breakerRatioDefault)
	case b.CallsMin < 0 || b.CallsMin > breakerCallsMinMax:
		return b, fmt.Errorf("%w: Config.Breaker.CallsMin is %d (1 to %d, 0 for %d)", ErrInvalid, b.CallsMin,
			breakerCallsMinMax, breakerCallsMinDefault)
	case b.HalfOpenCalls < 0 || b.HalfOpenCalls > breakerHalfOpenMax:
		return b, fmt.Errorf("%w: Config.Breaker.HalfOpenCalls is %d (1 to %d, 0 for %d)", ErrInvalid, b.HalfOpenCalls,
			breakerHalfOpenMax, breakerHalfOpenCalls)
	}
	for _, d := range []struct {
		name       string
		value      *time.Duration
		least, def time.Duration
	}{
		{"Interval", &b.Interval, breakerIntervalMin, breakerInterval},
		{"OpenFor", &b.OpenFor, breakerOpenForMin, breakerOpenFor},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < d.least || *d.value > breakerTimeMax {
			return b, fmt.Errorf("%w: Config.Breaker.%s is %v (%v to %v, 0 for %v)", ErrInvalid, d.name, *d.value, d.least,
				breakerTimeMax, d.def)
		}
	}
	if b.FailureRatio == 0 {
		b.FailureRatio = breakerRatioDefault
	}
	if b.CallsMin == 0 {
		b.CallsMin = breakerCallsMinDefault
	}
	if b.HalfOpenCalls == 0 {
		b.HalfOpenCalls = breakerHalfOpenCalls
	}
	return b, nil
}
