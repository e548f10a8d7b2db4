package dataplane_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// waitsFor is a request for a cost of a limit a second.
func waitsFor(cost, limit int64) dataplane.Request {
	return dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: limit, Duration: time.Second, Cost: cost}
}

func newWaiting(t testing.TB) *dataplane.Limiter {
	l, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// 10,000 requests wait for a limit of 100 a second: all pass, in the order in which they came, and no faster than by
// the limit.
func TestWaitingRequestsPassInTheOrderInWhichTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters, limit = 10_000, 100
		l, began := newWaiting(t), time.Now()
		var mu sync.Mutex
		var passed []int
		var all sync.WaitGroup
		for i := range waiters {
			all.Go(func() {
				if d := l.Wait(t.Context(), waitsFor(1, limit)); !d.Allowed {
					t.Errorf("%d: %+v", i, d)
				}
				mu.Lock()
				defer mu.Unlock()
				passed = append(passed, i)
			})
			synctest.Wait() // it waits, or has passed
		}
		all.Wait()
		if !slices.IsSorted(passed) {
			t.Error("not in order")
		}
		if took := time.Since(began); took < (waiters/limit-1)*time.Second || took > (waiters/limit+3)*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// A request passes exactly when its answer said that it would.
func TestAWaitingRequestPassesAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWaiting(t)
		l.Allow(t.Context(), waitsFor(10, 10))
		retry, began := l.Peek(t.Context(), waitsFor(3, 10)).RetryAfter, time.Now()
		if d := l.Wait(t.Context(), waitsFor(3, 10)); !d.Allowed || time.Since(began) != retry {
			t.Errorf("after %v: %+v, want %v", time.Since(began), d, retry)
		}
	})
}

func TestAWaitThatCannotEndInTimeEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, began := newWaiting(t), time.Now()
		l.Allow(t.Context(), waitsFor(10, 10))
		for name, r := range map[string]dataplane.Request{
			"later than its deadline": waitsFor(10, 10), "never": waitsFor(11, 10), "blocked": waitsFor(1, 0),
			"invalid": {Workspace: "acme"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			d := l.Wait(ctx, r)
			if cancel(); d.Allowed || !time.Now().Equal(began) || errors.Is(d.Err, dataplane.ErrInvalid) != (name == "invalid") {
				t.Errorf("%s: %+v after %v", name, d, time.Since(began))
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if d := l.Wait(ended, waitsFor(1, 100)); d.Allowed || d.Err != nil {
			t.Errorf("an ended context: %+v", d)
		}
		if d := l.Peek(t.Context(), waitsFor(1, 100)); d.Remaining != 89 {
			t.Errorf("%d are left, want 89", d.Remaining)
		}
	})
}

// Behind a line that takes longer than the deadline, a request need not wait to know it. Its answer says so without a
// place in the line.
func TestAWaitBehindALongLineEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWaiting(t)
		ctx, cancel := context.WithCancel(t.Context())
		for range 101 {
			go l.Wait(ctx, waitsFor(10, 10))
			synctest.Wait()
		}
		began := time.Now()
		short, cancelShort := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancelShort()
		d := l.Wait(short, waitsFor(1, 10))
		if d.Allowed || !time.Now().Equal(began) || d.RetryAfter < 98*time.Second || d.RetryAfter > 101*time.Second {
			t.Errorf("%+v after %v", d, time.Since(began))
		}
		cancel()
		synctest.Wait()
		if d := l.Wait(short, waitsFor(1, 10)); !d.Allowed {
			t.Errorf("behind a line that has gone: %+v", d)
		}
	})
}

// The callers of a line that leave hand their turn on, wherever they were in it.
func TestALeavingCallerHandsItsTurnOn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newWaiting(t)
			l.Allow(t.Context(), waitsFor(10, 10))
			const callers = 8
			var leave [callers]context.CancelFunc
			var done [callers]atomic.Bool
			var order atomic.Int64
			var place [callers]int64
			for i := range callers {
				ctx, cancel := context.WithCancel(t.Context())
				leave[i] = cancel
				go func() {
					if l.Wait(ctx, waitsFor(5, 10)).Allowed {
						place[i] = order.Add(1)
					}
					done[i].Store(true)
				}()
				synctest.Wait()
			}
			for range rapid.IntRange(0, 5).Draw(rt, "leaving") {
				leave[rapid.IntRange(0, callers-1).Draw(rt, "who")]()
				time.Sleep(rapid.SampledFrom([]time.Duration{0, 300 * time.Millisecond}).Draw(rt, "later"))
				synctest.Wait()
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			last := int64(0)
			for i := range callers {
				leave[i]()
				if !done[i].Load() {
					rt.Fatalf("caller %d waits for ever", i)
				}
				if place[i] != 0 && place[i] < last {
					rt.Fatalf("caller %d passed as number %d, after number %d", i, place[i], last)
				}
				last = max(last, place[i])
			}
		})
	})
}

// A waiting request is judged by the limit in force.
func TestAChangedLimitReachesWaitingRequests(t *testing.T) {
	for name, c := range map[string]struct {
		limit int64
		want  bool
	}{"raised": {100, true}, "blocked": {0, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counts := memstore.NewCounts(memstore.CountsOptions{Clock: time.Now})
				l, err := dataplane.New(dataplane.Config{Region: "eu", Settings: counts})
				if err != nil {
					t.Fatal(err)
				}
				r := waitsFor(10, 10)
				r.Duration = time.Hour
				l.Allow(t.Context(), r)
				var d dataplane.Decision
				began, ended := time.Now(), make(chan time.Duration, 1)
				go func() {
					d = l.Wait(t.Context(), r)
					ended <- time.Since(began)
				}()
				time.Sleep(4500 * time.Millisecond)
				counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: c.limit})
				if err := l.LoadSettings(t.Context()); err != nil {
					t.Fatal(err)
				}
				if after := <-ended; d.Allowed != c.want || after > 5500*time.Millisecond {
					t.Errorf("%+v after %v", d, after)
				}
			})
		})
	}
}

// Many callers of few keys, at the same time: each wait ends, and the limits hold.
func TestConcurrentWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWaiting(t)
		var all sync.WaitGroup
		var passed atomic.Int64
		for i := range 200 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(20*i)*time.Millisecond)
				defer cancel()
				r := waitsFor(1, 10)
				r.Identifier = string(rune('a' + i%3))
				if l.Wait(ctx, r).Allowed {
					passed.Add(1)
				}
			})
		}
		all.Wait()
		if n := passed.Load(); n < 3*10*3 || n > 3*10*5 {
			t.Errorf("%d passed of three limits of 10 a second, in 4 s", n)
		}
	})
}
