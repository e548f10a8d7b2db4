package dataplane_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// afterFull is a limiter whose key is at its limit, with a line of requests that wait.
func afterFull(t *testing.T, limit int64, line ...dataplane.Request) *dataplane.Limiter {
	l := newWaiting(t)
	l.Allow(t.Context(), waitsFor(limit, limit))
	for _, r := range line {
		go l.Wait(t.Context(), r)
		synctest.Wait()
	}
	return l
}

func zeroCost(limit int64) dataplane.Request {
	r := waitsFor(0, limit)
	r.ZeroCost = true
	return r
}

func atOnce(t *testing.T, l *dataplane.Limiter, r dataplane.Request, within time.Duration) dataplane.Decision {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	d := l.Wait(ctx, r)
	if took := time.Since(began); took != 0 {
		t.Errorf("took %v, want an answer at once: %+v", took, d)
	}
	return d
}

func TestARequestBehindOthersIsDeniedAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		limit       int64
		ahead, r    dataplane.Request
		never, many bool
	}{
		"never, behind a cost of 0": {limit: 10, ahead: zeroCost(5), r: waitsFor(11, 10), never: true},
		"a cost of 0":               {limit: 10, ahead: waitsFor(10, 10), r: zeroCost(10)},
		"the highest costs": {limit: window.LimitMax, ahead: waitsFor(window.LimitMax, window.LimitMax),
			r: waitsFor(window.LimitMax, window.LimitMax), many: true},
		"room for itself, but not for all": {limit: 10, ahead: waitsFor(5, 10), r: waitsFor(6, 10)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				line, within := []dataplane.Request{c.ahead}, 500*time.Millisecond
				if c.many {
					for range 2_000 {
						line = append(line, c.ahead)
					}
					within = 30 * time.Minute
				}
				l := afterFull(t, c.limit, line...)
				if d := atOnce(t, l, c.r, within); d.Allowed || d.NeverPasses != c.never || !c.never && d.RetryAfter < within {
					t.Errorf("%+v", d)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// The bound on a line's time is a lower bound: a request that passes in time is never denied.
func TestARequestBehindOthersIsDeniedOnlyIfItCannotPass(t *testing.T) {
	for name, c := range map[string]struct {
		limit, used int64 // in the first cell, and 1.4 cells later
		ahead, r    dataplane.Request
		within      time.Duration
	}{
		"a cost ahead weighs less in the next cell": {10, 2, waitsFor(4, 10), waitsFor(6, 10), 900 * time.Millisecond},
		"a higher limit ahead":                      {1000, 500, waitsFor(100, 1000), waitsFor(1, 1), 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := afterFull(t, c.limit)
				time.Sleep(1400 * time.Millisecond)
				l.Allow(t.Context(), waitsFor(c.used, 2*c.limit))
				go l.Wait(t.Context(), c.ahead)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), c.within)
				defer cancel()
				if d := l.Wait(ctx, c.r); !d.Allowed {
					t.Errorf("%+v", d)
				}
			})
		})
	}
}

// Requests that are denied at once are not in the way of others, even while they read the origin.
func TestRequestsThatDoNotWaitDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		origin.Faults.Delay(10 * time.Millisecond)
		var nodes [2]*dataplane.Limiter
		for i, id := range []string{"a", "b"} {
			l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: id, RegionNodes: 2, Origin: origin})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			nodes[i] = l
		}
		defer stopBoth(t, nodes)
		full := waitsFor(10, 10)
		nodes[0].Allow(t.Context(), full)
		time.Sleep(100 * time.Millisecond)
		for range 100 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if d := nodes[1].Wait(ctx, full); d.Allowed {
					t.Errorf("passes over its limit: %+v", d)
				}
			}()
		}
		time.Sleep(time.Millisecond) // they read the origin
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if d := nodes[1].Wait(ctx, waitsFor(1, 10)); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

func stopBoth(t *testing.T, nodes [2]*dataplane.Limiter) {
	for _, l := range nodes {
		if err := l.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// A flood of requests that can never pass makes no other request fail.
func TestRequestsThatNeverPassDenyNobody(t *testing.T) {
	l := newWaiting(t)
	const limit = 1_000_000
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	var done atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !done.Load() {
			l.Wait(ctx, waitsFor(1<<52, limit))
		}
	}()
	defer func() {
		done.Store(true)
		<-ended
		cancel()
	}()
	for range 2_000 {
		if d := l.Wait(ctx, waitsFor(1, limit)); !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
}

// In shadow mode no request waits, and none is denied, however many wait in front of it.
func TestARequestInShadowModeDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := afterFull(t, 10, waitsFor(10, 10))
		r := waitsFor(10, 10)
		r.Shadow = true
		if d := atOnce(t, l, r, 100*time.Millisecond); !d.Allowed || !d.Shadowed {
			t.Errorf("%+v", d)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if d := l.Wait(ended, r); d.Allowed || d.Shadowed {
			t.Errorf("an ended context: %+v", d)
		}
		time.Sleep(3 * time.Second)
	})
}

// waitsUnder is a limiter with settings.
func waitsUnder(t *testing.T, set func(*memstore.Counts)) *dataplane.Limiter {
	counts := memstore.NewCounts(memstore.CountsOptions{Clock: time.Now})
	set(counts)
	l, err := dataplane.New(dataplane.Config{Region: "eu", Settings: counts})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRequestsInAShadowNamespaceDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := waitsUnder(t, func(c *memstore.Counts) {
			c.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Shadow: true})
		})
		for range 3 {
			if d := atOnce(t, l, waitsFor(11, 10), 100*time.Millisecond); !d.Allowed || !d.Shadowed {
				t.Errorf("%+v", d)
			}
		}
	})
}

// An override may give requests of several durations the same key. They wait in a single line.
func TestRequestsWithTheDurationOfAnOverrideWaitInOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := waitsUnder(t, func(c *memstore.Counts) {
			c.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: 10, DurationMs: 1_000})
		})
		l.Allow(t.Context(), waitsFor(10, 10))
		var passed atomic.Int64
		var places [2]int64
		for i, duration := range []time.Duration{time.Minute, time.Hour} {
			r := waitsFor([]int64{10, 1}[i], 1)
			r.Duration = duration
			go func() {
				l.Wait(t.Context(), r)
				places[i] = passed.Add(1)
			}()
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if places != [2]int64{1, 2} {
			t.Errorf("passed in the order %v", places)
		}
	})
}

// The estimate mode can count the cost of denied requests. A wait that ends with a denial counts nothing all the same.
func TestADeniedWaitCountsNothingInTheEstimateMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := waitsUnder(t, func(c *memstore.Counts) {
			c.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Mode: "estimate",
				Estimate: `{"preset":"posthog"}`})
		})
		r := waitsFor(8, 10)
		l.Allow(t.Context(), r)
		before := l.Peek(t.Context(), r).Current
		for _, cost := range []int64{8, 10, 20} { // too late, at the limit, above it
			r.Cost = cost
			if d := atOnce(t, l, r, 100*time.Millisecond); d.Allowed || d.NeverPasses != (cost > 8) {
				t.Errorf("cost %d: %+v", cost, d)
			}
		}
		if r.Cost = 8; l.Peek(t.Context(), r).Current != before {
			t.Errorf("the count was %v and is %v", before, l.Peek(t.Context(), r).Current)
		}
	})
}
