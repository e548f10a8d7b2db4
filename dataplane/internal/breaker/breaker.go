// Package breaker keeps calls from a server that fails them.
package breaker

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// ErrOpen stands for a call that was not made.
var ErrOpen = errors.New("dataplane: the origin's breaker is open")

// State is the state of a shard's breaker, as its metric gives it.
type State int

// States of a breaker.
const (
	Closed State = iota
	HalfOpen
	Open
)

// Config sets when a breaker opens, and for how long. All fields must be set: see WithDefaults.
type Config struct {
	FailureRatio  float64       // share of the calls within Interval that must have failed
	CallsMin      int           // calls within Interval before their ratio means anything
	Interval      time.Duration // how far back calls count
	OpenFor       time.Duration
	HalfOpenCalls int // calls that go through when it is half-open, all of which must succeed
}

const steps = 10 // of Interval

// Breaker guards the calls to a shard. A call with an answer for at least one of its cells is a success. The breaker
// uses time.Now, not Config.Clock, because waiting is in real time. It uses the monotonic reading, so a step of the
// wall clock neither lengthens nor shortens a wait.
type Breaker struct {
	calls     *gobreaker.TwoStepCircuitBreaker[struct{}]
	openUntil atomic.Pointer[time.Time] // of the last time it opened; nil: never
	tripped   atomic.Bool               // open or half-open. Time alone ends no closed state: only calls do
	off       atomic.Bool               // everything goes through
}

// New makes a closed breaker.
func New(cfg Config) *Breaker {
	b := &Breaker{}
	b.calls = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  uint32(cfg.HalfOpenCalls),
		Interval:     cfg.Interval,
		BucketPeriod: cfg.Interval / steps,
		Timeout:      cfg.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return int(c.Requests) >= cfg.CallsMin && float64(c.TotalFailures) >= cfg.FailureRatio*float64(c.Requests)
		},
		OnStateChange: func(_ string, _, to gobreaker.State) {
			b.tripped.Store(to != gobreaker.StateClosed)
			if to == gobreaker.StateOpen {
				until := time.Now().Add(cfg.OpenFor)
				b.openUntil.Store(&until)
			}
		},
	})
	return b
}

// Begin requests permission for a call. If it is granted, call end exactly once with the outcome.
func (b *Breaker) Begin() (end func(error), ok bool) {
	if b.off.Load() {
		return func(error) {}, true
	}
	end, err := b.calls.Allow()
	return end, err == nil
}

func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	}
	return "half-open"
}

// State returns the breaker's present state. Decisions ask it, so it takes no lock while the breaker is closed.
func (b *Breaker) State() State {
	if b.off.Load() || !b.tripped.Load() {
		return Closed
	}
	return State(b.calls.State())
}

// TurnOff lets everything through: for the last send of a node that stops.
func (b *Breaker) TurnOff() { b.off.Store(true) }

// OpensFor returns how long the breaker stays open, or 0 if it is closed.
func (b *Breaker) OpensFor() time.Duration {
	until := b.openUntil.Load()
	if until == nil || b.State() != Open {
		return 0
	}
	return max(0, time.Until(*until))
}
