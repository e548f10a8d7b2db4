package guides

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// exports lets each organisation run three exports at once.
func exports(ctx context.Context, limiter *dataplane.Limiter, org string, export func(context.Context) error) error {
	lease, d := limiter.Acquire(ctx, dataplane.ConcurrencyRequest{
		Workspace: "acme", Namespace: "exports", Identifier: org, Limit: 3,
	})
	if !d.Allowed {
		return errBusy
	}
	defer lease.Release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-lease.Done(): // the lease is lost
			cancel()
		case <-ctx.Done():
		}
	}()
	return export(ctx)
}

// nightly runs a job on one node at a time: a limit of 1 is a lock with a lease.
func nightly(ctx context.Context, limiter *dataplane.Limiter, job func() error) error {
	lease, d := limiter.AcquireWait(ctx, dataplane.ConcurrencyRequest{
		Workspace: "acme", Namespace: "jobs", Identifier: "nightly", Limit: 1, TTL: 30 * time.Second,
	})
	if !d.Allowed {
		return errors.Join(errNoSlot, d.Err, ctx.Err())
	}
	defer lease.Release()
	if err := lease.Err(); err != nil { // check again before each step that must not be done twice
		return err
	}
	return job()
}

// queried lets ten queries run at once, at most six of them of one tenant.
func queried(ctx context.Context, limiter *dataplane.Limiter, tenant string, query func() error) error {
	for _, slot := range []dataplane.ConcurrencyRequest{
		{Workspace: "acme", Namespace: "tenant-queries", Identifier: tenant, Limit: 6},
		{Workspace: "acme", Namespace: "queries", Identifier: "database", Limit: 10},
	} {
		lease, d := limiter.AcquireWait(ctx, slot)
		if !d.Allowed {
			return errors.Join(errNoSlot, d.Err, ctx.Err())
		}
		defer lease.Release()
	}
	return query()
}

var (
	errBusy   = errors.New("three exports are running")
	errNoSlot = errors.New("no slot")
)

// What was denied without an error of its own is no success: neither the job nor the query has run.
func TestWithoutASlotNothingRunsAndThereIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := alone(t)
		if err := limiter.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		ran := false
		work := func() error { ran = true; return nil }
		for name, err := range map[string]error{
			"nightly": nightly(t.Context(), limiter, work), "queried": queried(t.Context(), limiter, "acme", work),
		} {
			if !errors.Is(err, errNoSlot) || ran {
				t.Errorf("%s: %v; it has run: %v", name, err, ran)
			}
		}
	})
}

func TestThreeExportsRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := alone(t)
		finish := make(chan struct{})
		done := make(chan error)
		for range 3 {
			go func() {
				done <- exports(t.Context(), limiter, "acme", func(context.Context) error { <-finish; return nil })
			}()
		}
		synctest.Wait()
		ran := func(context.Context) error { return nil }
		if err := exports(t.Context(), limiter, "acme", ran); !errors.Is(err, errBusy) {
			t.Errorf("a fourth: %v", err)
		}
		close(finish)
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := exports(t.Context(), limiter, "acme", ran); err != nil {
			t.Error(err)
		}
	})
}

func TestANightlyJobRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := alone(t)
		running, most, done := 0, 0, make(chan error)
		for range 5 {
			go func() {
				done <- nightly(t.Context(), limiter, func() error {
					running++
					most = max(most, running)
					time.Sleep(time.Minute)
					running--
					return nil
				})
			}()
		}
		for range 5 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if most != 1 {
			t.Errorf("%d ran at once", most)
		}
	})
}

// One tenant's queries leave four of ten slots for others.
func TestOneTenantsQueriesLeaveOthersSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := alone(t)
		done := make(chan error)
		run := func(tenant string) (running *atomic.Int64) {
			running = new(atomic.Int64)
			for range 12 {
				go func() {
					done <- queried(t.Context(), limiter, tenant, func() error {
						running.Add(1)
						time.Sleep(time.Minute)
						running.Add(-1)
						return nil
					})
				}()
			}
			synctest.Wait()
			return running
		}
		if large, small := run("large").Load(), run("small").Load(); large != 6 || small != 4 {
			t.Errorf("%d and %d queries of two tenants run at once, want 6 and 4", large, small)
		}
		for range 24 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
