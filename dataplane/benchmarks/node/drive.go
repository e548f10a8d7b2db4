package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// call makes a call and returns when it is answered.
type call func(ctx context.Context) error

const latencyMicrosMax = 60_000_000

// drive makes calls for a while, with a caller for each of calls, and returns their latencies in microseconds.
//
// With rate 0 each caller makes its next call when the last was answered, and a latency is the call's own. Otherwise
// calls should begin at fixed times, and a latency counts from the time at which its call should have begun. So if a
// server stalls, the latencies of all calls that were due meanwhile show it.
func drive(ctx context.Context, calls []call, length time.Duration, rate float64) (*hdrhistogram.Histogram, error) {
	began := time.Now()
	var next atomic.Int64
	due := func() time.Time { return time.Now() }
	if rate > 0 {
		due = func() time.Time {
			return began.Add(time.Duration(float64(next.Add(1)-1) / rate * float64(time.Second)))
		}
	}
	histograms := make([]*hdrhistogram.Histogram, len(calls))
	errs := make([]error, len(calls))
	var callers sync.WaitGroup
	for i, do := range calls {
		histograms[i] = hdrhistogram.New(1, latencyMicrosMax, 3)
		callers.Go(func() {
			for {
				meant := due()
				if meant.Sub(began) >= length {
					return
				}
				if wait := time.Until(meant); wait > 0 {
					<-time.After(wait)
				}
				if errs[i] = do(ctx); errs[i] != nil {
					return
				}
				micros := max(1, time.Since(meant).Microseconds())
				if errs[i] = histograms[i].RecordValue(min(micros, latencyMicrosMax)); errs[i] != nil {
					return
				}
			}
		})
	}
	callers.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err // once, and not by every caller
	}
	all := hdrhistogram.New(1, latencyMicrosMax, 3)
	for _, h := range histograms {
		all.Merge(h)
	}
	return all, errors.Join(errs...)
}
