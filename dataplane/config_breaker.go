package dataplane

import "time"

// Breaker configures when the limiter stops calling a shard of the origin, and when it tries again. Each shard has
// two breakers. The first is for the calls that decisions wait for, so that decisions don't wait while it is open.
// The second is for the calls of the loops, so that unsent cost stays in its entries.
//
// A breaker opens when calls fail, and then rejects all calls. After OpenFor it is half-open and lets HalfOpenCalls
// calls through. If all of them succeed, it closes. If a call fails, it opens again.
//
// The zero value is a good breaker.
type Breaker struct {
	// FailureRatio opens the breaker at this share of failed calls within Interval, more than 0 and at most 1; 0 means
	// 0.5. Lower: one bad second can cut the nodes of a region off from each other.
	// Higher: more decisions wait for an answer that does not come.
	FailureRatio float64

	// CallsMin is the number of calls within Interval from which FailureRatio applies; 0 means 5, at most 1,000,000.
	// Keep it low, because replay alone calls a hanging shard about once a second. For example, 100 calls within 10 s
	// might never happen.
	CallsMin int

	// Interval is how far back calls count, in ten steps; 0 means 10 s, otherwise 100 ms to one hour.
	Interval time.Duration

	// OpenFor is how long the breaker stays open; 0 means 1 s, otherwise 10 ms to one hour. Replay probes at its first
	// tick after OpenFor.
	OpenFor time.Duration

	// HalfOpenCalls is the number of calls that a half-open breaker lets through. All of them must succeed; 0 means 3,
	// at most 1,000.
	HalfOpenCalls int
}
