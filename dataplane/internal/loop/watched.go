package loop

import (
	"context"
	"log/slog"
	"time"
)

// Watched runs a step and logs when it starts to fail and when it works again: one line for each change, however long
// it lasts. A failure while ctx ends is none.
func Watched(logger *slog.Logger, name string, step func(context.Context) error) func(context.Context) {
	var failingSince time.Time
	return func(ctx context.Context) {
		err := step(ctx)
		switch {
		case ctx.Err() != nil: // being stopped
		case err != nil && failingSince.IsZero():
			failingSince = time.Now()
			logger.Warn(name+" fails; decisions go on from local state", "error", err)
		case err == nil && !failingSince.IsZero():
			logger.Info(name+" works again", "after", time.Since(failingSince).Round(time.Millisecond))
			failingSince = time.Time{}
		}
	}
}
