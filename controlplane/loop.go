package controlplane

import (
	"context"
	"time"
)

// Every calls step at once and then once an interval, until ctx is done, and returns then. After an error it tries
// again sooner: after a thirtieth of the interval, then twice that, up to the interval. step gets ctx, so it ends when
// the loop must end.
//
// The loop does not log errors: step must.
func Every(ctx context.Context, interval time.Duration, step func(context.Context) error) {
	soon := interval / 30
	retry := soon
	for ctx.Err() == nil {
		pause := interval
		if err := step(ctx); err != nil {
			pause, retry = retry, min(retry*2, interval)
		} else {
			retry = soon
		}
		wait(ctx, pause)
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
