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

// errDraining makes Restate retry a step, which reaches the next process.
var errDraining = errors.New("this process is shutting down; the next process retries the step")

// stepper makes journals, which execute steps.
type stepper struct {
	draining *atomic.Bool  // no further step begins
	retryMax time.Duration // how long a step is retried before its run fails
}

// within returns a stepper that retries a step for at most d.
func (s *stepper) within(d time.Duration) *stepper {
	return &stepper{draining: s.draining, retryMax: min(s.retryMax, d)}
}

// on returns the journal of an invocation.
func (s *stepper) on(ctx restate.Context) controlplane.Journal { return journal{ctx, s} }

// journal is Restate's journal of an invocation: Do is Restate's Run. If the journal has a result of the step, as in a
// replay, the step is not executed. A failing step is retried, after 250 ms to 10 s, for retryMax; then its last error
// is terminal, and so is the error of Do.
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
