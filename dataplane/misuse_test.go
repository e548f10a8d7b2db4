package dataplane_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// Stop may run during Start: it ends everything that Start has begun, and nothing begins afterwards.
func TestStopWhileStartRuns(t *testing.T) {
	for range 100 {
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: memstore.NewOrigin(memstore.OriginOptions{}),
			Settings: settingsOf("", "")})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { _ = l.Start(context.Background()) })
		running.Go(func() { _ = l.Stop(context.Background()) })
		running.Wait()
	}
}

// Without a context, a decision waits for the origin for up to ReadTimeout.
func TestADecisionWithoutAContext(t *testing.T) {
	var none context.Context
	for _, nodeShare := range []string{"flush", "wait"} {
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: memstore.NewOrigin(memstore.OriginOptions{}),
			Settings: settingsOf("", nodeShare), ReadTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.LoadSettings(t.Context()); err != nil {
			t.Fatal(err)
		}
		h, err := l.Handle("acme", "api", "handle", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if d := l.Allow(none, ask("single", 6, 10)); !d.Allowed {
			t.Errorf("%s: %+v", nodeShare, d)
		}
		if b := l.AllowMany(none, []dataplane.Request{ask("batch", 6, 10)}); !b.Allowed {
			t.Errorf("%s: %+v", nodeShare, b)
		}
		if d := h.Allow(none, 10, 6); !d.Allowed {
			t.Errorf("%s: %+v", nodeShare, d)
		}
		l.AwaitCalls()
	}
}

// A zero Handle decides nothing, and returns an error.
func TestAZeroHandleIsAnError(t *testing.T) {
	var h dataplane.Handle
	for i, d := range []dataplane.Decision{h.Allow(t.Context(), 10, 1), h.AllowAt(t.Context(), time.Now(), 10, 1), h.Peek(t.Context(), 10, 1)} {
		if d.Allowed || !errors.Is(d.Err, dataplane.ErrInvalid) {
			t.Errorf("%d: %+v", i, d)
		}
	}
}

// Without a context, calls about leases wait for the origin for up to ReadTimeout.
func TestALeaseWithoutAContext(t *testing.T) {
	var none context.Context
	for _, fleet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := dataplane.Config{Region: "eu"}
			if fleet {
				cfg.Origin = memstore.NewOrigin(memstore.OriginOptions{}).Client()
			}
			l := acquirer(t, cfg)
			time.Sleep(11 * time.Second)
			for _, acquire := range []func(context.Context, dataplane.ConcurrencyRequest) (dataplane.Lease,
				dataplane.ConcurrencyDecision){l.Acquire, l.AcquireWait} {
				lease, d := acquire(none, jobs(1))
				if !d.Allowed {
					t.Errorf("fleet %v: %+v", fleet, d)
				}
				lease.Release()
				time.Sleep(time.Second)
			}
			for _, wait := range []bool{false, true} {
				token, d := l.AcquireToken(none, jobs(1), "", wait)
				if token == "" {
					t.Fatalf("fleet %v: %+v", fleet, d)
				}
				if err := errors.Join(l.RenewTokens(none, 0, token)[0], l.ReleaseTokens(none, token)[0]); err != nil {
					t.Errorf("fleet %v: %v", fleet, err)
				}
			}
		})
	}
}

// A Limiter that was not made by New grants no leases, and returns an error. A zero Lease holds no slot, and never
// ends.
func TestAZeroLimiterGrantsNothing(t *testing.T) {
	var l dataplane.Limiter
	ctx := t.Context()
	_, acquired := l.Acquire(ctx, jobs(1))
	_, waited := l.AcquireWait(ctx, jobs(1))
	_, token := l.AcquireToken(ctx, jobs(1), "", true)
	_, explained := l.ExplainConcurrency(jobs(1))
	text, d := acquirer(t, dataplane.Config{}).AcquireToken(ctx, jobs(1), "", false)
	if text == "" {
		t.Fatal(d)
	}
	for i, err := range []error{acquired.Err, waited.Err, token.Err, explained, l.RenewTokens(ctx, 0, text)[0],
		l.ReleaseTokens(ctx, text)[0]} {
		if !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%d: %v", i, err)
		}
	}
	var lease dataplane.Lease
	lease.Release()
	if err := errors.Join(lease.Renew(time.Second), lease.Err()); err != nil || lease.Done() != nil {
		t.Errorf("a zero lease: %v", err)
	}
}
