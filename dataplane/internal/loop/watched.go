package loop

import (
	"context"
	"log/slog"
	"time"
)

// Watched returns a step that logs when it begins to fail and when it succeeds again: a line for each change, however
// long it lasts. A failure after ctx has ended is not logged.
func Watched(logger *slog.Logger, name string, step func(context.Context) error) func(context.Context) {
	var failingSince time.Time
	return func(ctx context.Context) {
		err := step(ctx)
		switch {
		case ctx.Err() != nil: // the program is stopping
		case err != nil && failingSince.IsZero():
			failingSince = time.Now()
			logger.Warn(name+" fails; decisions continue from local state", "error", err)
		case err == nil && !failingSince.IsZero():
			logger.Info(name+" works again", "after", time.Since(failingSince).Round(time.Millisecond))
			failingSince = time.Time{}
		}
	}
}
