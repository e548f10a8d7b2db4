package schema

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// ErrTableBusy is wrapped by Migrate's error when a table was in use at every attempt to change it. Earlier migrations
// stay applied; the next Migrate goes on from there.
var ErrTableBusy = errors.New("a table is in use")

// lockWaitTimeout is the server's error of a statement that waited for a table, or a row,
// for as long as it may.
const lockWaitTimeout = 1205

// patience is how a migration waits for a table in use: a few times, briefly, with pauses in which later statements
// have their turn.
type patience struct {
	waitSeconds int           // of an attempt
	pause       time.Duration // after the first attempt; each further pause is twice as long
	attempts    int
}

var busy = patience{waitSeconds: 2, pause: time.Second, attempts: 6}

// retry calls apply until it has met no table in use, ctx is done or the attempts are over.
func (p patience) retry(ctx context.Context, log *slog.Logger, apply func() error) error {
	pause := p.pause
	for attempt := 1; ; attempt++ {
		err := apply()
		if !isNumber(err, lockWaitTimeout) {
			return err
		}
		if attempt == p.attempts {
			return fmt.Errorf("%w: %d attempts of %d s each, since an open transaction or a long statement holds it "+
				"(SHOW FULL PROCESSLIST names it; end it, and migrate again): %w", ErrTableBusy, attempt, p.waitSeconds, err)
		}
		log.WarnContext(ctx, "a table that a migration changes is in use: the migration retries", "attempt", attempt,
			"of", p.attempts, "pause", pause, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
	}
}
