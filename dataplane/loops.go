package dataplane

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// loops runs a limiter's background work.
type loops struct {
	loop.Lifecycle
	rules  *rules.Rules // its tuning sets their cadence
	logger *slog.Logger
	trace  func(ctx context.Context, name string) (within context.Context, end func(error))
}

// every runs a step at a cadence until ctx ends.
func (run *loops) every(ctx context.Context, cadence func() (time.Duration, float64), step func(context.Context)) {
	run.Go(func() { loop.Every(ctx, cadence, run.rules.Changed, step) })
}

// background returns a watched step, of which each round is passed to Config.TraceBackground.
func (run *loops) background(name string, step func(context.Context) error) func(context.Context) {
	return run.watched(name, func(ctx context.Context) (err error) {
		ctx, end := run.trace(ctx, name)
		if err = step(ctx); stopped(ctx) {
			err = nil // Stop cut the step short, which is no problem
		}
		end(err)
		return err
	})
}

// stopped reports whether Stop has ended the loop.
func stopped(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// watched returns a step that logs when it begins to fail and when it succeeds again.
func (run *loops) watched(name string, step func(context.Context) error) func(context.Context) {
	return loop.Watched(run.logger, name, step)
}
