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

// stepper executes steps.
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

// journal is the journal that Restate has of an invocation. A step that fails is tried again, less and less often, for
// retryMax; its last error is then terminal.
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
