package handlers

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	restate "github.com/restatedev/sdk-go"
)

// errDraining makes Restate try a step again, by then with another process.
var errDraining = errors.New("this process is shutting down; the step is for the next one")

// stepper executes steps.
type stepper struct {
	draining *atomic.Bool  // no step begins any more
	retryMax time.Duration // how long a step is tried again before its run fails
}

// within is a stepper that tries a step again for at most d.
func (s *stepper) within(d time.Duration) *stepper {
	return &stepper{draining: s.draining, retryMax: min(s.retryMax, d)}
}

// step runs fn as one named step: its answer is journaled, and once it is a replay
// takes the answer and does not run fn again. A failing fn is tried again, less and
// less often, for retryMax; its last error is then terminal. fn gets the step's own
// context and must use no other.
func step[T any](ctx restate.Context, s *stepper, name string, fn func(context.Context) (T, error)) (T, error) {
	answer, err := restate.Run(ctx, func(rc restate.RunContext) (T, error) {
		if s.draining.Load() {
			var none T
			return none, errDraining
		}
		return fn(rc)
	}, restate.WithName(name),
		restate.WithInitialRetryInterval(250*time.Millisecond),
		restate.WithMaxRetryInterval(10*time.Second),
		restate.WithMaxRetryDuration(s.retryMax))
	if err != nil { // a nil TerminalError must not become a non-nil error
		return answer, err
	}
	return answer, nil
}

// now is the process's clock, in Unix ms, as a step.
func now(ctx restate.Context, s *stepper, name string) (int64, error) {
	return step(ctx, s, name, func(context.Context) (int64, error) { return time.Now().UnixMilli(), nil })
}
