package mysqlcounts

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir/dataplane/internal/loop"
)

// retry repeats a statement that lost to another writer.
type retry struct {
	attemptsMax            int
	backoffMin, backoffMax time.Duration
	count                  func(cause string) // called for each statement that is sent again
}

func newRetry(o Options, count func(cause string)) retry {
	return retry{
		attemptsMax: cmp.Or(max(o.AttemptsMax, 0), 5),
		backoffMin:  cmp.Or(max(o.BackoffMin, 0), 10*time.Millisecond),
		backoffMax:  cmp.Or(max(o.BackoffMax, 0), 500*time.Millisecond),
		count:       count,
	}
}

// do runs statement until it returns nil or an error other than a lost race, and returns that. After attemptsMax
// attempts it returns the last error. If ctx ends during a pause, the error has both.
func (r retry) do(ctx context.Context, statement func() error) error {
	for attempt := 1; ; attempt++ {
		err := statement()
		cause := lostTo(err)
		if cause == "" {
			return err
		}
		if attempt == r.attemptsMax {
			return fmt.Errorf("gave up after %d attempts: %w", attempt, err)
		}
		if ctxErr := loop.Pause(ctx, r.backoff(attempt)); ctxErr != nil {
			return fmt.Errorf("%w, while waiting to try again after: %w", ctxErr, err)
		}
		r.count(cause)
	}
}

// backoff returns a random pause from 1 ns up, so that two writers that collided do not collide again.
func (r retry) backoff(attempt int) time.Duration {
	most := r.backoffMax
	if shift := attempt - 1; shift < 30 && r.backoffMin<<shift < most {
		most = r.backoffMin << shift
	}
	return rand.N(most) + 1
}
