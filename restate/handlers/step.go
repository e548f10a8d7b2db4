package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
)

// errDraining makes Restate try a step again, by then with another process.
var errDraining = errors.New("this process is shutting down; the step is for the next one")

// stepper makes journals, which execute steps.
type stepper struct {
	draining *atomic.Bool  // no step begins any more
	retryMax time.Duration // how long a step is tried again before its run fails
}

// within is a stepper that tries a step again for at most d.
func (s *stepper) within(d time.Duration) *stepper {
	return &stepper{draining: s.draining, retryMax: min(s.retryMax, d)}
}

// on returns the journal of an invocation.
func (s *stepper) on(ctx restate.Context) controlplane.Journal { return journal{ctx, s} }

// journal is the journal that Restate has of an invocation: Do is Restate's Run. If the journal has an answer of the
// step, as in a replay, the step is not executed. A step that fails is tried again, after 250 ms to 10 s, for retryMax;
// then its last error is terminal, and so is the error of Do.
type journal struct {
	ctx   restate.Context
	steps *stepper
}

func (j journal) Do(name string, answer any, step func(context.Context) (any, error)) error {
	text, err := restate.Run(j.ctx, func(rc restate.RunContext) (json.RawMessage, error) {
		if j.steps.draining.Load() {
			return nil, errDraining
		}
		value, err := step(rc)
		if err != nil {
			return nil, err
		}
		return json.Marshal(value)
	}, restate.WithName(name),
		restate.WithInitialRetryInterval(250*time.Millisecond),
		restate.WithMaxRetryInterval(10*time.Second),
		restate.WithMaxRetryDuration(j.steps.retryMax))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}
