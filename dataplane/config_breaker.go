package dataplane

import "time"

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
