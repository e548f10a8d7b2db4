package loop_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/loop"
)

// A loop that waits for the end of a long interval goes on when a shorter interval is in force. A loop that waits for
// the end of a short interval waits on when a longer interval is in force.
func TestALoopFollowsItsIntervalWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var changes loop.Changes
		var interval, runs atomic.Int64
		interval.Store(int64(10 * time.Minute))
		cadence := func() (time.Duration, float64) { return time.Duration(interval.Load()), 0.2 }
		go loop.Every(ctx, cadence, changes.Next, func(context.Context) { runs.Add(1) })
		time.Sleep(time.Minute)
		synctest.Wait()
		set := func(d time.Duration) {
			interval.Store(int64(d))
			changes.Notify()
			synctest.Wait()
		}
		set(5 * time.Second)
		time.Sleep(time.Minute)
		if n := runs.Load(); n < 11 || n > 13 {
			t.Errorf("%d runs in a minute at an interval of 5 s", n)
		}
		set(time.Hour)
		runs.Store(0)
		time.Sleep(30 * time.Minute)
		if n := runs.Load(); n > 0 {
			t.Errorf("%d runs in half an hour at an interval of 1 h", n)
		}
		cancel()
		synctest.Wait()
	})
}

// A signal ends a sleep, as its time does; the end of the context is none.
func TestASleepEndsBySignalOrTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		woken := make(chan struct{}, 1)
		from := time.Now()
		due := func() time.Time { return from.Add(time.Hour) }
		woken <- struct{}{}
		if !loop.Sleep(ctx, due, nil, woken) || time.Since(from) != 0 {
			t.Errorf("woken after %v", time.Since(from))
		}
		if !loop.Sleep(ctx, due, nil, woken) || time.Since(from) != time.Hour {
			t.Errorf("slept for %v", time.Since(from))
		}
		if cancel(); loop.Sleep(ctx, func() time.Time { return time.Now().Add(time.Hour) }, nil, woken) {
			t.Error("a sleep whose context has ended reports that its time has come")
		}
	})
}
